//! A small object store for tests: it checks signatures, does what uploads in parts and by blocks need, and
//! fails where a test tells it to.
//!
//! Written from "Amazon S3 API Reference", Google's "XML API multipart uploads" and "Blob Service REST API",
//! not from the library that asks it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

/// A request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// As it came over the wire.
    pub(crate) path: String,
    /// The same, one a pair, and as they came.
    pub(crate) query: Vec<(String, String)>,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Where an object lies: some write the slashes of its key as they are, some do not.
    fn place(&self) -> String {
        decoded(&self.path)
    }

    /// A value of the query, decoded.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let (_, value) = self.query.iter().find(|(known, _)| known == name)?;
        Some(decoded(value))
    }
}

/// Percent-decodes.
pub(crate) fn decoded(text: &str) -> String {
    let query = format!("v={}", text.replace('+', "%2B"));
    let mut bytes = Vec::new();
    let mut rest = query[2..].bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().expect("a digit"), rest.next().expect("a digit")];
            let digits = std::str::from_utf8(&digits).expect("digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("digits"));
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).expect("text")
}

#[derive(Clone, Debug, Default)]
pub(crate) struct StoredObject {
    pub(crate) bytes: Vec<u8>,
    tag: String,
    /// What begins with `x-…-meta-`, and the type.
    pub(crate) headers: BTreeMap<String, String>,
}

/// What an end of an upload meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// Another client has put an object there a moment before.
    AnotherClient,
    /// It works, and the connection is cut before the answer.
    Cut,
    /// The store does not know the condition.
    Unconditional,
    /// It begins to answer, and then fails: once.
    FailsLate,
}

#[derive(Default)]
pub(crate) struct ServerState {
    pub(crate) objects: BTreeMap<String, StoredObject>,
    /// Uploads by their names, or blocks of a path: what they will be, and their parts.
    pub(crate) uploads: BTreeMap<String, (StoredObject, BTreeMap<String, Vec<u8>>)>,
    /// First lines of requests.
    pub(crate) lines: Vec<String>,
    begun: usize,
    pub(crate) at_end: Option<AtEnd>,
    /// Parts from this number on are refused; of blocks, which have none, all but so many less one.
    pub(crate) refuse_from: Option<u32>,
    /// Requests whose signature was wrong.
    pub(crate) refused: usize,
}

type Check = dyn Fn(&Asked) -> bool + Send + Sync;

pub(crate) struct ObjectServer {
    pub(crate) port: u16,
    state: Arc<Mutex<ServerState>>,
}

/// What an answer is; nothing for none.
type Answer = Option<(u16, Vec<(String, String)>, Vec<u8>)>;

fn status(status: u16) -> Answer {
    Some((status, Vec::new(), Vec::new()))
}

fn xml(name: &str, content: &str) -> Answer {
    Some((200, Vec::new(), format!("<{name}>{content}</{name}>").into_bytes()))
}

/// A cheap checksum, enough to tell the objects of a test apart.
fn tag(bytes: &[u8]) -> String {
    let words =
        bytes.chunks(8).map(|word| word.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte)));
    let sum = words.fold(1_u64, |sum, word| (sum ^ word).wrapping_mul(1_099_511_628_211).rotate_left(29));
    format!("\"{sum:016x}-{}\"", bytes.len())
}

impl ObjectServer {
    /// Starts it; it obeys requests that pass `check`.
    pub(crate) fn start(check: impl Fn(&Asked) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(Mutex::new(ServerState::default()));
        let (served, check): (_, Arc<Check>) = (Arc::clone(&state), Arc::new(check));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, check) = (Arc::clone(&served), Arc::clone(&check));
                thread::spawn(move || serve(&stream, &state, &*check));
            }
        });
        Self { port, state }
    }

    pub(crate) fn with<T>(&self, what: impl FnOnce(&mut ServerState) -> T) -> T {
        what(&mut self.state.lock())
    }
}

