//! Two requests of uploads in parts that the library does not make: "`ListParts`" and a conditional "`CompleteMultipartUpload`", Amazon Simple Storage
//! Service API Reference. Google's XML API has the first as well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::signer::SignedUrlOptions;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, IF_NONE_MATCH};
use serde::{Deserialize, Serialize};

use super::object::said;
use super::settings::Bucket;
use crate::http::{Answer, HttpClient, HttpError};

/// Each address is signed for one request.
const SIGNED_FOR: Duration = Duration::from_secs(300);
/// What is told of a server's own words.
const MOST_SAID: usize = 200;
/// Ten thousand parts are ten pages; a server that gives fewer at a time than it may has so many.
const MOST_PAGES: usize = 200;

/// An upload, where its requests go.
pub(super) struct Upload<'a> {
    pub(super) client: &'a Arc<HttpClient>,
    pub(super) bucket: &'a dyn Bucket,
    pub(super) key: &'a Path,
    pub(super) id: &'a str,
}

/// A part that the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) bytes: u64,
    /// Its entity tag, where the store tells it, which it need not.
    pub(super) tag: Option<String>,
}

/// On what condition an upload is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// None: what is there is replaced.
    None,
    /// No object has the key.
    Absent,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    #[serde(default)]
    is_truncated: Option<bool>,
    #[serde(default)]
    next_part_number_marker: Option<String>,
    #[serde(default)]
    part: Vec<PagePart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PagePart {
    part_number: u32,
    size: u64,
    #[serde(default, rename = "ETag")]
    tag: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Complaint {
    code: String,
    #[serde(default)]
    message: String,
}

#[derive(Serialize)]
#[serde(rename = "CompleteMultipartUpload")]
struct Completion {
    #[serde(rename = "Part")]
    parts: Vec<CompletionPart>,
}

#[derive(Serialize)]
struct CompletionPart {
    #[serde(rename = "ETag")]
    tag: String,
    #[serde(rename = "PartNumber")]
    number: usize,
    #[serde(rename = "ChecksumSHA256", skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(rename = "ChecksumCRC64NVME", skip_serializing_if = "Option::is_none")]
    crc64nvme: Option<String>,
}

/// What the library calls a part when checksums are asked for: a tag, and a checksum that the end must repeat.
#[derive(Deserialize)]
struct TagAndChecksum {
    e_tag: String,
    #[serde(default)]
    checksum_sha256: Option<String>,
    #[serde(default)]
    checksum_crc64nvme: Option<String>,
}

impl TagAndChecksum {
    fn of(part: &str) -> Self {
        quick_xml::de::from_str(part).unwrap_or_else(|_| Self {
            e_tag: part.to_owned(),
            checksum_sha256: None,
            checksum_crc64nvme: None,
        })
    }
}

/// The entity tag in what the library calls a part, without its quotes.
pub(super) fn tag_of(part: &str) -> String {
    TagAndChecksum::of(part).e_tag.trim_matches('"').to_owned()
}

impl Upload<'_> {
    /// The parts that the store has, by their numbers from 1 on.
    pub(super) fn parts(&self) -> Result<BTreeMap<u32, Listed>, HttpError> {
        let mut listed = BTreeMap::new();
        let mut marker = 0;
        for _ in 0..MOST_PAGES {
            let answer = self.ask(&Method::GET, Some(marker).filter(|marker| *marker > 0), |asked| asked)?;
            if answer.status != 200 {
                return Err(refused("the parts of an upload", &answer));
            }
            let page: Page = parse(&answer)?;
            for part in page.part {
                let tag = part.tag.map(|tag| tag.trim_matches('"').to_owned());
                listed.insert(part.part_number, Listed { bytes: part.size, tag });
            }
            if page.is_truncated != Some(true) {
                return Ok(listed);
            }
            let next = page.next_part_number_marker.and_then(|next| next.trim().parse().ok());
            marker = next
                .filter(|next| *next > marker)
                .ok_or_else(|| nonsense("a list of parts that does not end"))?;
        }
        Err(nonsense("a list of parts that does not end"))
    }

    /// Ends the upload: then the object is there. Where another one has the key, and that is not to be, it is refused with the status 412.
    pub(super) fn complete(&self, parts: &[PartId], condition: Condition) -> Result<(), HttpError> {
        let body = completion(parts)?;
        let answer = self.ask(&Method::POST, None, |asked| {
            let asked = asked.header(CONTENT_TYPE, "application/xml").body(body.clone());
            if condition == Condition::Absent { asked.header(IF_NONE_MATCH, "*") } else { asked }
        })?;
        match answer.status {
            // It answers before it knows, so that what goes wrong later is told in the body.
            200 => match complaint(&answer) {
                None => Ok(()),
                Some(said) => Err(HttpError::Refused { what: END, status: 500, said }),
            },
            _ => Err(refused(END, &answer)),
        }
    }

    fn ask(
        &self,
        method: &Method,
        marker: Option<u32>,
        with: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder,
    ) -> Result<Answer, HttpError> {
        let mut query = vec![("uploadId", self.id.to_owned())];
        query.extend(marker.map(|marker| ("part-number-marker", marker.to_string())));
        let options = SignedUrlOptions::new().with_query(query);
        let signed = self.bucket.signed_url_opts(method.clone(), self.key, SIGNED_FOR, &options);
        let url = self.client.wait_for(signed).map_err(|error| HttpError::Cloud { reason: said(&error) })?;
        self.client.exchange(with(self.client.requests().request(method.clone(), url)))
    }
}

