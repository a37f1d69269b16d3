//! The mounted file system: whether its blocks may be laid anew, and how.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hs_linux::{LinuxError, RootLock};
use rustix::fs::{
    AtFlags, Mode, OFlags, StatVfsMountFlags, StatxAttributes, StatxFlags, fstat, fstatfs, fstatvfs, statx,
};
use rustix::io::Errno;

use crate::RelocateError;

const SUPERBLOCK_AT: u64 = 1024;
/// The names of other file systems, by the magic numbers of statfs(2), and what to do there.
const OTHERS: &[(u32, &str, &str)] = &[
    (0x794c_7630, "an overlay", "name the mount point of the ext4 below it (findmnt)"),
    (0x9123_683e, "btrfs", "it never writes in place; the prefetch alone speeds its start up"),
    (0x5846_5342, "XFS", "the prefetch alone speeds its start up"),
    (0x0102_1994, "a tmpfs", "it lies in memory"),
    (0x6573_5546, "a FUSE file system", "name the mount point of an ext4 on a disk"),
    (0x7371_7368, "squashfs", "build an image instead (headstart build)"),
];
/// The share of a file system that stays free: it grows and is written to meanwhile.
const MARGIN_SHARE: u64 = 20;

const JOURNALS_DATA: &str = "journals data (data=journal): the kernel does not let such blocks change places";

/// Devices that are looked at below one another, from that of the file system on.
const MOST_LAYERS: u32 = 8;

/// A mounted ext4 whose blocks may be laid anew.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) root: OwnedFd,
    pub(crate) path: PathBuf,
    /// Bytes of a block of the file system.
    pub(crate) block_bytes: u64,
    pub(crate) is_rotational: bool,
    /// Blocks that are written take room in LVM's own store.
    shares_blocks: bool,
    device: PathBuf,
    /// Against another process that does the same.
    lock: PathBuf,
}