fn serve(stream: &TcpStream, state: &Mutex<ServerState>, check: &Check) -> Option<()> {
    let mut reader = BufReader::new(stream);
    // An address that is signed is asked again and again.
    let mut known = None;
    loop {
        let asked = read(&mut reader)?;
        let is_head = asked.method == "HEAD";
        let address = (asked.method.clone(), asked.path.clone(), asked.query.clone());
        let is_signed = asked.header("authorization").is_empty();
        // Signatures are checked before other clients have to wait.
        let is_known = (is_signed && known.as_ref() == Some(&address)) || check(&asked);
        known = is_known.then_some(address);
        let answer = {
            let mut state = state.lock();
            state.lines.push(format!("{} {}", asked.method, asked.path));
            if is_known {
                answer(&mut state, asked)
            } else {
                state.refused += 1;
                status(403)
            }
        };
        let (code, headers, body) = answer?;
        let mut head = format!("HTTP/1.1 {code} x\r\n");
        if !headers.iter().any(|(name, _)| name == "Content-Length") {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        let mut writer = stream;
        writer.write_all(format!("{head}\r\n").as_bytes()).ok()?;
        if !is_head {
            writer.write_all(&body).ok()?;
        }
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name.to_owned(), value.to_owned())
    };
    let mut asked =
        Asked { method, path: path.to_owned(), query: pairs.map(pair).collect(), ..Asked::default() };
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).ok()?;
        let Some((name, value)) = field.trim_end().split_once(':') else { break };
        asked.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    asked.body = vec![0; asked.header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut asked.body).ok()?;
    Some(asked)
}

fn answer(state: &mut ServerState, asked: Asked) -> Answer {
    let upload = asked.value("uploadId");
    let part = asked.value("partNumber").and_then(|number| number.parse::<u32>().ok());
    match (asked.method.as_str(), upload, part) {
        ("GET" | "HEAD", None, _) => object(state, &asked),
        ("PUT", Some(upload), Some(number)) => {
            if state.refuse_from.is_some_and(|first| number >= first) {
                return status(403);
            }
            let Some((_, parts)) = state.uploads.get_mut(&upload) else { return status(404) };
            let tag = tag(&asked.body);
            parts.insert(format!("{number:05}"), asked.body);
            Some((200, vec![("ETag".to_owned(), tag)], Vec::new()))
        }
        ("POST", Some(upload), _) => complete(state, &asked, &upload),
        ("DELETE", Some(upload), _) => {
            status(if state.uploads.remove(&upload).is_some() { 204 } else { 404 })
        }
        ("POST", None, _) if asked.value("uploads").is_some() => {
            state.begun += 1;
            // With characters that a query must escape.
            let name = format!("upload-{}+/&=", state.begun);
            state.uploads.insert(name.clone(), (kept(&asked, Vec::new()), BTreeMap::new()));
            xml(
                "InitiateMultipartUploadResult",
                &format!("<UploadId>{}</UploadId>", name.replace('&', "&amp;")),
            )
        }
        ("PUT", None, _) => put(state, asked),
        _ => status(400),
    }
}

fn kept(asked: &Asked, bytes: Vec<u8>) -> StoredObject {
    let ours = |(name, _): &(&String, &String)| name.contains("-meta-") || *name == "content-type";
    let headers = asked.headers.iter().filter(ours).map(|(name, value)| (name.clone(), value.clone()));
    StoredObject { tag: tag(&bytes), bytes, headers: headers.collect() }
}

fn object(state: &ServerState, asked: &Asked) -> Answer {
    let Some(kept) = state.objects.get(&asked.place()) else { return status(404) };
    let tag = &kept.tag;
    let wanted = asked.header("if-match");
    if !wanted.is_empty() && wanted != tag.as_str() {
        return status(412);
    }
    let mut headers: Vec<_> = kept.headers.clone().into_iter().collect();
    headers.push(("ETag".to_owned(), tag.clone()));
    headers.push(("Last-Modified".to_owned(), "Sun, 22 Nov 2026 23:00:00 GMT".to_owned()));
    let range = asked.header("range").strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let Some((first, last)) = range else {
        headers.push(("Content-Length".to_owned(), kept.bytes.len().to_string()));
        return Some((200, headers, kept.bytes.clone()));
    };
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    let last = last.min(kept.bytes.len() - 1);
    headers.push(("Content-Range".to_owned(), format!("bytes {first}-{last}/{}", kept.bytes.len())));
    Some((206, headers, kept.bytes[first..=last].to_vec()))
}

/// Another client puts its object first, if the end of the upload is to meet that.
fn put_by_another_client(state: &mut ServerState, asked: &Asked) {
    if state.at_end == Some(AtEnd::AnotherClient) {
        let other = StoredObject { bytes: b"of somebody else".to_vec(), ..StoredObject::default() };
        state.objects.insert(asked.place(), other);
    }
}

