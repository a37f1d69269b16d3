//! An installed disk with its two file systems mounted, where no other process sees them.

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_linux::loopdev::{LoopDevice, LoopOptions};
use hs_live::boot_state::BootState;
use hs_service::workdir::Workdir;
use hs_units::ByteRange;
use hs_volumes::{Contents, Reader, examine};
use rustix::fs::{SeekFrom, seek, syncfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, unmount};

use super::target::Plan;
use crate::tools::MKFS_EXT4;

/// The names of the partitions, by which a disk is known.
pub(super) const BOOT_NAME: &str = "headstart-boot";
/// See [`BOOT_NAME`].
pub(super) const DATA_NAME: &str = "headstart";
/// How long the kernel may take to show new partitions of a device.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);
/// What every GRUB reads: newer features of an ext4 are left out.
const BOOT_FEATURES: &str = "none,has_journal,extent,filetype,sparse_super,large_file,ext_attr";

/// What a disk may lack.
const INTERRUPTED: &str =
    "was its installation interrupted? `headstart install DISK --root ROOT --force` begins again";

/// What a disk is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// To be written to.
    Change,
    /// Not even a journal is replayed.
    Look,
}

/// The disk. Its fields are dropped in order.
pub(super) struct Disk {
    path: PathBuf,
    pub(super) boot: Mounted,
    pub(super) data: Mounted,
    pub(super) boot_uuid: String,
    pub(super) data_uuid: String,
    devices: [Device; 2],
}

impl Disk {
    /// Makes the file systems of a disk that was just divided, and opens it.
    pub(super) fn format(path: &Path, plan: &Plan, work: &Workdir) -> anyhow::Result<Self> {
        let boot = Device::of(path, plan.boot, Access::Change)?;
        let flags = ["-q", "-F", "-m", "0", "-O", BOOT_FEATURES, "-L", BOOT_NAME];
        MKFS_EXT4.run(flags.iter().map(AsRef::as_ref).chain([boot.path().as_os_str()]))?;
        let data = Device::of(path, plan.data, Access::Change)?;
        // Nothing but this program writes there, so nothing is reserved for root.
        let flags = ["-q", "-F", "-m", "0", "-L", DATA_NAME];
        MKFS_EXT4.run(flags.iter().map(AsRef::as_ref).chain([data.path().as_os_str()]))?;
        drop((boot, data));
        Self::open(path, work)
    }

    /// Opens a disk that was installed.
    pub(super) fn open(path: &Path, work: &Workdir) -> anyhow::Result<Self> {
        Self::open_for(Access::Change, path, work)
    }

    /// Opens a disk that was installed, of which nothing is to be changed.
    pub(super) fn look_at(path: &Path, work: &Workdir) -> anyhow::Result<Self> {
        Self::open_for(Access::Look, path, work)
    }

