//! The disk that is going to be made: a device or a file, which holds nothing that would be missed.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_format::FileKind;
use hs_linux::mounted_for_writing;
use hs_units::{ByteRange, ByteSize, to_usize};
use hs_volumes::{Contents, Reader, examine};
use rustix::fs::{Mode, OFlags, SeekFrom, seek};
use rustix::io::Errno;

use super::claim;
use super::grub::{self, CODE_BYTES};
use crate::boot_loader::ForDisk;
use crate::drafts::Drafts;
use crate::tools::SFDISK;

const MIB: u64 = 1 << 20;
/// Where GRUB's core lies.
const BIOS: ByteRange = ByteRange::new(MIB, MIB);
/// For UEFI's loaders.
const ESP: ByteRange = ByteRange::new(2 * MIB, 62 * MIB);
/// Two kernels with their initramfs, and room for larger ones.
const BOOT: ByteRange = ByteRange::new(64 * MIB, 448 * MIB);
/// At the end of the disk: the copy of the table.
const END_BYTES: u64 = MIB;
/// What the data partition needs beside two images: its own structures, and the first writes.
const LEAST_DATA_BYTES: u64 = 128 * MIB;
/// What this needs of a device: GRUB's sectors are of this size.
const SECTOR_BYTES: u64 = 512;

/// Where the partitions lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) boot: ByteRange,
    pub(super) data: ByteRange,
    disk_bytes: u64,
}

impl Plan {
    /// For a disk of so many bytes and an image of so many; `None` when that is too small.
    fn of(disk_bytes: u64, image_bytes: u64) -> Option<Self> {
        let from = BOOT.offset + BOOT.len;
        let data_bytes = disk_bytes.checked_sub(from + END_BYTES)? / MIB * MIB;
        let data = ByteRange::new(from, data_bytes);
        (data_bytes >= Self::least_data_bytes(image_bytes)).then_some(Self { boot: BOOT, data, disk_bytes })
    }

    fn least_data_bytes(image_bytes: u64) -> u64 {
        image_bytes.saturating_mul(2).saturating_add(LEAST_DATA_BYTES)
    }

    fn least_bytes(image_bytes: u64) -> u64 {
        Self::least_data_bytes(image_bytes).saturating_add(BOOT.offset + BOOT.len + END_BYTES + MIB)
    }

