//! A registry that cuts connections while it receives a blob, and knows how much of it has come.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use hs_remote::http::{HttpClient, Timeouts};
use hs_remote::registry::{
    Artifact, Copying, Descriptor, IMAGE_TYPE, Logins, RegistryAddress, abandon, copy, push,
};
use hs_remote::{Abandoned, PushError, Pushed};

#[derive(Default)]
struct Registry {
    /// Uploads that were begun, and what has come of each.
    uploads: Vec<Vec<u8>>,
    blobs: Vec<Vec<u8>>,
    manifests: Vec<Vec<u8>>,
    /// Bytes of pieces that came, also of those that came twice.
    received: usize,
    given_up: usize,
    /// The next pieces are cut after this many bytes.
    cuts: Vec<usize>,
    /// Pieces that are taken before it refuses all others.
    takes: Option<usize>,
    /// It has forgotten all uploads.
    forgets: bool,
}

fn serve(stream: &TcpStream, state: &Mutex<Registry>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let (method, target) = line.split_once(' ')?;
    let target = target.split(' ').next()?.to_owned();
    let method = method.to_owned();
    let (mut length, mut asked, mut stands_at) = (0, None, None);
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).ok()?;
        let Some((name, value)) = field.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "range" => asked = value.strip_prefix("bytes=").and_then(span),
            "content-range" => stands_at = span(value).map(|(first, _)| first),
            _ => {}
        }
    }
    let mut state = state.lock().expect("no panic");
    let number = || target.trim_start_matches("/up/").split('?').next()?.parse::<usize>().ok();
    let cut = if method == "PATCH" { state.cuts.pop() } else { None };
    let mut body = vec![0; cut.map_or(length, |cut| cut.min(length))];
    reader.read_exact(&mut body).ok()?;
    let mut stream = stream;
    if method == "GET" && target.contains("/blobs/sha256:") {
        let blob = state.blobs.iter().find(|blob| target.ends_with(&sha256(blob)))?;
        let (first, last) = asked.map(|(first, last)| (first, last.min(blob.len() - 1)))?;
        let (part, len) = (&blob[first..=last], blob.len());
        let range = format!("Content-Range: bytes {first}-{last}/{len}\r\nContent-Length: {}", part.len());
        write!(stream, "HTTP/1.1 206 Partial Content\r\n{range}\r\nConnection: close\r\n\r\n").ok()?;
        return stream.write_all(part).ok();
    }
    let (status, fields) = match method.as_str() {
        "HEAD" => {
            let has = state.blobs.iter().any(|blob| target.ends_with(&sha256(blob)));
            (if has { "200 OK" } else { "404 Not Found" }, String::new())
        }
        "POST" => {
            state.uploads.push(Vec::new());
            ("202 Accepted", format!("Location: /up/{}\r\n", state.uploads.len() - 1))
        }
        "PATCH" if state.takes == Some(0) => ("403 Forbidden", String::new()),
        "PATCH" if stands_at.is_some_and(|at| Some(at) != number().map(|of| state.uploads[of].len())) => {
            ("416 Range Not Satisfiable", String::new())
        }
        "GET" if state.forgets => ("404 Not Found", String::new()),
        "PATCH" => {
            state.takes = state.takes.map(|takes| takes - 1);
            state.received += body.len();
            state.uploads[number()?].extend(body);
            if cut.is_some() {
                return None;
            }
            ("202 Accepted", String::new())
        }
        "GET" => {
            let came = state.uploads[number()?].len();
            ("204 No Content", format!("Range: 0-{}\r\n", came.saturating_sub(1)))
        }
        "DELETE" => {
            state.given_up += 1;
            ("204 No Content", String::new())
        }
        _ if target.starts_with("/up/") => {
            let upload = number()?;
            state.uploads[upload].extend(body);
            let blob = state.uploads[upload].clone();
            let is_right = target.contains(&sha256(&blob).replace(':', "%3A"));
            state.blobs.push(blob);
            (if is_right { "201 Created" } else { "400 Bad Request" }, String::new())
        }
        _ => {
            state.manifests.push(body);
            ("201 Created", String::new())
        }
    };
    write!(stream, "HTTP/1.1 {status}\r\n{fields}Content-Length: 0\r\nConnection: close\r\n\r\n").ok()
}

