//! The manifest of an image: image specification 1.1, "Guidelines for Artifact Usage".

use std::collections::BTreeMap;

use hs_units::ByteRange;
use serde::{Deserialize, Serialize};

use crate::http::HttpError;
use crate::sha256::Sha256;

/// What the artifact and its layer are.
pub const IMAGE_TYPE: &str = "application/vnd.headstart.image.v1";
/// The annotation with the image's own name, `hs1-…`.
pub const NAME_ANNOTATION: &str = "io.headstart.name";
/// What the artifact and its layer are that hold the profile of a start.
pub const PROFILE_TYPE: &str = "application/vnd.headstart.profile.v1";
/// Of an image that was converted: the digest of the container's manifest that it was made of.
pub const SOURCE_ANNOTATION: &str = "io.headstart.source";
/// Of the same: the chain ID of all layers (image specification 1.1), which is one name of the root.
pub const CHAIN_ANNOTATION: &str = "io.headstart.chain-id";
/// Of the same: the digests of the unpacked layers, the lowest first, with spaces between.
pub const LAYERS_ANNOTATION: &str = "io.headstart.layers";
/// Of the same without a hot region: where in the file the index lies, `OFFSET+BYTES`. Its reader needs it at
/// once, and may ask for it with the first bytes.
pub const INDEX_ANNOTATION: &str = "io.headstart.index";
/// Of the same: the platform, `linux/amd64`.
pub const PLATFORM_ANNOTATION: &str = "io.headstart.platform";
/// Of the same: what else the conversion depends on. Equal ones need not be made again.
pub const RECIPE_ANNOTATION: &str = "io.headstart.recipe";
/// Of the layers of a container's image: the image that was made of it, `HOST/NAME@sha256:…`. containerd
/// hands annotations that begin so to its snapshotter.
pub const CONTAINERD_ANNOTATION: &str = "containerd.io/snapshot/headstart.image";
/// Of a profile: the command that was recorded.
pub const COMMAND_ANNOTATION: &str = "io.headstart.command";
/// When it was made, RFC 3339 in UTC: of several, the last one counts.
pub const CREATED_ANNOTATION: &str = "org.opencontainers.image.created";
/// The accepted media type.
pub(super) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// A configuration that says nothing, and its bytes.
pub(super) const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
pub(super) const EMPTY: &[u8] = b"{}";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    schema_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_type: Option<String>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<Descriptor>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// How a document names a manifest or a blob: image specification 1.1, "OCI Content Descriptors".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    pub media_type: String,
    /// Its digest, `sha256:` and 64 digits.
    pub digest: String,
    /// Its bytes.
    pub size: u64,
    /// Of a manifest, the type of what it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// What else is said of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The description of an image in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) blob: Sha256,
    pub(super) size: u64,
    /// The image's own name, as the manifest has it; it is not verified.
    pub(super) name: Option<String>,
}

impl Descriptor {
    pub(super) fn new(
        media_type: &str,
        digest: Sha256,
        size: u64,
        annotations: BTreeMap<String, String>,
    ) -> Self {
        let media_type = media_type.to_owned();
        Self { media_type, digest: digest.to_string(), size, artifact_type: None, annotations }
    }
}

impl Manifest {
    /// One for the image `name`, which is the blob `digest` of `size` bytes and was called `title`.
    pub(super) fn of_image(digest: Sha256, size: u64, name: &str, title: &str) -> Self {
        let annotations = BTreeMap::from([(NAME_ANNOTATION.to_owned(), name.to_owned())]);
        Self::of_blob(IMAGE_TYPE, digest, size, title, annotations)
    }

    /// One for a blob of this type.
    pub(super) fn of_blob(
        artifact_type: &str,
        digest: Sha256,
        size: u64,
        title: &str,
        annotations: BTreeMap<String, String>,
    ) -> Self {
        let title = BTreeMap::from([("org.opencontainers.image.title".to_owned(), title.to_owned())]);
        let layer = Descriptor::new(artifact_type, digest, size, title);
        let config = Descriptor::new(EMPTY_TYPE, Sha256::of(EMPTY), EMPTY.len() as u64, BTreeMap::new());
        Self {
            schema_version: 2,
            media_type: Some(MANIFEST_TYPE.to_owned()),
            artifact_type: Some(artifact_type.to_owned()),
            config: Some(config),
            layers: vec![layer],
            subject: None,
            annotations,
        }
    }