impl Volume {
    pub(crate) fn open(path: &Path) -> Result<Self, RelocateError> {
        let failed = |action| LinuxError::io::<Errno>(action, path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(failed("open"))?;
        let found =
            statx(&root, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map_err(failed("look at"))?;
        if found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
            && !found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        {
            return Err(RelocateError::NotMounted { path: path.into() });
        }
        refuse_others(&root, path)?;
        if fstatvfs(&root).map_err(failed("look at"))?.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(RelocateError::ReadOnly { path: path.into() });
        }
        if !rustix::process::geteuid().is_root() {
            return Err(RelocateError::NeedsRoot);
        }
        let number = fstat(&root).map_err(failed("look at"))?.st_dev;
        let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        let of_device = Path::new("/sys/dev/block").join(&number);
        let device = device_file(&of_device)?;
        let superblock = Superblock::read(&device)?;
        superblock.check(path, &device)?;
        if journals_data(&device) {
            return Err(RelocateError::Unsuitable { path: path.into(), lack: JOURNALS_DATA });
        }
        Ok(Self {
            root,
            path: path.into(),
            block_bytes: superblock.block_bytes(),
            is_rotational: is_rotational(&of_device),
            shares_blocks: shares_blocks(&of_device, MOST_LAYERS),
            device,
            lock: PathBuf::from(format!("/run/headstart-relocate-{number}.lock")),
        })
    }

    /// Refuses a second process on the same file system while the lock is held. Any user could lock the
    /// folder on which it is mounted.
    pub(crate) fn lock(&self) -> Result<RootLock, RelocateError> {
        RootLock::take(&self.lock)?.ok_or_else(|| RelocateError::AlreadyRuns {
            path: self.path.clone(),
            holder: RootLock::holder(&self.lock),
        })
    }

    /// Refuses devices on which it gains nothing, or does harm.
    pub(crate) fn refuse_device(&self) -> Result<(), RelocateError> {
        let device = || self.device.clone();
        if self.shares_blocks {
            return Err(RelocateError::SharedBlocks { device: device() });
        }
        if !self.is_rotational {
            return Err(RelocateError::NotRotational { device: device() });
        }
        Ok(())
    }

    /// How many bytes may be reserved, and the error for the wish for more.
    pub(crate) fn room_for(&self, needed_bytes: u64) -> Result<u64, RelocateError> {
        let space = fstatvfs(&self.root).map_err(LinuxError::io("look at", &self.path))?;
        let margin_bytes = (space.f_blocks * space.f_frsize) / MARGIN_SHARE;
        let free_bytes = space.f_bavail * space.f_frsize;
        match free_bytes.checked_sub(margin_bytes).filter(|room| *room >= needed_bytes) {
            Some(room) => Ok(room),
            None => Err(RelocateError::FullDisk {
                path: self.path.clone(),
                needed_bytes,
                margin_bytes,
                free_bytes,
            }),
        }
    }

    /// Brings everything to the medium.
    pub(crate) fn sync(&self) -> Result<(), RelocateError> {
        Ok(rustix::fs::syncfs(self.root.as_fd()).map_err(LinuxError::io("write", &self.path))?)
    }
}

fn refuse_others(root: &OwnedFd, path: &Path) -> Result<(), RelocateError> {
    let magic = fstatfs(root).map_err(LinuxError::io("look at", path))?.f_type as u32;
    if magic == libc::EXT4_SUPER_MAGIC as u32 {
        return Ok(());
    }
    let other = OTHERS.iter().find(|(number, ..)| *number == magic);
    let (_, found, advice) = *other.unwrap_or(&(0, "another file system than ext4", "it must be ext4"));
    Err(RelocateError::NotExt4 { path: path.into(), found, advice })
}

/// Whether the file system on a device was mounted so: the kernel lists its options, also those by default.
fn journals_data(device: &Path) -> bool {
    let name = device.file_name().unwrap_or_default();
    let options = fs::read_to_string(Path::new("/proc/fs/ext4").join(name).join("options"));
    options.is_ok_and(|text| text.lines().any(|option| option == "data=journal"))
}

/// The device file that the kernel has made for the device.
fn device_file(of_device: &Path) -> Result<PathBuf, RelocateError> {
    let uevent = of_device.join("uevent");
    let text = fs::read_to_string(&uevent).map_err(LinuxError::io("read", &uevent))?;
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME=")).unwrap_or_default();
    Ok(Path::new("/dev").join(name))
}

/// A partition has no queue; its disk, one folder up, has.
fn is_rotational(of_device: &Path) -> bool {
    let says = |queue: &str| fs::read_to_string(of_device.join(queue)).ok();
    let says = says("queue/rotational").or_else(|| says("../queue/rotational"));
    says.is_some_and(|text| text.trim() == "1")
}

/// Whether LVM keeps old blocks of this device, or of one below it, for a snapshot, or gives it blocks of a
/// thin pool. It names the layers below a volume by the ends of their UUIDs (lib/activate/dev_manager.c).
fn shares_blocks(of_device: &Path, layers: u32) -> bool {
    const ENDS: [&str; 3] = ["-real", "-cow", "-tpool"];
    let below = fs::read_dir(of_device.join("slaves")).into_iter().flatten().flatten();
    below.map(|entry| entry.path()).any(|below| {
        let uuid = fs::read_to_string(below.join("dm/uuid")).unwrap_or_default();
        let is_layer = uuid.starts_with("LVM-") && ENDS.iter().any(|end| uuid.trim().ends_with(end));
        is_layer || (layers > 0 && shares_blocks(&below, layers - 1))
    })
}

/// The first 1024 bytes of an ext4: the kernel's Documentation/filesystems/ext4/super.rst.
struct Superblock([u8; 1024]);

impl Superblock {
    fn read(device: &Path) -> Result<Self, RelocateError> {
        let mut bytes = [0; 1024];
        File::open(device)
            .and_then(|file| file.read_exact_at(&mut bytes, SUPERBLOCK_AT))
            .map_err(LinuxError::io("read", device))?;
        Ok(Self(bytes))
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) | u32::from(self.u16(at + 2)) << 16
    }