fn complete(state: &mut ServerState, asked: &Asked, upload: &str) -> Answer {
    let is_conditional = asked.header("if-none-match") == "*";
    put_by_another_client(state, asked);
    match state.at_end {
        Some(AtEnd::Unconditional) if is_conditional => return status(501),
        Some(AtEnd::FailsLate) => {
            state.at_end = None;
            return xml("Error", "<Code>InternalError</Code><Message>try again</Message>");
        }
        _ => {}
    }
    if is_conditional && state.objects.contains_key(&asked.place()) {
        return status(412);
    }
    let Some((kept, parts)) = state.uploads.get(upload) else { return status(404) };
    let said = String::from_utf8_lossy(&asked.body).replace("&quot;", "\"");
    let mut bytes = Vec::new();
    for (number, part) in parts {
        let number: u32 = number.parse().expect("a number");
        if !said
            .contains(&format!("<Part><ETag>{}</ETag><PartNumber>{number}</PartNumber></Part>", tag(part)))
        {
            return Some((400, Vec::new(), b"<Error><Code>InvalidPart</Code></Error>".to_vec()));
        }
        bytes.extend(part);
    }
    let whole = StoredObject { tag: tag(&bytes), bytes, headers: kept.headers.clone() };
    state.objects.insert(asked.place(), whole);
    state.uploads.remove(upload);
    if state.at_end == Some(AtEnd::Cut) {
        return None;
    }
    xml("CompleteMultipartUploadResult", "<ETag>\"whole\"</ETag>")
}

/// A whole object, or Azure's blocks and their list.
fn put(state: &mut ServerState, asked: Asked) -> Answer {
    // "Naming containers, blobs, and metadata": names of metadata are identifiers of C#.
    let names = asked.headers.keys().filter_map(|name| name.strip_prefix("x-ms-meta-"));
    if names
        .into_iter()
        .any(|name| !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_'))
    {
        return Some((400, Vec::new(), b"<Error><Code>InvalidMetadata</Code></Error>".to_vec()));
    }
    let comp = asked.value("comp");
    if comp.as_deref() == Some("blocklist") {
        put_by_another_client(state, &asked);
    }
    let is_taken = state.objects.contains_key(&asked.place());
    let if_absent = asked.header("if-none-match") == "*" || asked.header("x-goog-if-generation-match") == "0";
    if if_absent && is_taken {
        return status(if asked.header("x-goog-if-generation-match").is_empty() { 409 } else { 412 });
    }
    match comp.as_deref() {
        Some("block") => {
            let (_, blocks) = state.uploads.entry(asked.place()).or_default();
            if state.refuse_from.is_some_and(|first| blocks.len() + 1 >= first as usize) {
                return status(403);
            }
            blocks.insert(asked.value("blockid").expect("a name"), asked.body);
        }
        Some("blocklist") => {
            if !put_block_list(state, &asked) {
                return Some((400, Vec::new(), b"<Error><Code>InvalidBlockList</Code></Error>".to_vec()));
            }
            if state.at_end == Some(AtEnd::Cut) {
                return None;
            }
        }
        _ => {
            let object = kept(&asked, asked.body.clone());
            state.objects.insert(asked.place(), object);
        }
    }
    Some((201, vec![("ETag".to_owned(), "\"put\"".to_owned())], Vec::new()))
}

/// Makes an object of blocks, and forgets all others of its key; false when it does not have one of them.
fn put_block_list(state: &mut ServerState, asked: &Asked) -> bool {
    let said = String::from_utf8_lossy(&asked.body).into_owned();
    let names = said.split("<Uncommitted>").skip(1).filter_map(|rest| rest.split('<').next());
    let blocks = state.uploads.get(&asked.place()).map(|(_, blocks)| blocks);
    let bytes: Option<Vec<_>> = names.map(|name| blocks?.get(name).cloned()).collect();
    let Some(bytes) = bytes else { return false };
    state.uploads.remove(&asked.place());
    // The type of a block list is its own, that of the blob another header's.
    let mut object = kept(asked, bytes.concat());
    object.headers.insert("content-type".to_owned(), asked.header("x-ms-blob-content-type").to_owned());
    state.objects.insert(asked.place(), object);
    true
}
