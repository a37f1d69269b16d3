//! Whether a disk is written to by a file system that is mounted from it: directly, from one of its
//! partitions, or through devices that are made of it (LVM, LUKS, RAID, loop devices).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::LinuxError;
use crate::mounts::{MountEntry, MountTable};

/// Devices that are looked at for one disk, at most.
const MOST_DEVICES: usize = 4096;

/// A mount for writing of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedForWriting {
    /// The device that is mounted: the disk, or one that is made of it.
    pub device: PathBuf,
    /// Where.
    pub target: PathBuf,
}

/// Finds a mount for writing of the disk at `path`, a block device or a file. What only other mount
/// namespaces see is not found.
///
/// # Errors
/// When the table of mounts, or the disk, cannot be looked at.
pub fn mounted_for_writing(path: &Path) -> Result<Option<MountedForWriting>, LinuxError> {
    let io = |source| LinuxError::Io { action: "look at", path: path.into(), source };
    let metadata = fs::metadata(path).map_err(io)?;
    let mut devices = Devices::default();
    if metadata.file_type().is_block_device() {
        let number = metadata.rdev();
        devices.add(&PathBuf::from(format!("/sys/dev/block/{}", of_number(number))));
    } else {
        devices.add_loop_devices_of(&fs::canonicalize(path).map_err(io)?);
    }
    let entries = MountTable::open()?.entries()?;
    Ok(entries
        .into_iter()
        .find(|entry| entry.is_writable && devices.has(entry))
        .map(|entry| MountedForWriting { device: entry.source, target: entry.target }))
}

fn of_number(number: u64) -> String {
    format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))
}

/// Numbers of devices, `major:minor`.
#[derive(Default)]
struct Devices(BTreeSet<String>);

impl Devices {
    /// Adds the device that this folder of sysfs describes, its partitions and what is made of them.
    fn add(&mut self, folder: &Path) {
        let Ok(number) = fs::read_to_string(folder.join("dev")) else { return };
        if self.0.len() >= MOST_DEVICES || !self.0.insert(number.trim().to_owned()) {
            return;
        }
        for holder in entries(&folder.join("holders")) {
            self.add(&holder);
        }
        for partition in entries(folder).into_iter().filter(|entry| entry.join("partition").exists()) {
            self.add(&partition);
        }
        if let Some(name) = fs::canonicalize(folder).ok().as_deref().and_then(Path::file_name) {
            self.add_loop_devices_of(&Path::new("/dev").join(name));
        }
    }

    /// Adds loop devices of a file, or of a device.
    fn add_loop_devices_of(&mut self, file: &Path) {
        loop_devices(file).iter().for_each(|device| self.add(device));
    }

    /// Btrfs has numbers of its own, so the device's path is looked at too.
    fn has(&self, entry: &MountEntry) -> bool {
        let is_source = |source: &Path| {
            fs::metadata(source).is_ok_and(|found| {
                found.file_type().is_block_device() && self.0.contains(&of_number(found.rdev()))
            })
        };
        self.0.contains(&format!("{}:{}", entry.major, entry.minor)) || is_source(&entry.source)
    }
}

/// The loop devices that a file, or a device, is attached to, by any of its names: their folders in sysfs.
fn loop_devices(file: &Path) -> Vec<PathBuf> {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let wanted = identity(file);
    let is_of = |device: &PathBuf| {
        let backing = fs::read(device.join("loop/backing_file")).unwrap_or_default();
        let backing = Path::new(OsStr::from_bytes(backing.strip_suffix(b"\n").unwrap_or(&backing)));
        backing == file || wanted.is_some() && identity(backing) == wanted
    };
    entries(Path::new("/sys/block")).into_iter().filter(is_of).collect()
}

/// The loop device that the file at `path` is attached to, if there is one. What is mounted from it, in any
/// mount namespace, or otherwise uses it, reads and writes that file.
#[must_use]
pub fn loop_device_of(path: &Path) -> Option<PathBuf> {
    let file = fs::canonicalize(path).ok()?;
    let device = loop_devices(&file).into_iter().next()?;
    Some(Path::new("/dev").join(device.file_name()?))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(folder).into_iter().flatten();
    list.filter_map(|entry| Some(entry.ok()?.path())).collect()
}
