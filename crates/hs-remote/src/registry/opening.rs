//! What opens an image, brought by one process for another that is being started meanwhile: the manifest, the
//! login that the registry wanted, and answers with the image's first bytes and its index.
//!
//! ```text
//! line of JSON: how long all else is │ manifest │ body │ body
//! ```
//!
//! The manifest must be the one that the address names by its digest. What the answers bring is verified as
//! if it had just come.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use hs_units::ByteRange;
use reqwest::Method;
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderValue, RANGE};
use serde::{Deserialize, Serialize};

use super::access::refused;
use super::address::RegistryAddress;
use super::blob::RegistryImage;
use super::login::Logins;
use super::manifest::{Described, Manifest};
use super::repository::Repository;
use crate::http::{Brought, BroughtAnswer, HttpClient, HttpError, Transport};
use crate::sha256::Sha256;

/// The most bytes of an index that are brought: larger ones are not read as a whole.
const MOST_INDEX_BYTES: u64 = 512 << 10;

/// What opens one image. Never printed: it may have a login.
pub struct Opening {
    manifest: Bytes,
    authorization: Option<String>,
    answers: Vec<BroughtAnswer>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    manifest_bytes: usize,
    authorization: Option<String>,
    answers: Vec<AnswerHead>,
}

#[derive(Serialize, Deserialize)]
struct AnswerHead {
    offset: u64,
    len: u64,
    status: u16,
    fields: Vec<(String, String)>,
    url: String,
    body_bytes: usize,
}

impl Repository {
    /// Brings what opens the image of this manifest: its first bytes, so many of them, and, `with_index`, the
    /// index where the manifest says that it is needed at once.
    ///
    /// # Errors
    /// When it is no manifest of an image, or the registry refuses.
    pub fn opening(&self, manifest: &[u8], first_bytes: u64, with_index: bool) -> Result<Opening, HttpError> {
        let Described { blob, size, .. } = Manifest::describe(manifest)?;
        let index = index_of(manifest, size).filter(|_| with_index);
        let (first, apart) = std::thread::scope(|scope| {
            let apart = index.filter(|range| range.end() > first_bytes);
            let apart = apart.map(|range| scope.spawn(move || self.part(blob, range)));
            let first = self.part(blob, ByteRange::new(0, first_bytes));
            (first, apart.and_then(|apart| apart.join().ok()?.ok()))
        });
        let first = first?;
        let index = apart.or_else(|| first.part(index?));
        let answers = std::iter::once(first).chain(index).collect();
        let authorization = self.access().headers().get(AUTHORIZATION).cloned();
        let authorization = authorization.and_then(|value| Some(value.to_str().ok()?.to_owned()));
        Ok(Opening { manifest: Bytes::copy_from_slice(manifest), authorization, answers })
    }

    fn part(&self, blob: Sha256, range: ByteRange) -> Result<BroughtAnswer, HttpError> {
        let url = self.access().address().url(&format!("blobs/{blob}"))?;
        let asked = format!("bytes={}-{}", range.offset, range.end() - 1);
        let answer = self.access().ask(&Method::GET, &url, |request| {
            request.header(ACCEPT_ENCODING, "identity").header(RANGE, &asked)
        })?;
        if !matches!(answer.status, 200 | 206) {
            return Err(refused("the blob", &answer));
        }
        let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
        let fields = answer.headers.iter();
        let fields = fields.filter_map(|(name, value)| Some((name.to_string(), text(value)?))).collect();
        let body = answer.body.into();
        Ok(BroughtAnswer { range, status: answer.status, fields, url: answer.url, body })
    }
}

/// Where the index lies in an image of `size` bytes, if it is to be brought.
fn index_of(manifest: &[u8], size: u64) -> Option<ByteRange> {
    Manifest::index(manifest).filter(|range| range.len <= MOST_INDEX_BYTES && range.fits_in(size))
}

impl Opening {
    /// Writes it for the other process.
    ///
    /// # Errors
    /// When that does not read it.
    pub fn write_to(&self, to: &mut impl Write) -> io::Result<()> {
        let head = |answer: &BroughtAnswer| AnswerHead {
            offset: answer.range.offset,
            len: answer.range.len,
            status: answer.status,
            fields: answer.fields.clone(),
            url: answer.url.to_string(),
            body_bytes: answer.body.len(),
        };
        let head = Head {
            manifest_bytes: self.manifest.len(),
            authorization: self.authorization.clone(),
            answers: self.answers.iter().map(head).collect(),
        };
        serde_json::to_writer(&mut *to, &head)?;
        to.write_all(b"\n")?;
        to.write_all(&self.manifest)?;
        self.answers.iter().try_for_each(|answer| to.write_all(&answer.body))
    }

