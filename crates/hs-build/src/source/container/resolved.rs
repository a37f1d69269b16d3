//! Which image a reference means, before any of its layers is read.

use super::blobs::{Blobs, Sha256};
use super::documents::Platform;
use super::fault::ContainerFault;
use super::{FoundImage, Image, Layer};
use crate::StartConfig;

/// A container's image, as its manifest and configuration describe it. Their digests are right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedImage {
    /// The manifest of the one image, as it is stored.
    pub manifest: Vec<u8>,
    /// The digest of the manifest, `sha256:` and 64 digits.
    pub digest: String,
    /// Its type.
    pub media_type: String,
    /// What it runs on.
    pub platform: Platform,
    /// How it starts.
    pub start: StartConfig,
    /// The digests of the unpacked layers, the lowest one first.
    pub diff_ids: Vec<String>,
}

impl ResolvedImage {
    /// The image that `document`, a manifest or a list of images, has for `wanted`; without a platform, for
    /// this machine's.
    ///
    /// # Errors
    /// When there is none, or a document is damaged.
    pub fn of(
        blobs: &mut dyn Blobs,
        document: &[u8],
        wanted: Option<&Platform>,
    ) -> Result<Self, ContainerFault> {
        const OCI: &str = "application/vnd.oci.image.manifest.v1+json";
        let found = FoundImage::find(blobs, document, None, wanted)?;
        let FoundImage { document, media_type, platform, config, layers } = found;
        let said =
            Platform { os: config.os.clone(), architecture: config.architecture.clone(), variant: None };
        let is_said = !said.os.is_empty() && !said.architecture.is_empty();
        let platform = platform.or_else(|| is_said.then_some(said)).unwrap_or_else(Platform::of_machine);
        let image = Image { config, layers: layers.into_iter().map(Layer::Blob).collect() };
        image.check_layers()?;
        image.check_wanted(wanted)?;
        Ok(Self {
            digest: Sha256::of(&document),
            manifest: document,
            media_type: if media_type.is_empty() { OCI.to_owned() } else { media_type },
            platform,
            diff_ids: image.config.diff_ids().to_vec(),
            start: image.config.config.unwrap_or_default(),
        })
    }

    /// The name of all layers together. Images of one root have the same, whatever their manifests say beside
    /// it. `None` where the configuration has no layers.
    #[must_use]
    pub fn chain_id(&self) -> Option<String> {
        chain_ids(&self.diff_ids).pop()
    }
}

/// The chain ID of each layer, from the digests of the unpacked layers: image specification 1.1, "Layer
/// `ChainID`".
#[must_use]
pub fn chain_ids(diff_ids: &[String]) -> Vec<String> {
    let mut chain: Vec<String> = Vec::new();
    for layer in diff_ids {
        chain.push(match chain.last() {
            None => layer.clone(),
            Some(below) => Sha256::of(format!("{below} {layer}").as_bytes()),
        });
    }
    chain
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Cursor;

    use super::super::blobs::Blob;
    use super::*;

    struct InMemory(BTreeMap<String, Vec<u8>>);

    impl InMemory {
        fn put(&mut self, text: String) -> (String, usize) {
            let (digest, size) = (Sha256::of(text.as_bytes()), text.len());
            self.0.insert(digest.clone(), text.into_bytes());
            (digest, size)
        }
    }

    impl Blobs for InMemory {
        fn open(&mut self, digest: &str, _bytes: u64) -> Result<Blob<'_>, ContainerFault> {
            let missing = || ContainerFault::Missing { name: digest.to_owned() };
            let bytes = self.0.get(digest).ok_or_else(missing)?;
            Ok(Blob::of_stream(Box::new(Cursor::new(bytes.clone()))))
        }
    }

    #[test]
    fn a_list_leads_to_the_image_of_the_platform_and_names_its_root() {
        let mut blobs = InMemory(BTreeMap::new());
        let layers = ["a", "b", "c"].map(|layer| Sha256::of(layer.as_bytes()));
        let mut entries = Vec::new();
        for architecture in ["amd64", "s390x"] {
            let (config, config_size) = blobs.put(format!(
                r#"{{"os":"linux","architecture":"{architecture}","config":{{"Cmd":["{architecture}"]}},
                "rootfs":{{"diff_ids":["{}","{}","{}"]}}}}"#,
                layers[0], layers[1], layers[2]
            ));
            let layer = format!(r#"{{"mediaType":"x.tar","digest":"{config}","size":1}}"#);
            let (manifest, size) = blobs.put(format!(
                r#"{{"config":{{"digest":"{config}","size":{config_size}}},"layers":[{layer},{layer},{layer}]}}"#
            ));
            entries.push(format!(
                r#"{{"digest":"{manifest}","size":{size},"mediaType":"m",
                "platform":{{"os":"linux","architecture":"{architecture}"}}}}"#
            ));
        }
        let list = format!(r#"{{"manifests":[{}]}}"#, entries.join(","));
        let wanted: Platform = "linux/s390x".parse().unwrap();
        let found = ResolvedImage::of(&mut blobs, list.as_bytes(), Some(&wanted)).unwrap();
        assert_eq!(found.digest, Sha256::of(&found.manifest));
        // One image that is in no list.
        let amd64 = ResolvedImage::of(&mut blobs, &found.manifest, Some(&"linux/amd64".parse().unwrap()));
        let fault = amd64.expect_err("another processor").to_string();
        assert!(fault.contains("linux/amd64") && fault.contains("linux/s390x"), "{fault}");
        assert_eq!(ResolvedImage::of(&mut blobs, &found.manifest, None).unwrap().platform, wanted);
        assert_eq!((found.platform, found.media_type.as_str()), (wanted, "m"));
        assert_eq!((found.start.cmd, &found.diff_ids[..]), (vec!["s390x".to_owned()], &layers[..]));
        // Written out: the second of the formula of the specification, and the third.
        let two = Sha256::of(format!("{} {}", layers[0], layers[1]).as_bytes());
        let three = Sha256::of(format!("{two} {}", layers[2]).as_bytes());
        let again = ResolvedImage::of(&mut blobs, list.as_bytes(), Some(&"linux/amd64".parse().unwrap()));
        assert_eq!(again.unwrap().chain_id(), Some(three));
        assert!(ResolvedImage::of(&mut blobs, list.as_bytes(), Some(&"linux/arm".parse().unwrap())).is_err());
    }
}
