//! From the bytes of a file to its overlay. A power cut may have left anything behind the last record that
//! was synced; everything before is as it was written, or the file is damaged.

use hs_units::{BLOCK_BYTES, ByteRange, Digest};

use crate::checkpoint;
use crate::error::{DamagedPart, OverlayError};
use crate::layout::{BLOCK, SEGMENT_BLOCKS, SEGMENT_BYTES, first_block, segments_in};
use crate::map::ExtentMap;
use crate::overlay::{Limits, Overlay, apply};
use crate::record::{Header, MAX_HEADER_BLOCKS};
use crate::segments::Segments;
use crate::slot::{LogEnd, Slot};
use crate::snapshot::Snapshot;

/// Segments beyond the end of a file in which its log may go on: more than a writer takes in advance.
const AHEAD: u32 = 64;

/// What an opening needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// The bytes of this range of the file; fewer where the file ends before.
    Bytes(ByteRange),
    /// Nothing more: [`Opening::finish`].
    Nothing,
}

/// Reads an overlay: the superblock, the map, then the records behind it up to the last whole one.
pub struct Opening {
    /// The disk that it is to be used with: its digest and its bytes.
    expected: Option<(Digest, u64)>,
    limits: Limits,
    segments: u32,
    slot_order: [u64; 2],
    /// The log behind the map is read as well.
    reads_log: bool,
    stage: Stage,
}

enum Stage {
    Slots,
    Checkpoint {
        slot: Box<Slot>,
        bytes: Vec<u8>,
        read: usize,
    },
    /// The first block of the segment in which the log goes on.
    LogSegment(Box<Replay>),
    Log(Box<Replay>),
    Done(Box<Replay>),
}

/// The state of an overlay up to some record.
struct Replay {
    slot: Slot,
    map: ExtentMap,
    snapshots: Vec<Snapshot>,
    segments: Segments,
    log: LogEnd,
    blocks: u64,
    /// The place that is looked at next.
    at: (u32, u64),
}

impl Opening {
    /// The overlay in a file of so many bytes, for this disk, where that is known.
    #[must_use]
    pub fn new(expected: Option<(Digest, u64)>, file_bytes: u64, limits: Limits) -> Self {
        let segments = segments_in(file_bytes);
        Self { expected, limits, segments, slot_order: [0, 1], reads_log: true, stage: Stage::Slots }
    }

    /// The same up to the stored map, with all snapshots. Nothing may be written to this overlay.
    #[must_use]
    pub fn of_map(expected: Option<(Digest, u64)>, file_bytes: u64) -> Self {
        Self { reads_log: false, ..Self::new(expected, file_bytes, Limits::default()) }
    }

    /// What is needed next.
    #[must_use]
    pub fn poll(&self) -> Needed {
        let range = match &self.stage {
            Stage::Slots => ByteRange::new(0, 2 * BLOCK_BYTES),
            Stage::Checkpoint { slot, bytes, read } => {
                let left = slot.checkpoint_bytes - bytes.len() as u64;
                let offset = first_block(slot.checkpoint_segments[*read]) * BLOCK_BYTES;
                ByteRange::new(offset, left.min(SEGMENT_BYTES))
            }
            Stage::LogSegment(replay) => {
                ByteRange::new(first_block(replay.log.segment) * BLOCK_BYTES, MAX_HEADER_BLOCKS * BLOCK_BYTES)
            }
            Stage::Log(replay) => {
                let (segment, block) = replay.at;
                let offset = (first_block(segment) + block) * BLOCK_BYTES;
                ByteRange::new(offset, (SEGMENT_BLOCKS - block) * BLOCK_BYTES)
            }
            Stage::Done(_) => return Needed::Nothing,
        };
        Needed::Bytes(range)
    }