/// What the end of an upload is called in messages.
const END: &str = "the end of an upload";

fn completion(parts: &[PartId]) -> Result<String, HttpError> {
    let parts = parts.iter().enumerate().map(|(at, part)| {
        let part = TagAndChecksum::of(&part.content_id);
        CompletionPart {
            tag: part.e_tag,
            number: at + 1,
            sha256: part.checksum_sha256,
            crc64nvme: part.checksum_crc64nvme,
        }
    });
    // Quotes need no escape there, and Google understands none.
    quick_xml::se::to_string(&Completion { parts: parts.collect() })
        .map(|text| text.replace("&quot;", "\""))
        .map_err(|error| HttpError::Cloud { reason: error.to_string() })
}

fn parse<T: serde::de::DeserializeOwned>(answer: &Answer) -> Result<T, HttpError> {
    let text = std::str::from_utf8(&answer.body).map_err(|_| nonsense("an answer that is no text"))?;
    quick_xml::de::from_str(text).map_err(|_| nonsense("an answer that is not what was asked for"))
}

fn nonsense(reason: &str) -> HttpError {
    HttpError::Nonsense { reason: reason.to_owned() }
}

/// What the store complains of, in a line.
fn complaint(answer: &Answer) -> Option<String> {
    let said: Complaint = parse(answer).ok()?;
    let text = format!("{} {}", said.code, said.message);
    let text: String = text.chars().filter(|letter| !letter.is_control()).take(MOST_SAID).collect();
    Some(text.trim().to_owned())
}

fn refused(what: &'static str, answer: &Answer) -> HttpError {
    HttpError::Refused { what, status: answer.status, said: complaint(answer).unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str) -> Answer {
        Answer {
            status: 200,
            headers: reqwest::header::HeaderMap::new(),
            url: "http://host/".parse().expect("an address"),
            body: body.as_bytes().to_vec(),
        }
    }

    #[test]
    fn a_list_of_parts_as_amazon_shows_it() {
        // "Sample Response" of ListParts, shortened.
        let page: Page = parse(&answer(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListPartsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <Bucket>example-bucket</Bucket><Key>example-object</Key><UploadId>XXBsb2FkIElEIGZvciBlbHZpbmcncyVcdS1tb3ZpZS5tMnRzEEEwbG9hZA</UploadId>\
             <Initiator><ID>arn</ID><DisplayName>u</DisplayName></Initiator><StorageClass>STANDARD</StorageClass>\
             <PartNumberMarker>1</PartNumberMarker><NextPartNumberMarker>3</NextPartNumberMarker><MaxParts>2</MaxParts><IsTruncated>true</IsTruncated>\
             <Part><PartNumber>2</PartNumber><LastModified>2010-11-10T20:48:34.000Z</LastModified><ETag>\"7778aef83f66abc1fa1e8477f296d394\"</ETag><Size>10485760</Size></Part>\
             <Part><PartNumber>3</PartNumber><Size>10485761</Size></Part></ListPartsResult>",
        ))
        .expect("a page");
        assert_eq!((page.is_truncated, page.next_part_number_marker.as_deref()), (Some(true), Some("3")));
        assert_eq!((page.part[0].part_number, page.part[0].size), (2, 10_485_760));
        assert_eq!(page.part[0].tag.as_deref(), Some("\"7778aef83f66abc1fa1e8477f296d394\""));
        assert_eq!((page.part[1].part_number, page.part[1].tag.as_deref()), (3, None));
        for wrong in ["", "<", "<a><b></a>", "<ListPartsResult><Part><Size>x</Size></Part></ListPartsResult>"]
        {
            assert!(parse::<Page>(&answer(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_end_of_an_upload_repeats_tags_and_checksums() {
        let part = |id: &str| PartId { content_id: id.to_owned() };
        let with_sum =
            "<PartMetadata><e_tag>\"b\"</e_tag><checksum_sha256>c2</checksum_sha256></PartMetadata>";
        assert_eq!((tag_of("\"a\""), tag_of(with_sum)), ("a".to_owned(), "b".to_owned()));
        let text = completion(&[part("\"a\""), part(with_sum)]).expect("XML");
        assert_eq!(
            text,
            "<CompleteMultipartUpload><Part><ETag>\"a\"</ETag><PartNumber>1</PartNumber></Part>\
             <Part><ETag>\"b\"</ETag><PartNumber>2</PartNumber><ChecksumSHA256>c2</ChecksumSHA256></Part></CompleteMultipartUpload>"
        );
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
