//! Bytes as the header of a pack, and behind it as its tables of runs and of backing files. Checksum and
//! digests are made right, so that the rules are reached.

use hs_format::{BackingFile, PackHeader, PackRuns, Unverified, chunk_digest};
use hs_units::ByteRange;

const HEADER_BYTES: usize = 4096;
const CHECKSUM_AT: usize = HEADER_BYTES - 32;
const RUNS_DIGEST_AT: usize = 80;
const BACKING_COUNT_AT: usize = 3456;
const BACKING_DIGEST_AT: usize = 3464;
const BACKING_BYTES: usize = 664;
/// Large leaves are only cut from: this many of their bytes are made.
const LEAF_BYTES: u64 = 1000;

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Some((header, table)) = data.split_at_checked(HEADER_BYTES) else { return false };
    let mut bytes = header.to_vec();
    let count = usize::from(bytes[BACKING_COUNT_AT]);
    let (table, backing) = table.split_at(table.len().saturating_sub(count * BACKING_BYTES));
    if count > 0 {
        bytes[BACKING_DIGEST_AT..][..32].copy_from_slice(&BackingFile::digest_of(backing).0);
    }
    bytes[RUNS_DIGEST_AT..][..32].copy_from_slice(&PackRuns::digest_of(table).0);
    let checksum = chunk_digest(&bytes[..CHECKSUM_AT]);
    bytes[CHECKSUM_AT..].copy_from_slice(&checksum.0);
    let Ok(header) = PackHeader::decode(Unverified::new(&bytes)) else { return false };
    assert!(header.encode()[..] == bytes, "one header has one encoding");
    assert!(header.check_file(header.pack_bytes()).is_ok());
    assert!(!header.name.contains('/') && header.image_bytes() > 0);
    let leaves = ByteRange::new(header.leaf_bytes() / 2, LEAF_BYTES.min(header.leaf_bytes() / 2));
    assert_eq!(header.leaf_part(leaves).len() as u64, leaves.len);
    let Ok(files) = BackingFile::decode_all(&header, Unverified::new(backing)) else { return false };
    assert_eq!(files.len(), header.backing_count as usize);
    assert!(files.iter().all(|file| !file.name.contains('/')));
    assert!(BackingFile::encode_all(&files) == (backing.to_vec(), header.backing_digest));
    let Ok(runs) = PackRuns::decode(&header, Unverified::new(table)) else { return false };
    assert_eq!(runs.chunk_bytes(), header.chunk_bytes);
    for at in [0, header.chunk_bytes / 3, header.chunk_bytes.saturating_sub(1)] {
        let range = ByteRange::new(at, (header.chunk_bytes - at).min(5_000_000));
        let mut sum = 0;
        for place in runs.on_disk(range) {
            assert!(place.end() <= header.disk_bytes, "what is mapped lies on the disk");
            sum += place.len;
        }
        assert_eq!(sum, range.len, "each byte of a chunk has a place");
    }
    true
}
