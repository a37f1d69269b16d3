//! A registry whose tokens and redirects age while a blob is read from it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use hs_remote::Address;
use hs_remote::http::{HttpClient, HttpOptions, HttpStore, Locate, Timeouts};
use hs_remote::registry::{Logins, Opening, RegistryAddress, RegistryImage, Repository};
use hs_store::Store;

/// Requests after which a token, and an address of a redirect, are refused.
const GOOD_FOR: u64 = 3;
/// The same where many requests are under way, and how many readers make them.
const LONG_GOOD_FOR: u64 = 20;
const READERS: usize = 8;
/// Where the image's index is said to lie, and how long it is.
const INDEX: (usize, usize) = (300_000, 5_000);

/// A registry of one image, and the place where its blob really is.
struct Registry {
    blob: Vec<u8>,
    manifest: String,
    digest: String,
    host: String,
    /// Where it sends who wants the blob, if it does not give it itself.
    elsewhere: Option<String>,
    /// The token that is good, and how often it was shown.
    token: AtomicU64,
    shown: AtomicU64,
    signature: AtomicU64,
    /// How often each signature was used.
    fetched: Mutex<BTreeMap<u64, u64>>,
    good_for: AtomicU64,
    token_good_for: u64,
    /// Answers with bytes of the blob.
    given: AtomicU64,
}

struct Head {
    target: String,
    authorization: Option<String>,
    range: Option<(usize, usize)>,
}

fn head(stream: &TcpStream) -> Option<Head> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let target = lines.next()?.split(' ').nth(1)?.to_owned();
    let mut head = Head { target, authorization: None, range: None };
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ")?;
        match name.to_ascii_lowercase().as_str() {
            "authorization" => head.authorization = Some(value.to_owned()),
            "range" => {
                let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
                head.range = Some((first.parse().ok()?, last.parse().ok()?));
            }
            _ => {}
        }
    }
    Some(head)
}

fn answer(mut stream: &TcpStream, status: &str, fields: &str, body: &[u8]) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    // A client that has enough closes the connection.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

