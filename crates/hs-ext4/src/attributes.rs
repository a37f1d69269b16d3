//! Extended attributes, in the inode while there is room, then in a block that equal sets share, and of what
//! a block has no room for the largest values in inodes of their own. Layout from the kernel's documentation,
//! "Extended Attributes".

use crate::bytes::{Block, checksum, put};
use crate::error::Refusal;
use crate::plan::Attributes;

const MAGIC: u64 = 0xea02_0000;
/// Bytes of an entry before its name.
const ENTRY_HEADER: usize = 16;
/// Bytes of a block before its entries.
const BLOCK_HEADER: usize = 32;
const BLOCK_CHECKSUM: usize = 0x10;
/// Room in an inode of 256 bytes: what follows the 128 bytes of the first ext2 and the 32 extra bytes, less a
/// magic number and the mark of the end.
const INODE_ROOM: usize = 256 - 128 - 32 - 4 - 4;
/// Room in a block: less its header and the mark of the end.
const BLOCK_ROOM: usize = 4096 - BLOCK_HEADER - 4;
/// The largest value that system calls give (the kernel's `XATTR_SIZE_MAX`).
const MOST_VALUE_BYTES: usize = 65_536;
/// The most inodes that share a block (the kernel's `EXT4_XATTR_REFCOUNT_MAX`).
pub(crate) const MOST_SHARES: u32 = 1024;

/// Names by what stands for their beginning (the kernel's `EXT4_XATTR_INDEX_*`). Those of access control
/// lists are whole names.
const PREFIXES: [(&[u8], u8); 6] = [
    (b"user.", 1),
    (b"system.posix_acl_access", ACCESS_LIST),
    (b"system.posix_acl_default", DEFAULT_LIST),
    (b"trusted.", 4),
    (b"security.", 6),
    (b"system.", 7),
];
const ACCESS_LIST: u8 = 2;
const DEFAULT_LIST: u8 = 3;

/// One attribute. The derived order is the one that the kernel wants: prefix, length of the name, name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Attribute {
    prefix: u8,
    name_len: u8,
    name: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// Its value has an inode of its own.
    pub(crate) is_apart: bool,
}

/// Attributes that lie together, sorted.
pub(crate) type AttributeSet = Vec<Attribute>;

impl Attribute {
    fn new(full_name: &[u8], value: &[u8]) -> Result<Self, Refusal> {
        // A name of another kind is kept whole; the kernel does not show it.
        let prefix = PREFIXES.iter().find(|(prefix, _)| full_name.starts_with(prefix));
        let (prefix, name) =
            prefix.map_or((0, full_name), |(text, prefix)| (*prefix, &full_name[text.len()..]));
        let name_len = u8::try_from(name.len()).map_err(|_| Refusal::Attributes)?;
        if value.len() > MOST_VALUE_BYTES {
            return Err(Refusal::AttributeValue);
        }
        let value = match prefix {
            ACCESS_LIST | DEFAULT_LIST => access_list(value)?,
            _ => value.to_vec(),
        };
        Ok(Self { prefix, name_len, name: name.to_vec(), value, is_apart: false })
    }

    /// Entry, name and value, each rounded up to four bytes.
    fn stored_bytes(&self) -> usize {
        self.entry_bytes() + self.value_bytes()
    }

    /// What its value takes beside its entry.
    fn value_bytes(&self) -> usize {
        if self.is_apart { 0 } else { self.value.len().next_multiple_of(4) }
    }

    fn entry_bytes(&self) -> usize {
        (ENTRY_HEADER + self.name.len()).next_multiple_of(4)
    }

    /// As `ext4_xattr_hash_entry` computes it: bytes of the name, then the value in words. A value that lies
    /// apart is the word that its checksum is.
    fn hash(&self, seed: u32) -> u32 {
        let of_name = self.name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte));
        if self.is_apart {
            return of_name.rotate_left(16) ^ checksum(seed, &self.value);
        }
        self.value.chunks(4).fold(of_name, |hash, piece| {
            let mut word = [0; 4];
            word[..piece.len()].copy_from_slice(piece);
            hash.rotate_left(16) ^ u32::from_le_bytes(word)
        })
    }
}

