//! An image as the user names it, and how it is fetched when it lies elsewhere.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use hs_fill::Subject;
use hs_remote::http::Patience;
use hs_service::careful::resolve;
use hs_trust::date::Date;

use crate::location::{ImageLocation, ImagePlace};
use crate::opening_pipe::OpeningPipe;

/// An image.
#[derive(Clone, Debug)]
pub struct ImageSource {
    /// Where it lies, and what it must be.
    pub image: ImageLocation,
    /// How it is fetched.
    pub remote: RemoteOptions,
}

/// What it takes to read an image beside its place: how a remote one is fetched, and its base.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// The image whose disk has some of its blocks.
    pub base: Option<ImageLocation>,
    /// The network is not used: reads of data that is not cached fail.
    pub offline: bool,
    /// Folder of the disk cache, or `none`.
    pub disk_cache: Option<PathBuf>,
    /// Signatures older than this are refused.
    pub min_date: Option<Date>,
    /// Folder that records the newest signature seen of each channel, or `none`.
    pub channel_state: Option<PathBuf>,
    /// How long a server that does not answer is asked for its image. A few tries when `None`.
    pub open_timeout: Option<Duration>,
    /// A read that has waited this long fails.
    pub read_timeout: Duration,
    /// Whether an address must prove which image it is of.
    pub refuses_unnamed: bool,
    /// Where another process writes what opens the image.
    pub opening: Option<OpeningPipe>,
}

/// How long a read of an image from elsewhere may wait when nothing is said: long enough for a small server's
/// reboot.
const USUAL_READ_TIMEOUT: Duration = Duration::from_secs(60);

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            base: None,
            offline: false,
            disk_cache: None,
            min_date: None,
            channel_state: None,
            refuses_unnamed: false,
            opening: None,
            open_timeout: None,
            read_timeout: USUAL_READ_TIMEOUT,
        }
    }
}

impl RemoteOptions {
    /// How often the first request for something at an address is made again.
    pub(crate) fn opening_patience(&self) -> Patience {
        self.open_timeout.map_or_else(Patience::for_opening, Patience::within)
    }
}

impl ImageSource {
    /// The image in this word.
    ///
    /// # Errors
    /// When it is an address of an unknown kind.
    pub fn parse(word: &OsStr, remote: &RemoteOptions) -> anyhow::Result<Self> {
        Ok(Self { image: ImageLocation::parse(word)?, remote: remote.clone() })
    }

    /// The file, if it is one.
    pub fn file(&self) -> Option<&Path> {
        match &self.image.place {
            ImagePlace::File(path) => Some(path),
            ImagePlace::Remote(_) => None,
        }
    }

    /// The image whose disk has some of its blocks, if one was named; of a pack, its disk, which may also lie
    /// beside it. It is fetched in the same way.
    pub fn base(&self) -> Option<Self> {
        match &self.remote.base {
            Some(image) => Some(self.elsewhere(image.clone())),
            None => crate::pack::disk_beside(self),
        }
    }

    /// What lies there, fetched in the same way.
    pub(crate) fn elsewhere(&self, image: ImageLocation) -> Self {
        Self { image, remote: RemoteOptions { base: None, opening: None, ..self.remote.clone() } }
    }

    /// The same image with the disk of `base` as its base.
    #[must_use]
    pub fn with_base(self, base: &Self) -> Self {
        let remote = RemoteOptions { base: Some(base.image.clone()), ..self.remote };
        Self { remote, ..self }
    }

    /// For messages: no secrets.
    pub fn display(&self) -> impl fmt::Display + '_ {
        &self.image
    }

    /// What to note down to find it again; an address with secrets in it is noted without them.
    pub fn word(&self) -> PathBuf {
        match (self.file(), &self.image.trust) {
            (Some(path), _) => path.to_owned(),
            (None, Some(trust)) => format!("{}#{trust}", self.image).into(),
            (None, None) => self.image.to_string().into(),
        }
    }

    /// The disk of this image, which has been opened, for a file that is to be filled with it.
    pub fn subject(&self, image: &hs_image::Image) -> anyhow::Result<Subject> {
        match self.file() {
            Some(path) => Subject::of(image, path).with_context(|| format!("open {}", self.display())),
            None => Ok(Subject::of_remote(image, &self.word())),
        }
    }

    /// What others are told of where it is. JSON has no paths that are no text; one is shown with marks in
    /// it.
    pub fn shown(&self) -> PathBuf {
        match self.file() {
            Some(path) => resolve(path).to_string_lossy().into_owned().into(),
            None => self.image.to_string().into(),
        }
    }
}

impl From<&ImageSource> for ImageSource {
    fn from(image: &ImageSource) -> Self {
        image.clone()
    }
}

impl From<&Path> for ImageSource {
    fn from(path: &Path) -> Self {
        Self { image: path.into(), remote: RemoteOptions::default() }
    }
}

impl From<&PathBuf> for ImageSource {
    fn from(path: &PathBuf) -> Self {
        path.as_path().into()
    }
}

impl From<PathBuf> for ImageSource {
    fn from(path: PathBuf) -> Self {
        path.as_path().into()
    }
}
