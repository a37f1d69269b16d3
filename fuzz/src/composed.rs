//! Bytes as the verified content of a composed chunk. The first byte chooses the size of the window, the
//! second that of the base.

use hs_format::{BaseRef, ChunkRef, Codec, Composed, Decompressor};
use hs_units::{BLOCK_BYTES, Digest, Lba};

const BLOCK: usize = BLOCK_BYTES as usize;

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Some((&[blocks, base_blocks], stored)) = data.split_first_chunk() else { return false };
    let blocks = usize::from(blocks % 8) + 1;
    let base =
        BaseRef { disk_digest: Digest::default(), disk_bytes: (u64::from(base_blocks) + 1) * BLOCK_BYTES };
    let chunk = ChunkRef::of_stored(0, stored, Codec::Composed, (blocks * BLOCK) as u32);
    let Ok(composed) = Composed::decode(&chunk, stored, &base) else { return false };
    let mut places: Vec<Option<Lba>> = vec![None; blocks];
    for run in composed.base_runs() {
        for (number, lba) in (run.block_in_window as usize..).zip(run.blocks.blocks()) {
            assert!(lba.byte_offset() < base.disk_bytes, "the base has the block");
            assert_eq!(places[number].replace(lba), None, "a block has one place");
        }
    }
    assert!(places.iter().any(Option::is_some), "else it is a plain chunk");
    let numbers_bytes = 4 * blocks;
    let codec = u16::from_le_bytes([stored[numbers_bytes], stored[numbers_bytes + 1]]);
    let codec = Codec::from_u16(codec, hs_format::Part::File).expect("a codec that was accepted");
    let mut window = vec![0xa5; blocks * BLOCK];
    let again = Composed::encode(&window, &places, codec, &stored[numbers_bytes + 34..]);
    let is_window = composed.check(&window).is_ok();
    assert!(is_window == (again == stored), "one composition has one encoding");
    let same = |range: std::ops::RangeTo<usize>| again[range] == stored[range];
    assert!(same(..numbers_bytes + 2) && again.len() == stored.len(), "and only the digest is the window's");
    let decoded = composed.own_into(&mut Decompressor::new(), &mut window);
    for (block, _) in window.chunks(BLOCK).zip(&places).filter(|(_, place)| place.is_some()) {
        assert!(block.iter().all(|byte| *byte == 0xa5), "the base's blocks are not touched");
    }
    decoded.is_ok()
}
