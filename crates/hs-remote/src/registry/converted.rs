//! Images that were made of a container's image, and refer to it.
//!
//! Write access to the repository is enough to attach such an image: the digest of the container's image, or
//! its signature, says nothing of it.

use std::cmp::Reverse;

use reqwest::Method;
use reqwest::header::ACCEPT;
use serde::Deserialize;

use super::access::{Access, refused};
use super::manifest::{
    CHAIN_ANNOTATION, CREATED_ANNOTATION, Described, Descriptor, IMAGE_TYPE, Manifest, SOURCE_ANNOTATION,
};
use super::referrers;
use super::repository::ACCEPTED;
use crate::http::HttpError;
use crate::sha256::Sha256;

/// Of the images that are said to be made of a container's image, how many are looked at.
const MOST_LOOKED_AT: usize = 16;

/// An image that was made of a container's image.
pub(super) struct Converted {
    /// Its manifest, with what that itself says.
    pub(super) manifest: Descriptor,
    /// Its bytes.
    pub(super) bytes: Vec<u8>,
    /// The image.
    pub(super) image: Described,
}

/// The last image that was made of the container's image `subject`.
pub(super) fn find(
    access: &Access,
    subject: Sha256,
    chain_id: Option<&str>,
) -> Result<Option<Converted>, HttpError> {
    let listed = newest_first(referrers::list(access, subject, IMAGE_TYPE)?);
    for listed in listed.into_iter().take(MOST_LOOKED_AT) {
        let bytes = match fetch(access, &listed.digest) {
            Ok(bytes) => bytes,
            // A list may outlive what it lists.
            Err(HttpError::Refused { status: 404, .. } | HttpError::Digest { .. }) => continue,
            Err(error) => return Err(error),
        };
        match converted(&bytes, subject, chain_id) {
            Some(found) => return Ok(Some(found)),
            None => log::debug!("{}: {} is not of this image", access.address(), listed.digest),
        }
    }
    Ok(None)
}

/// The order in which referrers count: the last one that was made is the first.
#[must_use]
pub fn newest_first(mut listed: Vec<Descriptor>) -> Vec<Descriptor> {
    listed.sort_by_cached_key(|referrer| {
        Reverse((referrer.annotations.get(CREATED_ANNOTATION).cloned(), referrer.digest.clone()))
    });
    listed
}

/// The image that this manifest is of, if it was made of `subject`.
fn converted(bytes: &[u8], subject: Sha256, chain_id: Option<&str>) -> Option<Converted> {
    let manifest = Manifest::referrer(bytes, subject)?;
    let says = |key: &str| manifest.annotations.get(key).map(String::as_str);
    let is_of_this = says(SOURCE_ANNOTATION).and_then(|digest| digest.parse().ok()) == Some(subject)
        && chain_id.is_none_or(|chain_id| says(CHAIN_ANNOTATION) == Some(chain_id))
        && manifest.artifact_type.as_deref() == Some(IMAGE_TYPE);
    let image = Manifest::describe(bytes).ok().filter(|image| is_of_this && image.name.is_some())?;
    Some(Converted { manifest, bytes: bytes.to_vec(), image })
}

/// A manifest by its digest, which is right.
fn fetch(access: &Access, digest: &str) -> Result<Vec<u8>, HttpError> {
    let url = access.address().url(&format!("manifests/{digest}"))?;
    let answer = access.ask(&Method::GET, &url, |asked| asked.header(ACCEPT, ACCEPTED.join(", ")))?;
    if answer.status != 200 {
        return Err(refused("the manifest", &answer));
    }
    let found = Sha256::of(&answer.body).to_string();
    if found != digest {
        return Err(HttpError::Digest { expected: digest.to_owned(), found });
    }
    Ok(answer.body)
}

/// A small file that refers to `subject`, and its manifest.
pub(super) fn attached(
    access: &Access,
    digest: &str,
    subject: Sha256,
    artifact_type: &str,
) -> Result<Option<(Descriptor, Vec<u8>)>, HttpError> {
    let bytes = fetch(access, digest)?;
    let manifest = Manifest::referrer(&bytes, subject);
    let manifest = manifest.filter(|manifest| manifest.artifact_type.as_deref() == Some(artifact_type));
    let Some(manifest) = manifest else { return Ok(None) };
    let Described { blob, .. } = Manifest::describe(&bytes)?;
    let url = access.address().url(&format!("blobs/{blob}"))?;
    let answer = access.ask(&Method::GET, &url, |asked| asked)?;
    if answer.status != 200 {
        return Err(refused("the blob", &answer));
    }
    let found = Sha256::of(&answer.body);
    if found != blob {
        return Err(HttpError::Digest { expected: blob.to_string(), found: found.to_string() });
    }
    Ok(Some((manifest, answer.body)))
}

