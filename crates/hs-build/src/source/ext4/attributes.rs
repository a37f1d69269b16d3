//! Extended attributes in the inode and in their own block, put into one order. `mkfs.ext4 -d` adds them in
//! the order in which the source's file system lists them, to the inode while there is room, then to the
//! block, so that equal attributes can lie in different places. Layout from the kernel's documentation, ext4,
//! "Extended Attributes".

use hs_units::to_u32;

use super::super::xattrs::{BLOCK_ROOM, INODE_ROOM, stored_bytes};
use super::{BLOCK, Inode, SourceError, checksum, u32_at, unexpected};
use crate::ext4::{ATTRIBUTES_MAGIC as MAGIC, attribute_entries};

const BLOCK_HEADER: usize = 32;
const BLOCK_CHECKSUM: usize = 0x10;
const ENTRY_HEADER: usize = 16;

/// One attribute. The derived order is the one that the kernel wants in a block: prefix, length of the name,
/// name; no two attributes of a file have the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Attribute {
    prefix: u8,
    name_bytes: u8,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Attribute {
    fn stored_bytes(&self) -> usize {
        stored_bytes(self.name.len(), self.value.len())
    }

    /// As `ext4_xattr_hash_entry` computes it: name bytes, then the value in words.
    fn hash(&self) -> u32 {
        let mut hash = 0_u32;
        for byte in &self.name {
            hash = hash.rotate_left(5) ^ u32::from(*byte);
        }
        for word in self.value.chunks(4) {
            let mut bytes = [0; 4];
            bytes[..word.len()].copy_from_slice(word);
            hash = hash.rotate_left(16) ^ u32::from_le_bytes(bytes);
        }
        hash
    }
}

/// Distributes the attributes anew in the order of their names: each to the inode if there is still room,
/// else to the block. Nothing is changed if the block would overflow, which needs a block that is full
/// already.
pub(super) fn sort(inode: &mut Inode, mut block: Option<&mut [u8; BLOCK]>) -> Result<(), SourceError> {
    if !inode.has_extra_bytes() {
        return Err(unexpected(0, "an inode has no room for attributes"));
    }
    let mut attributes = Vec::new();
    let area = inode.attribute_area();
    if u32_at(area, 0) == MAGIC {
        parse(&area[4..], 0, &mut attributes)?;
    }
    if let Some(block) = &block {
        if u32_at(&block[..], 0) != MAGIC || u32_at(&block[..], 8) != 1 {
            return Err(unexpected(0, "an attribute block is damaged"));
        }
        parse(&block[BLOCK_HEADER..], BLOCK_HEADER, &mut attributes)?;
    }
    attributes.sort_unstable();
    let (mut in_inode, mut in_block) = (Vec::new(), Vec::new());
    let (mut inode_bytes, mut block_bytes) = (0, 0);
    for attribute in attributes {
        let bytes = attribute.stored_bytes();
        if inode_bytes + bytes <= INODE_ROOM {
            inode_bytes += bytes;
            in_inode.push(attribute);
        } else {
            block_bytes += bytes;
            in_block.push(attribute);
        }
    }
    let room = if block.is_some() { BLOCK_ROOM } else { 0 };
    if block_bytes > room {
        return Ok(());
    }
    area[..4].copy_from_slice(&MAGIC.to_le_bytes());
    store(&in_inode, &mut area[4..], 0, false);
    if let Some(block) = &mut block {
        store(&in_block, &mut block[BLOCK_HEADER..], BLOCK_HEADER, true);
    }
    Ok(())
}

/// The checksum is over the file system's seed, the block's number and the block without it.
pub(super) fn update_block_checksum(block: &mut [u8; BLOCK], number: u64, seed: u32) {
    block[BLOCK_CHECKSUM..BLOCK_CHECKSUM + 4].fill(0);
    let sum = checksum(checksum(seed, &number.to_le_bytes()), block);
    block[BLOCK_CHECKSUM..BLOCK_CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Reads entries up to the end mark. Offsets of values count from `base` bytes before `area`.
fn parse(area: &[u8], base: usize, attributes: &mut Vec<Attribute>) -> Result<(), SourceError> {
    for entry in attribute_entries(area, base) {
        let entry = entry.map_err(|_| unexpected(0, "an attribute entry is damaged"))?;
        let damaged = |_| unexpected(0, "an attribute's name is too long");
        let name_bytes = u8::try_from(entry.name.len()).map_err(damaged)?;
        attributes.push(Attribute {
            prefix: entry.prefix,
            name_bytes,
            name: entry.name.to_vec(),
            value: entry.value.to_vec(),
        });
    }
    Ok(())
}

/// Writes entries from the start of `area` and values from its end, which have been seen to fit. As in what
/// mke2fs writes, entries in an inode have no hash.
fn store(attributes: &[Attribute], area: &mut [u8], base: usize, with_hash: bool) {
    area.fill(0);
    let (mut offset, mut end) = (0, area.len());
    for attribute in attributes {
        end -= attribute.value.len().next_multiple_of(4);
        let offset_in_block = u16::try_from(end + base).expect("a block has fewer than 65536 bytes");
        let entry = &mut area[offset..];
        entry[0] = attribute.name_bytes;
        entry[1] = attribute.prefix;
        entry[2..4].copy_from_slice(&offset_in_block.to_le_bytes());
        entry[8..12].copy_from_slice(&to_u32(attribute.value.len() as u64).to_le_bytes());
        if with_hash {
            entry[12..16].copy_from_slice(&attribute.hash().to_le_bytes());
        }
        entry[ENTRY_HEADER..ENTRY_HEADER + attribute.name.len()].copy_from_slice(&attribute.name);
        area[end..end + attribute.value.len()].copy_from_slice(&attribute.value);
        offset += (ENTRY_HEADER + attribute.name.len()).next_multiple_of(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(name: &str, value: &[u8]) -> Attribute {
        Attribute {
            prefix: 1,
            name_bytes: name.len().try_into().expect("short"),
            name: name.into(),
            value: value.to_vec(),
        }
    }

    #[test]
    fn what_is_stored_is_parsed() {
        let attributes = [attribute("a", b"12345"), attribute("bb", b""), attribute("cc", b"1234")];
        for base in [0, BLOCK_HEADER] {
            let mut area = [0xff; 92];
            store(&attributes, &mut area, base, true);
            let mut parsed = Vec::new();
            parse(&area, base, &mut parsed).unwrap();
            assert_eq!(parsed, attributes);
        }
    }

    #[test]
    fn any_byte_may_be_wrong() {
        let mut area = [0; 92];
        store(&[attribute("name", b"value"), attribute("other", b"x")], &mut area, 0, true);
        for index in 0..area.len() {
            for bit in 0..8 {
                let mut damaged = area;
                damaged[index] ^= 1 << bit;
                // Whatever it is taken for, parsing ends and does not panic.
                let _ = parse(&damaged, 0, &mut Vec::new());
                let _ = parse(&damaged, BLOCK_HEADER, &mut Vec::new());
            }
        }
    }
}
