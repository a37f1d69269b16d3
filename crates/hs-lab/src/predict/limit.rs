//! What no start can be quicker than: the critical path through the program's computing and one stream.
//!
//! The stream brings each block once, in the order in which the program first reads it, and nothing disturbs
//! it. The program computes as recorded, and waits for a block only if the stream has not brought it yet. So
//! a start that beats this limit has a quicker medium, smaller chunks or a quicker program than the
//! prediction. The larger of the program's time and the stream's, which is easier to compute, is less: bytes
//! that the program needs early and a computation that follows them add up.

use hs_device::{Medium, MediumError, Stream};
use hs_engine::disk::ImageMap;
use hs_trace::BlockSet;
use hs_units::{BLOCK_BYTES, BlockRange, Lba, Nanos};

use super::{Disk, Program, ProgramRead};
use crate::served::LayoutMap;

/// The limit of a start; times since it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// When the program is ready at the earliest.
    pub ready: Nanos,
    /// When the stream has brought everything that it reads.
    pub streamed: Nanos,
}

impl Limit {
    /// What the start of `program` from `disk`, in a file of `file_bytes` on `medium`, cannot be quicker
    /// than; nothing where the medium is the real one. When one of its processes waits, the others compute
    /// for `overlap`.
    ///
    /// A block has its share of the bytes of its chunk: of the hot one, if there is one, else of its window.
    ///
    /// # Errors
    /// [`MediumError::TooLarge`] when the file does not fit on the medium.
    pub fn new(
        program: &Program,
        disk: &Disk,
        file_bytes: u64,
        medium: Medium,
        overlap: Nanos,
    ) -> Result<Option<Self>, MediumError> {
        let stored = stored_until_each_read(program, disk);
        let opening = match disk {
            Disk::Raw => 0,
            Disk::Image(layout) => layout.tables.len,
        };
        let bytes = opening + stored.last().copied().unwrap_or_default();
        let Some(stream) = Stream::new(medium, file_bytes, bytes)? else { return Ok(None) };
        // An image is open when its tables have come.
        let mut now = if *disk == Disk::Raw { Nanos::ZERO } else { stream.arrival(opening) };
        let mut own = Nanos::ZERO;
        for (read, stored) in program.reads.iter().zip(stored) {
            now += read.after.saturating_sub(own);
            own = own.max(read.after);
            // What is zero is not stored.
            let came = if stored > 0 { stream.arrival(opening + stored) } else { now };
            let wait = came.saturating_sub(now);
            now += wait;
            own += wait.min(overlap);
        }
        let ready = now + program.own_time.saturating_sub(own);
        Ok(Some(Self { ready, streamed: stream.arrival(bytes) }))
    }
}

/// Bytes of the medium that must have come when each of the program's reads is answered.
fn stored_until_each_read(program: &Program, disk: &Disk) -> Vec<u64> {
    let map = match disk {
        Disk::Raw => None,
        Disk::Image(layout) => Some(LayoutMap::new(layout)),
    };
    let (mut seen, mut stored) = (BlockSet::new(), 0.0);
    let mut until = |read: &ProgramRead| {
        let blocks = BlockRange::new(Lba(read.block), read.blocks);
        seen.insert(blocks, |run| stored += run.blocks().map(|lba| share(map.as_ref(), lba)).sum::<f64>());
        stored as u64
    };
    program.reads.iter().map(&mut until).collect()
}

/// Bytes of the medium that bring one block.
fn share(map: Option<&LayoutMap<'_>>, lba: Lba) -> f64 {
    let Some(map) = map else { return BLOCK_BYTES as f64 };
    let layout = map.layout();
    let (stored_bytes, raw_bytes) = match map.hot_block(lba) {
        Some(hot) => {
            let chunk = &layout.hot[hot.chunk as usize];
            (chunk.at.len, u64::from(chunk.raw_bytes))
        }
        None => {
            let window = (lba.byte_offset() / layout.window_bytes) as usize;
            (layout.windows.get(window).copied().flatten().map_or(0, |at| at.len), layout.window_bytes)
        }
    };
    (stored_bytes * BLOCK_BYTES) as f64 / raw_bytes.max(1) as f64
}
