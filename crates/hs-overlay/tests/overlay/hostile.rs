//! Files of strangers, whose digests are right where that matters.

use hs_overlay::{DamagedPart, Limits, Opening, Overlay, OverlayError, forge};

use crate::device::Device;
use crate::world::{BLOCK, World, ZERO};

/// Of the first segment.
const RECORDS: usize = 16 * BLOCK;
/// Of a record: its kind of the first extent.
const KIND: usize = 128 + 8;

/// A file whose map has two extents, in a segment of its own, with two records behind it.
fn made() -> Vec<u8> {
    let mut world = World::create(Limits::default());
    world.write(10, &[1; 3]);
    world.zero(20, 5, true);
    world.close();
    world.write(30, &[2]);
    world.flush();
    world.write(40, &[3]);
    world.flush();
    world.device.read(0, world.device.len())
}

fn device(bytes: &[u8]) -> Device {
    let mut device = Device::default();
    device.write(0, bytes);
    device.sync();
    device
}

fn opened(bytes: &[u8]) -> Result<Overlay, OverlayError> {
    crate::world::open(&device(bytes), Limits::default())
}

/// Both slots with another number at this place.
fn with_slots(at: usize, value: &[u8]) -> Result<Overlay, OverlayError> {
    let mut bytes = made();
    for slot in [0, BLOCK] {
        bytes[slot + at..slot + at + value.len()].copy_from_slice(value);
    }
    forge::seal(&mut bytes);
    opened(&bytes)
}

fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Where the map is stored.
fn map_at(bytes: &[u8]) -> usize {
    RECORDS + number(bytes, 208) * 256 * BLOCK
}

fn is_damaged(result: Result<Overlay, OverlayError>, part: DamagedPart) {
    match result.map(|_| ()) {
        Err(OverlayError::Damaged { part: found, .. }) if found == part => {}
        other => panic!("{other:?}"),
    }
}

// R39
#[test]
fn a_newer_version_is_called_newer() {
    let error = with_slots(8, &[2]).map(|_| ()).unwrap_err();
    assert_eq!(error, OverlayError::Version { found: 2, known: 1 });
    // One slot of a newer version is enough.
    let mut bytes = made();
    bytes[8] = 2;
    forge::seal(&mut bytes);
    assert!(matches!(opened(&bytes), Err(OverlayError::Version { .. })));
}

// R40
#[test]
fn a_superblock_that_contradicts_itself_is_refused() {
    for (at, value) in [
        (12, &[0, 8][..]),
        (64, &[1]),
        (64, &[0; 8]),
        (71, &[1]),
        (128, &[0xff; 4]),
        (132, &[1, 1]),
        (136, &[0xff; 4]),
        (152, &[0; 8]),
        (192, &[2]),
        (192, &[0xff; 4]),
        (196, &[1]),
        (300, &[1]),
    ] {
        is_damaged(with_slots(at, value), DamagedPart::Superblock);
    }
    for (at, value) in [(140, &[17][..]), (147, &[0xff])] {
        assert!(matches!(with_slots(at, value), Err(OverlayError::TooLarge { .. })), "{at}");
    }
    // One segment with two uses.
    let bytes = made();
    let next = bytes[136..140].to_vec();
    is_damaged(with_slots(208, &next), DamagedPart::Superblock);
    is_damaged(with_slots(128, &next), DamagedPart::Superblock);
}

// R41
#[test]
fn a_map_of_another_digest_is_refused() {
    let mut bytes = made();
    let at = map_at(&bytes);
    bytes[at] ^= 1;
    is_damaged(opened(&bytes), DamagedPart::Checkpoint);
    // More or fewer extents than there are.
    is_damaged(with_slots(144, &[9]), DamagedPart::Checkpoint);
    is_damaged(with_slots(144, &[1]), DamagedPart::Checkpoint);
    is_damaged(with_slots(140, &[1]), DamagedPart::Checkpoint);
    // A file that was cut off.
    let mut bytes = made();
    bytes.truncate(RECORDS + 256 * BLOCK);
    assert!(opened(&bytes).is_err());
}

