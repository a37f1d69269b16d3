//! Recorded starts of a container's image, which lie beside it in its registry and refer to it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use hs_build::source::Platform;
use hs_remote::http::HttpClient;
use hs_remote::registry::{
    Artifact, Attachment, COMMAND_ANNOTATION, CREATED_ANNOTATION, PROFILE_TYPE, RegistryAddress, attach,
    newest_first,
};
use hs_remote::{Pushed, Pushing};
use hs_start::container::ContainerImage;
use hs_start::open::read_profile;
use hs_start::remote::keyring;
use hs_units::ByteSize;

use crate::{PATIENT, created_at};

/// The most bytes of a profile in a registry: registries' clients take no larger answer at once.
const MOST_BYTES: u64 = 4 << 20;
/// The most profiles of one image that are used.
const MOST_USED: usize = 64;

/// Sends a profile to lie beside the image at `address`; gives the digest of its manifest.
///
/// # Errors
/// When it is no profile, or the registry refuses.
pub fn push(
    path: &Path,
    address: &RegistryAddress,
    platform: Option<&Platform>,
    pushing: &mut Pushing<'_>,
) -> anyhow::Result<Pushed> {
    let profile = read_profile(path)?;
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let bytes = file.metadata().with_context(|| format!("look at {}", path.display()))?.len();
    if bytes > MOST_BYTES {
        bail!(
            "{}: it has {}, and a profile in a registry has at most {}",
            path.display(),
            ByteSize(bytes),
            ByteSize(MOST_BYTES)
        );
    }
    let image = ContainerImage::resolve(address.clone(), platform)?;
    let subject = image.descriptor();
    let made = file.metadata().and_then(|found| found.modified()).unwrap_or_else(|_| SystemTime::now());
    // The same file makes the same manifest, whenever it is sent.
    let annotations = BTreeMap::from([
        (COMMAND_ANNOTATION.to_owned(), profile.command.clone()),
        (CREATED_ANNOTATION.to_owned(), created_at(made)),
    ]);
    let artifact = Artifact { file: &file, path, name: "", unfinished: None };
    let attachment = Attachment { artifact, artifact_type: PROFILE_TYPE, annotations, subject: &subject };
    Ok(attach(HttpClient::new(PATIENT)?, address, keyring().logins, attachment, pushing)?)
}

/// A profile that came from a registry.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The digest of its manifest.
    pub digest: String,
    /// The command that was recorded, as the registry says.
    pub command: String,
    /// Its file.
    pub path: PathBuf,
}

/// Fetches the profiles that refer to an image into `folder`: the last ones that were made first; of one
/// command that is recorded again, all. `wanted` has words that a command must contain, one of them.
///
/// # Errors
/// When the registry refuses, or a profile is damaged.
pub fn fetch(image: &ContainerImage, wanted: &[String], folder: &Path) -> anyhow::Result<Vec<Fetched>> {
    let listed = newest_first(image.referrers(PROFILE_TYPE)?);
    let mut fetched = Vec::new();
    for listed in listed {
        if fetched.len() == MOST_USED {
            log::warn!("{}: of its profiles, the last {MOST_USED} are used", image.address);
            break;
        }
        let Some((manifest, bytes)) = image.attached(&listed, PROFILE_TYPE)? else {
            log::debug!("{}: {} is no profile of this image", image.address, listed.digest);
            continue;
        };
        let command = manifest.annotations.get(COMMAND_ANNOTATION).cloned().unwrap_or_default();
        if !wanted.is_empty() && !wanted.iter().any(|words| command.contains(words.as_str())) {
            continue;
        }
        let path = folder.join(format!("{}.hsp", manifest.digest.replace(':', "-")));
        fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
        fetched.push(Fetched { digest: manifest.digest, command, path });
    }
    Ok(fetched)
}

/// What tells the content of files apart, in the order of their names.
pub(crate) fn content_names(paths: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let name =
        |path: &PathBuf| -> io::Result<String> { Ok(hs_format::chunk_digest(&fs::read(path)?).to_string()) };
    let mut names = Vec::new();
    for path in paths {
        names.push(name(path).with_context(|| format!("read {}", path.display()))?);
    }
    names.sort();
    names.dedup();
    Ok(names)
}
