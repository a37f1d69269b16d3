//! From a request to what is answered: RFC 9110, sections 13 and 14. No I/O.

use std::fmt::Write;
use std::sync::Arc;
use std::time::SystemTime;

use headers::{
    AcceptRanges, ContentLength, ContentRange, ContentType, ETag, HeaderMap, HeaderMapExt, IfMatch,
    IfModifiedSince, IfNoneMatch, IfRange, IfUnmodifiedSince, LastModified, Range,
};
use hs_store::Store;
use hs_units::ByteRange;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};

/// A file that is served.
#[derive(Clone)]
pub struct HttpFile {
    /// Its path, without the `/` before it.
    pub name: String,
    /// Its bytes.
    pub store: Arc<dyn Store>,
    /// What names its bytes, such as an image's digest: the entity tag.
    pub tag: String,
    /// When it was changed.
    pub modified: SystemTime,
}

/// A text that is made each time that it is asked for.
#[derive(Clone)]
pub struct HttpPage {
    /// Its path, without the `/` before it.
    pub name: String,
    /// What it is.
    pub content_type: &'static str,
    /// Further headers, by their names in lower case.
    pub headers: &'static [(&'static str, &'static str)],
    /// Makes it from what is behind the `?` of its address. It is called in the thread of the server, and
    /// should not take long.
    pub text: Arc<dyn Fn(&str) -> String + Send + Sync>,
}

/// What is sent.
pub(super) enum Content {
    /// Nothing.
    Nothing,
    /// A few words.
    Text(String),
    /// Bytes of a file, by its number.
    File(usize, ByteRange),
}

/// An answer, but for its bytes.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) content: Content,
}

impl Answer {
    fn empty(status: StatusCode, headers: HeaderMap) -> Self {
        Self { status, headers, content: Content::Nothing }
    }

    /// A few words instead of what was asked for.
    pub(super) fn text(status: StatusCode, text: String) -> Self {
        let mut headers = HeaderMap::new();
        headers.typed_insert(ContentType::text_utf8());
        headers.typed_insert(ContentLength(text.len() as u64));
        Self { status, headers, content: Content::Text(text) }
    }
}

