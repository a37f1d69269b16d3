//! The lazily mounted trees: one `headstart mount` for each image, which lives on when the snapshotter dies.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_linux::mounts::{MountTable, clear_dead, mounted_at, unmount};
use hs_remote::Sha256;
use hs_service::own_arguments;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{Timespec, poll};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

/// How long a mount that a snapshotter before this one had begun may take.
const OTHERS_PATIENCE: Duration = Duration::from_secs(20);
/// How long a server may take to end when its tree is unmounted.
const END_PATIENCE: Duration = Duration::from_secs(8);
/// Characters of a digest that name the folder of an image.
const KEY_CHARACTERS: usize = 32;

/// The mounted images of one snapshotter.
pub(crate) struct Mounts {
    /// The folder of their folders.
    folder: PathBuf,
    /// Further flags of `headstart mount`.
    flags: Vec<OsString>,
    /// One lock for each image that was asked for.
    locks: Mutex<HashMap<String, Arc<Mutex<()>>>>,
}

impl Mounts {
    pub(crate) fn new(folder: PathBuf, flags: Vec<OsString>) -> Self {
        Self { folder, flags, locks: Mutex::default() }
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

    /// While what is returned is locked, the image is neither mounted nor unmounted by another call.
    pub(crate) fn lock_of(&self, key: &str) -> Arc<Mutex<()>> {
        Arc::clone(self.locks.lock().entry(key.to_owned()).or_default())
    }

    /// Mounts an image where it is not mounted. The caller holds its lock, until a snapshot uses the image.
    pub(crate) fn mount(&self, image: &str, _lock: &MutexGuard<'_, ()>) -> anyhow::Result<PathBuf> {
        let (disk, tree) = (self.folder.join(Self::key(image)).join("disk"), self.tree(image));
        if is_mounted(&disk, &tree)? {
            return Ok(tree);
        }
        let began = Instant::now();
        clear_dead(&disk, Some(&tree)).with_context(|| format!("clear {}", disk.display()))?;
        for folder in [&disk, &tree] {
            fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        if let Err(error) = self.start(image, &disk, &tree) {
            // One that a snapshotter before this one had begun may come to its end.
            if !self.wait_for_other(&disk, &tree)? {
                self.remove_folders(image);
                return Err(error);
            }
        }
        log::info!("{image} is mounted after {:.3} s", began.elapsed().as_secs_f64());
        Ok(tree)
    }

    fn start(&self, image: &str, disk: &Path, tree: &Path) -> anyhow::Result<()> {
        let mut arguments: Vec<OsString> =
            ["mount", "--quiet", "--trusted", "--clear-dead"].map(Into::into).into();
        arguments.extend(self.flags.iter().cloned());
        arguments.extend(["--fs".into(), tree.into(), "--".into(), image.into(), disk.into()]);
        let mut command = Command::new("/proc/self/exe");
        own_arguments::give(command.arg0("headstart"), &arguments).context("hand the arguments over")?;
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).output();
        let ended = started.context("start `headstart mount`")?;
        if !ended.status.success() {
            bail!("{image} was not mounted: {}", said(&ended.stderr));
        }
        Ok(())
    }

    /// Whether another process mounts the same, and comes to its end.
    fn wait_for_other(&self, disk: &Path, tree: &Path) -> anyhow::Result<bool> {
        let end = Instant::now() + OTHERS_PATIENCE;
        let mut table = MountTable::open()?;
        // It mounts the disk first, and takes it away when it fails.
        while table.has(disk)? {
            if is_mounted(disk, tree)? {
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
        clear_dead(&disk, Some(&tree))?;
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
        remove_folders(&folder)
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

/// What a command said of its failure, in one line.
fn said(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr).trim().trim_start_matches("headstart: ").replace('\n', "; ")
}

/// Builds an image of the lowest layers of a container's image.
pub(crate) fn build(container: &str, layers: usize, path: &Path) -> anyhow::Result<()> {
    let mut arguments: Vec<OsString> = ["build", "--quiet", "--codec", "zstd:1", "-o"].map(Into::into).into();
    arguments.extend([path.into(), format!("--layers={layers}").into(), "--".into(), container.into()]);
    let mut command = Command::new("/proc/self/exe");
    own_arguments::give(command.arg0("headstart"), &arguments).context("hand the arguments over")?;
    let ended = command.stdin(Stdio::null()).output().context("start `headstart build`")?;
    if !ended.status.success() {
        bail!("{layers} layers of {container}: {}", said(&ended.stderr));
    }
    Ok(())
}

/// Whether the tree is mounted, and its disk has a server or will have one again.
fn is_mounted(disk: &Path, tree: &Path) -> anyhow::Result<bool> {
    let is_dead =
        fs::File::open(disk).is_err_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()));
    Ok(!is_dead && mounted_at(tree)?.is_some() && mounted_at(disk)?.is_some())
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
