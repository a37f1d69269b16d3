//! Digests made right again, for tests: an attacker computes them too.

use hs_units::BLOCK_BYTES;

use crate::layout::{BLOCK, SEGMENT_BYTES, field, first_block};
use crate::{checkpoint, record, slot};

/// Makes the digests of the map, of both slots and of each record of a file those of what they cover.
pub fn seal(file: &mut [u8]) {
    for at in (0..file.len().saturating_sub(BLOCK)).step_by(BLOCK).skip(2) {
        record::seal(&mut file[at..]);
    }
    for number in 0..2 {
        let Some(found) = file.get(number * BLOCK..(number + 1) * BLOCK) else { return };
        let mut block = found.to_vec();
        let (segments, bytes) = slot::checkpoint_of(&block);
        let mut map = Vec::new();
        for segment in segments {
            let start = first_block(segment).saturating_mul(BLOCK_BYTES) as usize;
            let left = (bytes - map.len() as u64).min(SEGMENT_BYTES) as usize;
            map.extend(file.get(start..start + left).unwrap_or_default());
        }
        slot::seal(&mut block, &checkpoint::digest(&map));
        field::put(file, number * BLOCK, &block);
    }
}
