//! Azure's uploads: blocks of a key that are not visible before a list of them is sent. "Get Block List" and
//! "Put Block List", Blob Service REST API.

use std::collections::BTreeMap;
use std::fmt::Write;

use ct_codecs::{Base64, Encoder};
use object_store::multipart::PartId;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, IF_NONE_MATCH};
use serde::Deserialize;

use super::destination::Destination;
use super::parts::Part;
use super::upload::{Condition, END, Listed, Upload, parse, refused};
use crate::http::HttpError;

/// The blocks of a key, and the name of the image that they will be.
pub(super) struct Blocks<'a> {
    pub(super) of: &'a Destination<'a>,
    pub(super) name: &'a str,
}

pub(super) fn is_list(bytes: &[u8]) -> bool {
    super::upload::parse_bytes::<BlockList>(bytes).is_ok()
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BlockList {
    #[serde(default)]
    uncommitted_blocks: NamedBlocks,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NamedBlocks {
    #[serde(default)]
    block: Vec<NamedBlock>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NamedBlock {
    name: String,
    size: u64,
}

/// What Azure calls a block.
fn block_name(id: &str) -> String {
    Base64::encode_to_string(id).expect("there is memory for a name")
}

fn block_list<'a>(ids: impl Iterator<Item = &'a str>) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>".to_owned();
    for id in ids {
        // Nothing in base64 needs an escape.
        write!(text, "<Uncommitted>{}</Uncommitted>", block_name(id)).expect("a text takes all");
    }
    text + "</BlockList>"
}

impl Upload for Blocks<'_> {
    fn parts(&self, noted: &BTreeMap<u32, Part>) -> Result<BTreeMap<u32, Listed>, HttpError> {
        let query =
            [("comp", "blocklist"), ("blocklisttype", "uncommitted")].map(|(key, value)| (key, value.into()));
        let answer = self.of.ask(&Method::GET, &query, |asked| asked)?;
        if answer.status != 200 {
            return Err(refused("the blocks of an upload", &answer));
        }
        let there: BTreeMap<_, _> = parse::<BlockList>(&answer)?
            .uncommitted_blocks
            .block
            .into_iter()
            .map(|block| (block.name, block.size))
            .collect();
        let listed = noted.iter().filter_map(|(number, part)| {
            let bytes = *there.get(&block_name(&part.id))?;
            Some((*number, Listed { bytes, tag: None }))
        });
        Ok(listed.collect())
    }

    fn complete(&self, parts: &[PartId], condition: Condition) -> Result<(), HttpError> {
        let body = block_list(parts.iter().map(|part| part.content_id.as_str()));
        let answer = self.of.ask(&Method::PUT, &[("comp", "blocklist".into())], |asked| {
            let asked = asked
                .header(CONTENT_TYPE, "application/xml")
                .header("x-ms-blob-content-type", crate::registry::IMAGE_TYPE)
                .header(format!("x-ms-meta-{}", self.of.name_key()), self.name)
                .body(body);
            if condition == Condition::Absent { asked.header(IF_NONE_MATCH, "*") } else { asked }
        })?;
        match answer.status {
            201 => Ok(()),
            _ => Err(refused(END, &answer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::upload::tests::answer;
    use super::*;

    #[test]
    fn a_list_of_blocks_as_azure_shows_it() {
        // "Get Block List", "Sample request and response", with the mark that Azure begins its texts with.
        let text = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<BlockList>\n<CommittedBlocks />\n<UncommittedBlocks>\n\
                    <Block><Name>QkxPQ0s=</Name><Size>1024</Size></Block>\n<Block><Name>QUFBQUFB</Name><Size>8388608</Size></Block>\n\
                    </UncommittedBlocks>\n</BlockList>";
        let list: BlockList = parse(&answer(text)).expect("a list");
        let found: Vec<_> =
            list.uncommitted_blocks.block.iter().map(|block| (block.name.as_str(), block.size)).collect();
        assert_eq!(found, [("QkxPQ0s=", 1024), ("QUFBQUFB", 8_388_608)]);
        assert_eq!(block_name("BLOCK"), "QkxPQ0s=");
        for empty in ["<BlockList/>", "<BlockList><UncommittedBlocks/></BlockList>"] {
            let list: BlockList = parse(&answer(empty)).expect("a list");
            assert!(list.uncommitted_blocks.block.is_empty());
        }
        for wrong in ["", "<", "<BlockList><UncommittedBlocks><Block/></UncommittedBlocks></BlockList>"] {
            assert!(parse::<BlockList>(&answer(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_list_of_blocks_as_azure_takes_it() {
        assert_eq!(
            block_list(["BLOCK", "AAAAAA"].into_iter()),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList><Uncommitted>QkxPQ0s=</Uncommitted>\
             <Uncommitted>QUFBQUFB</Uncommitted></BlockList>"
        );
    }
}
