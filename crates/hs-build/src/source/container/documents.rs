//! The documents of container images, as far as they matter here: those of the Open Container Initiative
//! (image specification 1.1), and what `docker save` writes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::fault::ContainerFault;
use crate::StartConfig;

/// The most bytes of a document.
pub(super) const MOST_DOCUMENT_BYTES: u64 = 4 << 20;
/// The name of an image within a layout, by the specification, and by containerd, with the repository.
const NAMES: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];
/// Says of a manifest that it describes another one.
const REFERENCE: &str = "vnd.docker.reference.type";

/// A reference to a blob.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    /// What the blob is.
    #[serde(default)]
    pub(super) media_type: String,
    /// Its digest, `sha256:` and 64 digits.
    pub(super) digest: String,
    /// Its bytes.
    pub(super) size: u64,
    /// The platform that it is for.
    #[serde(default)]
    pub(super) platform: Option<Platform>,
    /// What else is said.
    #[serde(default)]
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

impl Descriptor {
    fn names(&self) -> impl Iterator<Item = &str> {
        let annotations = self.annotations.as_ref();
        NAMES.iter().filter_map(move |name| annotations?.get(*name)).map(String::as_str)
    }

    fn is_image(&self) -> bool {
        let has = |name| self.annotations.as_ref().is_some_and(|all| all.contains_key(name));
        let is_unknown = self.platform.as_ref().is_some_and(|platform| platform.os == "unknown");
        !has(REFERENCE) && !is_unknown
    }
}

/// What an image runs on.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Platform {
    /// The system, such as `linux`.
    pub os: String,
    /// The processor, such as `amd64`.
    pub architecture: String,
    /// Which of these processors, such as `v7`.
    #[serde(default)]
    pub variant: Option<String>,
}

impl Platform {
    /// That of this machine.
    #[must_use]
    pub fn of_machine() -> Self {
        let architecture = hs_units::oci_architecture(std::env::consts::ARCH).to_owned();
        Self { os: "linux".to_owned(), architecture, variant: None }
    }

    /// Whether an image for this platform is what is asked for by `wanted`.
    pub(super) fn is_for(&self, wanted: &Self) -> bool {
        (&self.os, &self.architecture) == (&wanted.os, &wanted.architecture)
            && wanted.variant.as_ref().is_none_or(|variant| self.variant.as_ref() == Some(variant))
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('/').map(str::to_owned);
        let (os, architecture, variant) = (parts.next(), parts.next(), parts.next());
        match (os, architecture, parts.next()) {
            (Some(os), Some(architecture), None)
                if !os.is_empty() && !architecture.is_empty() && variant.as_deref() != Some("") =>
            {
                Ok(Self { os, architecture, variant })
            }
            _ => {
                Err("a platform is OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, such as linux/amd64"
                    .to_owned())
            }
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}

/// A list of images.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Index {
    /// The images, and lists of them.
    pub(super) manifests: Vec<Descriptor>,
}

impl Index {
    /// The one image of the list that has this name and platform.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub(super) fn choose(
        &self,
        name: Option<&str>,
        wanted: &Platform,
    ) -> Result<&Descriptor, ContainerFault> {
        let images = || self.manifests.iter().filter(|image| image.is_image());
        let known = || {
            let mut known: Vec<String> =
                images().filter_map(|image| image.names().next()).map(Into::into).collect();
            known.sort();
            known.dedup();
            known
        };
        let named: Vec<&Descriptor> = match name {
            Some(name) => images().filter(|image| image.names().any(|other| is_name(name, other))).collect(),
            None => images().collect(),
        };
        if let (true, Some(name)) = (named.is_empty(), name) {
            return Err(ContainerFault::NoName { name: name.to_owned(), known: known().into() });
        }
        // What says no platform may be for any.
        let fits =
            |image: &&&Descriptor| image.platform.as_ref().is_none_or(|platform| platform.is_for(wanted));
        let fitting: Vec<&Descriptor> = named.iter().filter(fits).copied().collect();
        match fitting[..] {
            [image] => Ok(image),
            [] => {
                let known: Vec<_> = named
                    .iter()
                    .filter_map(|image| image.platform.as_ref())
                    .map(ToString::to_string)
                    .collect();
                Err(ContainerFault::NoPlatform { wanted: wanted.to_string(), known: known.into() })
            }
            // Of several variants, the first is the one that the maker means.
            [first, ..] if name.is_some() || known().len() < 2 => Ok(first),
            _ => Err(ContainerFault::SeveralImages { known: known().into() }),
        }
    }
}

/// Whether `name` is meant by `full`: with or without the tag `latest`, registry and `library/`.
fn is_name(name: &str, full: &str) -> bool {
    let with_tag = |text: &str| match text.rsplit_once('/').map_or(text, |(_, last)| last).contains(':') {
        true => text.to_owned(),
        false => format!("{text}:latest"),
    };
    let short = |text: &str| {
        let text = text.strip_prefix("docker.io/").unwrap_or(text);
        text.strip_prefix("library/").unwrap_or(text).to_owned()
    };
    name == full || short(&with_tag(name)) == short(&with_tag(full))
}

/// An image, or a list of them: registries answer with either.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    /// Its own type; those of Docker always say it.
    #[serde(default)]
    pub(super) media_type: Option<String>,
    /// The type of what it holds, if that is no container's root.
    #[serde(default)]
    pub(super) artifact_type: Option<String>,
    /// The configuration of an image.
    #[serde(default)]
    pub(super) config: Option<Descriptor>,
    /// The layers of an image, the lowest one first.
    #[serde(default)]
    pub(super) layers: Option<Vec<Descriptor>>,
    /// What a list has.
    #[serde(default)]
    pub(super) manifests: Option<Vec<Descriptor>>,
}

