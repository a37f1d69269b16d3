//! Objects in clouds, and in other stores with the same interfaces: `s3://BUCKET/KEY`, `gs://BUCKET/KEY`,
//! `az://CONTAINER/KEY`.
//!
//! The library `object_store` provides credentials, signatures and uploads. Reading is ours: [`CloudObject`]
//! signs an address, which is then read like any web server's. So there is one way to read over a network,
//! with one long response, one retry policy and one check that the object is still the same.
//!
//! [`push()`] sends an image with one request, or in parts, so that a later process can continue.

mod address;
mod blocks;
mod destination;
mod multipart;
mod object;
mod parts;
mod profile;
mod push;
mod settings;
mod upload;

pub use address::CloudAddress;
pub use object::CloudObject;
pub use push::{Object, abandon, push};
pub use settings::Settings;

/// Whether these bytes are an answer that an upload understands: of S3, or of Azure. For the fuzz targets.
#[doc(hidden)]
#[must_use]
pub fn understands_answer(bytes: &[u8]) -> bool {
    // Each is tried, whatever the result of the others.
    [multipart::is_page(bytes), blocks::is_list(bytes), upload::is_complaint(bytes)].contains(&true)
}

#[cfg(test)]
mod tests {
    use super::understands_answer;

    #[test]
    fn answers_of_both_kinds_of_uploads_and_complaints_are_understood() {
        for text in [
            "<a><Part><PartNumber>1</PartNumber><Size>2</Size></Part></a>",
            "<BlockList/>",
            "<E><Code>x</Code></E>",
        ] {
            assert!(understands_answer(text.as_bytes()), "{text}");
        }
        for text in [&b""[..], b"<", b"\xff", b"<html><body>"] {
            assert!(!understands_answer(text), "{text:?}");
        }
    }
}
