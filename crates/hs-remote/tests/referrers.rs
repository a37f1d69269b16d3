//! Manifests that refer to another one, in registries that list them and in registries that do not.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use hs_remote::http::{HttpClient, HttpError, Timeouts};
use hs_remote::registry::{
    Artifact, Attachment, Descriptor, IMAGE_TYPE, Logins, RegistryAddress, Repository, attach, remove,
};
use hs_remote::{PushError, Pushed};

const OTHER_TYPE: &str = "application/vnd.example.sbom";

#[derive(Default)]
struct Registry {
    blobs: Vec<Vec<u8>>,
    /// By tag and by digest.
    manifests: BTreeMap<String, Vec<u8>>,
    /// What it answers to requests for lists, by the page that is asked for; none where it has no such lists.
    lists: Option<Vec<(String, String)>>,
    /// It removes nothing.
    keeps_all: bool,
    /// Threads that read an index wait for one another, so many times.
    meeting: Option<(Arc<Barrier>, usize)>,
    requests: Vec<String>,
}

fn serve(stream: &TcpStream, state: &Mutex<Registry>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut length = 0;
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).ok()?;
        match field.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().ok()?;
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut state = state.lock().expect("no panic");
    state.requests.push(format!("{method} {target}"));
    let (status, fields, answer) = state.answer(&method, &target, body);
    let meeting = match &mut state.meeting {
        Some((barrier, left)) if method == "GET" && target.ends_with(&list_tag()) && *left > 0 => {
            *left -= 1;
            Some(Arc::clone(barrier))
        }
        _ => None,
    };
    drop(state);
    if let Some(barrier) = meeting {
        barrier.wait();
    }
    let mut stream = stream;
    let length = answer.len();
    write!(stream, "HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n")
        .ok()?;
    if method != "HEAD" {
        stream.write_all(&answer).ok()?;
    }
    Some(())
}

impl Registry {
    fn answer(&mut self, method: &str, target: &str, body: Vec<u8>) -> (&'static str, String, Vec<u8>) {
        let none = String::new;
        let last = target.rsplit('/').next().unwrap_or_default().to_owned();
        let missing = ("404 Not Found", none(), Vec::new());
        if target.contains("/referrers/") {
            let Some(lists) = &self.lists else { return missing };
            let page = target.split("page=").nth(1).map_or(0, |page| page.parse().expect("a number"));
            let (fields, text) = lists[page].clone();
            return ("200 OK", fields, text.into_bytes());
        }
        if target.contains("/tags/list") {
            let tags: Vec<_> = self.manifests.keys().filter(|key| !key.contains(':')).collect();
            return ("200 OK", none(), format!(r#"{{"tags":{tags:?}}}"#).into_bytes());
        }
        match (method, target.contains("/manifests/")) {
            ("GET" | "HEAD", true) => match self.manifests.get(&last) {
                Some(text) => ("200 OK", none(), text.clone()),
                None => missing,
            },
            ("PUT", true) => {
                let index: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
                let mut listed = index["manifests"].as_array().into_iter().flatten();
                if !listed.all(|entry| self.manifests.contains_key(entry["digest"].as_str().expect("one"))) {
                    return ("404 Not Found", none(), Vec::new());
                }
                self.manifests.insert(sha256(&body), body.clone());
                self.manifests.insert(last, body);
                let keeps = if self.lists.is_some() {
                    format!("OCI-Subject: {}\r\n", subject().digest)
                } else {
                    none()
                };
                ("201 Created", keeps, Vec::new())
            }
            ("HEAD", false) => match self.blobs.iter().any(|blob| target.ends_with(&sha256(blob))) {
                true => ("200 OK", none(), Vec::new()),
                false => missing,
            },
            ("DELETE", _) if self.keeps_all => ("405 Method Not Allowed", none(), Vec::new()),
            ("DELETE", _) => match self.manifests.remove(&last) {
                Some(_) => ("202 Accepted", none(), Vec::new()),
                None => missing,
            },
            ("POST", false) => {
                ("202 Accepted", format!("Location: /up/{}\r\n", self.blobs.len()), Vec::new())
            }
            ("PATCH", false) => {
                self.blobs.push(body);
                ("202 Accepted", none(), Vec::new())
            }
            _ => {
                if !body.is_empty() {
                    self.blobs.push(body);
                }
                ("201 Created", none(), Vec::new())
            }
        }
    }
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn subject() -> Descriptor {
    let annotations = BTreeMap::new();
    let media_type = "application/vnd.oci.image.manifest.v1+json".to_owned();
    let artifact_type = Some("application/vnd.example".to_owned());
    Descriptor { media_type, digest: sha256(b"subject"), size: 7, artifact_type, annotations }
}

fn list_tag() -> String {
    subject().digest.replace(':', "-")
}

fn start(lists: Option<Vec<(String, String)>>) -> (Arc<Mutex<Registry>>, RegistryAddress) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let text = format!("oci+http://{}/a/b:1", listener.local_addr().expect("an address"));
    let state = Arc::new(Mutex::new(Registry { lists, ..Registry::default() }));
    let served = Arc::clone(&state);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let served = Arc::clone(&served);
            thread::spawn(move || serve(&stream, &served));
        }
    });
    (state, RegistryAddress::parse(&text).expect("an address"))
}