/// `FIRST-LAST`.
fn span(text: &str) -> Option<(usize, usize)> {
    let (first, last) = text.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn start() -> (Arc<Mutex<Registry>>, RegistryAddress) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let text = format!("oci+http://{}/a/b:1", listener.local_addr().expect("an address"));
    let state = Arc::new(Mutex::new(Registry::default()));
    let served = Arc::clone(&state);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(&stream, &served);
        }
    });
    (state, RegistryAddress::parse(&text).expect("an address"))
}

fn send(
    bytes: &[u8],
    address: &RegistryAddress,
    unfinished: Option<&Path>,
    pushing: &mut hs_remote::Pushing<'_>,
) -> Result<Pushed, PushError> {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("written");
    let artifact = Artifact { file: &file, path: Path::new("a.hsi"), name: "hs1-00", unfinished };
    let client = HttpClient::new(Timeouts::default()).expect("a client");
    push(client, address, Logins::default(), artifact, pushing)
}

#[test]
fn an_upload_goes_on_where_the_registry_says_that_it_stands() {
    let bytes: Vec<u8> = (0..9_000_000_u32).map(|at| (at % 253) as u8).collect();
    let (state, address) = start();
    // Of three pieces, the last is cut twice and the first once; before, nothing of it comes.
    state.lock().expect("no panic").cuts = vec![100_000, 0, 2_000_000, 0];
    let pushed = send(&bytes, &address, None, &mut |_, _| ControlFlow::Continue(())).expect("sent");
    assert_eq!(pushed.sent_bytes, bytes.len() as u64);
    {
        let state = state.lock().expect("no panic");
        assert!(state.blobs[0] == bytes && state.blobs[1] == b"{}");
        // Nothing came twice.
        assert_eq!((state.uploads.len(), state.received), (2, bytes.len()));
        assert_eq!(pushed.digest, Some(sha256(&state.manifests[0])));
    }
    let again = send(&bytes, &address, None, &mut |_, _| ControlFlow::Continue(())).expect("there");
    assert_eq!(again, Pushed { sent_bytes: 0, ..pushed });
    assert_eq!(state.lock().expect("no panic").uploads.len(), 2);
}

#[test]
fn an_upload_that_is_interrupted_is_given_up() {
    let (state, address) = start();
    let bytes = vec![7; 9_000_000];
    let stop = |done: u64, _: u64| if done > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let error = send(&bytes, &address, None, &mut { stop }).expect_err("interrupted");
    assert!(matches!(error, PushError::Interrupted { .. }), "{error}");
    let state = state.lock().expect("no panic");
    assert_eq!((state.given_up, state.manifests.len(), state.blobs.len()), (1, 0, 0));
}

/// A process that dies between two pieces leaves its upload and its note.
fn dies_after_a_piece(bytes: &[u8], address: &RegistryAddress, state: &Mutex<Registry>, unfinished: &Path) {
    let died = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let die = |done: u64, _: u64| if done > 0 { panic!("it dies") } else { ControlFlow::Continue(()) };
        let _ = send(bytes, address, Some(unfinished), &mut { die });
    }));
    assert!(died.is_err());
    let state = state.lock().expect("no panic");
    assert_eq!((state.received, state.given_up, state.blobs.len()), (4 << 20, 0, 0));
}

#[test]
fn a_later_process_goes_on_with_an_upload() {
    let bytes: Vec<u8> = (0..9_000_000_u32).map(|at| (at % 241) as u8).collect();
    let (state, address) = start();
    let folder = tempfile::tempdir().expect("a folder");
    dies_after_a_piece(&bytes, &address, &state, folder.path());
    let go_on = |_, _| ControlFlow::Continue(());
    let pushed = send(&bytes, &address, Some(folder.path()), &mut { go_on }).expect("sent");
    assert_eq!(pushed.sent_bytes, bytes.len() as u64 - (4 << 20));
    let state = state.lock().expect("no panic");
    // Nothing came twice, and nothing is left to go on with.
    assert!(state.blobs[0] == bytes);
    assert_eq!((state.uploads.len(), state.received), (2, bytes.len()));
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0);
}

