//! How small the recorded blocks get without headstart: in first-access order, cut into equal pieces, each
//! compressed by itself.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use anyhow::Context;
use hs_image::Blocks;
use hs_start::open::open_image;
use hs_trace::Profile;
use hs_units::BLOCK_BYTES;

/// Bytes of a piece.
pub(super) const PIECE_BYTES: usize = 128 << 10;
/// The zstd level.
pub(super) const LEVEL: i32 = 19;

/// Bytes of the packed blocks that `profile` recorded on the image at `image`.
pub(super) fn packed_bytes(image: &Path, profile: &Profile) -> anyhow::Result<u64> {
    let image = open_image(image)?;
    let mut blocks = Blocks::new(&image);
    let order = profile.first_access();
    let mut raw = Vec::with_capacity(order.len() * BLOCK_BYTES as usize);
    for lba in order {
        raw.extend_from_slice(blocks.block(lba)?);
    }
    pack(&raw).context("pack the recorded blocks")
}

/// Compresses the pieces of `raw` on all cores; gives the sum of their sizes.
fn pack(raw: &[u8]) -> std::io::Result<u64> {
    let pieces: Vec<&[u8]> = raw.chunks(PIECE_BYTES).collect();
    let (next, bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
    let work = || -> std::io::Result<()> {
        let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            bytes.fetch_add(compressor.compress(piece)?.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(bytes.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_packed_by_itself() {
        let mut raw = vec![7; 2 * PIECE_BYTES];
        raw.extend_from_slice(b"a shorter piece");
        let expected: usize =
            raw.chunks(PIECE_BYTES).map(|piece| zstd::bulk::compress(piece, LEVEL).unwrap().len()).sum();
        assert_eq!(pack(&raw).unwrap(), expected as u64);
        assert_eq!(pack(&[]).unwrap(), 0);
    }
}
