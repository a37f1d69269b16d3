//! Bytes that do not compress.

use hs_units::Prng;

/// Noise that is the same for the same seed.
#[must_use]
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    Prng::new(seed).fill(&mut noise);
    noise
}
