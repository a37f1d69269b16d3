//! A copy of a manifest whose layers name the conversion of the image: containerd hands annotations of layers
//! that begin with `containerd.io/snapshot/` to its snapshotter.

use anyhow::{Context, bail};
use hs_remote::http::HttpClient;
use hs_remote::registry::{CONTAINERD_ANNOTATION, Copying, Descriptor, RegistryAddress, copy};
use hs_start::container::ContainerImage;
use hs_start::remote::keyring;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::PATIENT;

/// Refuses to put the copy in the place of the image itself, whose conversion belongs to what lies there.
///
/// # Errors
/// When both are the same.
pub fn check(from: &RegistryAddress, to: &RegistryAddress) -> anyhow::Result<()> {
    if (to.name(), to.reference()) == (from.name(), from.reference()) {
        bail!("{to}: the copy cannot take the place of the image itself: give it another tag or repository");
    }
    Ok(())
}

/// Sends the copy to `to`, where the blobs are named anew or sent too. Gives the copy's address.
///
/// # Errors
/// When the manifest has no layers, or the registry refuses.
pub fn run(image: &ContainerImage, conversion: &str, to: &RegistryAddress) -> anyhow::Result<String> {
    let conversion = RegistryAddress::parse(conversion)?;
    let reference = format!("{}@{}", conversion.name(), conversion.reference());
    let (manifest, blobs) = annotated(&image.image.manifest, &reference)?;
    let copying = Copying {
        from: &image.address,
        to,
        blobs: &blobs,
        manifest: &manifest,
        media_type: &image.image.media_type,
    };
    let (digest, sent_bytes) = copy(HttpClient::new(PATIENT)?, keyring().logins, copying)?;
    log::info!("{to}: {digest}, {sent_bytes} bytes of layers sent");
    Ok(to.to_string())
}

/// The manifest with the annotation, and the blobs that it names.
fn annotated(manifest: &[u8], reference: &str) -> anyhow::Result<(Vec<u8>, Vec<Descriptor>)> {
    let mut manifest: Value = serde_json::from_slice(manifest).context("read the manifest")?;
    let mut blobs = vec![Descriptor::deserialize(&manifest["config"]).context("its configuration")?];
    let layers = manifest.get_mut("layers").and_then(Value::as_array_mut).context("it has no layers")?;
    for layer in layers {
        blobs.push(Descriptor::deserialize(&*layer).context("a layer of it")?);
        match layer.get_mut("annotations").and_then(Value::as_object_mut) {
            Some(annotations) => {
                annotations.insert(CONTAINERD_ANNOTATION.to_owned(), reference.into());
            }
            None => layer["annotations"] = json!({ CONTAINERD_ANNOTATION: reference }),
        }
    }
    Ok((serde_json::to_vec(&manifest).context("write the manifest")?, blobs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_not_put_in_the_place_of_the_image() {
        let address = |text: &str| RegistryAddress::parse(text).unwrap();
        let from = address("oci://h/a");
        assert!(check(&from, &address("oci://h/a:latest")).is_err());
        for other in ["oci://h/a:lazy", "oci://h/b", "oci://i/a"] {
            assert!(check(&from, &address(other)).is_ok(), "{other}");
        }
    }

    #[test]
    fn each_layer_names_the_conversion_and_the_rest_stays() {
        let blob = |kind: &str, more: &str| {
            format!(r#"{{"mediaType":"{kind}","digest":"sha256:{}","size":3{more}}}"#, "ab".repeat(32))
        };
        let text = format!(
            r#"{{"schemaVersion":2,"config":{},"layers":[{},{}],"annotations":{{"a":"b"}}}}"#,
            blob("c", ""),
            blob("l", ""),
            blob("l", r#","annotations":{"x":"y"}"#)
        );
        let (copy, blobs) = annotated(text.as_bytes(), "h/r@sha256:00").unwrap();
        assert_eq!(blobs.len(), 3);
        let mut copy: Value = serde_json::from_slice(&copy).unwrap();
        for layer in copy["layers"].as_array_mut().unwrap() {
            assert_eq!(layer["annotations"][CONTAINERD_ANNOTATION], "h/r@sha256:00");
            layer["annotations"].as_object_mut().unwrap().remove(CONTAINERD_ANNOTATION);
        }
        copy["layers"][0].as_object_mut().unwrap().remove("annotations");
        assert_eq!(copy, serde_json::from_str::<Value>(&text).unwrap());
        assert!(annotated(br#"{"config":{}}"#, "r").is_err());
    }
}