fn send(address: &RegistryAddress, artifact_type: &str, bytes: &[u8]) -> Result<Pushed, PushError> {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("written");
    let artifact = Artifact { file: &file, path: Path::new("a.hsi"), name: "", unfinished: None };
    let annotations = BTreeMap::from([("of".to_owned(), String::from_utf8_lossy(bytes).into_owned())]);
    let attachment = Attachment { artifact, artifact_type, annotations, subject: &subject() };
    let client = HttpClient::new(Timeouts::default()).expect("a client");
    attach(client, address, Logins::default(), attachment, &mut |_, _| ControlFlow::Continue(()))
}

fn listed(address: &RegistryAddress) -> Result<Vec<Descriptor>, HttpError> {
    let client = HttpClient::new(Timeouts::default()).expect("a client");
    Repository::new(address.clone(), client, Logins::default()).referrers(&subject().digest, IMAGE_TYPE)
}

fn digests(listed: Vec<Descriptor>) -> Vec<String> {
    let mut digests: Vec<_> = listed.into_iter().map(|referrer| referrer.digest).collect();
    digests.sort();
    digests
}

#[test]
fn without_a_list_of_the_registry_a_tag_has_it_and_sending_again_changes_nothing() {
    let (state, address) = start(None);
    assert_eq!(listed(&address).expect("none"), []);
    let first = send(&address, IMAGE_TYPE, b"one").expect("sent");
    send(&address, OTHER_TYPE, b"two").expect("sent");
    let found = listed(&address).expect("listed");
    assert_eq!((found.len(), found[0].annotations["of"].as_str()), (1, "one"));
    assert_eq!(Some(&found[0].digest), first.digest.as_ref());
    // What is said of the subject stays with it.
    let client = HttpClient::new(Timeouts::default()).expect("a client");
    let repository = Repository::new(address.clone(), client, Logins::default());
    let manifest = repository.manifest_of(&found[0].digest).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
    assert_eq!(manifest["subject"]["digest"], subject().digest);
    assert!(manifest["subject"].get("artifactType").is_none(), "{manifest}");
    let before = state.lock().expect("no panic").manifests.clone();
    assert_eq!(send(&address, IMAGE_TYPE, b"one").expect("there"), Pushed { sent_bytes: 0, ..first });
    assert!(state.lock().expect("no panic").manifests == before);
}

#[test]
fn a_registry_without_lists_is_asked_for_one_once() {
    let (state, address) = start(None);
    send(&address, IMAGE_TYPE, b"one").expect("sent");
    state.lock().expect("no panic").requests.clear();
    let client = HttpClient::new(Timeouts::default()).expect("a client");
    for _ in 0..3 {
        let repository = Repository::new(address.clone(), Arc::clone(&client), Logins::default());
        assert_eq!(repository.referrers(&subject().digest, IMAGE_TYPE).expect("listed").len(), 1);
    }
    let requests = state.lock().expect("no panic").requests.clone();
    let lists = requests.iter().filter(|request| request.contains("/referrers/")).count();
    assert_eq!((lists, requests.len()), (1, 4), "{requests:?}");
}

#[test]
fn of_several_writers_at_once_none_is_lost() {
    const WRITERS: usize = 4;
    let (state, address) = start(None);
    // All have read the index before the first of them writes it.
    state.lock().expect("no panic").meeting = Some((Arc::new(Barrier::new(WRITERS)), WRITERS));
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let address = address.clone();
            thread::spawn(move || send(&address, IMAGE_TYPE, &[b'a' + number as u8]).expect("sent"))
        })
        .collect();
    let mut sent: Vec<_> =
        writers.into_iter().filter_map(|writer| writer.join().expect("no panic").digest).collect();
    sent.sort();
    assert_eq!(digests(listed(&address).expect("listed")), sent);
}

