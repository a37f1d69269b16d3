//! An image as the commands take it, and how it is had when it lies elsewhere.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use hs_serve::self_filling::Subject;

use crate::location::{ImageLocation, Place};
use hs_service::careful::resolve;
use hs_trust::date::Date;

/// An image.
#[derive(Clone, Debug, Args)]
pub(crate) struct ImageArg {
    /// An image: a file or an address.
    ///
    /// Addresses: https://HOST/PATH.hsi, oci://HOST/NAME:TAG, s3://BUCKET/KEY, gs://…, az://…. Append
    /// #hs1-DIGEST to accept only that image, or #key=KEY to accept only images signed by that key. @FILE
    /// reads an address with secrets from a file.
    #[arg(value_parser = location_parser(), value_name = "IMAGE")]
    pub image: ImageLocation,
    #[command(flatten)]
    pub remote: RemoteFlags,
}

/// How remote images are fetched.
#[derive(Clone, Debug, Args)]
pub(crate) struct RemoteFlags {
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
    /// Fail a read that has waited this long for a remote image. During mount(2) a third of it.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = super::seconds::read_timeout, hide_short_help = true, help_heading = "Remote images")]
    pub read_timeout: Duration,
    /// Whether an address must prove which image it is of.
    #[arg(skip)]
    pub refuses_unnamed: bool,
}

/// How long a read of an image from elsewhere may wait when nothing is said: long enough for a small server's
/// reboot.
const USUAL_READ_TIMEOUT: Duration = Duration::from_secs(60);

impl Default for RemoteFlags {
    fn default() -> Self {
        Self {
            offline: false,
            disk_cache: None,
            min_date: None,
            channel_state: None,
            refuses_unnamed: false,
            read_timeout: USUAL_READ_TIMEOUT,
        }
    }
}

fn location_parser() -> impl TypedValueParser<Value = ImageLocation> {
    OsStringValueParser::new().try_map(|word| ImageLocation::parse(&word))
}

impl ImageArg {
    /// The image in this word.
    ///
    /// # Errors
    /// When it is an address that nobody can ask.
    pub(crate) fn parse(word: &OsStr, remote: &RemoteFlags) -> anyhow::Result<Self> {
        Ok(Self { image: ImageLocation::parse(word)?, remote: remote.clone() })
    }

    /// The file, if it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.image.place {
            Place::File(path) => Some(path),
            Place::Remote(_) => None,
        }
    }

    /// For messages: no secrets.
    pub(crate) fn display(&self) -> impl fmt::Display + '_ {
        &self.image
    }

    /// What to note down to find it again; an address with secrets in it is noted without them.
    pub(crate) fn word(&self) -> PathBuf {
        match (self.file(), &self.image.trust) {
            (Some(path), _) => path.to_owned(),
            (None, Some(trust)) => format!("{}#{trust}", self.image).into(),
            (None, None) => self.image.to_string().into(),
        }
    }

    /// The disk of this image, which has been opened, for a file that is to be filled with it.
    pub(crate) fn subject(&self, image: &hs_image::Image) -> anyhow::Result<Subject> {
        match self.file() {
            Some(path) => Subject::of(image, path).with_context(|| format!("open {}", self.display())),
            None => Ok(Subject::of_remote(image, &self.word())),
        }
    }

    /// What others are told of where it is. JSON has no paths that are no text; one is shown with marks in
    /// it.
    pub(crate) fn shown(&self) -> PathBuf {
        match self.file() {
            Some(path) => resolve(path).to_string_lossy().into_owned().into(),
            None => self.image.to_string().into(),
        }
    }
}

impl From<&ImageArg> for ImageArg {
    fn from(image: &ImageArg) -> Self {
        image.clone()
    }
}

impl From<&Path> for ImageArg {
    fn from(path: &Path) -> Self {
        Self { image: path.into(), remote: RemoteFlags::default() }
    }
}

impl From<&PathBuf> for ImageArg {
    fn from(path: &PathBuf) -> Self {
        path.as_path().into()
    }
}

impl From<PathBuf> for ImageArg {
    fn from(path: PathBuf) -> Self {
        path.as_path().into()
    }
}
