//! The packed blocks of a disk that lies in another file, compared with that file behind demand.
//!
//! A pack is bound to the disk as it was when it was packed. Where its windows have digests nothing wrong is
//! served in any case: this says early, and once, that the disk has changed. Where they have none, only this
//! shows that packed blocks and the disk no longer belong together; then the disk ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_format::{Decompressor, chunk_digest};
use hs_image::{ImageError, PackStore};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Digest, Lba, to_usize};

use crate::disk::Shared;

/// How often it is looked whether the prefetch has ended.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// After a request that took so long, the disk's file is left alone for so many times as long.
const PAUSE_FACTOR: u32 = 3;

/// Before the first request no read may have waited for so long: a start that is computing is not over.
const FIRST_QUIET: Duration = Duration::from_secs(2);
/// Blocks between two packed ones that are read with them, and blocks of a request: a server's round trip
/// costs more.
const MOST_GAP_BLOCKS: u64 = 16;
const MOST_BLOCKS: u64 = 256;

/// How far the packed blocks of a disk are compared with it, and what was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PackComparison {
    /// Whether it has begun, and how it ended.
    pub stage: ComparisonStage,
    /// Blocks that are compared in all; zero before they are counted.
    pub packed_blocks: u64,
    /// Blocks that were compared.
    pub compared_blocks: u64,
    /// Of these, blocks that are others on the disk.
    pub differing_blocks: u64,
    first: Option<BlockRange>,
}

/// Where a comparison is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ComparisonStage {
    /// It begins when the start is over.
    #[default]
    Waiting,
    /// It goes on.
    Comparing,
    /// Everything was compared, or enough to know that the disk is another one.
    Compared,
    /// The disk could not be read.
    Failed,
}

impl ComparisonStage {
    /// As it is said.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Comparing => "comparing",
            Self::Compared => "compared",
            Self::Failed => "failed",
        }
    }
}

impl Shared {
    /// Compares all hot blocks in the order of the disk, each request with a permit of the lowest class.
    pub(crate) fn check_pack(self: &Arc<Self>) {
        let Some(pack) = self.image.pack() else { return };
        if !self.wait_for_prefetch() || !self.wait_for_quiet(FIRST_QUIET) {
            return;
        }
        let checked = self.compare(pack);
        let name = self.image.name();
        self.pack_comparison.lock().stage = match &checked {
            Ok(None) => return,
            Ok(Some(_)) => ComparisonStage::Compared,
            Err(_) => ComparisonStage::Failed,
        };
        match checked {
            Ok(None) => {}
            Ok(Some(PackComparison { compared_blocks: blocks, first: None, .. })) => {
                log::info!("{name}: {blocks} packed blocks are those of {}", pack.base_name());
            }
            Ok(Some(PackComparison {
                compared_blocks: blocks,
                differing_blocks: differing,
                first: Some(first),
                ..
            })) => {
                // They do so before it is said.
                let goes_on = if pack.is_sampled() {
                    self.shut_down(None);
                    "its reads fail from now on"
                } else {
                    "the disk that was packed is served; reads of what changed fail"
                };
                log::error!(
                    "{name}: {} has changed since it was packed: {differing} of {blocks} packed blocks differ, \
                     the first at {first}; {goes_on}; `headstart pack` makes a new pack",
                    pack.base_name()
                );
            }
            Err(error) => log::warn!("{name}: its packed blocks are not compared with the disk: {error}"),
        }
    }

    /// Nothing when the disk ends before. Of a disk without digests, the first difference is enough.
    fn compare(self: &Arc<Self>, pack: &PackStore) -> Result<Option<PackComparison>, ImageError> {
        let Some(packed) = self.packed_blocks()? else { return Ok(None) };
        let mut found = PackComparison {
            stage: ComparisonStage::Comparing,
            packed_blocks: packed.len() as u64,
            ..PackComparison::default()
        };
        let mut rest = packed.into_iter().peekable();
        *self.pack_comparison.lock() = found;
        while let Some(first) = rest.next() {
            let mut together = vec![first];
            while let Some(next) = rest.next_if(|(lba, _)| {
                let (start, last) = (together[0].0, together[together.len() - 1].0);
                *lba - last <= MOST_GAP_BLOCKS && *lba - start < MOST_BLOCKS
            }) {
                together.push(next);
            }
            let blocks = together[together.len() - 1].0 - together[0].0 + 1;
            let run = BlockRange::new(Lba(together[0].0), blocks);
            let range = ByteRange::new(run.start.byte_offset(), run.bytes());
            let Some(permit) = self.fill_permit(range, || false) else { return Ok(None) };
            let began = Instant::now();
            let mut there = vec![0; to_usize(run.bytes())];
            pack.read_disk(range.offset, &mut there)?;
            let took = began.elapsed();
            drop(permit);
            for (lba, digest) in together {
                let at = to_usize((lba - run.start.0) * BLOCK_BYTES);
                found.compared_blocks += 1;
                if chunk_digest(&there[at..][..to_usize(BLOCK_BYTES)]) != digest {
                    found.differing_blocks += 1;
                    found.first.get_or_insert(BlockRange::new(Lba(lba), 1));
                }
            }
            *self.pack_comparison.lock() = found;
            if found.differing_blocks > 0 && pack.is_sampled() {
                return Ok(Some(found));
            }
            if !self.wait_for_quiet(took * PAUSE_FACTOR) {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }

    /// The digests of all hot blocks, in the order of the disk. Nothing when the disk ends before.
    fn packed_blocks(self: &Arc<Self>) -> Result<Option<BTreeMap<u64, Digest>>, ImageError> {
        let (mut tools, mut packed) = (Decompressor::new(), BTreeMap::new());
        for chunk in 0..self.image.hot_chunk_count() {
            let at = self.image.hot_chunk(chunk).1;
            let Some(permit) = self.fill_permit(at, || false) else { return Ok(None) };
            let raw = self.image.load_hot(chunk, &mut tools)?.raw;
            drop(permit);
            let blocks = self.image.hot_extents(chunk).iter().flat_map(|extent| extent.blocks());
            let digests = raw.chunks(to_usize(BLOCK_BYTES)).map(chunk_digest);
            packed.extend(blocks.map(|lba| lba.0).zip(digests));
            tools.reuse(raw);
        }
        Ok(Some(packed))
    }

    /// False when the disk ends before.
    fn wait_for_prefetch(&self) -> bool {
        loop {
            {
                let state = self.lock();
                if state.is_shut_down {
                    return false;
                }
                let has_none = self.options.prefetch.is_none();
                if has_none || state.engine.prefetch().ended().is_some() {
                    return true;
                }
            }
            if !self.pause(LOOKS_EVERY) {
                return false;
            }
        }
    }

    /// Waits until no read has waited for the medium for so long. False when the disk ends before.
    fn wait_for_quiet(&self, quiet: Duration) -> bool {
        let waited = || self.lock().figures.waited_requests;
        loop {
            let before = waited();
            if !self.pause(quiet) {
                return false;
            }
            if waited() == before {
                return true;
            }
        }
    }

    /// False when the disk ends meanwhile.
    fn pause(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.lock();
        while !state.is_shut_down {
            if self.watched.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        !state.is_shut_down
    }
}