#[test]
fn an_upload_that_the_registry_has_forgotten_is_begun_anew() {
    let bytes: Vec<u8> = (0..9_000_000_u32).map(|at| (at % 239) as u8).collect();
    let (state, address) = start();
    let folder = tempfile::tempdir().expect("a folder");
    dies_after_a_piece(&bytes, &address, &state, folder.path());
    state.lock().expect("no panic").forgets = true;
    let go_on = |_, _| ControlFlow::Continue(());
    let pushed = send(&bytes, &address, Some(folder.path()), &mut { go_on }).expect("sent");
    assert_eq!(pushed.sent_bytes, bytes.len() as u64);
    assert!(state.lock().expect("no panic").blobs[0] == bytes);
}

#[test]
fn an_upload_that_is_refused_is_not_gone_on_with() {
    let bytes = vec![9; 9_000_000];
    let (state, address) = start();
    let folder = tempfile::tempdir().expect("a folder");
    state.lock().expect("no panic").takes = Some(1);
    let go_on = |_, _| ControlFlow::Continue(());
    let error = send(&bytes, &address, Some(folder.path()), &mut { go_on }).expect_err("refused");
    assert!(matches!(error, PushError::Refused { .. }), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0);
    state.lock().expect("no panic").takes = None;
    send(&bytes, &address, Some(folder.path()), &mut { go_on }).expect("sent");
    assert!(state.lock().expect("no panic").blobs[0] == bytes);
}

#[test]
fn an_upload_that_is_interrupted_is_kept_where_it_is_noted() {
    let (state, address) = start();
    let bytes = vec![7; 9_000_000];
    let folder = tempfile::tempdir().expect("a folder");
    // Before anything has come there is nothing to keep.
    for (enough, is_kept, given_up) in [(0, false, 1), (1, true, 1)] {
        let stop = |done: u64, _: u64| {
            if done >= enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let error = send(&bytes, &address, Some(folder.path()), &mut { stop }).expect_err("interrupted");
        assert!(matches!(error, PushError::Interrupted { is_kept: kept, .. } if kept == is_kept), "{error}");
        assert_eq!(state.lock().expect("no panic").given_up, given_up);
        assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), usize::from(is_kept));
    }
    let abandoned = |folder| {
        let client = HttpClient::new(Timeouts::default()).expect("a client");
        abandon(client, &address, Logins::default(), Some(folder)).expect("abandoned")
    };
    assert_eq!(abandoned(folder.path()), Abandoned::Removed);
    assert_eq!(state.lock().expect("no panic").given_up, 2);
    assert_eq!(abandoned(folder.path()), Abandoned::Nothing);
}

#[test]
fn a_manifest_that_is_sent_by_its_digest_has_that_digest() {
    let (_, address) = start();
    let go_on = |_, _| ControlFlow::Continue(());
    let pushed = send(b"image", &address, None, &mut { go_on }).expect("sent");
    let digest = pushed.digest.expect("a digest");
    let tagless = address.to_string().trim_end_matches(":1").to_owned();
    for (digest, is_right) in [(digest, true), (format!("sha256:{}", "0".repeat(64)), false)] {
        let named = RegistryAddress::parse(&format!("{tagless}@{digest}")).expect("an address");
        assert_eq!(send(b"image", &named, None, &mut { go_on }).is_ok(), is_right, "{digest}");
    }
}

#[test]
fn a_manifest_is_copied_to_another_registry_after_its_blobs() {
    let blob: Vec<u8> = (0..9_000_000_u32).map(|at| (at % 251) as u8).collect();
    let ((source, from), (target, to)) = (start(), start());
    source.lock().expect("no panic").blobs = vec![blob.clone(), Vec::new()];
    let descriptor = |blob: &[u8]| Descriptor {
        media_type: IMAGE_TYPE.to_owned(),
        digest: sha256(blob),
        size: blob.len() as u64,
        artifact_type: None,
        annotations: BTreeMap::new(),
    };
    let blobs = [descriptor(&blob), descriptor(b"")];
    let copying = Copying { from: &from, to: &to, blobs: &blobs, manifest: b"{}", media_type: "a/b" };
    let copy = || {
        let client = HttpClient::new(Timeouts::default()).expect("a client");
        copy(client, Logins::default(), copying).expect("copied")
    };
    assert_eq!(copy(), (sha256(b"{}"), blob.len() as u64));
    {
        let target = target.lock().expect("no panic");
        assert!(target.blobs == [blob.clone(), Vec::new()]);
        assert_eq!(target.manifests, [b"{}"]);
    }
    assert_eq!(copy(), (sha256(b"{}"), 0), "what is there is not sent again");
    assert_eq!(target.lock().expect("no panic").received, blob.len());
}
