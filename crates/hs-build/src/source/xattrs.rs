//! Extended attributes of the source's files: read to be hashed and to see that they will fit.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;

use super::SourceError;
use super::tree::{hash_bytes, unreadable};

/// Room for attributes in a 256-byte inode: what follows the 128 bytes of the first ext2 and the 32 extra
/// bytes, less a magic number and the end mark. (Kernel documentation, ext4, "Extended Attributes".)
pub(super) const INODE_ROOM: usize = 256 - 128 - 32 - 4 - 4;

/// Room for attributes in their own block of 4096: less a header of 32 bytes and the end mark.
pub(super) const BLOCK_ROOM: usize = 4096 - 32 - 4;

/// Bytes of an attribute's entry without its name.
const ENTRY_HEADER: usize = 16;

/// The attributes of one file, sorted by name: file systems list them in different orders.
#[derive(Debug)]
pub(super) struct Attributes(Vec<(Vec<u8>, Vec<u8>)>);

impl Attributes {
    /// Reads all attributes of `path` itself, not of what it links to. None where the file system has none.
    pub(super) fn read(path: &Path) -> Result<Self, SourceError> {
        let mut attributes = Vec::new();
        for name in list(path)?.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            attributes.push((name.to_vec(), value(path, name)?));
        }
        attributes.sort_unstable();
        Ok(Self(attributes))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn hash_into(&self, hasher: &mut blake3::Hasher) {
        hasher.update(&(self.0.len() as u64).to_le_bytes());
        for (name, value) in &self.0 {
            hash_bytes(hasher, name);
            hash_bytes(hasher, value);
        }
    }

    /// Whether they take a block beside the inode: whenever they do not all fit in the inode.
    ///
    /// # Errors
    /// [`SourceError::Unsupported`] if they do not fit in a block either.
    pub(super) fn needs_block(&self, path: &Path) -> Result<bool, SourceError> {
        // A name is stored without its prefix and an ACL shorter than here, so this is an upper bound.
        let stored = |(name, value): &(Vec<u8>, Vec<u8>)| stored_bytes(name.len(), value.len());
        let total: usize = self.0.iter().map(stored).sum();
        let largest = self.0.iter().map(stored).max().unwrap_or(0);
        if largest > BLOCK_ROOM + 32 || total > BLOCK_ROOM + INODE_ROOM + 32 * self.0.len() {
            return Err(SourceError::Unsupported {
                path: path.to_owned(),
                reason: "its extended attributes take more than one 4096-byte block",
            });
        }
        Ok(total > INODE_ROOM)
    }
}

/// Bytes that an attribute takes: entry, name and value, each rounded up to four.
pub(super) fn stored_bytes(name_bytes: usize, value_bytes: usize) -> usize {
    (ENTRY_HEADER + name_bytes).next_multiple_of(4) + value_bytes.next_multiple_of(4)
}

/// The kernel's limits for a list of names and for a value (`linux/limits.h`).
const LIMIT_BYTES: usize = 65_536;

fn list(path: &Path) -> Result<Vec<u8>, SourceError> {
    // Most files have none or few, so that the first guess usually fits.
    let mut names = vec![0; 256];
    loop {
        match rustix::fs::llistxattr(path, &mut names[..]) {
            Ok(len) => {
                names.truncate(len);
                return Ok(names);
            }
            Err(Errno::RANGE) if names.len() < LIMIT_BYTES => names = vec![0; LIMIT_BYTES],
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(path, error.into())),
        }
    }
}

fn value(path: &Path, name: &[u8]) -> Result<Vec<u8>, SourceError> {
    let mut value = vec![0; 256];
    loop {
        match rustix::fs::lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                return Ok(value);
            }
            Err(Errno::RANGE) if value.len() < LIMIT_BYTES => value = vec![0; LIMIT_BYTES],
            Err(Errno::NODATA) => return Err(SourceError::Changed { path: path.to_owned() }),
            Err(error) => return Err(unreadable(path, error.into())),
        }
    }
}
