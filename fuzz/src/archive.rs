//! Bytes as a tar archive, plain or packed, which becomes a file system. The first byte chooses whether each
//! sector gets the checksum of a header, since the fuzzer would rarely find one.

use std::io::Cursor;
use std::path::Path;

use hs_build::source::{Source, SourceOptions};

const SECTOR: usize = 512;
/// Where a header has its checksum.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Whether the archive was taken; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Some((&choice, bytes)) = data.split_first() else { return false };
    let bytes = if choice % 2 == 0 { bytes.to_vec() } else { with_checksums(bytes) };
    read(bytes)
}

/// Opens an archive, and reads the file system that it becomes.
pub(crate) fn read(bytes: Vec<u8>) -> bool {
    let options = SourceOptions { unpack_limit_bytes: 1 << 20, ..SourceOptions::default() };
    let stream = Box::new(Cursor::new(bytes));
    match Source::open_stream(stream, Path::new("archive"), &options, &|_| {}) {
        Ok(source) => {
            read_all(&source);
            true
        }
        Err(_) => false,
    }
}

/// What lies in the ranges of a disk must be there.
pub(crate) fn read_all(source: &Source) {
    let mut buffer = vec![0; 1 << 16];
    for range in source.data_ranges().expect("known") {
        assert!(range.end() <= source.bytes());
        let mut at = range.offset;
        while at < range.end() {
            let len = (range.end() - at).min(buffer.len() as u64);
            source.read_at(at, &mut buffer[..len as usize]).expect("contents are where they were put");
            at += len;
        }
    }
}

fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for sector in bytes.chunks_exact_mut(SECTOR).filter(|sector| sector.iter().any(|&byte| byte != 0)) {
        sector[CHECKSUM].fill(b' ');
        let sum: u32 = sector.iter().map(|&byte| u32::from(byte)).sum();
        sector[CHECKSUM][..7].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
    bytes
}
