//! One lazily mounted image: `headstart mount` with its supervisor, and the keeper of both.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use hs_linux::mounts::{clear_dead, mounted_at};
use hs_service::backoff::{Backoff, Death};
use hs_service::keeper::{Keeper, Offer};
use hs_service::notify::Manager;
use hs_start::image::{ImageSource, RemoteOptions};
use hs_start::open::is_kept;

use crate::program::{self, Given, Mounting, Went};
use crate::waiting::{Call, Over};

/// An image, and where it is mounted.
#[derive(Clone, Debug)]
pub(crate) struct MountedImage {
    /// A file's path, or an address.
    pub(crate) image: String,
    /// The name of its folder.
    pub(crate) key: String,
    /// Where its disk is.
    pub(crate) disk: PathBuf,
    /// Where the file system in the disk is.
    pub(crate) tree: PathBuf,
    /// Further flags of `headstart mount`.
    pub(crate) flags: Arc<[OsString]>,
}

impl MountedImage {
    /// Mounts it; `opening` is the end of a pipe that brings what opens it.
    pub(crate) fn start(
        &self,
        manager: &Arc<Manager>,
        opening: Option<OwnedFd>,
        call: &Call,
        patience: Duration,
    ) -> anyhow::Result<(Keeper, Child)> {
        let (mut keeper, offer) = Keeper::new(&self.key, Arc::clone(manager))?;
        let wait = |mounting: Mounting| mounting.wait(call, patience).with_context(|| self.was_not_mounted());
        let started = self.begin(&offer, opening, &[]).and_then(wait).or_else(|error| {
            if matches!(error.downcast_ref(), Some(Over::Cancelled)) || !self.is_kept() {
                return Err(error);
            }
            log::warn!("{error:#}; the disk cache has all of it");
            self.begin(&keeper.offer_again()?, None, &["--offline"]).and_then(wait)
        });
        match started {
            Ok(supervisor) => Ok((keeper, supervisor)),
            Err(error) => {
                keeper.end();
                Err(error)
            }
        }
    }

    /// Whether the cache on disk has all of an image from elsewhere.
    fn is_kept(&self) -> bool {
        let disk_cache = program::disk_cache_of(&self.flags).map(Path::to_owned);
        let remote = RemoteOptions { disk_cache, ..RemoteOptions::default() };
        let image = ImageSource::parse(OsStr::new(&self.image), &remote);
        image.is_ok_and(|image| image.file().is_none() && is_kept(&image).unwrap_or(false))
    }

    fn was_not_mounted(&self) -> String {
        format!("{} was not mounted", self.image)
    }

    fn begin(&self, offer: &Offer, opening: Option<OwnedFd>, more: &[&str]) -> anyhow::Result<Mounting> {
        let mut arguments: Vec<OsString> =
            ["mount", "--quiet", "--trusted", "--clear-dead"].map(Into::into).into();
        arguments.push(offer.flag().into());
        let flag = |end: &OwnedFd| OsString::from(format!("--opening-fd={}", end.as_raw_fd()));
        arguments.extend(opening.as_ref().map(flag));
        arguments.extend(self.flags.iter().cloned());
        arguments.extend(more.iter().map(OsString::from));
        let (tree, disk) = (self.tree.clone(), self.disk.clone());
        arguments.extend(["--fs".into(), tree.into(), "--".into(), (&self.image).into(), disk.into()]);
        program::mount(&arguments, &Given { offer, opening }).with_context(|| self.was_not_mounted())
    }

    /// The number of the mount's device, which tells it from a later one at the same place.
    fn connection(&self) -> Option<u64> {
        mounted_at(&self.disk).ok().flatten().map(|mounted| mounted.minor.into())
    }

    /// Keeps what the supervisor keeps, until the image is unmounted. Where supervisor and server have died
    /// together, others go on: what reads from the image waits meanwhile. `supervisor` is there when this
    /// process has started it.
    pub(crate) fn keep(&self, mut keeper: Keeper, supervisor: Option<Child>) {
        let mut backoff = Backoff::default();
        let mut began = Instant::now();
        let connection = self.connection();
        keeper.hear_all();
        supervisor.into_iter().for_each(program::reap);
        let mut went = Went::Served;
        // The image may have been unmounted and mounted again: that mount has a keeper of its own.
        while connection.is_some() && self.connection() == connection {
            let served = match went {
                Went::Served => true,
                Went::Killed => false,
                Went::Failed(error) => {
                    log::error!("{}: what reads from it gets errors now: {error:#}", self.image);
                    break;
                }
            };
            log::error!("{}: supervisor and server are gone; others go on", self.image);
            let death = Death { served, lived: began.elapsed(), was_killed: true };
            std::thread::sleep(backoff.died(death));
            began = Instant::now();
            let next = keeper.offer_again().and_then(|offer| self.begin(&offer, None, &[]));
            keeper.hear_all();
            went = next.and_then(Mounting::went).unwrap_or_else(|error| {
                // This machine is short of something: readers wait until it is not.
                log::error!("{}: the next supervisor cannot be started: {error:#}", self.image);
                Went::Killed
            });
        }
        // Only now the kernel knows that nothing answers.
        keeper.end();
        if connection.is_some()
            && self.connection() == connection
            && let Err(error) = clear_dead(&self.disk, Some(&self.tree))
        {
            log::error!("{error}");
        }
    }
}
