//! The bytes that the shell of a world has, and whether they are what is asked for.

use std::collections::{BTreeMap, BTreeSet};

use hs_engine::disk::{Answer, ChunkKey, DiskUsage, Form, Source, Span};
use hs_units::{BLOCK_BYTES, ByteRange};

use super::image::{Image, WINDOW_BLOCKS};

/// All bytes that the shell has for the engine.
#[derive(Default)]
pub(super) struct Shell {
    bytes: BTreeMap<(ChunkKey, Form), u64>,
    /// Raw bytes that are not what their digest says, and were kept all the same.
    damaged: BTreeSet<ChunkKey>,
    totals: [u64; 3],
}

impl Shell {
    pub(super) fn keep(&mut self, key: ChunkKey, form: Form, bytes: u64) -> Result<(), String> {
        self.totals[form as usize] += bytes;
        let before = self.bytes.insert((key, form), bytes);
        before.is_none().then_some(()).ok_or_else(|| format!("{key:?} was there as {form:?}"))
    }

    /// Raw bytes are kept although they are damaged.
    pub(super) fn note_damage(&mut self, key: ChunkKey) {
        self.damaged.insert(key);
    }

    pub(super) fn drop(&mut self, key: ChunkKey, form: Form) -> Result<(), String> {
        let Some(bytes) = self.bytes.remove(&(key, form)) else {
            return Err(format!("{key:?} is to be dropped and is not there as {form:?}"));
        };
        self.totals[form as usize] -= bytes;
        if form == Form::Raw {
            self.damaged.remove(&key);
        }
        Ok(())
    }

    pub(super) fn has(&self, key: ChunkKey, form: Form) -> Result<(), String> {
        let is_there = self.bytes.contains_key(&(key, form));
        is_there.then_some(()).ok_or_else(|| format!("{key:?} is needed and is not there as {form:?}"))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the engine knows what the shell has.
    pub(super) fn compare(&self, usage: &DiskUsage) -> Result<(), String> {
        let known = [usage.stored_bytes, usage.raw_bytes, usage.tripwire_bytes];
        (known == self.totals)
            .then_some(())
            .ok_or_else(|| format!("the shell has {:?} bytes, the engine knows of {known:?}", self.totals))
    }

    /// Whether an answer has all bytes of a range, each of them the right one.
    pub(super) fn check(&self, range: ByteRange, answer: &Answer<'_>) -> Result<(), String> {
        let mut at = range.offset;
        for span in answer.spans {
            self.check_span(at, span)?;
            at += u64::from(span.len);
        }
        let is_all = at == range.end() && answer.range == range;
        is_all.then_some(()).ok_or_else(|| format!("{range} is answered up to {at} only"))
    }

    fn check_span(&self, at: u64, span: &Span) -> Result<(), String> {
        let end = at + u64::from(span.len);
        // The first byte of each block.
        let mut place = at;
        while place < end {
            let (lba, from) = (place / BLOCK_BYTES, u64::from(span.from) + place - at);
            let right = match span.source {
                Source::Chunk(ChunkKey::Hot(chunk)) => Image::block_of(chunk, from / BLOCK_BYTES) == lba,
                Source::Chunk(ChunkKey::Cold(window)) => {
                    !Image::is_zero(window) && window * WINDOW_BLOCKS + from / BLOCK_BYTES == lba
                }
                Source::Chunk(ChunkKey::Page(_)) => false,
                Source::Tripwire(chunk, base) => {
                    Image::block_of(chunk, from / BLOCK_BYTES) == lba
                        && from / BLOCK_BYTES == u64::from(base) / BLOCK_BYTES
                }
                Source::Zero => Image::is_zero(lba / WINDOW_BLOCKS),
            };
            if !right || from % BLOCK_BYTES != place % BLOCK_BYTES {
                return Err(format!("block {lba} is not in {:?} at {from}", span.source));
            }
            place = (lba + 1) * BLOCK_BYTES;
        }
        match span.source {
            Source::Chunk(key) if self.damaged.contains(&key) => {
                Err(format!("{key:?} is damaged, and a read got it"))
            }
            Source::Chunk(key) => self.has(key, Form::Raw),
            Source::Tripwire(chunk, _) => self.has(ChunkKey::Hot(chunk), Form::Tripwire),
            Source::Zero => Ok(()),
        }
    }
}
