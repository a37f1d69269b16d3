//! Bytes as an image of a container: as a manifest, or, by the first byte, as its configuration and layers,
//! to which the digests are made.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use hs_build::StartConfig;
use hs_build::source::{Blob, Blobs, ContainerFault, Source, SourceOptions};
use serde_json::json;

/// What stands between the configuration and the layers.
const BETWEEN: &[u8] = b"\n--layer--\n";

/// Blobs by their digests; every other one is empty.
#[derive(Default)]
struct Known(BTreeMap<String, Vec<u8>>);

impl Blobs for Known {
    fn open(&mut self, digest: &str, _bytes: u64) -> Result<Blob<'_>, ContainerFault> {
        let blob = self.0.get(digest).cloned().unwrap_or_default();
        Ok(Blob::of_stream(Box::new(Cursor::new(blob))))
    }
}

impl Known {
    fn add(&mut self, media_type: &str, bytes: &[u8]) -> serde_json::Value {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        let digits: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = format!("sha256:{digits}");
        self.0.insert(digest.clone(), bytes.to_vec());
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    }
}

/// Whether the image was taken; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Some((&choice, bytes)) = data.split_first() else { return false };
    let mut blobs = Known::default();
    let manifest = if choice % 2 == 0 { bytes.to_vec() } else { manifest(&mut blobs, bytes) };
    if let Ok(config) = StartConfig::parse(bytes) {
        assert_eq!(StartConfig::parse(&config.encode()).expect("its own"), config);
    }
    let options = SourceOptions { unpack_limit_bytes: 1 << 20, ..SourceOptions::default() };
    match Source::open_blobs(&mut blobs, &manifest, Path::new("image"), &options, &|_| {}) {
        Ok(source) => {
            crate::archive::read_all(&source);
            true
        }
        Err(_) => false,
    }
}

fn manifest(blobs: &mut Known, bytes: &[u8]) -> Vec<u8> {
    let mut parts = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(BETWEEN.len()).position(|window| window == BETWEEN) {
        parts.push(&rest[..at]);
        rest = &rest[at + BETWEEN.len()..];
    }
    parts.push(rest);
    let config = blobs.add("application/vnd.oci.image.config.v1+json", parts[0]);
    let layer = "application/vnd.oci.image.layer.v1.tar";
    let layers: Vec<_> = parts[1..].iter().map(|part| blobs.add(layer, part)).collect();
    json!({"config": config, "layers": layers}).to_string().into_bytes()
}
