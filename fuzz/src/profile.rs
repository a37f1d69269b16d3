//! Bytes as a profile. Plain mutation never gets past the digests, nor far into a zstd frame, so the
//! first byte chooses how much of a file's outer form is made right for the fuzzer:
//! nothing, the digests, or the digests and the compression. Offsets are those of docs/PROFILE.md.

use hs_layout::LayoutOptions;
use hs_trace::Profile;

const HEADER_BYTES: usize = 256;
const SECTION_LENGTHS: usize = 96;
const BODY_DIGEST: usize = 160;
const ZERO_TAIL: usize = 192;
const HEADER_DIGEST: usize = 224;

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Some((mode, data)) = data.split_first() else { return false };
    let bytes = match mode % 3 {
        0 => Some(data.to_vec()),
        1 => with_digests(data.to_vec()),
        _ => from_sections(data),
    };
    let profile = bytes.and_then(|bytes| Profile::decode(&bytes).ok());
    profile.iter().for_each(examine);
    profile.is_some()
}

/// Whatever decodes keeps every promise that its users build on.
fn examine(profile: &Profile) {
    let bytes = profile.encode().expect("what was decoded encodes");
    assert_eq!(Profile::decode(&bytes).as_ref(), Ok(profile));
    assert_eq!(profile.check_disk(profile.disk_digest, profile.disk_bytes), Ok(()));
    let blocks = profile.distinct_blocks();
    assert_eq!(blocks, profile.digests.len() as u64);
    assert_eq!(profile.first_access().len() as u64, blocks);
    assert_eq!(profile.extents().iter().map(|extent| extent.count).sum::<u64>(), blocks);
    let think_times = profile.think_times();
    assert!(think_times.iter().zip(&profile.reads).all(|(think, read)| *think <= read.at));
    assert!(think_times.is_sorted(), "the program's own time does not run backwards");
    profile.csv(&mut std::io::sink()).expect("a sink takes everything");
    let plan = hs_layout::plan(std::slice::from_ref(profile), &LayoutOptions::default()).expect("one disk");
    assert_eq!(plan.blocks, blocks);
}

/// A file with the right magic, version and digests, and all else as it was.
fn with_digests(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let (header, body) = bytes.split_at_mut_checked(HEADER_BYTES)?;
    header[..12].copy_from_slice(b"HSPROF\0\0\x01\0\0\0");
    header[BODY_DIGEST..ZERO_TAIL].copy_from_slice(blake3::hash(body).as_bytes());
    let digest = blake3::hash(&header[..HEADER_DIGEST]);
    header[HEADER_DIGEST..].copy_from_slice(digest.as_bytes());
    Some(bytes)
}

/// A file made of a header's first 96 bytes, three section lengths of two bytes, and the sections
/// uncompressed, the last as long as there are bytes.
fn from_sections(data: &[u8]) -> Option<Vec<u8>> {
    let (start, rest) = data.split_at_checked(SECTION_LENGTHS)?;
    let (lengths, mut rest) = rest.split_at_checked(6)?;
    let mut bytes = start.to_vec();
    bytes.resize(HEADER_BYTES, 0);
    for index in 0..4 {
        let len = lengths
            .get(index * 2..index * 2 + 2)
            .map_or(rest.len(), |len| usize::from(u16::from_le_bytes([len[0], len[1]])).min(rest.len()));
        let (raw, after) = rest.split_at(len);
        rest = after;
        let stored = zstd::bulk::compress(raw, 1).expect("memory");
        let at = SECTION_LENGTHS + index * 16;
        bytes[at..at + 8].copy_from_slice(&(stored.len() as u64).to_le_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&(raw.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&stored);
    }
    with_digests(bytes)
}