    /// For sfdisk(8).
    fn script(&self) -> String {
        let line = |range: ByteRange, kind: &str, name: &str| {
            let (start, size) = (range.offset / SECTOR_BYTES, range.len / SECTOR_BYTES);
            format!("start={start}, size={size}, type={kind}, name=\"{name}\"\n")
        };
        let bios = line(BIOS, "21686148-6449-6E6F-744E-656564454649", "headstart-bios");
        let esp = line(ESP, "C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "headstart-esp");
        let linux = "0FC63DAF-8483-4772-8E79-3D69D8477DE4";
        let boot = line(self.boot, linux, super::disk::BOOT_NAME);
        let data = line(self.data, linux, super::disk::DATA_NAME);
        format!("label: gpt\nunit: sectors\n{bios}{esp}{boot}{data}")
    }
}

/// The disk.
pub(super) struct Target {
    path: PathBuf,
    file: File,
    bytes: u64,
    was_made: bool,
}

impl Target {
    /// Opens the disk, or makes a file of this size. A disk that is mounted is refused, and one that holds
    /// something without `force`.
    pub(super) fn open(
        path: &Path,
        size: Option<ByteSize>,
        force: bool,
        drafts: &Drafts,
    ) -> anyhow::Result<Self> {
        let shown = path.display();
        let found = match std::fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => None,
            found => Some(found.with_context(|| format!("look at {shown}"))?),
        };
        let Some(found) = found else {
            let Some(size) = size else {
                bail!("{shown}: there is no such disk; --size SIZE makes a file of that size")
            };
            let mut left = drafts.left();
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
            let file = file.with_context(|| format!("make {shown}"))?;
            left.drafts.push(path.to_owned());
            drop(left);
            let target = Self { path: path.to_owned(), bytes: size.0, file, was_made: true };
            claim::take(path, &target.file)?;
            let grown = target.file.set_len(size.0).with_context(|| format!("make {shown} of {size}"));
            return grown.inspect_err(|_| target.remove_if_made()).map(|()| target);
        };
        let is_device = found.file_type().is_block_device();
        if !is_device && !found.is_file() {
            bail!("{shown}: this is neither a disk nor a file");
        }
        if size.is_some() && (is_device || found.len() > 0) {
            bail!("{shown} is there already and has its size: leave out --size, or name another file");
        }
        if let Some(mounted) = mounted_for_writing(path)? {
            bail!(
                "{shown}: {} is mounted at {}: unmount it",
                mounted.device.display(),
                mounted.target.display()
            );
        }
        let alone = if is_device { OFlags::EXCL } else { OFlags::empty() };
        let opened = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | alone, Mode::empty());
        let mut file = File::from(opened.map_err(|errno| match errno {
            Errno::BUSY => anyhow::anyhow!(
                "{shown} is in use: it, or a partition of it, is mounted, is swap, or belongs to LVM or a RAID \
                 (`lsblk {shown}` shows it)"
            ),
            errno => anyhow::Error::from(errno).context(format!("open {shown}")),
        })?);
        claim::take(path, &file)?;
        if let (Some(size), false) = (size, is_device) {
            file.set_len(size.0).with_context(|| format!("make {shown} of {size}"))?;
        }
        let bytes = seek(&file, SeekFrom::End(0)).with_context(|| format!("look at {shown}"))?;
        if !force {
            refuse_full(path, &mut file, bytes)?;
        }
        if is_device {
            // The tools that follow want it for themselves.
            file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(path)
                .with_context(|| format!("open {shown}"))?;
            claim::take(path, &file)?;
            refuse_large_sectors(path)?;
        }
        Ok(Self { path: path.to_owned(), file, bytes, was_made: false })
    }

    /// Where everything lies, if a system with an image of at least so many bytes fits.
    pub(super) fn plan(&self, image_bytes: u64) -> anyhow::Result<Plan> {
        let planned = Plan::of(self.bytes, image_bytes).with_context(|| {
            format!(
                "{}: {} are too small: with two images of {} it needs {}",
                self.path.display(),
                ByteSize(self.bytes),
                ByteSize(image_bytes),
                ByteSize(Plan::least_bytes(image_bytes).next_multiple_of(MIB))
            )
        });
        planned.inspect_err(|_| self.remove_if_made())
    }

    /// A file that was made is of no use when it is not complete.
    pub(super) fn remove_if_made(&self) {
        if self.was_made
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            log::warn!("{}: {error}", self.path.display());
        }
    }

    /// Removes what was there, and divides the disk. Until [`make_startable`](Self::make_startable) a BIOS
    /// that starts it says that it is incomplete.
    pub(super) fn divide(&self, plan: &Plan) -> anyhow::Result<()> {
        let written = || format!("write to {}", self.path.display());
        let zeros = vec![0; MIB as usize];
        self.file.write_all_at(&zeros, plan.disk_bytes - END_BYTES).with_context(written)?;
        for offset in [BIOS, ESP, plan.boot, plan.data].map(|range| range.offset) {
            self.file.write_all_at(&zeros, offset).with_context(written)?;
        }
        let mut start = zeros;
        start[..CODE_BYTES].copy_from_slice(&grub::incomplete());
        start[SECTOR_BYTES as usize - 2..SECTOR_BYTES as usize].copy_from_slice(&[0x55, 0xaa]);
        self.file.write_all_at(&start, 0).and_then(|()| self.file.sync_all()).with_context(written)?;
        let flags = ["--quiet", "--wipe", "never"].map(std::ffi::OsStr::new);
        let arguments = flags.into_iter().chain([self.path.as_os_str()]);
        SFDISK.run_with(arguments, plan.script().as_bytes())?;
        self.file
            .write_all_at(&grub::incomplete(), 0)
            .and_then(|()| self.file.sync_all())
            .with_context(written)
    }

    /// The last step: the boot loader for BIOS takes the place of the one that says that it is incomplete.
    pub(super) fn make_startable(&self, loaders: &ForDisk) -> anyhow::Result<()> {
        let written = || format!("write to {}", self.path.display());
        if let Some(image) = &loaders.uefi {
            let bytes = std::fs::read(image).context("read the loader for UEFI")?;
            if bytes.len() as u64 > ESP.len {
                bail!("the loaders for UEFI have {} bytes, and their partition {}", bytes.len(), ESP.len);
            }
            self.file.write_all_at(&bytes, ESP.offset).with_context(written)?;
        }
        let code = match &loaders.bios {
            Some(loader) => {
                let (code, core) = grub::place(loader, BIOS)?;
                self.file.write_all_at(&core, BIOS.offset).with_context(written)?;
                self.file.sync_all().with_context(written)?;
                code
            }
            None => [0; CODE_BYTES],
        };
        self.file.write_all_at(&code, 0).and_then(|()| self.file.sync_all()).with_context(written)
    }
}