    /// The same, which refers to another manifest.
    pub(super) fn with_subject(self, subject: Descriptor) -> Self {
        Self { subject: Some(subject), ..self }
    }

    /// The descriptor of the manifest with these bytes, as a list of referrers has it (distribution
    /// specification 1.1, "Listing Referrers"); `None` where it refers to another one than `subject`.
    pub(super) fn referrer(bytes: &[u8], subject: Sha256) -> Option<Descriptor> {
        let manifest: Self = serde_json::from_slice(bytes).ok()?;
        if manifest.subject?.digest.parse() != Ok(subject) {
            return None;
        }
        let media_type = manifest.media_type.as_deref().unwrap_or(MANIFEST_TYPE);
        let of_config = manifest.config.map(|config| config.media_type);
        let mut referrer =
            Descriptor::new(media_type, Sha256::of(bytes), bytes.len() as u64, manifest.annotations);
        referrer.artifact_type = manifest.artifact_type.or(of_config);
        Some(referrer)
    }

    /// Where the image's index is said to lie.
    pub(super) fn index(bytes: &[u8]) -> Option<ByteRange> {
        let manifest: Self = serde_json::from_slice(bytes).ok()?;
        let (offset, len) = manifest.annotations.get(INDEX_ANNOTATION)?.split_once('+')?;
        let len = len.parse::<u64>().ok().filter(|len| *len > 0)?;
        Some(ByteRange::new(offset.parse().ok()?, len))
    }

    /// Reads a manifest: the one layer that is an image of ours, or the only layer of an artifact that was
    /// made with another tool.
    pub(super) fn describe(bytes: &[u8]) -> Result<Described, HttpError> {
        let wrong = |reason: String| HttpError::NotAnImage { reason };
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        let mut ours = manifest.layers.iter().filter(|layer| layer.media_type == IMAGE_TYPE);
        let layer = match (ours.next(), ours.next(), manifest.layers.as_slice()) {
            (Some(layer), None, _) => layer,
            (Some(_), Some(_), _) => {
                return Err(wrong(format!("it has several layers of the type {IMAGE_TYPE}")));
            }
            (None, _, [only]) if !is_file_system(&only.media_type) => only,
            _ => return Err(wrong(format!("it has no layer of the type {IMAGE_TYPE}"))),
        };
        let blob =
            layer.digest.parse().map_err(|()| wrong(format!("{:?} is no SHA-256 digest", layer.digest)))?;
        let annotations = [&manifest.annotations, &layer.annotations];
        let name = annotations.into_iter().find_map(|annotations| annotations.get(NAME_ANNOTATION));
        Ok(Described { blob, size: layer.size, name: name.cloned() })
    }
}

/// A layer of a container's file system, which no tool of ours can read.
fn is_file_system(media_type: &str) -> bool {
    media_type.contains(".tar") || media_type.contains("rootfs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_understood() {
        let blob = Sha256::of(b"image");
        let manifest = Manifest::of_image(blob, 5, "hs1-00", "a.hsi");
        let text = serde_json::to_vec(&manifest).expect("JSON");
        let name = Some("hs1-00".to_owned());
        assert_eq!(Manifest::describe(&text).expect("one"), Described { blob, size: 5, name });
        assert!(
            String::from_utf8_lossy(&text).contains(r#""artifactType":"application/vnd.headstart.image.v1""#)
        );
    }

    #[test]
    fn other_artifacts_are_told_from_images() {
        let digest = Sha256::of(b"x");
        let layer = |kind: &str| format!(r#"{{"mediaType":"{kind}","digest":"{digest}","size":1}}"#);
        let manifest = |layers: &str| format!(r#"{{"schemaVersion":2,"layers":[{layers}]}}"#);
        let octets = layer("application/octet-stream");
        assert!(Manifest::describe(manifest(&octets).as_bytes()).expect("one").name.is_none());
        for layers in [
            String::new(),
            format!("{octets},{octets}"),
            layer("application/vnd.oci.image.layer.v1.tar+gzip"),
            format!("{0},{0}", layer(IMAGE_TYPE)),
            r#"{"mediaType":"x","digest":"md5:1","size":1}"#.to_owned(),
        ] {
            assert!(Manifest::describe(manifest(&layers).as_bytes()).is_err(), "{layers}");
        }
        assert!(Manifest::describe(br#"{"schemaVersion":2,"manifests":[]}"#).is_err());
        assert!(Manifest::describe(b"<html>").is_err());
    }
}