    /// The bytes that were needed.
    ///
    /// # Errors
    /// When they cannot be those of an overlay of this disk.
    pub fn handle_bytes(&mut self, found: &[u8]) -> Result<(), OverlayError> {
        match &mut self.stage {
            Stage::Slots => self.choose_slot(found)?,
            Stage::Checkpoint { slot, bytes, read } => {
                let wanted = (slot.checkpoint_bytes - bytes.len() as u64).min(SEGMENT_BYTES) as usize;
                let found =
                    found.get(..wanted).ok_or(damaged(DamagedPart::Checkpoint, "ends with the file"))?;
                bytes.extend_from_slice(found);
                *read += 1;
                if bytes.len() as u64 == slot.checkpoint_bytes {
                    self.begin_log()?;
                }
            }
            Stage::LogSegment(replay) => {
                replay.check_log_segment(found)?;
                self.next_stage();
            }
            Stage::Log(replay) => {
                if replay.go_on(found)? {
                    self.next_stage();
                }
            }
            Stage::Done(_) => {}
        }
        Ok(())
    }

    /// The log is read from its segment on, and to its end.
    fn next_stage(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Slots) {
            Stage::LogSegment(replay) => Stage::Log(replay),
            Stage::Log(replay) => Stage::Done(replay),
            other => other,
        };
    }

    fn choose_slot(&mut self, found: &[u8]) -> Result<(), OverlayError> {
        let block = |number: usize| found.get(number * BLOCK..(number + 1) * BLOCK).unwrap_or_default();
        let slots = [Slot::decode(block(0)), Slot::decode(block(1))];
        // One that is of another version, or makes no sense with a right checksum, is not passed over: it may
        // be the newer one.
        let [first, second] = slots;
        let (first, second) = (first?, second?);
        let same = first == second;
        let is_first = match (&first, &second) {
            (Some(first), Some(second)) => first.generation >= second.generation,
            (first, _) => first.is_some(),
        };
        let slot = if is_first { first } else { second }.ok_or(OverlayError::NotAnOverlay)?;
        self.slot_order = if is_first && !same { [1, 0] } else { [0, 1] };
        if let Some((digest, bytes)) = self.expected
            && (digest, bytes) != (slot.identity.disk_digest, slot.identity.disk_bytes)
        {
            return Err(OverlayError::OtherDisk {
                expected: digest,
                expected_bytes: bytes,
                found: slot.identity.disk_digest,
                found_bytes: slot.identity.disk_bytes,
            });
        }
        let named = slot.checkpoint_segments.iter().chain([&slot.log.segment, &slot.log.next]);
        if named.copied().any(|segment| segment >= self.segments) {
            return Err(damaged(
                DamagedPart::Superblock,
                "names segments beyond the end of the file: is it cut off?",
            ));
        }
        let has_checkpoint = slot.checkpoint_bytes > 0;
        self.stage = Stage::Checkpoint { slot: Box::new(slot), bytes: Vec::new(), read: 0 };
        if has_checkpoint { Ok(()) } else { self.begin_log() }
    }

    fn begin_log(&mut self) -> Result<(), OverlayError> {
        let Stage::Checkpoint { slot, bytes, .. } = std::mem::replace(&mut self.stage, Stage::Slots) else {
            return Ok(());
        };
        let (map, snapshots) = checkpoint::decode(&bytes, &slot)?;
        let mut segments = Segments::new(self.segments);
        if !segments.count_again(&map, snapshots.iter().map(|snapshot| &snapshot.map)) {
            return Err(damaged(
                DamagedPart::Checkpoint,
                "names blocks beyond the end of the file, or twice",
            ));
        }
        let log = slot.log;
        let at = (log.segment, log.block);
        let mut replay = Box::new(Replay { slot: *slot, map, snapshots, segments, log, blocks: 0, at });
        if !replay.has_room() {
            replay.at = (log.next, 0);
        }
        self.stage = match (self.reads_log, log.block) {
            (true, 0) => Stage::Log(replay),
            (true, _) => Stage::LogSegment(replay),
            (false, _) => Stage::Done(replay),
        };
        Ok(())
    }

    /// The overlay, once nothing more is needed.
    ///
    /// # Errors
    /// When what was read contradicts itself.
    ///
    /// # Panics
    /// When something is still needed.
    pub fn finish(self) -> Result<Overlay, OverlayError> {
        let Stage::Done(replay) = self.stage else { panic!("the opening needs more bytes") };
        let Replay { slot, map, snapshots, segments, log, blocks, .. } = *replay;
        // R47: what is written next must not lie in what is used.
        let holds = |segment: &u32| segments.live(*segment) > 0 || segments.is_pinned(*segment);
        let is_checkpoint = |segment: u32| slot.checkpoint_segments.contains(&segment);
        if holds(&log.next)
            || is_checkpoint(log.next)
            || is_checkpoint(log.segment)
            || slot.checkpoint_segments.iter().any(holds)
        {
            return Err(damaged(DamagedPart::Log, "goes on in a segment that is used"));
        }
        let mut overlay = Overlay::opened(slot, self.limits, map, snapshots, segments, log);
        overlay.log_blocks = blocks;
        overlay.slot_order = self.slot_order;
        Ok(overlay)
    }
}

