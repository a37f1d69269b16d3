//! Addresses of images that are not files of this machine.

use std::fmt;
use std::sync::Arc;

use crate::Keyring;
use crate::cloud::{CloudAddress, CloudObject};
use crate::http::{HttpClient, HttpError, Locate, RemoteAddress};
use crate::registry::{RegistryAddress, RegistryImage};

/// An address of an image. Its text leaves out what may be secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// On a web server.
    Web(RemoteAddress),
    /// In a registry.
    Registry(RegistryAddress),
    /// In a store of objects.
    Cloud(CloudAddress),
}

impl Address {
    /// Parses an address without a fragment.
    ///
    /// # Errors
    /// [`HttpError::Address`] when it is none, or of an unknown scheme.
    pub fn parse(text: &str) -> Result<Self, HttpError> {
        match text.split_once("://").map_or("", |(scheme, _)| scheme) {
            "oci" | "oci+http" => RegistryAddress::parse(text).map(Self::Registry),
            "docker" => {
                let name = text.trim_start_matches("docker://");
                RegistryAddress::parse(&docker_address(name)).map(Self::Registry)
            }
            "s3" | "gs" | "az" => CloudAddress::parse(text).map(Self::Cloud),
            "http" | "https" => RemoteAddress::parse(text).map(Self::Web),
            scheme => Err(HttpError::Address {
                address: format!("{scheme}://…"),
                reason: "only http, https, oci, oci+http, docker, s3, gs and az are known".to_owned(),
            }),
        }
    }

    /// All of it, secrets included; it can be parsed again.
    #[must_use]
    pub fn whole(&self) -> String {
        match self {
            Self::Web(address) => address.url().as_str().to_owned(),
            Self::Registry(address) => address.to_string(),
            Self::Cloud(address) => address.to_string(),
        }
    }

    /// The file name for it in a folder.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        match self {
            Self::Web(address) => address.url().path_segments()?.next_back(),
            Self::Registry(address) => Some(address.file_name()),
            Self::Cloud(address) => address.key().rsplit('/').next(),
        }
    }

    /// The address that `reference` means relative to this one, as in RFC 3986, section 5; `None` in a
    /// registry, which has no relative addresses.
    #[must_use]
    pub fn join(&self, reference: &str) -> Option<Self> {
        match self {
            Self::Web(address) => Self::parse(address.url().join(reference).ok()?.as_str()).ok(),
            Self::Registry(_) => None,
            Self::Cloud(address) => Self::parse(address.url().join(reference).ok()?.as_str()).ok(),
        }
    }

    /// The same address with another path.
    #[must_use]
    pub fn with_path(&self, change: impl FnOnce(&str) -> String) -> Option<Self> {
        let url = match self {
            Self::Web(address) => address.url(),
            Self::Registry(_) => return None,
            Self::Cloud(address) => address.url(),
        };
        let mut changed = url.clone();
        changed.set_path(&change(url.path()));
        Self::parse(changed.as_str()).ok()
    }

    /// The object that finds the bytes.
    ///
    /// # Errors
    /// [`HttpError::Cloud`] when the settings for a cloud are not valid.
    pub fn locate(&self, client: &Arc<HttpClient>, keyring: &Keyring) -> Result<Box<dyn Locate>, HttpError> {
        Ok(match self {
            Self::Web(address) => Box::new(address.clone()),
            Self::Registry(address) => {
                Box::new(RegistryImage::new(address.clone(), Arc::clone(client), keyring.logins.clone()))
            }
            Self::Cloud(address) => Box::new(CloudObject::new(address, client, &keyring.clouds)?),
        })
    }
}

/// What a name of Docker means: without a host, its own registry, and there, without a folder, `library`.
#[must_use]
pub fn docker_address(name: &str) -> String {
    let is_host = |part: &str| part.contains(['.', ':']) || part == "localhost";
    match name.split_once('/') {
        Some((host, _)) if is_host(host) => format!("oci://{name}"),
        Some(_) => format!("oci://docker.io/{name}"),
        None => format!("oci://docker.io/library/{name}"),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Web(address) => address.fmt(f),
            Self::Registry(address) => address.fmt(f),
            Self::Cloud(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_address_has_a_file_name_and_can_be_parsed_again() {
        for (text, shown, name) in [
            ("https://me:pass@h/a/b.hsi?x=1", "https://h/a/b.hsi?…", Some("b.hsi")),
            ("oci://h:5000/a/b:t", "oci://h:5000/a/b:t", Some("b")),
            ("s3://b/d/k.hsi", "s3://b/d/k.hsi", Some("k.hsi")),
        ] {
            let address = Address::parse(text).expect(text);
            assert_eq!((address.to_string().as_str(), address.whole().as_str()), (shown, text));
            assert_eq!(
                (address.file_name(), Address::parse(&address.whole()).ok()),
                (name, Some(address.clone()))
            );
        }
        for text in ["ftp://me:pass@h/x", "image.hsi", ""] {
            let error = Address::parse(text).expect_err(text).to_string();
            assert!(error.contains("are known") && !error.contains("pass"), "{error}");
        }
    }

    #[test]
    fn names_of_docker_are_addresses_of_registries() {
        for (name, address) in [
            ("debian:12", "oci://docker.io/library/debian:12"),
            ("me/tool", "oci://docker.io/me/tool"),
            ("quay.io/me/tool", "oci://quay.io/me/tool"),
            ("h:5000/tool", "oci://h:5000/tool"),
            ("localhost/tool", "oci://localhost/tool"),
        ] {
            assert_eq!(docker_address(name), address);
        }
    }

    #[test]
    fn places_beside_an_address_are_found_where_there_are_any() {
        let whole = |address: Option<Address>| address.map(|address| address.whole());
        for (text, joined, changed) in [
            ("https://h/a/b.hsi?x=1", Some("https://h/a/c"), Some("https://h/a/b.hsi.sig?x=1")),
            ("gs://b/d/k.hsi", Some("gs://b/d/c"), Some("gs://b/d/k.hsi.sig")),
            ("oci://h/a:t", None, None),
        ] {
            let address = Address::parse(text).expect(text);
            assert_eq!(whole(address.join("c")).as_deref(), joined);
            assert_eq!(whole(address.with_path(|path| format!("{path}.sig"))).as_deref(), changed);
        }
    }
}
