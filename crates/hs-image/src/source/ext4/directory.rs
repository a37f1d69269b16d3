//! Reads directories: the blocks by the extent tree, the names in them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::{BLOCK, Ext4, Inode, SourceError, u16_at, u32_at, unexpected};
use hs_units::BLOCK_BYTES;

/// The kernel's limit for the height of an extent tree.
const MAX_DEPTH: u16 = 5;
const EXTENT_MAGIC: u16 = 0xf30a;
const EXTENT_BYTES: usize = 12;

impl Ext4<'_> {
    /// The names in a directory and their inodes, without `.` and `..`.
    pub(in super::super) fn read_directory(
        &self,
        directory: &Inode,
    ) -> Result<HashMap<OsString, u32>, SourceError> {
        let mut names = HashMap::new();
        let mut blocks = Vec::new();
        self.collect_blocks(directory.block_map(), MAX_DEPTH, directory.size() / BLOCK_BYTES, &mut blocks)?;
        let mut block = [0; BLOCK];
        for number in blocks {
            self.read_block(number, &mut block)?;
            read_names(&block, number, &mut names)?;
        }
        Ok(names)
    }

    /// Adds the blocks that one node of an extent tree leads to, at most `limit` in all.
    fn collect_blocks(
        &self,
        node: &[u8],
        max_depth: u16,
        limit: u64,
        blocks: &mut Vec<u64>,
    ) -> Result<(), SourceError> {
        let (entries, depth) = (usize::from(u16_at(node, 2)), u16_at(node, 6));
        let fits = (entries + 1) * EXTENT_BYTES <= node.len();
        if u16_at(node, 0) != EXTENT_MAGIC || !fits || depth > max_depth {
            return Err(unexpected(0, "a directory's extent tree is damaged"));
        }
        for entry in node[EXTENT_BYTES..].chunks_exact(EXTENT_BYTES).take(entries) {
            if depth > 0 {
                let child = u64::from(u32_at(entry, 4)) | u64::from(u16_at(entry, 8)) << 32;
                let mut block = [0; BLOCK];
                self.read_block(child, &mut block)?;
                self.collect_blocks(&block, depth - 1, limit, blocks)?;
                continue;
            }
            let len = u64::from(u16_at(entry, 4));
            let start = u64::from(u32_at(entry, 8)) | u64::from(u16_at(entry, 6)) << 32;
            if blocks.len() as u64 + len > limit {
                return Err(unexpected(0, "a directory has more blocks than its size says"));
            }
            blocks.extend(start..start + len);
        }
        Ok(())
    }
}

/// Adds the names in one directory block. The checksum at its end looks like an unused entry.
fn read_names(
    block: &[u8; BLOCK],
    number: u64,
    names: &mut HashMap<OsString, u32>,
) -> Result<(), SourceError> {
    let mut offset = 0;
    while offset < BLOCK {
        let entry = &block[offset..];
        if entry.len() < 8 {
            return Err(damaged(number, offset));
        }
        let (inode, entry_bytes, name_bytes) =
            (u32_at(entry, 0), usize::from(u16_at(entry, 4)), usize::from(entry[6]));
        if entry_bytes < 8 + name_bytes || entry_bytes > entry.len() || !entry_bytes.is_multiple_of(4) {
            return Err(damaged(number, offset));
        }
        let name = &entry[8..8 + name_bytes];
        if inode != 0 && name != b"." && name != b".." {
            names.insert(OsString::from_vec(name.to_vec()), inode);
        }
        offset += entry_bytes;
    }
    Ok(())
}

fn damaged(block: u64, offset: usize) -> SourceError {
    unexpected(block * BLOCK_BYTES + offset as u64, "a directory entry is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_names_are_errors() {
        let mut block = [0; BLOCK];
        let mut names = HashMap::new();
        assert!(read_names(&block, 1, &mut names).is_err(), "an entry of no bytes would never end");
        block[..9].copy_from_slice(b"\x0c\0\0\0\x00\x10\x01\x01a");
        read_names(&block, 1, &mut names).unwrap();
        assert_eq!(names.get(&OsString::from("a")), Some(&12));
        block[4..6].copy_from_slice(&8_u16.to_le_bytes());
        assert!(read_names(&block, 1, &mut names).is_err(), "the name is longer than its entry");
        block[4..6].copy_from_slice(&0xfffc_u16.to_le_bytes());
        assert!(read_names(&block, 1, &mut names).is_err(), "the entry is longer than its block");
    }
}
