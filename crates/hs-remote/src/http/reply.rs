//! What the head of an answer means: RFC 9110, sections 13 to 15. No I/O.

use std::time::{Duration, SystemTime};

use hs_units::ByteRange;
use reqwest::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName,
    LAST_MODIFIED, RETRY_AFTER,
};

use super::HttpError;

/// What distinguishes a file on a server from one that replaces it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Version {
    /// Its size in bytes.
    pub len: u64,
    /// Its entity tag, as the server wrote it.
    pub etag: Option<String>,
    /// When it was changed, as the server wrote it; counts only where there is no tag.
    pub last_modified: Option<String>,
}

impl Version {
    /// The tag, if equal tags prove equal bytes: weak ones do not, and are never matched (RFC 9110, 8.8.3.2).
    #[must_use]
    pub fn strong_tag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|tag| !tag.starts_with("W/"))
    }

    /// Whether `self`, which was opened, may be the file that `other` describes. A missing field cannot
    /// differ.
    fn may_be(&self, other: &Self) -> bool {
        if self.len != other.len {
            return false;
        }
        match (&self.etag, &other.etag) {
            (Some(one), Some(two)) => one == two,
            _ => match (&self.last_modified, &other.last_modified) {
                (Some(one), Some(two)) => one == two,
                _ => true,
            },
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len)?;
        if let Some(tag) = &self.etag {
            write!(f, " {tag}")?;
        } else if let Some(time) = &self.last_modified {
            write!(f, " of {time}")?;
        }
        Ok(())
    }
}

/// What an answer brings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Brings {
    /// These bytes of this file.
    Bytes(ByteRange, Version),
    /// Nothing: the file is still the one that was named.
    Unchanged,
}

/// Understands the head of an answer to a request for `range`, of the file `opened` when that is known.
pub(crate) fn understand(
    status: u16,
    headers: &HeaderMap,
    range: ByteRange,
    opened: Option<&Version>,
) -> Result<Brings, HttpError> {
    let brings = match status {
        206 => partial(headers, range)?,
        200 => whole(headers, range, opened.is_some())?,
        304 => return Ok(Brings::Unchanged),
        412 | 416 => {
            return Err(match opened {
                Some(was) => HttpError::Replaced { was: was.to_string(), is: other(headers) },
                None => HttpError::Status { status, retry_after: None },
            });
        }
        _ => return Err(HttpError::Status { status, retry_after: retry_after(headers, SystemTime::now()) }),
    };
    if text(headers, &CONTENT_ENCODING).is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")) {
        return Err(nonsense("the bytes are compressed, which was not asked for"));
    }
    if let (Brings::Bytes(_, now), Some(was)) = (&brings, opened)
        && !was.may_be(now)
    {
        return Err(HttpError::Replaced { was: was.to_string(), is: now.to_string() });
    }
    Ok(brings)
}

/// 206: some of the range, from its start on.
fn partial(headers: &HeaderMap, range: ByteRange) -> Result<Brings, HttpError> {
    let field = text(headers, &CONTENT_RANGE).ok_or_else(|| nonsense("a part without Content-Range"))?;
    let (first, last, len) =
        content_range(field).ok_or_else(|| nonsense(&format!("Content-Range: {field}")))?;
    if first != range.offset || last < first || last >= len || last >= range.end() {
        return Err(nonsense(&format!("bytes {range} were asked for, Content-Range: {field}")));
    }
    let came = ByteRange::new(first, last - first + 1);
    if content_length(headers).is_some_and(|length| length != came.len) {
        return Err(nonsense(&format!("Content-Range: {field} with another Content-Length")));
    }
    Ok(Brings::Bytes(came, version(headers, len)))
}

/// 200: the whole file. That is as good where the range begins with the first byte and the server supports
/// ranges. On the first request it shows that by 206, or by a header where all of a small file was requested.
fn whole(headers: &HeaderMap, range: ByteRange, is_opened: bool) -> Result<Brings, HttpError> {
    let len = content_length(headers);
    let says_so = text(headers, &ACCEPT_RANGES).is_some_and(|unit| unit.eq_ignore_ascii_case("bytes"));
    let wanted_all = says_so && len.is_some_and(|len| len <= range.len);
    if is_opened && range.offset != 0 {
        // The file was opened with a 206, so this server, or a cache before it, made an error this time.
        return Err(nonsense("the whole file where a part was asked for"));
    }
    if range.offset != 0 || !(is_opened || wanted_all) {
        return Err(HttpError::RangesIgnored);
    }
    let len = len.ok_or_else(|| nonsense("a file without Content-Length"))?;
    Ok(Brings::Bytes(ByteRange::new(0, len.min(range.len)), version(headers, len)))
}

fn version(headers: &HeaderMap, len: u64) -> Version {
    let owned = |name: &HeaderName| text(headers, name).map(str::to_owned);
    Version { len, etag: owned(&ETAG), last_modified: owned(&LAST_MODIFIED) }
}

/// `bytes FIRST-LAST/LENGTH`; a length that the server does not know (`*`) is of no use.
fn content_range(field: &str) -> Option<(u64, u64, u64)> {
    let (span, len) = field.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = span.split_once('-')?;
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?, len.trim().parse().ok()?))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    text(headers, &CONTENT_LENGTH)?.parse().ok()
}

/// What a refusal says about the file that is there now.
fn other(headers: &HeaderMap) -> String {
    let tag = text(headers, &ETAG).map(str::to_owned);
    tag.or_else(|| text(headers, &CONTENT_RANGE).map(str::to_owned)).unwrap_or_else(|| "another".to_owned())
}

/// Seconds, or a date: RFC 9110, section 10.2.3.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let field = text(headers, &RETRY_AFTER)?;
    match field.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let then = httpdate::parse_http_date(field).ok()?;
            Some(then.duration_since(now).unwrap_or_default())
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn nonsense(reason: &str) -> HttpError {
    HttpError::Nonsense { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests;
