//! Two requests of uploads in parts that the library does not make: "`ListParts`" and a conditional
//! "`CompleteMultipartUpload`", Amazon Simple Storage Service API Reference. Google's XML API has the first
//! as well.

use std::collections::BTreeMap;

use object_store::multipart::PartId;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, IF_NONE_MATCH};
use serde::{Deserialize, Serialize};

use super::destination::Destination;
use super::parts::Part;
use super::upload::{Condition, END, Listed, Upload, complaint, nonsense, parse, refused};
use crate::http::HttpError;

/// Ten thousand parts are ten pages; a server with smaller pages may have this many.
const MOST_PAGES: usize = 200;

/// An upload with the identifier that the store has given it.
pub(super) struct Multipart<'a> {
    pub(super) of: &'a Destination<'a>,
    pub(super) id: &'a str,
}

pub(super) fn is_page(bytes: &[u8]) -> bool {
    super::upload::parse_bytes::<Page>(bytes).is_ok()
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

/// The library's identifier of a part when checksums are requested: a tag, and a checksum that the end must
/// repeat.
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

/// The entity tag in the library's identifier of a part, without its quotes.
pub(super) fn tag_of(part: &str) -> String {
    TagAndChecksum::of(part).e_tag.trim_matches('"').to_owned()
}

impl Multipart<'_> {
    fn query(&self) -> (&'static str, String) {
        ("uploadId", self.id.to_owned())
    }
}

impl Upload for Multipart<'_> {
    fn parts(&self, _: &BTreeMap<u32, Part>) -> Result<BTreeMap<u32, Listed>, HttpError> {
        let mut listed = BTreeMap::new();
        let mut marker: u32 = 0;
        for _ in 0..MOST_PAGES {
            let mut query = vec![self.query()];
            query.extend((marker > 0).then(|| ("part-number-marker", marker.to_string())));
            let answer = self.of.ask(&Method::GET, &query, |asked| asked)?;
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

    fn complete(&self, parts: &[PartId], condition: Condition) -> Result<(), HttpError> {
        let body = completion(parts)?;
        let answer = self.of.ask(&Method::POST, &[self.query()], |asked| {
            let asked = asked.header(CONTENT_TYPE, "application/xml").body(body);
            if condition == Condition::Absent { asked.header(IF_NONE_MATCH, "*") } else { asked }
        })?;
        match answer.status {
            // The server answers before it knows the result, so a later error is in the body.
            200 => match complaint(&answer) {
                None => Ok(()),
                Some(said) => Err(HttpError::Refused { what: END, status: 500, said }),
            },
            _ => Err(refused(END, &answer)),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::super::upload::tests::answer;
    use super::*;

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
}
