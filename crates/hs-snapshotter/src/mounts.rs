//! The lazily mounted trees: one `headstart mount` for each image, which lives on when the snapshotter dies.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_linux::mounts::{MountTable, clear_dead, mounted_at, unmount};
use hs_remote::Sha256;
use hs_service::keeper::Keeper;
use hs_service::notify::Manager;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{Timespec, poll};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mounted_image::MountedImage;
use crate::program;
use crate::waiting::{Call, Over};

/// How long a mount may take. A container whose image is late starts from its layers, or not at all.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long an image that was late, or failed, is not asked for again: the pull of all layers.
const LATE_FOR: Duration = Duration::from_secs(20);
/// How long a mount that a snapshotter before this one had begun may take.
const OTHERS_PATIENCE: Duration = Duration::from_secs(20);
/// How long the layers of an image may take that are built.
const BUILD_PATIENCE: Duration = Duration::from_secs(600);
/// How long a server may take to end when its tree is unmounted.
const END_PATIENCE: Duration = Duration::from_secs(8);
/// Characters of a digest that name the folder of an image.
const KEY_CHARACTERS: usize = 32;

/// The mounted images of one snapshotter.
pub(crate) struct Mounts {
    /// The folder of their folders.
    folder: PathBuf,
    /// Further flags of `headstart mount`.
    flags: Arc<[OsString]>,
    /// Keeps what the keepers keep.
    manager: Arc<Manager>,
    /// One lock for each image that was asked for.
    locks: Mutex<HashMap<String, Arc<Mutex<()>>>>,
    /// The images that have a keeper, by their keys, and the end of a keeper.
    kept: Arc<(Mutex<BTreeSet<String>>, Condvar)>,
    /// Images that were late, or failed while containerd pulled.
    late: Mutex<HashMap<String, Instant>>,
}

impl Mounts {
    pub(crate) fn new(folder: PathBuf, flags: Vec<OsString>, manager: Arc<Manager>) -> Self {
        let flags = flags.into();
        Self { folder, flags, manager, locks: Mutex::default(), kept: Arc::default(), late: Mutex::default() }
    }

    /// Goes on keeping what a snapshotter before this one has kept, of these images.
    pub(crate) fn go_on(&self, mut keepers: BTreeMap<String, Keeper>, images: &[String]) {
        for image in images {
            if let Some(keeper) = keepers.remove(&Self::key(image)) {
                self.keep(self.mounted_image(image), keeper, None);
            }
        }
        keepers.into_values().for_each(Keeper::end);
    }

    /// The name of an image's folder.
    pub(crate) fn key(image: &str) -> String {
        let digest = Sha256::of(image.as_bytes()).to_string();
        digest["sha256:".len()..][..KEY_CHARACTERS].to_owned()
    }

    /// Where an image's tree is, once it is mounted.
    pub(crate) fn tree(&self, image: &str) -> PathBuf {
        self.folder.join(Self::key(image)).join("tree")
    }

    fn mounted_image(&self, image: &str) -> MountedImage {
        let key = Self::key(image);
        let (folder, flags) = (self.folder.join(&key), Arc::clone(&self.flags));
        MountedImage {
            image: image.to_owned(),
            key,
            disk: folder.join("disk"),
            tree: folder.join("tree"),
            flags,
        }
    }

    /// While what is returned is locked, the image is neither mounted nor unmounted by another call.
    pub(crate) fn lock_of(&self, key: &str) -> Arc<Mutex<()>> {
        Arc::clone(self.locks.lock().entry(key.to_owned()).or_default())
    }

