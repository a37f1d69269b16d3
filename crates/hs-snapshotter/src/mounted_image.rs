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

use crate::program::{self, Given};
use crate::waiting::{Call, Over};

/// How long a supervisor that goes on for another may take until it serves.
const NEXT_PATIENCE: Duration = Duration::from_secs(120);

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
        let started = self.run(&offer, opening, &[], call, patience).or_else(|error| {
            if matches!(error.downcast_ref(), Some(Over::Cancelled)) || !self.is_kept() {
                return Err(error);
            }
            log::warn!("{error:#}; the disk cache has all of it");
            self.run(&keeper.offer_again()?, None, &["--offline"], call, patience)
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

    fn run(
        &self,
        offer: &Offer,
        opening: Option<OwnedFd>,
        more: &[&str],
        call: &Call,
        patience: Duration,
    ) -> anyhow::Result<Child> {
        let mut arguments: Vec<OsString> =
            ["mount", "--quiet", "--trusted", "--clear-dead"].map(Into::into).into();
        arguments.push(offer.flag().into());
        let flag = |end: &OwnedFd| OsString::from(format!("--opening-fd={}", end.as_raw_fd()));
        arguments.extend(opening.as_ref().map(flag));
        arguments.extend(self.flags.iter().cloned());
        arguments.extend(more.iter().map(OsString::from));
        let (tree, disk) = (self.tree.clone(), self.disk.clone());
        arguments.extend(["--fs".into(), tree.into(), "--".into(), (&self.image).into(), disk.into()]);
        program::mount(&arguments, Given { offer, opening }, call, patience)
            .with_context(|| format!("{} was not mounted", self.image))
    }

    /// The number of the mount's device, which tells it from a later one at the same place.
    fn connection(&self) -> Option<u64> {
        mounted_at(&self.disk).ok().flatten().map(|mounted| mounted.minor.into())
    }

    /// Keeps what the supervisor keeps, until the image is unmounted. Where supervisor and server have died
    /// together, others go on: what reads from the image waits meanwhile. `supervisor` is there when this
    /// process has started it.
    pub(crate) fn keep(&self, mut keeper: Keeper, mut supervisor: Option<Child>) {
        let mut backoff = Backoff::default();
        let mut began = Instant::now();
        let connection = self.connection();
        loop {
            keeper.hear_all();
            supervisor.take().into_iter().for_each(program::reap);
            // The image may have been unmounted and mounted again: that mount has a keeper of its own.
            if connection.is_none() || self.connection() != connection {
                return keeper.end();
            }
            log::error!("{}: supervisor and server are gone; others go on", self.image);
            let death = Death { served: true, lived: began.elapsed(), was_killed: true };
            std::thread::sleep(backoff.died(death));
            began = Instant::now();
            let offered = keeper.offer_again();
            let next = offered.and_then(|offer| self.run(&offer, None, &[], &Call::default(), NEXT_PATIENCE));
            match next {
                Ok(next) => supervisor = Some(next),
                Err(error) => {
                    log::error!("{}: what reads from it gets errors now: {error:#}", self.image);
                    // Only now the kernel knows that nothing answers.
                    keeper.end();
                    if let Err(error) = clear_dead(&self.disk, Some(&self.tree)) {
                        log::error!("{error}");
                    }
                    return;
                }
            }
        }
    }
}
