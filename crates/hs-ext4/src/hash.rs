//! The hash of a name, by which the index of a directory is sorted: TEA, over unsigned characters. Algorithm
//! from Wheeler and Needham, "TEA, a Tiny Encryption Algorithm" (1994), used as the kernel's
//! `fs/ext4/hash.c` does.

/// The superblock's and an index's number for TEA.
pub(crate) const VERSION: u8 = 2;
/// In the superblock's flags: characters are unsigned.
pub(crate) const UNSIGNED: u32 = 0x2;

const DELTA: u32 = 0x9e37_79b9;
const ROUNDS: u32 = 16;
/// Bytes that one transformation takes.
const PIECE: usize = 16;
/// The largest hash marks the end of a directory, so that no name may have it.
const END: u32 = 0x7fff_ffff << 1;

/// The hash of a name. The lowest bit is 0; in an index it marks a block that begins with the hash that the
/// block before ends with.
pub(crate) fn of_name(name: &[u8], seed: [u32; 4]) -> u32 {
    let mut state = [seed[0], seed[1]];
    for start in (0..name.len()).step_by(PIECE) {
        transform(&mut state, words(&name[start..]));
    }
    match state[0] & !1 {
        END => END - 2,
        hash => hash,
    }
}

/// The first bytes as four numbers, filled up with the length of all of them.
fn words(rest: &[u8]) -> [u32; 4] {
    let len = rest.len().to_le_bytes()[0];
    let pad = u32::from_le_bytes([len; 4]);
    let mut words = [pad; 4];
    for (word, piece) in words.iter_mut().zip(rest.chunks(4)) {
        *word = piece.iter().fold(pad, |value, &byte| value << 8 | u32::from(byte));
    }
    words
}

fn transform(state: &mut [u32; 2], key: [u32; 4]) {
    let [mut left, mut right] = *state;
    let mut sum = 0_u32;
    let mix = |half: u32, sum: u32, low: u32, high: u32| {
        (half << 4).wrapping_add(low) ^ half.wrapping_add(sum) ^ (half >> 5).wrapping_add(high)
    };
    for _ in 0..ROUNDS {
        sum = sum.wrapping_add(DELTA);
        left = left.wrapping_add(mix(right, sum, key[0], key[1]));
        right = right.wrapping_add(mix(left, sum, key[2], key[3]));
    }
    *state = [state[0].wrapping_add(left), state[1].wrapping_add(right)];
}