#[test]
fn what_is_gone_leaves_the_list_and_what_others_have_there_stays() {
    let (state, address) = start(None);
    let gone = send(&address, IMAGE_TYPE, b"one").expect("sent").digest.expect("a digest");
    {
        let mut state = state.lock().expect("no panic");
        let mut index: serde_json::Value =
            serde_json::from_slice(&state.manifests[&list_tag()]).expect("JSON");
        index["manifests"][0]["platform"] = serde_json::json!({"os": "linux"});
        index["annotations"] = serde_json::json!({"kept": "yes"});
        state.manifests.insert(list_tag(), index.to_string().into_bytes());
        state.manifests.retain(|key, text| *key != gone && sha256(text) != gone);
    }
    let other = send(&address, IMAGE_TYPE, b"two").expect("sent").digest.expect("a digest");
    assert_eq!(digests(listed(&address).expect("listed")), [other]);
    let again = send(&address, IMAGE_TYPE, b"one").expect("sent").digest.expect("a digest");
    assert_eq!((again, listed(&address).expect("listed").len()), (gone, 2));
    let index = state.lock().expect("no panic").manifests[&list_tag()].clone();
    assert!(String::from_utf8_lossy(&index).contains(r#""kept":"yes""#));
}

#[test]
fn a_registry_may_keep_what_is_to_be_removed() {
    let (state, address) = start(None);
    let digest = send(&address, IMAGE_TYPE, b"one").expect("sent").digest.expect("a digest");
    let remove = || {
        let client = HttpClient::new(Timeouts::default()).expect("a client");
        remove(client, &address.at(&digest).expect("an address"), Logins::default()).expect("an answer")
    };
    state.lock().expect("no panic").keeps_all = true;
    assert!(!remove());
    state.lock().expect("no panic").keeps_all = false;
    // What is gone is removed.
    assert!(remove() && remove());
}

fn entry(artifact_type: &str, digest: &str) -> String {
    format!(r#"{{"mediaType":"m","digest":"{digest}","size":1,"artifactType":"{artifact_type}"}}"#)
}

fn page(entries: &[String]) -> String {
    format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, entries.join(","))
}

#[test]
fn lists_of_the_registry_are_read_to_their_end_and_filtered() {
    let (one, two) = (sha256(b"1"), sha256(b"2"));
    let first = page(&[entry(IMAGE_TYPE, &one), entry(OTHER_TYPE, &sha256(b"3")), "7".to_owned()]);
    let second = page(&[entry(IMAGE_TYPE, "md5:12"), entry(IMAGE_TYPE, &two)]);
    let link = "Link: </v2/a/b/referrers/x?page=1>; rel=\"next\"\r\n".to_owned();
    let (state, address) = start(Some(vec![(link, first), (String::new(), second)]));
    assert_eq!(digests(listed(&address).expect("listed")), {
        let mut both = vec![one, two];
        both.sort();
        both
    });
    // Such a registry needs no tags.
    send(&address, IMAGE_TYPE, b"one").expect("sent");
    let state = state.lock().expect("no panic");
    assert!(state.requests[0].contains("artifactType=application%2Fvnd.headstart.image.v1"));
    assert!(state.manifests.keys().all(|key| key.starts_with("sha256:")));
}

#[test]
fn hostile_lists_are_refused_or_cut() {
    let own = "Link: </v2/a/b/referrers/x?page=0>; rel=next\r\n".to_owned();
    let full: Vec<_> =
        (0..900).map(|number: u32| entry(IMAGE_TYPE, &sha256(&number.to_le_bytes()))).collect();
    let (state, address) = start(Some(vec![(own, page(&full))]));
    // It goes on at itself without an end: entries are bounded, and so are pages.
    assert_eq!(listed(&address).expect("listed").len(), 1024);
    // Nothing is asked for that would not be taken.
    let links = [1, 0].map(|to| format!("Link: </v2/a/b/referrers/x?page={to}>; rel=next\r\n"));
    {
        let mut state = state.lock().expect("no panic");
        state.lists = Some(links.into_iter().map(|link| (link, page(&full))).collect());
        state.requests.clear();
    }
    assert_eq!(listed(&address).expect("listed").len(), 1024);
    assert_eq!(state.lock().expect("no panic").requests.len(), 2);
    let empty = ("Link: </v2/a/b/referrers/x?page=0>; rel=next\r\n".to_owned(), page(&[]));
    state.lock().expect("no panic").lists = Some(vec![empty]);
    assert_eq!(listed(&address).expect("listed"), []);
    assert!(state.lock().expect("no panic").requests.len() < 100);
    let elsewhere = "Link: <http://127.0.0.1:1/v2/>; rel=\"next\"\r\n".to_owned();
    for (fields, text) in [
        (elsewhere, page(&[])),
        (String::new(), "<html>".to_owned()),
        (String::new(), r#"{"manifests":{}}"#.to_owned()),
        (String::new(), format!(r#"{{"manifests":[],"x":"{}"}}"#, "x".repeat(5 << 20))),
    ] {
        state.lock().expect("no panic").lists = Some(vec![(fields, text)]);
        listed(&address).expect_err("no list");
    }
    // Where the tag is something else, it is neither believed nor replaced.
    let (state, address) = start(None);
    state.lock().expect("no panic").manifests.insert(list_tag(), br#"{"layers":[]}"#.to_vec());
    listed(&address).expect_err("no list");
    assert!(matches!(send(&address, IMAGE_TYPE, b"one"), Err(PushError::Refused { .. })));
    assert_eq!(state.lock().expect("no panic").manifests[&list_tag()], br#"{"layers":[]}"#);
}
