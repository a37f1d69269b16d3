//! A block device as the kernel shows it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{major, minor};

/// A block device that the kernel shows below /sys. When it was pulled out, the next one may get its number,
/// but not its inode there.
#[derive(Debug)]
pub struct ShownDevice {
    path: PathBuf,
    inode: u64,
}

impl ShownDevice {
    /// The device with this number (`st_dev` of a file on it, `st_rdev` of itself), if the kernel shows it.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        Self::at(PathBuf::from(format!("/sys/dev/block/{}:{}", major(number), minor(number))))
    }

    pub(crate) fn at(path: PathBuf) -> Option<Self> {
        let inode = fs::metadata(&path).ok()?.ino();
        Some(Self { path, inode })
    }

    /// Whether the kernel does not show it any more, or another with its number.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        fs::metadata(&self.path).map_or(true, |now| now.ino() != self.inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_gone_when_another_has_its_number() {
        let place = tempfile::tempdir().expect("a folder");
        let [path, next] = ["254:0", "next"].map(|name| place.path().join(name));
        fs::create_dir(&path).expect("made");
        let first = ShownDevice::at(path.clone()).expect("shown");
        assert!(!first.is_gone());
        fs::create_dir(&next).expect("made");
        fs::remove_dir(&path).expect("removed");
        assert!(first.is_gone());
        fs::rename(&next, &path).expect("moved");
        assert!(first.is_gone(), "another device has the number");
        assert!(!ShownDevice::at(path).expect("shown").is_gone());
    }
}