/// The answer to a request.
pub(super) fn answer(
    files: &[HttpFile],
    pages: &[HttpPage],
    method: &Method,
    path: &str,
    query: &str,
    headers: &HeaderMap,
) -> Answer {
    if method != Method::GET && method != Method::HEAD {
        let mut answer = Answer::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
        answer.headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    let wanted = path.strip_prefix('/').unwrap_or(path);
    let mut answer = if wanted.is_empty() && !files.is_empty() {
        Answer::text(StatusCode::OK, listing(files))
    } else if let Some(number) = files.iter().position(|file| is_name(wanted, &file.name)) {
        of_file(&files[number], number, headers)
    } else if let Some(page) = pages.iter().find(|page| is_name(wanted, &page.name)) {
        let mut answer = Answer::text(StatusCode::OK, (page.text)(query));
        answer.headers.insert(CONTENT_TYPE, HeaderValue::from_static(page.content_type));
        for (name, value) in page.headers {
            answer.headers.insert(*name, HeaderValue::from_static(value));
        }
        answer
    } else {
        Answer::text(StatusCode::NOT_FOUND, "no such file\n".to_owned())
    };
    if method == Method::HEAD {
        answer.content = Content::Nothing;
    }
    answer
}

/// Each file and its tag, one a line: for people.
fn listing(files: &[HttpFile]) -> String {
    files.iter().fold(String::new(), |mut text, file| {
        let _ = writeln!(text, "/{} {} {}", encoded(&file.name), file.store.len(), file.tag);
        text
    })
}

/// Whether a path is this name. Clients write some letters as they are that others encode (RFC 3986, section
/// 6.2.2).
fn is_name(path: &str, name: &str) -> bool {
    decoded(path.as_bytes()) == name.as_bytes()
}

/// A path with what `%` and two digits stand for. A `%` without them stands for itself.
fn decoded(mut path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    while let [first, rest @ ..] = path {
        let value = |digit: u8| char::from(digit).to_digit(16);
        let escaped = match (first, rest) {
            (b'%', [high, low, ..]) => value(*high).zip(value(*low)),
            _ => None,
        };
        if let Some((high, low)) = escaped {
            bytes.push((high * 16 + low) as u8);
            path = &rest[2..];
        } else {
            bytes.push(*first);
            path = rest;
        }
    }
    bytes
}

/// A name as paths have it.
pub(super) fn encoded(name: &str) -> String {
    name.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

fn of_file(file: &HttpFile, number: usize, asked: &HeaderMap) -> Answer {
    let mut headers = HeaderMap::new();
    headers.typed_insert(AcceptRanges::bytes());
    headers.typed_insert(ContentType::octet_stream());
    headers.typed_insert(LastModified::from(file.modified));
    // Tags are digests in hexadecimal, or chosen by us: always a tag.
    let tag: Option<ETag> = format!("\"{}\"", file.tag).parse().ok();
    if let Some(tag) = &tag {
        headers.typed_insert(tag.clone());
    }
    if let Some(status) = condition(file, tag.as_ref(), asked) {
        return Answer::empty(status, headers);
    }
    let len = file.store.len();
    let range = match range(file, tag.as_ref(), asked) {
        Ranged::Whole => {
            headers.typed_insert(ContentLength(len));
            return Answer {
                status: StatusCode::OK,
                headers,
                content: Content::File(number, ByteRange::new(0, len)),
            };
        }
        Ranged::Nowhere => {
            headers.typed_insert(ContentRange::unsatisfied_bytes(len));
            return Answer::empty(StatusCode::RANGE_NOT_SATISFIABLE, headers);
        }
        Ranged::Part(range) => range,
    };
    headers.typed_insert(ContentLength(range.len));
    if let Ok(field) = ContentRange::bytes(range.offset..range.end(), len) {
        headers.typed_insert(field);
    }
    Answer { status: StatusCode::PARTIAL_CONTENT, headers, content: Content::File(number, range) }
}

/// Whether a condition says that nothing is to be sent: in the order of RFC 9110, section 13.2.2.
fn condition(file: &HttpFile, tag: Option<&ETag>, asked: &HeaderMap) -> Option<StatusCode> {
    if let Some(wanted) = asked.typed_get::<IfMatch>() {
        if !tag.is_some_and(|tag| wanted.precondition_passes(tag)) {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
    } else if let Some(since) = asked.typed_get::<IfUnmodifiedSince>()
        && !since.precondition_passes(file.modified)
    {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    if let Some(known) = asked.typed_get::<IfNoneMatch>() {
        if !tag.is_some_and(|tag| known.precondition_passes(tag)) {
            return Some(StatusCode::NOT_MODIFIED);
        }
    } else if let Some(since) = asked.typed_get::<IfModifiedSince>()
        && !since.is_modified(file.modified)
    {
        return Some(StatusCode::NOT_MODIFIED);
    }
    None
}

/// How much of a file is wanted.
enum Ranged {
    Whole,
    Part(ByteRange),
    Nowhere,
}

/// Several ranges at once are answered with the whole file, as a server may (RFC 9110, section 14.2).
fn range(file: &HttpFile, tag: Option<&ETag>, asked: &HeaderMap) -> Ranged {
    let Some(wanted) = asked.typed_get::<Range>() else { return Ranged::Whole };
    if let Some(same) = asked.typed_get::<IfRange>()
        && same.is_modified(tag, Some(&LastModified::from(file.modified)))
    {
        return Ranged::Whole;
    }
    let len = file.store.len();
    let mut parts = wanted.satisfiable_ranges(len);
    let Some((start, end)) = parts.next() else { return Ranged::Nowhere };
    if parts.next().is_some() {
        return Ranged::Whole;
    }
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let first = match start {
        Included(first) => first,
        Excluded(before) => before.saturating_add(1),
        Unbounded => 0,
    };
    let end = match end {
        Included(last) => last.saturating_add(1).min(len),
        Excluded(end) => end.min(len),
        Unbounded => len,
    };
    if first < end { Ranged::Part(ByteRange::new(first, end - first)) } else { Ranged::Nowhere }
}

#[cfg(test)]
mod tests;
