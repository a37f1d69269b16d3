//! The end of an upload in parts. The library's own has no condition, and in Azure loses the image's name; so
//! this is a request of ours: "`CompleteMultipartUpload`" with a condition, Amazon Simple Storage Service API
//! Reference, or "Put Block List", Blob Service REST API.

use ct_codecs::{Base64, Encoder};
use object_store::multipart::PartId;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, IF_NONE_MATCH};
use serde::{Deserialize, Serialize};

use super::destination::Destination;
use crate::http::HttpError;

/// The most characters of a server's message that are shown.
const MOST_SAID: usize = 200;

/// An upload whose parts have all come.
pub(super) struct Completion<'a> {
    pub(super) to: &'a Destination<'a>,
    /// The store's identifier of it.
    pub(super) upload: &'a str,
    /// The image's own name.
    pub(super) name: &'a str,
    pub(super) parts: &'a [PartId],
}

impl Completion<'_> {
    /// Ends the upload: the object is then there, made of these parts. If another object has the key and only
    /// an absent one may be created, the store refuses with a status from 400 to 499.
    pub(super) fn send(&self, if_absent: bool) -> Result<(), HttpError> {
        let is_azure = self.to.is_azure();
        let (method, query, body) = if is_azure {
            (Method::PUT, ("comp", "blocklist".to_owned()), block_list(self.parts))
        } else {
            (Method::POST, ("uploadId", self.upload.to_owned()), part_list(self.parts)?)
        };
        let answer = self.to.ask(&method, &[query], |mut asked| {
            asked = asked.header(CONTENT_TYPE, "application/xml").body(body);
            if is_azure {
                asked = asked
                    .header("x-ms-blob-content-type", crate::registry::IMAGE_TYPE)
                    .header(format!("x-ms-meta-{}", self.to.name_key()), self.name);
            }
            if if_absent { asked.header(IF_NONE_MATCH, "*") } else { asked }
        })?;
        let said = complaint(&answer.body);
        match answer.status {
            201 => Ok(()),
            200 if said.is_none() => Ok(()),
            // S3 answers before it knows the result, so a later error is in the body.
            200 => Err(refused(500, said)),
            status => Err(refused(status, said)),
        }
    }
}

fn refused(status: u16, said: Option<String>) -> HttpError {
    HttpError::Refused { what: "the end of an upload", status, said: said.unwrap_or_default() }
}

fn block_list(parts: &[PartId]) -> String {
    // Nothing in base64 needs an escape.
    let name =
        |part: &PartId| Base64::encode_to_string(&part.content_id).expect("there is memory for a name");
    let blocks: String =
        parts.iter().map(|part| format!("<Uncommitted>{}</Uncommitted>", name(part))).collect();
    format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{blocks}</BlockList>")
}

#[derive(Serialize)]
#[serde(rename = "CompleteMultipartUpload")]
struct PartList {
    #[serde(rename = "Part")]
    parts: Vec<ListedPart>,
}

/// Read from the library's identifier of a part, which has a checksum when checksums are requested; the end
/// must repeat it.
#[derive(Default, Serialize, Deserialize)]
struct ListedPart {
    #[serde(rename(serialize = "ETag", deserialize = "e_tag"))]
    tag: String,
    #[serde(rename(serialize = "PartNumber"), skip_deserializing)]
    number: usize,
    #[serde(rename(serialize = "ChecksumSHA256", deserialize = "checksum_sha256"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(rename(serialize = "ChecksumCRC64NVME", deserialize = "checksum_crc64nvme"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    crc64nvme: Option<String>,
}

fn part_list(parts: &[PartId]) -> Result<String, HttpError> {
    let parts = (1..).zip(parts).map(|(number, PartId { content_id: id })| {
        let with_checksum = quick_xml::de::from_str(id);
        let part = with_checksum.unwrap_or_else(|_| ListedPart { tag: id.clone(), ..ListedPart::default() });
        ListedPart { number, ..part }
    });
    // Quotes need no escape there, and Google understands none.
    quick_xml::se::to_string(&PartList { parts: parts.collect() })
        .map(|text| text.replace("&quot;", "\""))
        .map_err(|error| HttpError::Cloud { reason: error.to_string() })
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Complaint {
    code: String,
    #[serde(default)]
    message: String,
}

/// The store's error message, in a line.
pub(super) fn complaint(body: &[u8]) -> Option<String> {
    let said: Complaint = quick_xml::de::from_str(std::str::from_utf8(body).ok()?).ok()?;
    let text = format!("{} {}", said.code, said.message);
    let text: String = text.chars().filter(|letter| !letter.is_control()).take(MOST_SAID).collect();
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<const N: usize>(ids: [&str; N]) -> [PartId; N] {
        ids.map(|id| PartId { content_id: id.to_owned() })
    }

    #[test]
    fn the_end_of_an_upload_repeats_tags_and_checksums() {
        let with_sum =
            "<PartMetadata><e_tag>\"b\"</e_tag><checksum_sha256>c2</checksum_sha256></PartMetadata>";
        let text = part_list(&parts(["\"a\"", with_sum])).expect("XML");
        assert_eq!(
            text,
            "<CompleteMultipartUpload><Part><ETag>\"a\"</ETag><PartNumber>1</PartNumber></Part>\
             <Part><ETag>\"b\"</ETag><PartNumber>2</PartNumber><ChecksumSHA256>c2</ChecksumSHA256></Part></CompleteMultipartUpload>"
        );
    }

    #[test]
    fn a_list_of_blocks_as_azure_takes_it() {
        assert_eq!(
            block_list(&parts(["BLOCK", "AAAAAA"])),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList><Uncommitted>QkxPQ0s=</Uncommitted>\
             <Uncommitted>QUFBQUFB</Uncommitted></BlockList>"
        );
    }

    #[test]
    fn complaints_are_shown_in_a_line() {
        let said =
            "<Error><Code>NoSuchUpload</Code><Message>not\nhere</Message><RequestId>1</RequestId></Error>";
        assert_eq!(complaint(said.as_bytes()).as_deref(), Some("NoSuchUpload nothere"));
        assert!(super::super::understands_answer(said.as_bytes()));
        let result = "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>";
        for text in [result.as_bytes(), b"", b"<", b"\xff", b"<html><body>"] {
            assert_eq!(complaint(text), None, "{text:?}");
            assert!(!super::super::understands_answer(text));
        }
    }
}
