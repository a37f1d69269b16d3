//! The parts of an upload that the library does not support: listing what has come, and ending the upload on
//! a condition. Each kind of store has its own requests for that, made at addresses that are signed for a
//! short time.

use std::collections::BTreeMap;

use object_store::multipart::PartId;
use serde::Deserialize;

use super::parts::Part;
use crate::http::{Answer, HttpError};

/// The most characters of a server's message that are shown.
const MOST_SAID: usize = 200;
/// The name of the end of an upload in messages.
pub(super) const END: &str = "the end of an upload";

/// An upload that is under way.
pub(super) trait Upload {
    /// The parts that the store has, by their numbers from 1 on; at least those of `noted` that it has.
    fn parts(&self, noted: &BTreeMap<u32, Part>) -> Result<BTreeMap<u32, Listed>, HttpError>;

    /// Ends the upload: the object is then there, made of these parts. If another object has the key and must
    /// not be replaced, the store refuses with a status from 400 to 499.
    fn complete(&self, parts: &[PartId], condition: Condition) -> Result<(), HttpError>;
}

/// A part that the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) bytes: u64,
    /// Its entity tag, where the store reports it.
    pub(super) tag: Option<String>,
}

/// The condition for ending an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// None: what is there is replaced.
    None,
    /// No object has the key.
    Absent,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Complaint {
    code: String,
    #[serde(default)]
    message: String,
}

pub(super) fn is_complaint(bytes: &[u8]) -> bool {
    parse_bytes::<Complaint>(bytes).is_ok()
}

pub(super) fn parse<T: serde::de::DeserializeOwned>(answer: &Answer) -> Result<T, HttpError> {
    parse_bytes(&answer.body)
}

pub(super) fn parse_bytes<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, HttpError> {
    let text = std::str::from_utf8(bytes).map_err(|_| nonsense("an answer that is no text"))?;
    quick_xml::de::from_str(text).map_err(|_| nonsense("an answer that is not what was asked for"))
}

pub(super) fn nonsense(reason: &str) -> HttpError {
    HttpError::Nonsense { reason: reason.to_owned() }
}

/// The store's error message, in a line.
pub(super) fn complaint(answer: &Answer) -> Option<String> {
    let said: Complaint = parse(answer).ok()?;
    let text = format!("{} {}", said.code, said.message);
    let text: String = text.chars().filter(|letter| !letter.is_control()).take(MOST_SAID).collect();
    Some(text.trim().to_owned())
}

pub(super) fn refused(what: &'static str, answer: &Answer) -> HttpError {
    HttpError::Refused { what, status: answer.status, said: complaint(answer).unwrap_or_default() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::cloud) fn answer(body: &str) -> Answer {
        Answer {
            status: 200,
            headers: reqwest::header::HeaderMap::new(),
            url: "http://host/".parse().expect("an address"),
            body: body.as_bytes().to_vec(),
        }
    }

    #[test]
    fn complaints_are_told_in_a_line() {
        let said =
            "<Error><Code>NoSuchUpload</Code><Message>not\nhere</Message><RequestId>1</RequestId></Error>";
        assert_eq!(complaint(&answer(said)).as_deref(), Some("NoSuchUpload nothere"));
        assert_eq!(
            complaint(&answer(
                "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
            )),
            None
        );
    }
}
