//! What a raw disk holds, from its own bytes: a file system, a partition table, or both.
//!
//! [`examine`] reads a few sectors and tells of the file system on the whole disk and of the partitions, each
//! with its file system. [`Table::choose`] finds the partition that a person means.
//!
//! The parsers are our own: the crates `gpt`, `gptman` and `mbrman` want a file, know one size of sectors at
//! a time, and read as many entries as a header claims.
//!
//! All bytes are hostile. A table of a GPT has at most [`MOST_TABLE_BYTES`], a chain of logical partitions at
//! most [`MOST_LOGICAL`] links, and at most [`MOST_PARTITIONS`] partitions are looked into. No number of the
//! disk is used as a place without being compared with the disk's size.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod choice;
mod file_system;
mod gpt;
mod guid;
mod listing;
mod mbr;
mod partition;
mod reader;
mod xfs_log;

#[cfg(test)]
mod tests;

pub use choice::ChoiceError;
pub use file_system::{FileSystem, FsKind, Journal};
pub use gpt::MOST_TABLE_BYTES;
pub use guid::Guid;
pub use mbr::MOST_LOGICAL;
pub use partition::{Partition, PartitionType, Scheme, Table};
pub use reader::{ReadAt, Reader};

use hs_units::ByteRange;

/// Partitions of one table that are listed and looked into.
pub const MOST_PARTITIONS: usize = 256;

/// What a disk holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// The file system that begins with the disk.
    pub file_system: Option<FileSystem>,
    /// The partition table, if there is one with a partition in it.
    pub table: Option<Table>,
}

/// Looks at a disk.
///
/// # Errors
/// Those of reading it.
pub fn examine<E>(disk: &mut Reader<'_, E>) -> Result<Contents, E> {
    let file_system = FileSystem::find(disk)?;
    let table = find_table(disk, file_system.as_ref())?;
    Ok(Contents { file_system, table })
}

/// The table, with what is in its partitions.
fn find_table<E>(disk: &mut Reader<'_, E>, whole: Option<&FileSystem>) -> Result<Option<Table>, E> {
    if let Some(mut table) = gpt::read(disk)? {
        look_into(disk, &mut table)?;
        return Ok(Some(table));
    }
    // The boot sector of a FAT ends as an MBR does, and its program lies where the entries would be. The MBR
    // of a damaged GPT has one partition that is all of the disk; Linux sees none either.
    if whole.is_some_and(|found| found.kind.begins_with_boot_sector()) || gpt::is_protected(disk)? {
        return Ok(None);
    }
    let Some(mut table) = mbr::read(disk, 512)? else { return Ok(None) };
    look_into(disk, &mut table)?;
    if table.partitions.iter().all(|partition| partition.file_system.is_none())
        && let Some(mut larger) = mbr::read(disk, 4096)?
    {
        // An MBR does not say how large its sectors are: those of 4096 bytes are taken where a file system
        // proves them.
        look_into(disk, &mut larger)?;
        let fits = larger.partitions.iter().all(|partition| partition.range.fits_in(disk.bytes()));
        if fits && larger.partitions.iter().any(|partition| partition.file_system.is_some()) {
            return Ok(Some(larger));
        }
    }
    Ok(Some(table))
}

fn look_into<E>(disk: &mut Reader<'_, E>, table: &mut Table) -> Result<(), E> {
    for partition in &mut table.partitions {
        let range = partition.range;
        if !partition.is_container() && range.offset < disk.bytes() {
            let there = ByteRange::new(range.offset, range.len.min(disk.bytes() - range.offset));
            partition.file_system = FileSystem::find(&mut disk.part(there))?;
        }
    }
    Ok(())
}