/// An access control list as it is stored, from the form of system calls (`linux/posix_acl_xattr.h`): another
/// version, and an id only where it says something.
fn access_list(value: &[u8]) -> Result<Vec<u8>, Refusal> {
    const WITHOUT_ID: [u8; 4] = [0x01, 0x04, 0x10, 0x20];
    const WITH_ID: [u8; 2] = [0x02, 0x08];
    let Some((&[2, 0, 0, 0], entries)) = value.split_first_chunk() else { return Err(Refusal::AccessList) };
    let (entries, []) = entries.as_chunks::<8>() else { return Err(Refusal::AccessList) };
    let mut stored = 1_u32.to_le_bytes().to_vec();
    for entry in entries {
        match entry {
            [tag, 0, ..] if WITHOUT_ID.contains(tag) => stored.extend_from_slice(&entry[..4]),
            [tag, 0, ..] if WITH_ID.contains(tag) => stored.extend_from_slice(entry),
            _ => return Err(Refusal::AccessList),
        }
    }
    Ok(stored)
}

/// What of the attributes goes into the inode, and what into a block: in the order of their names, each into
/// the inode if there is still room. Where the block has no room for all the others, the largest values go
/// apart until it has.
pub(crate) fn distribute(attributes: &Attributes) -> Result<(AttributeSet, AttributeSet), Refusal> {
    let attributes = attributes.iter().map(|(name, value)| Attribute::new(name, value));
    let mut attributes = attributes.collect::<Result<Vec<_>, _>>()?;
    attributes.sort_unstable();
    let mut inode_room = INODE_ROOM;
    let (in_inode, mut in_block): (AttributeSet, AttributeSet) =
        attributes.into_iter().partition(|attribute| {
            let bytes = attribute.stored_bytes();
            let fits = bytes <= inode_room;
            inode_room -= if fits { bytes } else { 0 };
            fits
        });
    while in_block.iter().map(Attribute::stored_bytes).sum::<usize>() > BLOCK_ROOM {
        let largest = in_block.iter_mut().max_by_key(|attribute| attribute.value_bytes());
        let largest = largest.filter(|attribute| attribute.value_bytes() > 0).ok_or(Refusal::Attributes)?;
        largest.is_apart = true;
    }
    Ok((in_inode, in_block))
}

/// Writes a set into the rest of an inode.
pub(crate) fn write_in_inode(set: &AttributeSet, area: &mut [u8]) {
    put(area, MAGIC, &[(0, 4)]);
    // As in what mke2fs writes, entries in an inode have no hash.
    store(set, &mut area[4..], 0, |_, _| {});
}

/// Writes a set that so many inodes share into its block. `inode_of` knows the inode of a value apart.
pub(crate) fn write_block(
    set: &AttributeSet,
    shares: u32,
    number: u64,
    seed: u32,
    inode_of: impl Fn(&[u8]) -> u32,
    block: &mut Block,
) {
    put(block, MAGIC, &[(0, 4)]);
    put(block, shares.into(), &[(4, 4)]);
    put(block, 1, &[(8, 4)]);
    let hash = set.iter().fold(0_u32, |hash, attribute| hash.rotate_left(16) ^ attribute.hash(seed));
    put(block, hash.into(), &[(12, 4)]);
    store(set, &mut block[BLOCK_HEADER..], BLOCK_HEADER, |attribute, entry| {
        put(entry, attribute.hash(seed).into(), &[(12, 4)]);
        if attribute.is_apart {
            put(entry, 0, &[(2, 2)]);
            put(entry, inode_of(&attribute.value).into(), &[(4, 4)]);
        }
    });
    let sum = checksum(checksum(seed, &number.to_le_bytes()), block);
    put(block, sum.into(), &[(BLOCK_CHECKSUM, 4)]);
}

/// Writes entries from the start of `area`, which is zeros, and values from its end. Offsets of values count
/// from `base` bytes before it. `complete` is called with each entry.
fn store(set: &AttributeSet, area: &mut [u8], base: usize, complete: impl Fn(&Attribute, &mut [u8])) {
    let (mut at, mut end) = (0, area.len());
    for attribute in set {
        end -= attribute.value_bytes();
        let entry = &mut area[at..];
        entry[0] = attribute.name_len;
        entry[1] = attribute.prefix;
        put(entry, (end + base) as u64, &[(2, 2)]);
        put(entry, attribute.value.len() as u64, &[(8, 4)]);
        complete(attribute, entry);
        entry[ENTRY_HEADER..][..attribute.name.len()].copy_from_slice(&attribute.name);
        if !attribute.is_apart {
            area[end..][..attribute.value.len()].copy_from_slice(&attribute.value);
        }
        at += attribute.entry_bytes();
    }
}
