//! What the head of an answer means: RFC 9110, sections 8 and 13 to 15. No I/O.

use std::time::{Duration, SystemTime};

use hs_units::ByteRange;
use reqwest::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName,
    LAST_MODIFIED, RETRY_AFTER,
};

use super::HttpError;
use super::line::SKIPPED_BYTES;

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

    /// When it was modified, where the server says so.
    #[must_use]
    pub fn modified(&self) -> Option<SystemTime> {
        self.last_modified.as_deref().and_then(time)
    }

    /// Whether `self`, which was opened, may be the file that `other` describes. A missing field cannot
    /// differ. Tags are compared weakly (RFC 9110, 8.8.3.2): proxies make strong tags weak.
    pub(super) fn may_be(&self, other: &Self) -> bool {
        if self.len != other.len {
            return false;
        }
        match (&self.etag, &other.etag) {
            (Some(one), Some(two)) => opaque(one) == opaque(two),
            _ => match (&self.last_modified, &other.last_modified) {
                (Some(one), Some(two)) => one == two || time(one).is_some_and(|one| time(two) == Some(one)),
                _ => true,
            },
        }
    }
}

/// A tag without the mark of a weak one.
fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// A date of HTTP (RFC 9110, 5.6.7), also with another zone than the `GMT` that it demands.
fn time(text: &str) -> Option<SystemTime> {
    let (local, zone) = text.trim().rsplit_once(' ')?;
    let offset_minutes = match zone {
        "GMT" | "UTC" | "UT" | "Z" => 0,
        _ => match zone.split_at_checked(1) {
            Some((sign @ ("+" | "-"), digits)) if digits.len() == 4 => {
                let digits: i64 = digits.parse().ok().filter(|digits| *digits >= 0)?;
                let minutes = digits / 100 * 60 + digits % 100;
                if sign == "-" { -minutes } else { minutes }
            }
            _ => return httpdate::parse_http_date(text.trim()).ok(),
        },
    };
    let then = httpdate::parse_http_date(&format!("{local} GMT")).ok()?;
    let offset = Duration::from_secs(offset_minutes.unsigned_abs() * 60);
    if offset_minutes < 0 { then.checked_add(offset) } else { then.checked_sub(offset) }
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
    /// These bytes of this file. They may begin before the first that was asked for.
    Bytes(ByteRange, Version),
    /// The same of a file that was not opened before, whose length the server does not say.
    Unmeasured(ByteRange, Version),
    /// Nothing: the file is still the one that was named.
    Unchanged,
}

/// What is known of the file that an answer should be of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected<'a> {
    /// The file that was opened.
    pub(crate) opened: Option<&'a Version>,
    /// Digests prove the bytes, so that tags and dates may differ.
    pub(crate) is_proven: bool,
}

/// Understands the head of an answer to a request for `range`.
pub(crate) fn understand(
    status: u16,
    headers: &HeaderMap,
    range: ByteRange,
    expected: Expected<'_>,
) -> Result<Brings, HttpError> {
    let opened = expected.opened;
    if matches!(status, 200 | 206)
        && let Some(coding) = coding(headers)
    {
        let reason = format!("the bytes are compressed ({coding}), which was not asked for");
        return Err(HttpError::Nonsense { reason });
    }
    let brings = match status {
        206 => partial(headers, range, opened)?,
        200 => whole(headers, range, opened)?,
        304 => return Ok(Brings::Unchanged),
        412 | 416 => return Err(unmatched(status, headers, range, opened)),
        _ => return Err(HttpError::Status { status, retry_after: retry_after(headers, SystemTime::now()) }),
    };
    if let (Brings::Bytes(_, now), Some(was)) = (&brings, opened)
        && !(was.may_be(now) || expected.is_proven && was.len == now.len)
    {
        return Err(HttpError::Replaced { was: was.to_string(), is: now.to_string() });
    }
    Ok(brings)
}

/// How the bytes are encoded, if they are. `aws-chunked` says how an object came into its store, and some
/// stores repeat it with every answer.
fn coding(headers: &HeaderMap) -> Option<String> {
    let fields = headers.get_all(CONTENT_ENCODING).iter();
    let codings: Vec<_> = fields.map(|field| String::from_utf8_lossy(field.as_bytes())).collect();
    let mut codings = codings.iter().flat_map(|field| field.split(',')).map(str::trim);
    let is_none = |coding: &str| {
        coding.is_empty() || ["identity", "aws-chunked"].iter().any(|none| coding.eq_ignore_ascii_case(none))
    };
    codings.find(|coding| !is_none(coding)).map(|coding| coding.chars().take(20).collect())
}