impl Registry {
    fn start(blob: Vec<u8>, redirects: bool, good_for: u64, token_good_for: u64) -> Arc<Self> {
        let [registry, elsewhere] = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let digest = format!("sha256:{}", "ab".repeat(32));
        let size = blob.len();
        let manifest = format!(
            r#"{{"schemaVersion":2,"layers":[{{"mediaType":"application/vnd.headstart.image.v1","digest":"{digest}","size":{size}}}],"annotations":{{"io.headstart.name":"hs1-00","io.headstart.index":"{}+{}"}}}}"#,
            INDEX.0, INDEX.1
        );
        let host = |listener: &TcpListener| listener.local_addr().expect("an address").to_string();
        let found = Arc::new(Self {
            blob,
            manifest,
            digest,
            host: host(&registry),
            elsewhere: redirects.then(|| host(&elsewhere)),
            token: AtomicU64::new(0),
            shown: AtomicU64::new(0),
            signature: AtomicU64::new(0),
            fetched: Mutex::default(),
            good_for: AtomicU64::new(good_for),
            token_good_for,
            given: AtomicU64::new(0),
        });
        for (listener, answer) in
            [(registry, Self::at_registry as fn(&Self, &TcpStream)), (elsewhere, Self::at_elsewhere)]
        {
            let server = Arc::clone(&found);
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let server = Arc::clone(&server);
                    thread::spawn(move || answer(&server, &stream));
                }
            });
        }
        found
    }

    fn at_registry(&self, stream: &TcpStream) {
        let Some(head) = head(stream) else { return };
        let host = &self.host;
        if head.target.starts_with("/token?") {
            assert!(
                head.target.contains("service=test") && head.target.contains("repository%3Aa%2Fb%3Apull")
            );
            let token = self.token.fetch_add(1, SeqCst) + 1;
            self.shown.store(0, SeqCst);
            return answer(stream, "200 OK", "", format!(r#"{{"token":"token-{token}"}}"#).as_bytes());
        }
        let newest = self.token.load(SeqCst);
        let told = head.authorization.as_deref().and_then(|told| told.strip_prefix("Bearer token-"));
        // One that does not expire is as good as the newest.
        let is_good = told.and_then(|told| told.parse().ok()).is_some_and(|told: u64| {
            told == newest || (self.token_good_for == u64::MAX && (1..=newest).contains(&told))
        });
        if !is_good || self.shown.fetch_add(1, SeqCst) >= self.token_good_for {
            let challenge = format!(
                "WWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"test\",scope=\"repository:a/b:pull\"\r\n"
            );
            return answer(stream, "401 Unauthorized", &challenge, b"");
        }
        if head.target.starts_with("/v2/a/b/manifests/") {
            answer(stream, "200 OK", "", self.manifest.as_bytes());
        } else if head.target != format!("/v2/a/b/blobs/{}", self.digest) {
            answer(stream, "404 Not Found", "", b"");
        } else if let Some(elsewhere) = &self.elsewhere {
            let signature = self.signature.fetch_add(1, SeqCst) + 1;
            let place = format!("Location: http://{elsewhere}/blob?signature={signature}\r\n");
            answer(stream, "307 Temporary Redirect", &place, b"");
        } else {
            self.give(stream, &head);
        }
    }

    fn at_elsewhere(&self, stream: &TcpStream) {
        let Some(head) = head(stream) else { return };
        // Another server must not see a token of the registry.
        if head.authorization.is_some() {
            return answer(stream, "400 Bad Request", "", b"");
        }
        let signature = head.target.strip_prefix("/blob?signature=").and_then(|text| text.parse().ok());
        let used = signature.map(|signature| {
            let mut fetched = self.fetched.lock().expect("no panic");
            let used = fetched.entry(signature).or_default();
            *used += 1;
            *used
        });
        if used.is_none_or(|used| used > self.good_for.load(SeqCst)) {
            return answer(stream, "403 Forbidden", "", b"");
        }
        self.give(stream, &head);
    }

    fn give(&self, stream: &TcpStream, head: &Head) {
        let (first, last) = head.range.expect("a range");
        self.given.fetch_add(1, SeqCst);
        let last = last.min(self.blob.len() - 1);
        let range = format!("Content-Range: bytes {first}-{last}/{}\r\nETag: \"one\"\r\n", self.blob.len());
        answer(stream, "206 Partial Content", &range, &self.blob[first..=last]);
    }
}

/// Opens the blob of a registry.
fn open(blob: &[u8], redirects: bool, good_for: u64, token_good_for: u64) -> (Arc<Registry>, HttpStore) {
    let registry = Registry::start(blob.to_vec(), redirects, good_for, token_good_for);
    let text = format!("oci+http://{}/a/b:1", registry.host);
    let client = HttpClient::new(Timeouts::default()).expect("a client");
    let address = RegistryAddress::parse(&text).expect("an address");
    assert_eq!(Address::parse(&text).expect("an address"), Address::Registry(address.clone()));
    let image = RegistryImage::new(address, Arc::clone(&client), Logins::default());
    let options = HttpOptions { opening_bytes: 1000, ..HttpOptions::default() };
    let store = HttpStore::open(Box::new(image), client, options).expect("opened");
    assert_eq!((store.len(), store.name()), (blob.len() as u64, text.as_str()));
    (registry, store)
}

fn blob() -> Vec<u8> {
    (0..400_000_u32).map(|at| (at % 251) as u8).collect()
}

/// Reads some of the blob; each read is a request of its own.
fn read(store: &HttpStore, blob: &[u8], step: usize) {
    let mut bytes = vec![0; 5000];
    for at in (0..blob.len() - bytes.len()).rev().step_by(step) {
        store.read_at(at as u64, &mut bytes).expect("read");
        assert!(bytes == blob[at..at + bytes.len()], "{at}");
    }
}

/// Reads the blob by many requests; gives the registry that was asked.
fn read_often(redirects: bool) -> Arc<Registry> {
    let blob = blob();
    let (registry, store) = open(&blob, redirects, GOOD_FOR, GOOD_FOR);
    read(&store, &blob, 13_000);
    registry
}

fn read_by_many(store: &HttpStore, blob: &[u8]) {
    thread::scope(|scope| {
        for reader in 0..READERS {
            scope.spawn(move || read(store, blob, 9_000 + reader));
        }
    });
}

#[test]
fn addresses_that_are_good_for_one_request_are_enough_for_many() {
    let blob = blob();
    let (registry, store) = open(&blob, true, 1, u64::MAX);
    read_by_many(&store, &blob);
    assert!(registry.signature.load(SeqCst) >= registry.given.load(SeqCst));
}

#[test]
fn addresses_that_are_never_good_are_not_asked_for_without_an_end() {
    let blob = blob();
    let (registry, store) = open(&blob, true, 1, u64::MAX);
    registry.good_for.store(0, SeqCst);
    store.read_at(200_000, &mut [0; 5000]).expect_err("refused");
    assert!(registry.signature.load(SeqCst) < 20, "{:?}", registry.signature);
}

#[test]
fn what_expires_is_renewed_once_for_all_requests_under_way() {
    let blob = blob();
    for redirects in [true, false] {
        let (registry, store) = open(&blob, redirects, LONG_GOOD_FOR, LONG_GOOD_FOR);
        read_by_many(&store, &blob);
        let given = registry.given.load(SeqCst);
        assert!(given > 40 * READERS as u64, "{given} answers");
        let renewed = if redirects { &registry.signature } else { &registry.token };
        // The manifest needs the first token too.
        let needed = (given + u64::from(!redirects)).div_ceil(LONG_GOOD_FOR);
        assert_eq!(renewed.load(SeqCst), needed, "for {given} answers, redirected: {redirects}");
    }
}

#[test]
fn what_has_aged_is_replaced_and_sent_to_no_other_server() {
    let registry = read_often(true);
    assert!(registry.token.load(SeqCst) > 2, "{:?}", registry.token);
    assert!(registry.signature.load(SeqCst) > 4, "{:?}", registry.signature);
}

#[test]
fn a_token_that_has_aged_is_had_anew_where_the_registry_gives_the_blob_itself() {
    let registry = read_often(false);
    assert!(registry.token.load(SeqCst) > 2, "{:?}", registry.token);
    assert_eq!(registry.signature.load(SeqCst), 0);
}

/// What one process has brought opens the image in another one, which asks for nothing. What comes later
/// needs tokens of its own, or an address of its own.
#[test]
fn what_was_brought_opens_an_image_and_ages_as_ever() {
    let blob = blob();
    for redirects in [false, true] {
        let registry = Registry::start(blob.clone(), redirects, GOOD_FOR, GOOD_FOR);
        let digest = sha256(registry.manifest.as_bytes());
        let address = RegistryAddress::parse(&format!("oci+http://{}/a/b@{digest}", registry.host));
        let address = address.expect("an address");
        let client = || HttpClient::new(Timeouts::default()).expect("a client");
        let repository = Repository::new(address.clone(), client(), Logins::default());
        let manifest = repository.manifest().expect("a manifest");
        let mut bytes = Vec::new();
        let opening = repository.opening(&manifest, 1000, true).expect("brought");
        opening.write_to(&mut bytes).expect("written");
        assert!(Opening::parse(bytes[..bytes.len() - 1].to_vec().into()).is_none(), "it is cut off");
        let (tokens, given) = (registry.token.load(SeqCst), registry.given.load(SeqCst));
        let opening = Opening::parse(bytes.into()).expect("whole");
        let (image, transport) = opening.of(&address, &client(), Logins::default()).expect("of this address");
        assert_eq!(image.certain_name().as_deref(), Some("hs1-00"));
        let options = HttpOptions { opening_bytes: 1000, ..HttpOptions::default() };
        let store = HttpStore::open(Box::new(image), transport, options).expect("opened");
        let mut first = vec![0; 1000];
        store.read_at(0, &mut first).expect("read");
        let mut index = vec![0; INDEX.1];
        store.read_at(INDEX.0 as u64, &mut index).expect("read");
        assert!(first == blob[..1000] && index == blob[INDEX.0..INDEX.0 + INDEX.1]);
        assert_eq!(
            (registry.token.load(SeqCst), registry.given.load(SeqCst)),
            (tokens, given),
            "{redirects}"
        );
        read(&store, &blob, 13_000);
        assert!(registry.token.load(SeqCst) > tokens);
    }
}

#[test]
fn a_name_is_certain_where_the_address_has_the_manifests_digest() {
    let mut certain = Vec::new();
    for by_digest in [true, false] {
        let registry = Registry::start(vec![7; 100], true, GOOD_FOR, GOOD_FOR);
        let digest = sha256(registry.manifest.as_bytes());
        let reference = if by_digest { format!("@{digest}") } else { ":1".to_owned() };
        let address = format!("oci+http://{}/a/b{reference}", registry.host);
        let client = HttpClient::new(Timeouts::default()).expect("a client");
        let image =
            RegistryImage::new(RegistryAddress::parse(&address).expect("one"), client, Logins::default());
        assert_eq!(image.certain_name(), None, "no request was made");
        image.locate().expect("found");
        certain.push(image.certain_name());
    }
    assert_eq!(certain, [Some("hs1-00".to_owned()), None]);
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}