// R42
#[test]
fn a_map_out_of_order_or_beyond_the_disk_is_refused() {
    let whole = made();
    let at = map_at(&whole);
    for (offset, value) in [
        // Behind the next extent, beyond the disk, empty, too long.
        (0, &[19, 0][..]),
        (16, &[0xff, 0xff]),
        (4, &[0]),
        (4, &[200, 0]),
        // No kind, and places that lie in no segment, beyond the file, or over the end of a segment.
        (15, &[0]),
        (8, &[3, 0, 0, 0]),
        (8, &[0, 0, 0xff]),
        (8, &[14, 1]),
        (24, &[1]),
    ] {
        let mut bytes = whole.clone();
        bytes[at + offset..at + offset + value.len()].copy_from_slice(value);
        forge::seal(&mut bytes);
        is_damaged(opened(&bytes), DamagedPart::Checkpoint);
    }
}

/// The versions of the blocks that the two records wrote, when the second is changed.
fn second_record(change: impl FnOnce(&mut [u8]), seals: bool) -> [u64; 3] {
    let mut bytes = made();
    // A record with data, a record with data: the last magic number is the second's.
    let magic = b"HSKEEPRC";
    let last = (0..bytes.len() / BLOCK).rev().find(|block| bytes[block * BLOCK..].starts_with(magic));
    change(&mut bytes[last.expect("a record") * BLOCK..]);
    if seals {
        forge::seal(&mut bytes);
    }
    let world = World::open(device(&bytes), Limits::default()).expect("what is before is whole");
    assert_eq!([10, 22].map(|block| world.version(block)), [1, ZERO]);
    [30, 40, 41].map(|block| world.version(block))
}

// R43
#[test]
fn a_header_that_is_not_whole_is_the_end_of_the_log() {
    assert_eq!(second_record(|_| {}, true), [2, 3, 0]);
    assert_eq!(second_record(|header| header[100] ^= 1, false), [2, 0, 0]);
    for at in [8, 40, 52, 54, 56, 60, 4000] {
        assert_eq!(second_record(|header| header[at] ^= 0x40, true), [2, 0, 0], "{at}");
    }
}

// R44
#[test]
fn extents_that_do_not_agree_are_the_end_of_the_log() {
    for (at, value) in [(KIND, 0), (KIND, 2), (KIND, 9), (128 + 3, 9), (128 + 4, 2), (128 + 4, 0)] {
        assert_eq!(second_record(|header| header[at] = value, true), [2, 0, 0], "{at}");
    }
}

// R45
#[test]
fn a_record_of_another_time_is_the_end_of_the_log() {
    for at in [24, 32, 64] {
        assert_eq!(second_record(|header| header[at] ^= 1, true), [2, 0, 0], "{at}");
    }
}

// R46
#[test]
fn a_record_whose_data_is_torn_is_the_end_of_the_log() {
    assert_eq!(second_record(|record| record[2 * BLOCK - 1] ^= 1, true), [2, 0, 0]);
}

// R47
#[test]
fn a_log_that_goes_on_in_what_is_used_is_refused() {
    let bytes = made();
    let log = number(&bytes, 128) as u32;
    // The data of the map lies where the log is; a log that is elsewhere and goes on there would write over
    // it.
    let mut other = bytes.clone();
    for slot in [0, BLOCK] {
        other[slot + 128..slot + 132].copy_from_slice(&4_u32.to_le_bytes());
        other[slot + 136..slot + 140].copy_from_slice(&log.to_le_bytes());
    }
    forge::seal(&mut other);
    is_damaged(opened(&other), DamagedPart::Log);
    // A record that names a segment far beyond the file, or its own.
    for next in [1 << 20, log] {
        let mut bytes = bytes.clone();
        let magic = b"HSKEEPRC";
        let last = (0..bytes.len() / BLOCK).rev().find(|block| bytes[block * BLOCK..].starts_with(magic));
        let at = last.expect("a record") * BLOCK + 48;
        bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(next));
        forge::seal(&mut bytes);
        is_damaged(opened(&bytes), DamagedPart::Log);
    }
}

#[test]
fn other_files_are_none() {
    for bytes in [&b""[..], &[0; 512], &[0xff; 9216], &vec![0; 3 << 20]] {
        assert_eq!(opened(bytes).map(|_| ()), Err(OverlayError::NotAnOverlay));
    }
    let mut opening = Opening::new(None, u64::MAX, Limits::default());
    assert_eq!(opening.handle_bytes(&[]), Err(OverlayError::NotAnOverlay));
}