/// Refuses a disk that holds something, but for an installation that was interrupted.
fn refuse_full(path: &Path, file: &mut File, bytes: u64) -> anyhow::Result<()> {
    let failed = || format!("read {}", path.display());
    let mut start = Vec::new();
    seek(&*file, SeekFrom::Start(0)).with_context(failed)?;
    file.take(FileKind::NEEDED_BYTES as u64).read_to_end(&mut start).with_context(failed)?;
    let mut read_at = |offset, buffer: &mut [u8]| file.read_exact_at(buffer, offset);
    let contents = examine(&mut Reader::new(bytes, &mut read_at)).with_context(failed)?;
    // The mark is in the boot code, which tools that divide the disk anew may leave.
    if grub::is_incomplete(&start) && is_ours(&contents) {
        return Ok(());
    }
    let what = match (contents.table, contents.file_system) {
        (Some(table), _) => format!("a {} with {} partitions", table.scheme, table.partitions.len()),
        (None, Some(found)) => found.kind.to_string(),
        // Members of arrays and pools, and databases, have their own marks at either end.
        (None, None) if is_blank(file, bytes).with_context(failed)? => return Ok(()),
        (None, None) => match FileKind::of(&start) {
            FileKind::Empty | FileKind::Zeros | FileKind::Unknown => "something that is not known".to_owned(),
            kind => kind.to_string(),
        },
    };
    bail!("{}: it holds {what}: --force destroys that", path.display())
}

/// Whether all partitions are those of an installation, whose table may not be there yet.
fn is_ours(contents: &Contents) -> bool {
    let ours = |name: &str| name.starts_with("headstart-") || name == super::disk::DATA_NAME;
    let partitions = contents.table.iter().flat_map(|table| &table.partitions);
    contents.file_system.is_none()
        && partitions.into_iter().all(|partition| partition.label.as_deref().is_some_and(ours))
}

/// Whether a file has nothing but zeros, and a device nothing else in its first and last mebibyte.
fn is_blank(file: &File, bytes: u64) -> std::io::Result<bool> {
    let mut piece = vec![0; to_usize(bytes.min(MIB))];
    let mut is_zero_at = |offset: u64| {
        let piece = &mut piece[..to_usize((bytes - offset).min(MIB))];
        file.read_exact_at(piece, offset).map(|()| piece.iter().all(|byte| *byte == 0))
    };
    if !file.metadata()?.is_file() {
        return Ok(is_zero_at(0)? && is_zero_at(bytes.saturating_sub(MIB))?);
    }
    let mut at = 0;
    // Holes are passed over.
    while at < bytes {
        at = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        if at < bytes && !is_zero_at(at)? {
            return Ok(false);
        }
        at += MIB;
    }
    Ok(true)
}

fn refuse_large_sectors(device: &Path) -> anyhow::Result<()> {
    let name = device.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_owned()));
    let Some(name) = name else { return Ok(()) };
    let queue = Path::new("/sys/class/block").join(name).join("queue/logical_block_size");
    let sector = std::fs::read_to_string(queue).ok().and_then(|text| text.trim().parse::<u64>().ok());
    match sector {
        Some(bytes) if bytes != SECTOR_BYTES => {
            bail!("{}: its sectors have {bytes} bytes, and only those of 512 are supported", device.display())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_room_for_two_images() {
        let image = 300 * MIB;
        let least = Plan::least_bytes(image);
        let plan = Plan::of(least, image).expect("it fits");
        assert!(plan.data.len >= 2 * image && plan.data.offset + plan.data.len <= least - END_BYTES);
        assert!(Plan::of(least - 2 * MIB, image).is_none());
        assert!(Plan::of(0, 0).is_none() && Plan::of(u64::MAX, u64::MAX).is_none());
    }

    #[test]
    fn partitions_do_not_overlap() {
        let plan = Plan::of(8 << 30, MIB).expect("it fits");
        let mut last = MIB;
        for range in [BIOS, ESP, plan.boot, plan.data] {
            assert!(range.offset >= last && range.offset.is_multiple_of(MIB) && range.len > 0);
            last = range.offset + range.len;
        }
        assert_eq!(plan.script().lines().filter(|line| line.starts_with("start=")).count(), 4);
    }

    #[test]
    fn what_holds_something_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        let open = |size, force| {
            Target::open(&path, size, force, &Drafts::default()).map(drop).map_err(|error| error.to_string())
        };
        assert!(open(None, false).is_err_and(|error| error.contains("--size")));
        std::fs::write(&path, "a letter").expect("written");
        assert!(open(None, false).is_err_and(|error| error.contains("--force")));
        assert!(open(Some(ByteSize(1 << 30)), true).is_err_and(|error| error.contains("has its size")));
        open(None, true).expect("forced");
        // What an interrupted installation leaves is no loss.
        std::fs::write(&path, grub::incomplete()).expect("written");
        open(None, false).expect("incomplete");
        std::fs::write(&path, vec![0; 1 << 20]).expect("written");
        open(None, false).expect("empty");
        let file = OpenOptions::new().write(true).open(&path).expect("opened");
        file.set_len(32 << 20).expect("longer");
        open(None, false).expect("holes");
        file.write_all_at(b"a letter", 16 << 20).expect("written");
        assert!(open(None, false).is_err_and(|error| error.contains("--force")));
    }
}
