//! The packed blocks of a disk that lies in another file, compared with that file behind demand.
//!
//! A pack is bound to the disk as it was when it was packed. Where its windows have digests nothing wrong is
//! served in any case: this says early, and once, that the disk has changed. Where they have none, only this
//! shows that packed blocks and the disk no longer belong together; then the disk ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_format::Decompressor;
use hs_image::{ImageError, PackStore};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, to_usize};

use crate::disk::Shared;

/// How often it is looked whether the prefetch has ended.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// After a request that took so long, the disk's file is left alone for so many times as long.
const PAUSE_FACTOR: u32 = 3;

/// What was found.
#[derive(Clone, Copy, Default)]
struct Found {
    blocks: u64,
    differing: u64,
    first: Option<BlockRange>,
}

impl Shared {
    /// Compares all hot blocks, one extent after the other, each with a permit of the lowest class.
    pub(crate) fn check_pack(self: &Arc<Self>) {
        let Some(pack) = self.image.pack() else { return };
        if !self.wait_for_prefetch() {
            return;
        }
        let checked = self.compare(pack);
        let name = self.image.name();
        match checked {
            Ok(None) => {}
            Ok(Some(Found { blocks, first: None, .. })) => {
                log::info!("{name}: {blocks} packed blocks are those of {}", pack.base_name());
            }
            Ok(Some(Found { blocks, differing, first: Some(first) })) => {
                let goes_on = if pack.is_sampled() {
                    "its reads fail from now on"
                } else {
                    "the disk that was packed is served; reads of what changed fail"
                };
                log::error!(
                    "{name}: {} has changed since it was packed: {differing} of {blocks} packed blocks differ, \
                     the first at {first}; {goes_on}; `headstart pack` makes a new pack",
                    pack.base_name()
                );
                if pack.is_sampled() {
                    self.shut_down(None);
                }
            }
            Err(error) => log::warn!("{name}: its packed blocks are not compared with the disk: {error}"),
        }
    }

    /// Nothing when the disk ends before. Of a disk without digests, the first difference is enough.
    fn compare(self: &Arc<Self>, pack: &PackStore) -> Result<Option<Found>, ImageError> {
        let (mut tools, mut found) = (Decompressor::new(), Found::default());
        for chunk in 0..self.image.hot_chunk_count() {
            let at = self.image.hot_chunk(chunk).1;
            let Some(permit) = self.fill_permit(at, || false) else { return Ok(None) };
            let raw = self.image.load_hot(chunk, &mut tools)?.raw;
            drop(permit);
            let mut rest = &raw[..];
            for extent in self.image.hot_extents(chunk) {
                let (packed, later) = rest.split_at(to_usize(extent.bytes()));
                rest = later;
                let range = ByteRange::new(extent.start.byte_offset(), extent.bytes());
                let Some(permit) = self.fill_permit(at, || false) else { return Ok(None) };
                let began = Instant::now();
                let mut there = vec![0; packed.len()];
                pack.read_disk(range.offset, &mut there)?;
                let took = began.elapsed();
                drop(permit);
                let block = to_usize(BLOCK_BYTES);
                let pairs = packed.chunks(block).zip(there.chunks(block));
                for (number, _) in pairs.enumerate().filter(|(_, (packed, there))| packed != there) {
                    found.differing += 1;
                    let lba = hs_units::Lba(extent.start.0 + number as u64);
                    found.first.get_or_insert(BlockRange::new(lba, 1));
                }
                found.blocks += extent.count;
                if found.differing > 0 && pack.is_sampled() {
                    return Ok(Some(found));
                }
                if !self.pause(took * PAUSE_FACTOR) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(found))
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
