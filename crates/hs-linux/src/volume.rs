//! The file system that a person means, on a disk that may have partitions.

use std::io;
use std::path::Path;

use hs_units::ByteRange;
use hs_volumes::{Contents, FsKind, Journal, Reader, Table, examine};

use crate::LinuxError;
use crate::fsmount::FileSystem;

/// A file system that can be mounted, and where on its disk it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume {
    /// What it is.
    pub file_system: FileSystem,
    /// The whole disk, or a partition.
    pub range: ByteRange,
    /// The number of the partition that `range` is.
    pub partition: Option<u32>,
    /// Logical sectors that the device of the whole disk needs, so that the kernel finds the partition: those
    /// that the table counts in; 512 bytes where there is no partition.
    pub disk_sector_bytes: u32,
    /// Logical sectors that a device needs so that the driver takes it: 512 or 4096 bytes.
    pub sector_bytes: u32,
    /// Whether its journal holds changes that are not in place.
    pub journal: Journal,
    /// Bytes of its blocks, where they are known.
    pub block_bytes: Option<u32>,
    /// How large it says it is, where it does.
    pub bytes: Option<u64>,
}

impl Volume {
    /// Finds the file system of a disk of so many bytes, or that of the partition that `partition` names; see
    /// [`Table::choose`]. `read_at` fills the buffer from the offset; `disk` is the disk's name in errors.
    ///
    /// # Errors
    /// [`LinuxError::Partitioned`] for a disk with partitions, of which none is named;
    /// [`LinuxError::Partition`] for a name that means none;
    /// [`LinuxError::NotMountable`] for what Linux mounts no files from; [`LinuxError::FileSystemUnknown`]
    /// when nothing is recognised; [`LinuxError::Io`] when the disk cannot be read.
    pub fn find(
        disk: &Path,
        bytes: u64,
        partition: Option<&str>,
        mut read_at: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<Self, LinuxError> {
        let contents =
            examine(&mut Reader::new(bytes, &mut read_at)).map_err(LinuxError::io("read", disk))?;
        match (partition, contents) {
            (Some(word), contents) => Self::of_partition(disk, word, &contents),
            (None, Contents { file_system: Some(found), table }) => {
                if let Some(table) = table {
                    log::warn!("{}", both(disk, found.kind, &table));
                }
                Self::of(disk, &found, ByteRange::new(0, bytes), None)
            }
            (None, Contents { table: Some(table), .. }) => {
                Err(LinuxError::Partitioned { path: disk.into(), table: Box::new(table) })
            }
            (None, _) => Err(LinuxError::FileSystemUnknown { path: disk.into(), partition: None }),
        }
    }

    fn of_partition(disk: &Path, word: &str, contents: &Contents) -> Result<Self, LinuxError> {
        let chosen = contents.choose(word);
        let chosen = chosen.map_err(|choice| LinuxError::Partition { path: disk.into(), choice })?;
        let number = Some(chosen.number);
        let unknown = || LinuxError::FileSystemUnknown { path: disk.into(), partition: number };
        let found = chosen.file_system.as_ref().ok_or_else(unknown)?;
        let disk_sector_bytes = contents.table.as_ref().map_or(512, |table| table.sector_bytes);
        Ok(Self { disk_sector_bytes, ..Self::of(disk, found, chosen.range, number)? })
    }

    fn of(
        disk: &Path,
        found: &hs_volumes::FileSystem,
        range: ByteRange,
        partition: Option<u32>,
    ) -> Result<Self, LinuxError> {
        let Some(file_system) = FileSystem::of_kind(found.kind) else {
            return Err(LinuxError::NotMountable { path: disk.into(), partition, kind: found.kind });
        };
        // The last sector of a device must be a whole one.
        let is_whole = range.len.is_multiple_of(4096);
        let sector_bytes = if is_whole { found.sector_bytes } else { 512 };
        let hs_volumes::FileSystem { journal, block_bytes, bytes, .. } = *found;
        let disk_sector_bytes = 512;
        Ok(Self {
            file_system,
            range,
            partition,
            disk_sector_bytes,
            sector_bytes,
            journal,
            block_bytes,
            bytes,
        })
    }

    /// Why a driver refuses it, as far as its superblock tells.
    fn fault(&self) -> Option<String> {
        let page_bytes = rustix::param::page_size() as u64;
        match (self.bytes, self.block_bytes) {
            (Some(bytes), _) if bytes > self.range.len => Some(format!(
                "its file system has {bytes} bytes and the disk {}: it was cut short",
                self.range.len
            )),
            (_, Some(block_bytes)) if u64::from(block_bytes) > page_bytes => Some(format!(
                "its blocks have {block_bytes} bytes, and few drivers take more than the {page_bytes} of a page"
            )),
            _ => None,
        }
    }

    /// Adds to an error of mounting it what its superblock tells of the cause.
    #[must_use]
    pub fn explain(&self, error: LinuxError) -> LinuxError {
        match (error, self.fault()) {
            (LinuxError::Mount { what, target, source, said }, Some(fault)) => {
                LinuxError::Mount { what, target, source, said: format!("; {fault}{said}") }
            }
            (error, _) => error,
        }
    }
}

/// What is said of a disk that has both.
fn both(disk: &Path, kind: FsKind, table: &Table) -> String {
    format!(
        "{} holds {kind} from its first byte, which is taken, and a {} partition table as well, which may be old:\n\
         {table}\nTo mount a partition, name it by --partition",
        disk.display(),
        table.scheme
    )
}