/// The configuration of an image.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ImageConfig {
    /// The system.
    #[serde(default)]
    pub(super) os: String,
    /// The processor.
    #[serde(default)]
    pub(super) architecture: String,
    /// How it starts.
    #[serde(default)]
    pub(super) config: Option<StartConfig>,
    /// The digests of its layers.
    #[serde(default)]
    pub(super) rootfs: Option<RootFs>,
}

/// The digests of layers.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RootFs {
    /// Of the unpacked layers, in their order.
    #[serde(default)]
    pub(super) diff_ids: Option<Vec<String>>,
}

impl ImageConfig {
    /// The digests of the unpacked layers; none where they are not told.
    #[must_use]
    pub(super) fn diff_ids(&self) -> &[String] {
        self.rootfs.as_ref().and_then(|rootfs| rootfs.diff_ids.as_deref()).unwrap_or_default()
    }
}

/// An image in what `docker save` wrote.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SavedImage {
    /// The path of its configuration.
    pub(super) config: String,
    /// Its names.
    #[serde(default)]
    pub(super) repo_tags: Option<Vec<String>>,
    /// The paths of its layers, the lowest one first.
    pub(super) layers: Vec<String>,
}

/// The one of these images that has this name.
///
/// # Errors
/// When there is none, or more than one.
pub(super) fn choose_saved<'a>(
    images: &'a [SavedImage],
    name: Option<&str>,
) -> Result<&'a SavedImage, ContainerFault> {
    let names = |image: &'a SavedImage| image.repo_tags.iter().flatten();
    let known = || {
        let known: Vec<String> = images.iter().flat_map(names).cloned().collect();
        known.into()
    };
    match (name, images) {
        (None, [image]) => Ok(image),
        (None, _) => Err(ContainerFault::SeveralImages { known: known() }),
        (Some(name), _) => {
            let found = images.iter().find(|image| names(image).any(|other| is_name(name, other)));
            found.ok_or_else(|| ContainerFault::NoName { name: name.to_owned(), known: known() })
        }
    }
}

/// Reads a document.
///
/// # Errors
/// [`ContainerFault::Document`].
pub(super) fn parse<T: DeserializeOwned>(what: &'static str, json: &[u8]) -> Result<T, ContainerFault> {
    serde_json::from_slice(json).map_err(|error| ContainerFault::Document { what, reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: &[(&str, Option<&str>)]) -> Index {
        let manifest = |(at, (name, platform)): (usize, &(&str, Option<&str>))| {
            let platform: Option<Platform> = platform.map(|platform| platform.parse().unwrap());
            let annotations =
                [(NAMES[0].to_owned(), (*name).to_owned())].into_iter().filter(|_| !name.is_empty());
            Descriptor {
                media_type: String::new(),
                digest: at.to_string(),
                size: 1,
                platform,
                annotations: Some(annotations.collect()),
            }
        };
        Index { manifests: entries.iter().enumerate().map(manifest).collect() }
    }

    #[test]
    fn an_image_is_chosen_by_name_and_platform() {
        let amd: Platform = "linux/amd64".parse().unwrap();
        let arm7: Platform = "linux/arm/v7".parse().unwrap();
        let chosen = |index: &Index, name: Option<&str>, platform: &Platform| {
            index.choose(name, platform).map(|image| image.digest.clone()).map_err(|fault| fault.to_string())
        };
        let platforms =
            index(&[("", Some("linux/arm/v6")), ("", Some("linux/arm/v7")), ("", Some("linux/amd64"))]);
        assert_eq!(chosen(&platforms, None, &amd).as_deref(), Ok("2"));
        assert_eq!(chosen(&platforms, None, &arm7).as_deref(), Ok("1"));
        assert_eq!(chosen(&platforms, None, &"linux/arm".parse().unwrap()).as_deref(), Ok("0"));
        let none = chosen(&platforms, None, &"linux/s390x".parse().unwrap()).unwrap_err();
        assert!(none.contains("linux/s390x") && none.contains("linux/arm/v7"), "{none}");
        let named = index(&[("a", None), ("b:1", None), ("unknown", Some("unknown/unknown"))]);
        assert_eq!(chosen(&named, Some("b:1"), &amd).as_deref(), Ok("1"));
        let several = chosen(&named, None, &amd).unwrap_err();
        assert!(several.contains("a, b:1"), "{several}");
        assert!(chosen(&named, Some("c"), &amd).unwrap_err().contains("a, b:1"));
        assert_eq!(chosen(&index(&[("a", None)]), None, &amd).as_deref(), Ok("0"));
        assert!(chosen(&index(&[]), None, &amd).is_err());
    }

    #[test]
    fn names_may_leave_out_what_is_usual() {
        for (name, full) in [
            ("python", "docker.io/library/python:latest"),
            ("python:3", "python:3"),
            ("a/b:1", "docker.io/a/b:1"),
            ("localhost:5000/x", "localhost:5000/x:latest"),
        ] {
            assert!(is_name(name, full), "{name} {full}");
        }
        assert!(!is_name("python:3", "python") && !is_name("b", "a/b"));
    }

    #[test]
    fn a_platform_has_two_or_three_parts() {
        assert_eq!("linux/arm64/v8".parse::<Platform>().unwrap().to_string(), "linux/arm64/v8");
        for wrong in ["", "linux", "linux/", "/amd64", "a/b/", "a/b/c/d"] {
            assert!(wrong.parse::<Platform>().is_err(), "{wrong}");
        }
    }
}
