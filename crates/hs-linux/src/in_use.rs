//! Whether a disk is written to by a file system that is mounted from it: directly, from one of its
//! partitions, or through devices that are made of it (LVM, LUKS, RAID, loop devices).

use std::collections::BTreeSet;
use std::fs;
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
        for device in entries(Path::new("/sys/block")) {
            let backing = fs::read_to_string(device.join("loop/backing_file"));
            if backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == file) {
                self.add(&device);
            }
        }
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

fn entries(folder: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(folder).into_iter().flatten();
    list.filter_map(|entry| Some(entry.ok()?.path())).collect()
}