    /// What another process has written; `None` where it was cut off.
    #[must_use]
    pub fn parse(bytes: Bytes) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
        let mut rest = bytes.slice(end + 1..);
        let mut take = |len: usize| (len <= rest.len()).then(|| rest.split_to(len));
        let manifest = take(head.manifest_bytes)?;
        let answers = head.answers.into_iter().map(|answer| {
            let range = ByteRange::new(answer.offset, answer.len);
            let (status, fields, url) = (answer.status, answer.fields, answer.url.parse().ok()?);
            Some(BroughtAnswer { range, status, fields, url, body: take(answer.body_bytes)? })
        });
        let answers = answers.collect::<Option<_>>()?;
        Some(Self { manifest, authorization: head.authorization, answers })
    }

    /// What finds the image at `address`, and what makes the requests for it.
    ///
    /// # Errors
    /// When the address does not name the manifest by its digest, or that is not of an image.
    pub fn of(
        self,
        address: &RegistryAddress,
        client: &Arc<HttpClient>,
        logins: Logins,
    ) -> Result<(RegistryImage, Arc<dyn Transport>), HttpError> {
        let authorization = self.authorization.and_then(|text| HeaderValue::try_from(text).ok());
        let client = Arc::clone(client);
        let image = RegistryImage::of_manifest(
            address.clone(),
            Arc::clone(&client),
            logins,
            &self.manifest,
            authorization,
        )?;
        let transport: Arc<dyn Transport> = Arc::new(Brought::new(client, self.answers));
        Ok((image, transport))
    }
}

#[cfg(test)]
mod tests {
    use crate::http::Timeouts;
    use crate::registry::manifest::INDEX_ANNOTATION;

    use super::*;

    fn opening(manifest: &str) -> Opening {
        let manifest = Bytes::copy_from_slice(manifest.as_bytes());
        Opening { manifest, authorization: None, answers: Vec::new() }
    }

    #[test]
    fn only_the_manifest_of_the_address_is_taken_and_only_of_an_image() {
        let client = HttpClient::new(Timeouts::default()).expect("a client");
        let layer = |kind: &str| {
            format!(r#"{{"mediaType":"{kind}","digest":"sha256:{}","size":1}}"#, "ab".repeat(32))
        };
        let manifest = |layer: &str| format!(r#"{{"schemaVersion":2,"layers":[{layer}]}}"#);
        let image = manifest(&layer(super::super::IMAGE_TYPE));
        let container = manifest(&layer("application/vnd.oci.image.layer.v1.tar+gzip"));
        let list = r#"{"schemaVersion":2,"manifests":[]}"#;
        let address = |manifest: &str| {
            let digest = Sha256::of(manifest.as_bytes());
            RegistryAddress::parse(&format!("oci://h.example/a@{digest}")).expect("an address")
        };
        let is_taken = |manifest: &str, address: &RegistryAddress| {
            opening(manifest).of(address, &client, Logins::default()).is_ok()
        };
        assert!(is_taken(&image, &address(&image)));
        assert!(!is_taken(&image, &address(&container)));
        assert!(!is_taken(&image, &RegistryAddress::parse("oci://h.example/a:1").expect("an address")));
        for other in [container.as_str(), list, "{}", "x"] {
            assert!(!is_taken(other, &address(other)), "{other}");
        }
    }

    #[test]
    fn an_index_is_brought_that_is_small_and_lies_in_the_image() {
        let brought = |index: &str| {
            let manifest =
                format!(r#"{{"schemaVersion":2,"annotations":{{"{INDEX_ANNOTATION}":"{index}"}}}}"#);
            index_of(manifest.as_bytes(), 1 << 20).map(|range| (range.offset, range.len))
        };
        assert_eq!(brought("524288+524288"), Some((512 << 10, 512 << 10)));
        for other in ["0+524289", "524289+524288", "18446744073709551615+1", "0+0", "0", "x+1", ""] {
            assert_eq!(brought(other), None, "{other}");
        }
    }

    #[test]
    fn a_part_of_what_came_is_an_answer_of_its_own() {
        let answer = |status, said: Option<&str>| BroughtAnswer {
            range: ByteRange::new(0, 100),
            status,
            fields: said.map(|said| ("content-range".to_owned(), said.to_owned())).into_iter().collect(),
            url: "http://h/".parse().expect("one"),
            body: (0..50).collect::<Vec<u8>>().into(),
        };
        let ten = ByteRange::new(40, 10);
        for (status, said, len) in [(206, Some("bytes 0-49/70"), "70"), (200, None, "50")] {
            let part = answer(status, said).part(ten).expect("a part");
            assert_eq!(
                (part.status, part.range, &part.body[..]),
                (206, ten, &[40, 41, 42, 43, 44, 45, 46, 47, 48, 49][..])
            );
            assert_eq!(part.fields, [("content-range".to_owned(), format!("bytes 40-49/{len}"))]);
            assert!(answer(status, said).part(ByteRange::new(41, 10)).is_none());
            assert!(answer(status, said).part(ByteRange::new(41, 0)).is_none());
        }
        for (status, said) in
            [(206, Some("bytes 1-49/70")), (206, Some("bytes 0-")), (206, None), (503, None)]
        {
            assert!(answer(status, said).part(ten).is_none(), "{status} {said:?}");
        }
    }
}
