//! A checkpoint: the map of the disk and those of its snapshots, as bytes.

use crate::error::{DamagedPart, OverlayError};
use crate::layout::{Identity, MAX_EXTENTS, SEGMENT_BLOCKS, field, first_block, segment_of};
use crate::map::{Content, ExtentMap, MAX_EXTENT_BLOCKS, MAX_PLACE};
use crate::slot::Slot;
use crate::snapshot::{NAME_BYTES, Snapshot};

const ENTRY_BYTES: usize = 16;
const SNAPSHOT_BYTES: usize = NAME_BYTES + 16;
const KIND_SHIFT: u32 = 62;
const DIGEST_CONTEXT: &str = "headstart 2026-11-28 draft 1 overlay map";

/// The bytes of a checkpoint.
pub(crate) fn encode(map: &ExtentMap, snapshots: &[Snapshot]) -> Vec<u8> {
    let extents = map.len() + snapshots.iter().map(|snapshot| snapshot.map.len()).sum::<usize>();
    let mut bytes = Vec::with_capacity(extents * ENTRY_BYTES + snapshots.len() * SNAPSHOT_BYTES);
    put_map(&mut bytes, map);
    for snapshot in snapshots {
        bytes.extend(Snapshot::stored_name(&snapshot.name));
        bytes.extend(snapshot.taken_s.to_le_bytes());
        bytes.extend((snapshot.map.len() as u64).to_le_bytes());
        put_map(&mut bytes, &snapshot.map);
    }
    bytes
}

fn put_map(bytes: &mut Vec<u8>, map: &ExtentMap) {
    for (start, blocks, content) in map.iter() {
        let content = match content {
            Content::Data(place) => 1 << KIND_SHIFT | place,
            Content::Zero => 2 << KIND_SHIFT,
            Content::Discarded => 3 << KIND_SHIFT,
        };
        bytes.extend((start as u32).to_le_bytes());
        bytes.extend((blocks as u32).to_le_bytes());
        bytes.extend(content.to_le_bytes());
    }
}

pub(crate) fn digest(bytes: &[u8]) -> [u8; 32] {
    blake3::derive_key(DIGEST_CONTEXT, bytes)
}

/// The maps in the bytes of a checkpoint. R41: their digest and lengths are those of the superblock.
pub(crate) fn decode(bytes: &[u8], slot: &Slot) -> Result<(ExtentMap, Vec<Snapshot>), OverlayError> {
    if digest(bytes) != slot.checkpoint_digest {
        return Err(damaged("does not have the digest that the superblock names"));
    }
    let mut left = bytes;
    let mut extents = slot.extents;
    let map = take_map(&mut left, slot.extents, &slot.identity)?;
    let mut snapshots = Vec::new();
    for _ in 0..slot.snapshots {
        let (head, rest) = left.split_at_checked(SNAPSHOT_BYTES).ok_or(damaged("ends too early"))?;
        left = rest;
        let name =
            Snapshot::name_from(&field::bytes(head, 0)).ok_or(damaged("has a bad name of a snapshot"))?;
        if snapshots.iter().any(|other: &Snapshot| other.name == name) {
            return Err(damaged("has two snapshots of one name"));
        }
        let count = field::u64(head, NAME_BYTES + 8);
        extents = extents.saturating_add(count);
        if extents > MAX_EXTENTS {
            return Err(OverlayError::TooLarge { what: "extents", found: extents, limit: MAX_EXTENTS });
        }
        let map = take_map(&mut left, count, &slot.identity)?;
        snapshots.push(Snapshot { name, taken_s: field::u64(head, NAME_BYTES), map });
    }
    if !left.is_empty() {
        return Err(damaged("has bytes that mean nothing"));
    }
    Ok((map, snapshots))
}

/// R42: extents are in order, do not overlap, lie on the disk, and their data in one segment.
fn take_map(left: &mut &[u8], count: u64, identity: &Identity) -> Result<ExtentMap, OverlayError> {
    let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(ENTRY_BYTES));
    let split = bytes.and_then(|bytes| left.split_at_checked(bytes));
    let (entries, rest) = split.ok_or(damaged("has fewer extents than it says"))?;
    *left = rest;
    let mut end = 0;
    for found in entries.chunks_exact(ENTRY_BYTES) {
        let (start, blocks, content) = entry(found);
        if start < end || blocks == 0 || blocks > MAX_EXTENT_BLOCKS || start + blocks > identity.disk_blocks()
        {
            return Err(damaged("has extents out of order, or beyond the disk"));
        }
        end = start + blocks;
        if content
            .is_none_or(|content| matches!(content, Content::Data(place) if !lies_in_one(place, blocks)))
        {
            return Err(damaged("has an extent of no known kind or place"));
        }
    }
    let extents = entries.chunks_exact(ENTRY_BYTES).map(entry);
    let extents = extents.filter_map(|(start, blocks, content)| Some((start, blocks, content?)));
    Ok(ExtentMap::of_ordered(extents))
}

/// First block, blocks, and the content, if its kind is known.
fn entry(bytes: &[u8]) -> (u64, u64, Option<Content>) {
    let packed = field::u64(bytes, 8);
    let place = packed & !(3 << KIND_SHIFT);
    let content = match packed >> KIND_SHIFT {
        1 if place <= MAX_PLACE => Some(Content::Data(place)),
        2 if place == 0 => Some(Content::Zero),
        3 if place == 0 => Some(Content::Discarded),
        _ => None,
    };
    (field::u32(bytes, 0).into(), field::u32(bytes, 4).into(), content)
}

/// Whether the blocks lie in one segment: no record, and so no extent, reaches beyond.
fn lies_in_one(place: u64, blocks: u64) -> bool {
    segment_of(place).is_some_and(|segment| place - first_block(segment) + blocks <= SEGMENT_BLOCKS)
}

fn damaged(why: &'static str) -> OverlayError {
    OverlayError::Damaged { part: DamagedPart::Checkpoint, why }
}
