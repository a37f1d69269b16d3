use hs_store::MemoryStore;
use hs_units::Prng;
use proptest::prelude::*;

use super::*;
use crate::cloop::Deflater;

/// A cloop file of blocks that compress a little, and the disk in it.
fn sample(block_bytes: u32, blocks: u32) -> (Vec<u8>, Vec<u8>) {
    let header = Header { block_bytes, blocks };
    let mut disk = vec![0; header.disk_bytes() as usize];
    disk.chunks_mut(512).enumerate().for_each(|(i, bytes)| Prng::new(i as u64).fill(&mut bytes[..99]));
    let mut file = header.encode().to_vec();
    let mut at = header.data_offset();
    let stored: Vec<Vec<u8>> =
        disk.chunks(block_bytes as usize).map(|raw| Deflater::new().deflate(raw)).collect();
    for block in &stored {
        file.extend(at.to_be_bytes());
        at += block.len() as u64;
    }
    file.extend(at.to_be_bytes());
    file.extend(stored.concat());
    (file, disk)
}

fn open(file: &[u8]) -> Result<CloopDisk, SourceError> {
    CloopDisk::open(Box::new(MemoryStore::new(file.to_vec()).named("x.cloop")))
}

fn read_all(file: &[u8]) -> Result<Vec<u8>, SourceError> {
    let disk = open(file)?;
    // Hostile headers may claim terabytes: what a test reads is bounded.
    let mut bytes = vec![0; disk.bytes().min(1 << 20) as usize];
    disk.read_at(0, &mut bytes).map(|()| bytes)
}

#[test]
fn a_disk_is_read_from_anywhere_and_rounded_up_to_blocks() {
    let (file, disk) = sample(1536, 5);
    let opened = open(&file).expect("opened");
    assert_eq!(opened.bytes(), 8192);
    for (offset, len) in [(0, 8192), (1535, 2), (3000, 1), (7679, 2), (8191, 1), (8192, 0)] {
        let mut bytes = vec![9; len];
        opened.read_at(offset as u64, &mut bytes).expect("read");
        let expected: Vec<u8> = (offset..offset + len).map(|at| disk.get(at).copied().unwrap_or(0)).collect();
        assert_eq!(bytes, expected, "{offset} {len}");
    }
    let outside = opened.read_at(8191, &mut [0; 2]);
    assert!(matches!(outside, Err(SourceError::OutOfRange { bytes: 8192, .. })), "{outside:?}");
}

/// Every bit pattern that differs in one byte of header and offsets is refused with the file's name, or
/// gives the same disk.
#[test]
fn every_header_byte_flipped_is_an_error_or_the_same_bytes() {
    let (file, _) = sample(1024, 4);
    let expected = read_all(&file).expect("read");
    let tables = Header { block_bytes: 1024, blocks: 4 }.data_offset() as usize;
    let mut refused = 0;
    for at in 0..tables {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = file.clone();
            damaged[at] ^= flip;
            match read_all(&damaged) {
                Ok(bytes) => {
                    assert!(at < 128 || (128..136).contains(&at), "byte {at} of the offsets matters");
                    // Fewer blocks than there are cannot be told from a shorter disk.
                    let same = bytes.len().min(expected.len());
                    assert!(bytes[..same] == expected[..same], "byte {at}");
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().starts_with("x.cloop: "), "{error}");
                }
            }
        }
    }
    assert!(refused > 3 * 8 * 4, "{refused}");
}

#[test]
fn truncated_files_are_refused() {
    let (file, _) = sample(1024, 4);
    for cut in 0..file.len() {
        let refused = read_all(&file[..cut]).expect_err("refused");
        assert!(refused.to_string().starts_with("x.cloop: "), "{refused}");
    }
}

proptest! {
    #[test]
    fn damaged_blocks_are_an_error_or_the_same_bytes(at: usize, flip in 1_u8.., more in 0_usize..4) {
        let (mut file, disk) = sample(1024, 8);
        let body = Header { block_bytes: 1024, blocks: 8 }.data_offset() as usize;
        let span = file.len() - body;
        for i in 0..=more {
            let at = body + (at % span + i * 37) % span;
            file[at] ^= flip;
        }
        if let Ok(bytes) = read_all(&file) {
            prop_assert!(bytes == disk);
        }
    }
}

#[test]
fn a_damaged_block_is_named_with_what_was_expected() {
    let (mut file, _) = sample(1024, 4);
    let last = file.len() - 1;
    file[last] ^= 1;
    let said = read_all(&file).expect_err("refused").to_string();
    for words in ["x.cloop", "block 3", "expected", "1024 bytes", "found"] {
        assert!(said.contains(words), "no '{words}' in: {said}");
    }
    // The other blocks are there all the same.
    open(&file).expect("opened").read_at(0, &mut [0; 3072]).expect("read");
}
