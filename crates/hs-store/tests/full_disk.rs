//! The cache on a file system that is nearly full.

use std::fs;
use std::path::Path;

use hs_store::{DiskCache, DiskCacheUsage};
use hs_units::Digest;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A file system of 4 MiB in memory.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        match mount("small", folder.path(), "tmpfs", MountFlags::NOSUID, Some(c"size=4m")) {
            Ok(()) => Some(Self(folder)),
            Err(error) => {
                hs_testing::skip(format!("a tmpfs cannot be mounted ({error}); run as root"));
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

fn kept(folder: &Path) -> DiskCacheUsage {
    let cache = DiskCache::open(folder, 1 << 30).expect("opened");
    cache.put(&Digest([7; 32]), vec![7; 8192].into());
    // What waits to be written is.
    drop(cache);
    DiskCache::usage_of(folder)
}

#[test]
fn the_last_twentieth_of_a_file_system_is_left_to_others() {
    let Some(small) = Small::mount() else { return };
    let (other, cache) = (small.0.path().join("other"), small.0.path().join("cache"));
    // A twentieth is 205 KiB: 180 are free, 20 times what would be written.
    fs::write(&other, vec![0; (4 << 20) - (180 << 10)]).expect("written");
    assert_eq!(kept(&cache).entries, 0);
    fs::write(&other, vec![0; (4 << 20) - (280 << 10)]).expect("written");
    assert_eq!(kept(&cache).entries, 1);
}