    fn block_bytes(&self) -> u64 {
        1024 << self.u32(0x18).min(6)
    }

    fn check(&self, path: &Path, device: &Path) -> Result<(), RelocateError> {
        const ERROR_FS: u16 = 2;
        const HAS_JOURNAL: u32 = 0x4;
        const EXTENTS: u32 = 0x40;
        const BIGALLOC: u32 = 0x200;
        const JOURNALLED_DATA: u32 = 0x20;
        let unsuitable = |lack| Err(RelocateError::Unsuitable { path: path.into(), lack });
        if self.u16(0x3a) & ERROR_FS != 0 {
            return Err(RelocateError::HasErrors { path: path.into(), device: device.into() });
        }
        if self.u32(0x5c) & HAS_JOURNAL == 0 {
            return unsuitable(
                "has no journal: a power cut in the middle would damage files (tune2fs -j, unmounted)",
            );
        }
        if self.u32(0x60) & EXTENTS == 0 {
            return unsuitable("has no extents, as ext3: its blocks cannot change places");
        }
        if self.u32(0x64) & BIGALLOC != 0 {
            return unsuitable(
                "has clusters of blocks (bigalloc), which the kernel does not let change places",
            );
        }
        if self.u32(0x100) & 0x60 == JOURNALLED_DATA {
            return unsuitable(JOURNALS_DATA);
        }
        if self.block_bytes() > 4096 {
            return unsuitable("has blocks of more than 4096 bytes");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The superblock of a good file system, with some bytes changed.
    fn said_of(changes: &[(usize, u8)]) -> String {
        let mut bytes = [0; 1024];
        (bytes[0x18], bytes[0x3a], bytes[0x5c], bytes[0x60]) = (2, 1, 4, 0x42);
        changes.iter().for_each(|&(at, byte)| bytes[at] = byte);
        let checked = Superblock(bytes).check(Path::new("/mnt"), Path::new("/dev/sda1"));
        checked.map_or_else(|error| error.to_string(), |()| "good".to_owned())
    }

    #[test]
    fn snapshots_and_thin_pools_are_seen_below_other_layers() {
        let folder = tempfile::tempdir().expect("a folder");
        // A device that lies on one with this UUID, by way of another one.
        let says = |name: &str, uuid: &str| {
            let device = folder.path().join(name);
            let below = device.join("slaves/dm-1/slaves/dm-0");
            fs::create_dir_all(below.join("dm")).expect("a folder");
            fs::write(below.join("dm/uuid"), format!("{uuid}\n")).expect("written");
            shares_blocks(&device, MOST_LAYERS)
        };
        assert!(says("origin", "LVM-eWNWvXcQGwxG-real"));
        assert!(says("snapshot", "LVM-eWNWvXcQGwxG-cow"));
        assert!(says("thin", "LVM-eWNWvXcQGwxG-tpool"));
        assert!(!says("volume", "LVM-eWNWvXcQGwxG"));
        assert!(!says("encrypted", "CRYPT-LUKS2-6f2828d1-real"));
        assert!(!shares_blocks(&folder.path().join("partition"), MOST_LAYERS));
        assert!(!shares_blocks(&folder.path().join("origin"), 0), "no deeper than it is told");
    }

    #[test]
    fn what_cannot_be_laid_anew_is_refused() {
        assert_eq!(said_of(&[]), "good");
        assert!(said_of(&[(0x3a, 3)]).contains("has errors: check it first (e2fsck -f /dev/sda1)"));
        assert!(said_of(&[(0x5c, 0)]).contains("no journal"));
        assert!(said_of(&[(0x60, 2)]).contains("no extents"));
        assert!(said_of(&[(0x65, 2)]).contains("bigalloc"));
        assert!(said_of(&[(0x100, 0x2c)]).contains("data=journal"));
        assert!(said_of(&[(0x18, 4)]).contains("4096"));
        assert!(said_of(&[(0x1b, 0xff)]).contains("4096"), "an absurd size of blocks");
    }
}