    fn open_for(access: Access, path: &Path, work: &Workdir) -> anyhow::Result<Self> {
        let no_table = || {
            format!(
                "{}: it has no partitions: `headstart install DISK --root ROOT` makes such a disk",
                path.display()
            )
        };
        let table = contents_of(path)?.table.with_context(no_table)?;
        let find = |name: &str| {
            let found = table.partitions.iter().find(|one| one.label.as_deref() == Some(name));
            found.with_context(|| {
                format!("{}: no partition is called {name}: `headstart install DISK --root ROOT` makes such a disk", path.display())
            })
        };
        let (boot, data) = (find(BOOT_NAME)?, find(DATA_NAME)?);
        let devices = [Device::of(path, boot.range, access)?, Device::of(path, data.range, access)?];
        Ok(Self {
            path: path.to_owned(),
            boot_uuid: uuid_of(path, &devices[0], access)?,
            data_uuid: uuid_of(path, &devices[1], access)?,
            boot: Mounted::new(devices[0].path(), work.folder("boot")?, access)?,
            data: Mounted::new(devices[1].path(), work.folder("data")?, access)?,
            devices,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Which system is started.
    pub(super) fn state(&self) -> anyhow::Result<BootState> {
        BootState::read(self.boot.path()).with_context(|| {
            format!("{}: the boot loader's block on its boot partition: {INTERRUPTED}", self.path.display())
        })
    }

    pub(super) fn free_bytes(&self) -> anyhow::Result<u64> {
        let room = rustix::fs::statvfs(self.data.path()).context("look at the data partition")?;
        Ok(room.f_bavail * room.f_frsize)
    }

    /// Mounts the boot partition anew: then all that was written lies in its place, and not in the journal,
    /// which GRUB does not replay.
    pub(super) fn settle_boot(&mut self) -> anyhow::Result<()> {
        self.boot.mount_again(self.devices[0].path())
    }

    /// Unmounts everything, and says what went wrong.
    pub(super) fn close(self) -> anyhow::Result<()> {
        self.boot.close()?;
        self.data.close()
    }
}

/// What a disk or a partition holds.
fn contents_of(path: &Path) -> anyhow::Result<Contents> {
    let failed = || format!("read {}", path.display());
    let file = File::open(path).with_context(failed)?;
    let bytes = seek(&file, SeekFrom::End(0)).with_context(failed)?;
    let mut read_at = |offset, buffer: &mut [u8]| file.read_exact_at(buffer, offset);
    examine(&mut Reader::new(bytes, &mut read_at)).with_context(failed)
}

/// It is read from the partition's own device: the kernel caches the disk's blocks apart from those. To a
/// file system with errors nothing is written: blocks of the system that is there could be taken for free.
fn uuid_of(disk: &Path, partition: &Device, access: Access) -> anyhow::Result<String> {
    let lacks = || format!("{}: a partition has no file system: {INTERRUPTED}", disk.display());
    let found = contents_of(partition.path())?.file_system.with_context(lacks)?;
    let uuid = found.uuid.with_context(lacks)?;
    if access == Access::Change && found.has_errors {
        let name = found.label.unwrap_or(uuid);
        bail!(
            "{}: the file system {name} has errors: run `e2fsck -f` on its partition first, where it is not mounted",
            disk.display()
        );
    }
    Ok(uuid)
}

/// The device of a partition.
enum Device {
    /// Of a file, or of a device where the kernel knows no partitions: a loop device over a part of it.
    Loop(LoopDevice),
    /// Of a device: the kernel's own. It may be mounted at the same time, which a loop device over it must
    /// not be.
    Kernel(PathBuf),
}

impl Device {
    fn of(disk: &Path, range: ByteRange, access: Access) -> anyhow::Result<Self> {
        let metadata = disk.metadata().with_context(|| format!("look at {}", disk.display()))?;
        if metadata.file_type().is_block_device()
            && let Some(found) = Self::of_kernel(disk, range)?
        {
            return Ok(Self::Kernel(found));
        }
        let options = LoopOptions {
            direct_io: false,
            read_only: access == Access::Look,
            part: Some(range),
            ..LoopOptions::default()
        };
        Ok(Self::Loop(LoopDevice::attach(disk, options)?))
    }

    /// The kernel's own device; none where it shows no partition of this disk at all.
    fn of_kernel(disk: &Path, range: ByteRange) -> anyhow::Result<Option<PathBuf>> {
        let name = disk.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_owned()));
        let folder = Path::new("/sys/class/block").join(name.unwrap_or_default());
        let until = Instant::now() + PATIENCE;
        loop {
            let starts = partitions(&folder);
            let found = starts.iter().find(|(_, start)| *start == range.offset / 512);
            if let Some((path, _)) = found.filter(|(path, _)| path.exists()) {
                return Ok(Some(path.clone()));
            }
            if Instant::now() >= until {
                if starts.is_empty() {
                    return Ok(None);
                }
                bail!("the kernel shows other partitions of {}: is one of them in use?", disk.display());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Loop(device) => device.path(),
            Self::Kernel(path) => path,
        }
    }
}

/// The partitions that the kernel shows, and where they begin, in sectors of 512 bytes.
fn partitions(folder: &Path) -> Vec<(PathBuf, u64)> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let started = entries.filter_map(|entry| {
        let start = std::fs::read_to_string(entry.path().join("start")).ok()?;
        Some((Path::new("/dev").join(entry.file_name()), start.trim().parse().ok()?))
    });
    started.collect()
}

/// A mounted file system.
pub(super) struct Mounted(Option<PathBuf>);

impl Mounted {
    fn new(device: &Path, target: PathBuf, access: Access) -> anyhow::Result<Self> {
        let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
        let mount = |flags, words| rustix::mount::mount(device, &target, "ext4", flags, words);
        let mounted = match access {
            Access::Change => mount(flags, None),
            // One that is mounted for writing already, as on the system that runs, is mounted so once more.
            Access::Look => match mount(flags | MountFlags::RDONLY, Some(c"noload")) {
                Err(Errno::BUSY) => mount(flags, None),
                done => done,
            },
        };
        mounted.with_context(|| format!("mount ext4 from {} at {}", device.display(), target.display()))?;
        Ok(Self(Some(target)))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new("/"))
    }

    /// Brings everything that was written to the disk.
    pub(super) fn sync(&self) -> anyhow::Result<()> {
        let failed = || format!("write to {}", self.path().display());
        let folder = File::open(self.path()).with_context(failed)?;
        syncfs(&folder).with_context(failed)
    }

    fn mount_again(&mut self, device: &Path) -> anyhow::Result<()> {
        let target = self.path().to_owned();
        self.unmount()?;
        *self = Self::new(device, target, Access::Change)?;
        Ok(())
    }

    fn close(mut self) -> anyhow::Result<()> {
        self.unmount()
    }

    fn unmount(&mut self) -> anyhow::Result<()> {
        self.sync()?;
        self.0.take().map_or(Ok(()), |target| {
            unmount(&target, UnmountFlags::empty()).with_context(|| format!("unmount {}", target.display()))
        })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(target) = self.0.take() {
            let _ = unmount(&target, UnmountFlags::DETACH);
        }
    }
}
