//! Bytes as a cloop file, opened and read as `headstart import` does. Half of them get a header and offsets
//! that are right, since the fuzzer would rarely find them: the first byte chooses.

use hs_build::cloop::{Deflater, Header};
use hs_build::source::Source;
use hs_store::MemoryStore;

/// Bytes of the disk that are read at most: a header of a few bytes may claim terabytes.
const READ_BYTES: u64 = 1 << 20;

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Some((&choice, bytes)) = data.split_first() else { return false };
    let file = match choice % 3 {
        0 => bytes.to_vec(),
        1 => framed(bytes, |block| [&[0x78, 0xda], block].concat()),
        _ => framed(bytes, |block| Deflater::new().deflate(block)),
    };
    let Ok(source) = Source::open_cloop(Box::new(MemoryStore::new(file))) else { return false };
    let len = source.bytes().min(READ_BYTES);
    let mut whole = vec![0; len as usize];
    if source.read_at(0, &mut whole).is_err() {
        return false;
    }
    // What was read once reads the same again, in pieces.
    let mut piece = vec![0; 700];
    for offset in (0..len.saturating_sub(700)).step_by(10_007) {
        source.read_at(offset, &mut piece).expect("read before");
        assert_eq!(piece, whole[offset as usize..][..700]);
    }
    true
}

/// A file with blocks of 512 bytes that are stored as `store` says.
fn framed(bytes: &[u8], store: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let stored: Vec<Vec<u8>> = bytes.chunks(512).map(store).collect();
    let header = Header { block_bytes: 512, blocks: stored.len() as u32 };
    let mut file = header.encode().to_vec();
    let mut at = header.data_offset();
    file.extend(at.to_be_bytes());
    for block in &stored {
        at += block.len() as u64;
        file.extend(at.to_be_bytes());
    }
    file.extend(stored.concat());
    file
}
