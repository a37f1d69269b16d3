//! All hot segments of an image as one numbered run of chunks.

use hs_format::{Hint, Hints, HotChunk, HotIndex, HotRun, HotSegment, Superblock};
use hs_units::{BlockRange, ByteRange, Lba, to_u32};

use crate::borrowed::HotSource;

/// Where a hot block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotPlace {
    /// Number of the chunk through all segments.
    pub chunk: u32,
    /// Which block of the chunk's raw bytes.
    pub block_in_chunk: u32,
    /// Consecutive blocks of the disk that lie consecutively from here.
    pub run: u32,
}

/// Where hot chunks begin of which some are borrowed: so far behind the end of the file.
const APART_BYTES: u64 = 1 << 30;

/// The decoded tables of every hot segment.
#[derive(Debug)]
pub(crate) struct HotMap {
    segments: Vec<Tables>,
    /// Where the next chunks lie of an image that borrows some; none of one that does not.
    apart: Option<u64>,
}

#[derive(Debug)]
struct Tables {
    segment: HotSegment,
    index: HotIndex,
    hints: Hints,
    first_chunk: u32,
    /// Where each chunk lies, of an image that borrows some.
    apart: Vec<u64>,
}

impl HotMap {
    /// Without segments yet.
    pub(crate) fn new(superblock: &Superblock) -> Self {
        let apart = superblock.image_bytes.saturating_add(APART_BYTES);
        Self { segments: Vec::new(), apart: superblock.features.borrows().then_some(apart) }
    }

    pub(crate) fn push(&mut self, segment: HotSegment, index: HotIndex, hints: Hints) {
        let first_chunk = self.chunk_count();
        let mut apart = Vec::new();
        if let Some(next) = &mut self.apart {
            for hot in &index.chunks {
                apart.push(*next);
                *next = next.saturating_add(hot.chunk.range.len);
            }
        }
        self.segments.push(Tables { segment, index, hints, first_chunk, apart });
    }

    /// Where chunks begin, and the source of each, of an image that borrows some.
    pub(crate) fn sources(&self) -> Option<(u64, Vec<(u64, HotSource)>)> {
        self.apart?;
        let start = *self.segments.first()?.apart.first()?;
        let of = |tables: &Tables, hot: &HotChunk| match hot.is_borrowed {
            true => HotSource::Base(hot.chunk.digest),
            false => HotSource::Own(tables.segment.chunks.offset + hot.chunk.range.offset),
        };
        let sources = self.segments.iter().flat_map(|tables| {
            tables.index.chunks.iter().map(move |hot| (hot.chunk.range.len, of(tables, hot)))
        });
        Some((start, sources.collect()))
    }

    pub(crate) fn chunk_count(&self) -> u32 {
        self.segments.last().map_or(0, |last| last.first_chunk + to_u32(last.index.chunks.len() as u64))
    }

    pub(crate) fn lookup(&self, lba: Lba) -> Option<HotPlace> {
        self.segments.iter().find_map(|tables| {
            let place = tables.index.lookup(lba)?;
            Some(HotPlace {
                chunk: tables.first_chunk + place.chunk,
                block_in_chunk: place.block_in_chunk,
                run: place.run,
            })
        })
    }

    /// The first hot block after `lba`.
    pub(crate) fn next_hot_after(&self, lba: Lba) -> Option<Lba> {
        self.segments.iter().filter_map(|tables| tables.index.next_hot_after(lba)).min()
    }

    /// The chunk's entry, and where in the file it lies.
    pub(crate) fn chunk(&self, chunk: u32) -> (&HotChunk, ByteRange) {
        let tables = self.tables(chunk);
        let entry = &tables.index.chunks[(chunk - tables.first_chunk) as usize];
        let number = (chunk - tables.first_chunk) as usize;
        let in_file = tables.segment.chunks.offset + entry.chunk.range.offset;
        let at = tables.apart.get(number).copied().unwrap_or(in_file);
        (entry, ByteRange::new(at, entry.chunk.range.len))
    }

    pub(crate) fn extents(&self, chunk: u32) -> &[BlockRange] {
        let tables = self.tables(chunk);
        let entry = &tables.index.chunks[(chunk - tables.first_chunk) as usize];
        &tables.index.extents[entry.first_extent as usize..(entry.first_extent + entry.extent_count) as usize]
    }

    /// What the stored chunk decodes to.
    pub(crate) fn runs(&self, chunk: u32) -> Vec<HotRun> {
        let tables = self.tables(chunk);
        tables.index.runs_of(chunk - tables.first_chunk)
    }

    /// The end of the run of chunks that lie one after another in the file from `chunk`.
    pub(crate) fn contiguous_end(&self, chunk: u32) -> u32 {
        let tables = self.tables(chunk);
        tables.first_chunk + to_u32(tables.index.chunks.len() as u64)
    }

    pub(crate) fn hints(&self) -> impl Iterator<Item = Hint> + '_ {
        self.segments.iter().flat_map(|tables| tables.hints.0.iter().copied())
    }

    fn tables(&self, chunk: u32) -> &Tables {
        let after = self.segments.partition_point(|tables| tables.first_chunk <= chunk);
        &self.segments[after - 1]
    }
}