/// What distinguishes the documents of containers from an artifact.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    manifests: Option<Vec<Entry>>,
    #[serde(default)]
    layers: Option<Vec<Layer>>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    digest: String,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    #[serde(default)]
    media_type: String,
}

/// The image of headstart's that this manifest means: itself, or what was made of the container's image that
/// it is, of a list the one for this machine. Whether it is itself.
pub(super) fn meant(access: &Access, manifest: &[u8]) -> Result<(Described, bool), HttpError> {
    let Ok(document) = serde_json::from_slice::<Document>(manifest) else {
        return Ok((Manifest::describe(manifest)?, true));
    };
    let container = match &document.manifests {
        Some(entries) => Some(fetch(access, of_machine(access, entries)?)?),
        None if document.is_container() => Some(manifest.to_vec()),
        None => None,
    };
    let Some(container) = container else { return Ok((Manifest::describe(manifest)?, true)) };
    if let Some(found) = find(access, Sha256::of(&container), None)? {
        return Ok((found.image, false));
    }
    let address = access.address();
    Err(HttpError::NotAnImage {
        reason: format!(
            "it is a container's image, and was not converted: `headstart convert {address}` lets an image lie \
             beside it, for all machines; `headstart build {address} -o FILE` makes one here"
        ),
    })
}

/// Whether this manifest is of a container's image, or of several.
pub(super) fn is_of_container(manifest: &[u8]) -> bool {
    let document = serde_json::from_slice::<Document>(manifest);
    document.is_ok_and(|document| document.manifests.is_some() || document.is_container())
}

/// The digest of the list's first image for this machine.
fn of_machine<'a>(access: &Access, entries: &'a [Entry]) -> Result<&'a str, HttpError> {
    let architecture = hs_units::oci_architecture(std::env::consts::ARCH);
    let is_ours = |platform: &Platform| {
        (platform.os.as_str(), platform.architecture.as_str()) == ("linux", architecture)
    };
    let found = entries.iter().find(|entry| entry.platform.as_ref().is_some_and(is_ours));
    found.map(|entry| entry.digest.as_str()).ok_or_else(|| HttpError::NotAnImage {
        reason: format!("{} is a list of images, and none is for linux/{architecture}", access.address()),
    })
}

impl Document {
    fn is_container(&self) -> bool {
        let layers = self.layers.as_deref().unwrap_or_default();
        layers.iter().any(|layer| layer.media_type.contains(".tar") || layer.media_type.contains("rootfs"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::manifest::MANIFEST_TYPE;
    use super::*;

    fn image(annotations: &[(&str, &str)], subject: &Sha256) -> Vec<u8> {
        let annotations: BTreeMap<_, _> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let subject = Descriptor::new(MANIFEST_TYPE, *subject, 1, BTreeMap::new());
        let manifest = Manifest::of_blob(IMAGE_TYPE, Sha256::of(b"x"), 1, "x", annotations);
        serde_json::to_vec(&manifest.with_subject(subject)).expect("JSON")
    }

    #[test]
    fn only_what_says_so_itself_is_of_a_containers_image() {
        let (subject, other) = (Sha256::of(b"subject"), Sha256::of(b"other"));
        let (name, source) = ((super::super::NAME_ANNOTATION, "hs1-00"), subject.to_string());
        let right = [name, (SOURCE_ANNOTATION, source.as_str()), (CHAIN_ANNOTATION, "c")];
        let found = |annotations: &[(&str, &str)], of: &Sha256, chain_id| {
            converted(&image(annotations, of), subject, chain_id).is_some()
        };
        assert!(found(&right, &subject, None) && found(&right, &subject, Some("c")));
        assert!(!found(&right, &subject, Some("d")) && !found(&right, &other, None));
        assert!(!found(&right[1..], &subject, None) && !found(&right[..1], &subject, None));
        assert!(!found(&[name, (SOURCE_ANNOTATION, &other.to_string())], &subject, None));
    }

    #[test]
    fn the_last_one_that_was_made_counts() {
        let of = |created: &str| {
            let annotations = BTreeMap::from([(CREATED_ANNOTATION.to_owned(), created.to_owned())]);
            Descriptor::new("m", Sha256::of(created.as_bytes()), 1, annotations)
        };
        let listed = ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", "2025-12-31T00:00:00Z"].map(of);
        assert_eq!(newest_first(listed.to_vec())[0], listed[1]);
    }
}
