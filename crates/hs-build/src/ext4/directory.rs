//! Names in a directory, read one after the other. The blocks of a directory's index look like unused
//! entries, so they need no reading of their own (kernel documentation, "Hash Tree Directories").

use super::error::{Expected, Ext4Error};
use super::mapping::Mapping;
use super::{Ext4, FileKind, Inode, MOST_DIRECTORY_BYTES, u16_at, u32_at};

const HEADER_BYTES: usize = 8;
/// The number of the parent, before the names in an inode.
const INLINE_PARENT_BYTES: usize = 4;

/// Names and their inodes, until `go_on` says no.
pub(super) fn names(
    ext4: &mut Ext4<'_>,
    directory: &Inode,
    go_on: &mut dyn FnMut(&[u8], u32) -> bool,
) -> Result<(), Ext4Error> {
    directory.must_be(FileKind::Directory)?;
    let size = ext4.within_disk(directory, MOST_DIRECTORY_BYTES)?;
    if directory.has_inline_data() {
        let [first, rest] = directory.inline_data(size)?;
        let first = first.get(INLINE_PARENT_BYTES..).unwrap_or_default();
        if read_names(first, directory.offset(), go_on)? {
            read_names(rest, directory.offset(), go_on)?;
        }
        return Ok(());
    }
    let mut mapping = Mapping::of(directory);
    let blocks = size.div_ceil(ext4.block_bytes());
    let mut at = 0;
    while at < blocks {
        let run = mapping.run_at(ext4, at)?;
        let here = run.count.min(blocks - at);
        // A hole has no names.
        for number in run.first.map(|first| first..first + here).into_iter().flatten() {
            let block = ext4.block(number, "a directory's block", directory.offset())?;
            if !read_names(&block, number * ext4.block_bytes(), go_on)? {
                return Ok(());
            }
        }
        at += here;
    }
    Ok(())
}

/// The names in a block that lies at `offset`. Gives whether to go on.
pub(super) fn read_names(
    block: &[u8],
    offset: u64,
    go_on: &mut dyn FnMut(&[u8], u32) -> bool,
) -> Result<bool, Ext4Error> {
    let mut at = 0;
    while at < block.len() {
        let entry = &block[at..];
        let damaged = |found: usize| Ext4Error::Unexpected {
            what: "the length of a directory's entry",
            offset: offset + at as u64,
            found: found as u64,
            expected: Expected::Described("a multiple of 4 that holds the name and ends within the block"),
        };
        if entry.len() < HEADER_BYTES {
            return Err(damaged(entry.len()));
        }
        let (inode, name_bytes) = (u32_at(entry, 0), usize::from(entry[6]));
        let entry_bytes = entry_bytes(u16_at(entry, 4), block.len());
        let is_sound = entry_bytes >= HEADER_BYTES + name_bytes
            && entry_bytes <= entry.len()
            && entry_bytes.is_multiple_of(4);
        if !is_sound {
            return Err(damaged(entry_bytes));
        }
        let name = &entry[HEADER_BYTES..HEADER_BYTES + name_bytes];
        if inode != 0 && !go_on(name, inode) {
            return Ok(false);
        }
        at += entry_bytes;
    }
    Ok(true)
}

/// Blocks of 64 KiB need one bit more than the field has (`ext4_rec_len_from_disk`).
fn entry_bytes(field: u16, block_bytes: usize) -> usize {
    match usize::from(field) {
        bytes if block_bytes < 1 << 16 => bytes,
        0 | 0xffff => block_bytes,
        bytes => bytes & 0xfffc | (bytes & 3) << 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(block: &[u8]) -> Result<Vec<(Vec<u8>, u32)>, Ext4Error> {
        let mut names = Vec::new();
        read_names(block, 0, &mut |name, inode| {
            names.push((name.to_vec(), inode));
            true
        })?;
        Ok(names)
    }

    #[test]
    fn damaged_names_are_errors() {
        let mut block = [0; 4096];
        assert!(names_in(&block).is_err(), "an entry of no bytes would never end");
        block[..9].copy_from_slice(b"\x0c\0\0\0\x00\x10\x01\x01a");
        assert_eq!(names_in(&block).unwrap(), [(b"a".to_vec(), 12)]);
        block[4..6].copy_from_slice(&8_u16.to_le_bytes());
        assert!(names_in(&block).is_err(), "the name is longer than its entry");
        block[4..6].copy_from_slice(&0xfffc_u16.to_le_bytes());
        assert!(names_in(&block).is_err(), "the entry is longer than its block");
        assert!(names_in(&block[..7]).is_err(), "the entry has no room for its header");
    }

    #[test]
    fn an_entry_may_fill_a_block_of_64_kib() {
        let mut block = vec![0; 1 << 16];
        block[..9].copy_from_slice(b"\x0c\0\0\0\xff\xff\x01\x01a");
        assert_eq!(names_in(&block).unwrap().len(), 1);
    }
}
