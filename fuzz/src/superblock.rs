//! Bytes as a superblock. The first byte chooses whether magic, version and checksum are made right, since
//! no mutation would ever find a checksum. Offsets are those of docs/FORMAT.md.

use hs_format::{Superblock, Unverified, limits::SUPERBLOCK_BYTES};

const SIGNATURE: usize = 3984;
const CHECKSUM: usize = 4064;
/// Everything up to here has meaning; the fuzzer's bytes go there, and zeros follow.
const USED: usize = 1840;

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Some((mode, data)) = data.split_first() else { return false };
    let bytes = match mode % 3 {
        0 => data.to_vec(),
        1 => sealed(data, 0),
        _ => sealed(data, data.len().min(80)),
    };
    let superblock = Superblock::decode(Unverified::new(&bytes));
    superblock.iter().for_each(|superblock| examine(superblock, &bytes));
    superblock.is_ok()
}

/// A superblock with the right head and checksum; the last `signature` bytes of `data` become its signature.
fn sealed(data: &[u8], signature: usize) -> Vec<u8> {
    let (fields, signature) = data.split_at(data.len() - signature);
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    let fields = &fields[..fields.len().min(USED - 16)];
    bytes[..16].copy_from_slice(b"HSIMAGE\0\x01\0\0\0\x00\x10\0\0");
    bytes[16..16 + fields.len()].copy_from_slice(fields);
    bytes[SIGNATURE..SIGNATURE + signature.len()].copy_from_slice(signature);
    let checksum = blake3::hash(&bytes[..CHECKSUM]);
    bytes[CHECKSUM..].copy_from_slice(checksum.as_bytes());
    bytes
}

/// Whatever decodes keeps every promise that readers build on.
fn examine(superblock: &Superblock, bytes: &[u8]) {
    assert_eq!(superblock.encode(), bytes, "one superblock has one encoding");
    assert_eq!(superblock.check_file(superblock.image_bytes), Ok(()));
    let cold = &superblock.cold;
    let mut regions = vec![superblock.mirror(), cold.range];
    for segment in &superblock.hot {
        assert_eq!(segment.index.end(), segment.hints.offset);
        assert_eq!(segment.hints.end(), segment.chunks.offset);
        regions.push(segment.range());
    }
    regions.sort_unstable();
    assert!(regions[0].offset >= SUPERBLOCK_BYTES as u64);
    assert!(regions.windows(2).all(|pair| pair[0].end() <= pair[1].offset));
    assert!(regions.iter().all(|range| range.fits_in(superblock.image_bytes)));
    assert_eq!(cold.leaf_space().end(), cold.root.offset);
    assert_eq!(cold.in_file(cold.root).end(), cold.range.end());
    let windows = superblock.windows();
    assert!(windows > 0 && superblock.window_raw_bytes(windows) == 0);
    let last = u64::from(superblock.window_raw_bytes(windows - 1));
    assert_eq!((windows - 1) * superblock.geometry().window_bytes() + last, superblock.disk_bytes);
    let _ = superblock.image_digest();
}