impl Replay {
    /// Whether a record can begin at the place that is looked at.
    const fn has_room(&self) -> bool {
        self.at.1 < SEGMENT_BLOCKS
    }

    /// Takes the records in these bytes, which begin where the log is looked at. True at its end.
    fn go_on(&mut self, found: &[u8]) -> Result<bool, OverlayError> {
        let (segment, from) = self.at;
        while self.has_room() {
            let bytes = found.get((self.at.1 - from) as usize * BLOCK..).unwrap_or_default();
            let Some(record) = self.record(bytes) else { break };
            let log = record.end;
            // The record may have come to the medium without the new length of the file.
            let is_near = log.next < self.segments.count() + AHEAD;
            if log.next == log.segment || !is_near || log.block > SEGMENT_BLOCKS {
                return Err(damaged(DamagedPart::Log, "goes on in a segment that is none"));
            }
            if !apply(&mut self.map, &mut self.segments, &record.changes) {
                return Err(damaged(DamagedPart::Log, "has blocks beyond the end of the file, or twice"));
            }
            self.segments.set_used(log.segment);
            self.segments.extend_to(log.next);
            self.blocks += log.block - self.at.1;
            self.log = log;
            self.at = (segment, log.block);
        }
        if self.has_room()
            && self.is_later(found.get((self.at.1 - from) as usize * BLOCK..).unwrap_or_default())
        {
            return Err(copied_in_use());
        }
        // The next record is here, or at the beginning of the next segment.
        if segment == self.log.segment {
            self.at = (self.log.next, 0);
            return Ok(false);
        }
        Ok(true)
    }

    /// The segment in which the log stood when the map was stored still has its records.
    fn check_log_segment(&self, found: &[u8]) -> Result<(), OverlayError> {
        let header = Header::decode(found, first_block(self.log.segment), &self.slot.identity);
        let is_its = header.is_some_and(|header| header.sequence <= self.log.sequence);
        if is_its { Ok(()) } else { Err(copied_in_use()) }
    }

    /// Whether a record begins here that was written when more had been written than an append has.
    fn is_later(&self, bytes: &[u8]) -> bool {
        let (segment, block) = self.at;
        let header = Header::decode(bytes, first_block(segment) + block, &self.slot.identity);
        let most = self.log.sequence.saturating_add(SEGMENT_BLOCKS);
        header.is_some_and(|header| {
            header.epoch > self.slot.epoch || header.epoch == self.slot.epoch && header.sequence > most
        })
    }

    /// The record at the beginning of `bytes`, if it is whole and the next one of this log.
    fn record(&self, bytes: &[u8]) -> Option<crate::record::Record> {
        let (segment, block) = self.at;
        let header = Header::decode(bytes, first_block(segment) + block, &self.slot.identity)?;
        if !header.continues(&self.log, self.slot.epoch) {
            return None;
        }
        let data = bytes.get(header.blocks as usize * BLOCK..)?;
        let data = data.get(..header.data_blocks as usize * BLOCK)?;
        header.has_whole_data(data).then(|| header.record(segment, block))
    }
}

fn damaged(part: DamagedPart, why: &'static str) -> OverlayError {
    OverlayError::Damaged { part, why }
}

/// R61: what a map and its log need is used again only once a newer map is stored.
fn copied_in_use() -> OverlayError {
    damaged(
        DamagedPart::Log,
        "has records from later than its superblock: was it copied while it was in use?",
    )
}