/// 412, and 416: the range lies behind the end.
fn unmatched(status: u16, headers: &HeaderMap, range: ByteRange, opened: Option<&Version>) -> HttpError {
    let len =
        text(headers, &CONTENT_RANGE).and_then(|field| range_of(field)?.strip_prefix("*/")?.parse().ok());
    match opened {
        None if status == 416 && len == Some(0) => {
            HttpError::NotAnImage { reason: "the file is empty".to_owned() }
        }
        None => HttpError::Status { status, retry_after: None },
        // This server, or a cache before it, made an error this time.
        Some(was) if status == 416 && len == Some(was.len) => {
            nonsense(&format!("it has no bytes {range}, of {} bytes", was.len))
        }
        Some(was) => HttpError::Replaced { was: was.to_string(), is: other(headers) },
    }
}

/// 206: some of the range, from its start on. A server may send more than was asked for: what lies behind the
/// range is not read, and a little before it is skipped.
fn partial(headers: &HeaderMap, range: ByteRange, opened: Option<&Version>) -> Result<Brings, HttpError> {
    let field = text(headers, &CONTENT_RANGE).ok_or_else(|| nonsense("a part without Content-Range"))?;
    let (first, last, len) =
        content_range(field).ok_or_else(|| nonsense(&format!("Content-Range: {field}")))?;
    let is_near = range.offset.checked_sub(first).is_some_and(|before| before <= SKIPPED_BYTES);
    let is_within = len.is_none_or(|len| last < len) && last != u64::MAX;
    if !is_near || last < range.offset || !is_within {
        return Err(nonsense(&format!("bytes {range} were asked for, Content-Range: {field}")));
    }
    if content_length(headers).is_some_and(|length| length != last - first + 1) {
        return Err(nonsense(&format!("Content-Range: {field} with another Content-Length")));
    }
    let came = ByteRange::new(first, range.end().min(last + 1) - first);
    match len.or(opened.map(|opened| opened.len)) {
        Some(len) if came.end() <= len => Ok(Brings::Bytes(came, version(headers, len))),
        Some(_) => Err(nonsense(&format!("Content-Range: {field} behind the end"))),
        None => Ok(Brings::Unmeasured(came, version(headers, 0))),
    }
}

/// 200: the whole file. That is as good where the range begins with the first byte and the server supports
/// ranges. On the first request it shows that by 206, or by a header where all of a small file was requested.
fn whole(headers: &HeaderMap, range: ByteRange, opened: Option<&Version>) -> Result<Brings, HttpError> {
    let len = content_length(headers);
    let says_so = text(headers, &ACCEPT_RANGES).is_some_and(|unit| unit.eq_ignore_ascii_case("bytes"));
    let wanted_all = says_so && len.is_some_and(|len| len <= range.len);
    if opened.is_some() && range.offset != 0 {
        // The file was opened with a 206, so this server, or a cache before it, made an error this time.
        return Err(nonsense("the whole file where a part was asked for"));
    }
    if range.offset != 0 || !(opened.is_some() || wanted_all) {
        return Err(HttpError::RangesIgnored);
    }
    let len = len.ok_or_else(|| nonsense("a file without Content-Length"))?;
    Ok(Brings::Bytes(ByteRange::new(0, len.min(range.len)), version(headers, len)))
}

/// The length that the head of the whole file has (HEAD), if it is the file that an answer was of.
pub(crate) fn length_of_head(status: u16, headers: &HeaderMap, answered: &Version) -> Option<u64> {
    let len = content_length(headers).filter(|_| status == 200 && coding(headers).is_none())?;
    let answered = Version { len, ..answered.clone() };
    answered.may_be(&version(headers, len)).then_some(len)
}

fn version(headers: &HeaderMap, len: u64) -> Version {
    let owned = |name: &HeaderName| text(headers, name).map(str::to_owned);
    Version { len, etag: owned(&ETAG), last_modified: owned(&LAST_MODIFIED) }
}

/// `bytes FIRST-LAST/LENGTH`, where a server that does not know the length says `*`.
fn content_range(field: &str) -> Option<(u64, u64, Option<u64>)> {
    let (span, len) = range_of(field)?.split_once('/')?;
    let (first, last) = span.split_once('-')?;
    let len = match len.trim() {
        "*" => None,
        len => Some(len.parse().ok()?),
    };
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?, len))
}

/// What follows the unit, whose letters may be of either case (RFC 9110, 14.1).
fn range_of(field: &str) -> Option<&str> {
    let (unit, rest) = field.split_once(' ')?;
    unit.eq_ignore_ascii_case("bytes").then(|| rest.trim_start())
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
            let then = time(field)?;
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
