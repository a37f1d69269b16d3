//! An image as the commands take it, and how it is had when it lies elsewhere.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use hs_start::image::{ImageSource, RemoteOptions};
use hs_start::location::{ImageLocation, ImagePlace};
use hs_trust::date::Date;

use super::plain::Plain;

/// Flags of an image.
pub(crate) type ImageArg = Plain<ImageFlags, ImageSource>;
/// Flags of how remote images are fetched.
pub(crate) type RemoteFlags = Plain<RemoteValues, RemoteOptions>;

/// An image.
#[derive(Clone, Debug, Args)]
pub(crate) struct ImageFlags {
    /// An image: a file or an address.
    ///
    /// Addresses: https://HOST/PATH.hsi, oci://HOST/NAME:TAG, docker://NAME (a container's image that was
    /// converted), s3://BUCKET/KEY, gs://…, az://…. Append
    /// #hs1-DIGEST to accept only that image, or #key=KEY to accept only images signed by that key. @FILE
    /// reads an address with secrets from a file.
    #[arg(value_parser = location_parser(), value_name = "IMAGE")]
    pub image: ImageLocation,
    #[command(flatten)]
    pub remote: RemoteValues,
}

/// How remote images are fetched, and the base.
#[derive(Clone, Debug, Args)]
pub(crate) struct RemoteValues {
    /// The image that IMAGE was built with as its base (file or address): its disk has some of the blocks. Of
    /// a pack: its disk, where that does not lie beside it.
    #[arg(long, value_parser = location_parser(), value_name = "BASE", hide_short_help = true)]
    pub base: Option<ImageLocation>,
    /// Never use the network. Reads of data that is not cached fail.
    #[arg(long, hide_short_help = true, help_heading = "Remote images")]
    pub offline: bool,
    /// Directory of the disk cache (see `headstart cache`), or `none`.
    #[arg(long, value_name = "DIR", hide_short_help = true, help_heading = "Remote images")]
    pub disk_cache: Option<PathBuf>,
    /// Refuse signatures older than this date: 2026-11-22 or 2026-11-22T14:30:00Z. Protects a machine that
    /// stores nothing between two starts against rollback.
    #[arg(long, value_name = "DATE", hide_short_help = true, help_heading = "Remote images")]
    pub min_date: Option<Date>,
    /// Directory that records the newest signature seen of each channel, to prevent rollback, or `none`.
    /// Default: /var/lib/headstart/channels for root, headstart/channels in a user's state directory.
    #[arg(long, value_name = "DIR", hide_short_help = true, help_heading = "Remote images")]
    pub channel_state: Option<PathBuf>,
    /// Fail a read that has waited this long for a remote image. While its file system is being mounted,
    /// after a third of that time.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = super::seconds::read_timeout, hide_short_help = true, help_heading = "Remote images")]
    pub read_timeout: Duration,
}

impl From<ImageFlags> for ImageSource {
    fn from(flags: ImageFlags) -> Self {
        Self { image: flags.image, remote: flags.remote.into() }
    }
}

impl From<&ImageArg> for ImageSource {
    fn from(flags: &ImageArg) -> Self {
        flags.value()
    }
}

impl From<RemoteValues> for RemoteOptions {
    fn from(flags: RemoteValues) -> Self {
        let RemoteValues { base, offline, disk_cache, min_date, channel_state, read_timeout } = flags;
        Self {
            base,
            offline,
            disk_cache,
            min_date,
            channel_state,
            open_timeout: None,
            read_timeout,
            refuses_unnamed: false,
            opening: None,
        }
    }
}

/// An address, or else a file.
pub(crate) fn location_parser() -> impl TypedValueParser<Value = ImageLocation> {
    OsStringValueParser::new().try_map(|word| -> Result<_, Box<dyn Error + Send + Sync>> {
        let location = ImageLocation::parse(&word)?;
        match (&location.place, word.to_str()) {
            (ImagePlace::File(path), Some(word)) if !path.exists() => match meant(word) {
                Some(hint) => Err(hint.into()),
                None => Ok(location),
            },
            _ => Ok(location),
        }
    })
}

/// What a word may mean that names no file.
fn meant(word: &str) -> Option<String> {
    const SCHEMES: [&str; 8] = ["http", "https", "oci", "oci+http", "docker", "s3", "gs", "az"];
    let (scheme, rest) = word.split_once(':').unwrap_or_default();
    if SCHEMES.contains(&scheme) {
        return Some(format!(
            "an address begins with two slashes: {scheme}://{}",
            rest.trim_start_matches('/')
        ));
    }
    if let Some((path, name)) = word.rsplit_once('#').filter(|(path, _)| Path::new(path).exists()) {
        return Some(format!(
            "'#{name}' is no name of {path}: #hs1- and 64 hexadecimal digits are (`headstart verify` prints it), \
             or #key= and a public key"
        ));
    }
    let (folder, _) = word.split_once('/').filter(|(folder, _)| !folder.is_empty())?;
    let is_missing = !Path::new(folder).exists();
    is_missing
        .then(|| format!("there is no directory {folder}; the address of a server begins with https://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_nearly_addresses_are_understood() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let named = format!("{}#hs1-00", file.path().display());
        for (word, hint) in [
            ("http:/host/x.hsi", "two slashes: http://host/x.hsi"),
            ("s3:bucket/x", "two slashes: s3://bucket/x"),
            ("host.invalid/x.hsi", "no directory host.invalid; the address"),
            (&named, "'#hs1-00' is no name of"),
        ] {
            assert!(meant(word).is_some_and(|said| said.contains(hint)), "{word}");
        }
        for word in ["x.hsi", "x#y", "/no/such/file", "./x.hsi", "../x.hsi", "a:b"] {
            assert_eq!(meant(word), None, "{word}");
        }
    }
}
