//! Finding the blocks of a disk that another image's disk, the base, has too.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use hs_format::{BaseRef, Codec, Composed, Compressor, Decompressor, chunk_digest};
use hs_image::{Image, ImageError, Progress};
use hs_units::{BLOCK_BYTES, Digest, Lba, to_u32, to_usize};

use crate::BuildError;
use crate::build::is_zero;

/// Blocks of a base that are known at most: 16 GiB of content, for which 144 MiB of memory are enough.
const MOST_BLOCKS: u64 = 4 << 20;
/// Places of one content that are looked at. What is everywhere is near everything.
const MOST_PLACES: usize = 64;

/// Which blocks a base has, by their full digests; blocks of zeros are left out. 36 bytes of memory for each
/// block, and no more than 144 MiB.
#[derive(Debug)]
pub struct BaseBlocks {
    base: BaseRef,
    /// Blocks in a window of the base, which its reader gets together.
    window_blocks: u64,
    /// Sorted by digest, and by place where that is equal.
    blocks: Vec<(Digest, u32)>,
}

impl BaseBlocks {
    /// Reads the whole disk of `image` with so many threads. What lies beyond the first 16 GiB of content is
    /// left out, with a warning.
    ///
    /// # Errors
    /// When a window cannot be read or is damaged, and when the image has a base itself.
    pub fn read(
        image: &Image,
        threads: NonZeroUsize,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Self, BuildError> {
        // R34
        if image.superblock().base.is_some() {
            return Err(BuildError::BaseOfBase { path: image.name().to_owned() });
        }
        Self::read_at_most(image, threads, MOST_BLOCKS, progress)
    }

    fn read_at_most(
        image: &Image,
        threads: NonZeroUsize,
        most_blocks: u64,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Self, BuildError> {
        let (next, known) = (AtomicU64::new(0), AtomicU64::new(0));
        let read = || -> Result<Vec<(Digest, u32)>, ImageError> {
            let (mut tools, mut blocks) = (Decompressor::new(), Vec::new());
            loop {
                let window = next.fetch_add(1, Relaxed);
                let is_full = known.load(Relaxed) >= most_blocks;
                if window >= image.superblock().windows() || is_full {
                    return Ok(blocks);
                }
                if let Some(raw) = image.load_window(window, &mut tools)? {
                    let before = blocks.len();
                    let first = window * image.window_bytes() / BLOCK_BYTES;
                    for (number, block) in (first..).zip(raw.chunks(to_usize(BLOCK_BYTES))) {
                        if !is_zero(block) && number < u64::from(u32::MAX) {
                            blocks.push((chunk_digest(block), to_u32(number)));
                        }
                    }
                    known.fetch_add((blocks.len() - before) as u64, Relaxed);
                    tools.reuse(raw);
                }
                let done_bytes = (window + 1) * image.window_bytes();
                progress(Progress {
                    stage: "reading the base",
                    done_bytes: done_bytes.min(image.disk_bytes()),
                    total_bytes: image.disk_bytes(),
                });
            }
        };
        let parts: Result<Vec<_>, ImageError> = thread::scope(|scope| {
            let reading: Vec<_> = (0..threads.get()).map(|_| scope.spawn(read)).collect();
            let joined = reading.into_iter().map(|thread| thread.join());
            joined.map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let mut blocks = parts?.concat();
        blocks.sort_unstable();
        if known.load(Relaxed) >= most_blocks {
            log::warn!(
                "{}: only {most_blocks} of its blocks are known as a base; what equals others is stored again",
                image.name()
            );
        }
        let base = BaseRef { disk_digest: image.disk_digest(), disk_bytes: image.disk_bytes() };
        Ok(Self { base, window_blocks: image.window_bytes() / BLOCK_BYTES, blocks })
    }

    /// What an image names that was built with it.
    #[must_use]
    pub const fn base(&self) -> BaseRef {
        self.base
    }

    /// Where the base has the blocks of a window. That depends on the window's content alone, so that equal
    /// windows are stored once.
    fn places(&self, window: &[u8]) -> Vec<Option<Lba>> {
        let candidates: Vec<&[(Digest, u32)]> =
            window.chunks(to_usize(BLOCK_BYTES)).map(|block| self.candidates(block)).collect();
        // A window of the base that has several of the blocks brings them with one request.
        let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
        for places in &candidates {
            let mut windows: Vec<u64> = places.iter().map(|(_, lba)| self.window_of(*lba)).collect();
            windows.dedup();
            windows.into_iter().for_each(|window| *votes.entry(window).or_default() += 1);
        }
        let mut before = None;
        let choose = |places: &&[(Digest, u32)]| {
            let continues = |lba: u32| before.is_some_and(|before: u32| before.checked_add(1) == Some(lba));
            let votes_of = |lba: u32| votes.get(&self.window_of(lba)).copied().unwrap_or(0);
            let best = places.iter().map(|(_, lba)| *lba).reduce(|best, lba| {
                let of = |lba| (continues(lba), votes_of(lba));
                if of(lba) > of(best) { lba } else { best }
            });
            before = best;
            best.map(|lba| Lba(lba.into()))
        };
        candidates.iter().map(choose).collect()
    }

    fn window_of(&self, lba: u32) -> u64 {
        u64::from(lba) / self.window_blocks
    }

    /// Where a block's content is, in the order of the base.
    fn candidates(&self, block: &[u8]) -> &[(Digest, u32)] {
        if is_zero(block) {
            return &[];
        }
        let digest = chunk_digest(block);
        let from = self.blocks.partition_point(|(known, _)| *known < digest);
        let found = &self.blocks[from..];
        let count = found.iter().take(MOST_PLACES).take_while(|(known, _)| *known == digest).count();
        &found[..count]
    }

    /// The stored form of a window that takes blocks of it from the base, if there are any, and whether it
    /// takes them all.
    pub(crate) fn compose(&self, window: &[u8], compressor: &mut Compressor) -> Option<(Vec<u8>, bool)> {
        let places = self.places(window);
        if places.iter().all(Option::is_none) {
            return None;
        }
        let mut own = Vec::new();
        for (block, _) in
            window.chunks(to_usize(BLOCK_BYTES)).zip(&places).filter(|(_, place)| place.is_none())
        {
            own.extend_from_slice(block);
        }
        let mut stored = Vec::new();
        let codec = if own.is_empty() { Codec::Store } else { compressor.compress(&own, &mut stored) };
        Some((Composed::encode(window, &places, codec, &stored), own.is_empty()))
    }
}