    /// Mounts an image where it is not mounted. The caller holds its lock, until a snapshot uses the image.
    /// `opening` is asked for a pipe that brings what opens it.
    pub(crate) fn mount(
        &self,
        image: &str,
        _lock: &MutexGuard<'_, ()>,
        call: &Call,
        opening: impl FnOnce() -> Option<OwnedFd>,
    ) -> anyhow::Result<PathBuf> {
        let mounted = self.mounted_image(image);
        let MountedImage { key, disk, tree, .. } = &mounted;
        if self.is_mounted(key, disk, tree)? {
            return Ok(tree.clone());
        }
        self.late.lock().retain(|_, since| since.elapsed() < LATE_FOR);
        if self.late.lock().contains_key(image) {
            bail!(Over::Before(image.to_owned()));
        }
        let began = Instant::now();
        clear_dead(disk, Some(tree)).with_context(|| format!("clear {}", disk.display()))?;
        for folder in [disk, tree] {
            fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        match mounted.start(&self.manager, opening(), call, PATIENCE) {
            Ok((keeper, supervisor)) => self.keep(mounted.clone(), keeper, Some(supervisor)),
            Err(error) => {
                if matches!(error.downcast_ref(), Some(Over::Late { .. })) {
                    self.late.lock().insert(image.to_owned(), Instant::now());
                }
                // One that a snapshotter before this one had begun may come to its end.
                if !self.wait_for_other(disk, tree)? {
                    self.remove_folders(image);
                    return Err(error);
                }
            }
        }
        log::info!("{image} is mounted after {:.3} s", began.elapsed().as_secs_f64());
        Ok(tree.clone())
    }

    /// An image could not be mounted for a layer: the other layers of the pull need not try.
    pub(crate) fn note_failure(&self, image: &str, error: &anyhow::Error) {
        if !matches!(error.downcast_ref(), Some(Over::Cancelled | Over::Before(_))) {
            self.late.lock().insert(image.to_owned(), Instant::now());
        }
    }

    fn keep(&self, mounted: MountedImage, keeper: Keeper, supervisor: Option<Child>) {
        let (key, kept) = (mounted.key.clone(), Arc::clone(&self.kept));
        kept.0.lock().insert(key.clone());
        let thread = std::thread::Builder::new().name("keeper".to_owned());
        let started = thread.spawn(move || {
            mounted.keep(keeper, supervisor);
            kept.0.lock().remove(&mounted.key);
            kept.1.notify_all();
        });
        if let Err(error) = started {
            log::warn!("what the image's supervisor keeps is kept by no other process: {error}");
            self.kept.0.lock().remove(&key);
        }
    }

    /// Whether the tree is mounted, and its disk has a server or will have one again.
    fn is_mounted(&self, key: &str, disk: &Path, tree: &Path) -> anyhow::Result<bool> {
        // Where its keeper is at work, opening it would wait for the next server.
        let may_be_dead = !self.kept.0.lock().contains(key);
        Ok(!(may_be_dead && is_dead(disk)) && mounted_at(tree)?.is_some() && mounted_at(disk)?.is_some())
    }

    /// Whether another process mounts the same, and comes to its end.
    fn wait_for_other(&self, disk: &Path, tree: &Path) -> anyhow::Result<bool> {
        let end = Instant::now() + OTHERS_PATIENCE;
        let mut table = MountTable::open()?;
        // It mounts the disk first, and takes it away when it fails.
        while table.has(disk)? {
            if !is_dead(disk) && mounted_at(tree)?.is_some() {
                return Ok(true);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let _ = poll(&mut [table.changes()], Some(&Timespec::try_from(left)?));
        }
        Ok(false)
    }

    /// Unmounts an image, and removes its folders. The caller holds its lock.
    pub(crate) fn unmount(&self, key: &str, _lock: &MutexGuard<'_, ()>) -> anyhow::Result<()> {
        let folder = self.folder.join(key);
        let (disk, tree) = (folder.join("disk"), folder.join("tree"));
        if !self.kept.0.lock().contains(key) {
            clear_dead(&disk, Some(&tree))?;
        }
        // Its server ends when the tree is gone, and takes the disk away.
        unmount(&tree, UnmountFlags::empty())?;
        let end = Instant::now() + END_PATIENCE;
        let mut table = MountTable::open()?;
        while table.has(&disk)? {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                unmount(&disk, UnmountFlags::empty())?;
                break;
            }
            let _ = poll(&mut [table.changes()], Some(&Timespec::try_from(left)?));
        }
        self.wait_for_keeper(key);
        remove_folders(&folder)
    }

    /// Waits until the keeper of what was unmounted has ended: what it forgets has the names that the next
    /// one keeps.
    fn wait_for_keeper(&self, key: &str) {
        let (kept, ended) = &*self.kept;
        ended.wait_while_for(&mut kept.lock(), |kept| kept.contains(key), END_PATIENCE);
    }

    fn remove_folders(&self, image: &str) {
        if let Err(error) = remove_folders(&self.folder.join(Self::key(image))) {
            log::warn!("{error:#}");
        }
    }

    /// The names of the folders that there are.
    pub(crate) fn keys(&self) -> anyhow::Result<Vec<String>> {
        let entries =
            fs::read_dir(&self.folder).with_context(|| format!("list {}", self.folder.display()))?;
        let is_key =
            |name: &String| name.len() == KEY_CHARACTERS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        Ok(entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(is_key)
            .collect())
    }
}

/// Builds an image of the lowest layers of a container's image.
pub(crate) fn build(container: &str, layers: usize, path: &Path, call: &Call) -> anyhow::Result<()> {
    let mut arguments: Vec<OsString> = ["build", "--quiet", "--codec", "zstd:1", "-o"].map(Into::into).into();
    arguments.extend([path.into(), format!("--layers={layers}").into(), "--".into(), container.into()]);
    program::run(&arguments, call, BUILD_PATIENCE).with_context(|| format!("{layers} layers of {container}"))
}

/// Whether a mounted disk has no server any more.
fn is_dead(disk: &Path) -> bool {
    fs::File::open(disk).is_err_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()))
}

/// Removes the empty folders of an image; nothing that is mounted there, and no file, is touched.
fn remove_folders(folder: &Path) -> anyhow::Result<()> {
    for path in [&folder.join("disk"), &folder.join("tree"), folder] {
        match fs::remove_dir(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}
