//! What an overlay has to do: one job after the other, and what the end of each changes.

use hs_units::BLOCK_BYTES;

use super::{KEPT_FREE, Overlay, Trouble, UnderWay, apply};
use crate::batch::Batch;
use crate::checkpoint;
use crate::job::{Failed, FailedStep, Job, Step};
use crate::layout::{BLOCK, SEGMENT_BLOCKS, SEGMENT_BYTES, first_block};
use crate::record::{Binding, Writer};
use crate::slot::{LogEnd, MAX_CHECKPOINT_SEGMENTS, Slot};

/// Runs that one job makes holes of.
const PUNCHES: usize = 256;
/// An append of at most so many blocks is one that waits for its sync: the segments of such are written
/// before they are used, so that an append changes no metadata of the file system.
const SMALL_APPEND_BLOCKS: u64 = 32;

impl Overlay {
    /// Whether a job is under way.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether that is an append.
    #[must_use]
    pub const fn is_appending(&self) -> bool {
        matches!(self.under_way, Some(UnderWay::Append { .. }))
    }

    /// As [`Overlay::poll`], where the next job is an append: what a thread may do that waits for a flush.
    pub fn poll_append(&mut self) -> Option<Job> {
        let others_first = self.has_other_work() || !self.is_ready || self.must_checkpoint;
        let is_none = !self.is_due() || self.gathered.is_empty() || self.trouble.is_some();
        if others_first || is_none || self.missing_segments(0) > 0 {
            return None;
        }
        self.flush_wanted = false;
        self.append()
    }

    /// Whether there is work beside appends, which is not done by a thread that waits for a flush.
    #[must_use]
    pub fn has_other_work(&self) -> bool {
        self.punch_due
            || self.checkpoint_is_due()
            || self.small_appends && self.pace.may_prepare() && self.segments.unwritten().is_some()
    }

    /// The next job, if there is something to do and none is under way. Its end is to be reported.
    pub fn poll(&mut self) -> Option<Job> {
        if self.under_way.is_some() || self.trouble.is_some() {
            return None;
        }
        let wanted =
            self.flush_wanted || self.must_checkpoint || self.gathered.bytes() >= self.write_back_bytes();
        let appends = wanted && !self.gathered.is_empty();
        if !self.is_ready {
            return if appends || self.must_checkpoint { self.store_map() } else { None };
        }
        if std::mem::take(&mut self.punch_due)
            && let Some(job) = self.punch()
        {
            return Some(job);
        }
        // A client that writes without a pause does not keep a snapshot from being stored.
        let stores_now = self.must_checkpoint && (!appends || self.unstored.is_some());
        if self.checkpoint_is_due() || stores_now {
            return self.store_map();
        }
        if self.small_appends
            && self.pace.may_prepare()
            && let Some(segment) = self.segments.unwritten()
        {
            return Some(self.prepare(segment));
        }
        self.flush_wanted = false;
        if appends { self.append() } else { None }
    }

    fn append(&mut self) -> Option<Job> {
        let missing = self.missing_segments(0);
        if missing > 0 {
            // Two batches that became one after a failure may need more than was promised for each.
            self.flush_wanted = true;
            return self.allocation(missing, true);
        }
        self.on_its_way = std::mem::take(&mut self.gathered);
        self.siblings.append();
        self.batch += 1;
        let binding = Binding { identity: &self.identity, epoch: self.slot.epoch };
        let (mut steps, mut records, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        let (before, segments) = (self.log, &mut self.segments);
        let take = || {
            // Writes are only taken while there is space for them.
            let segment = segments.take().unwrap_or_else(|| unreachable!("space was taken before"));
            taken.push(segment);
            segment
        };
        let mut blocks = 0;
        let end = Writer::new(binding, &self.on_its_way, before).write(take, |place, bytes, record| {
            blocks += bytes.len() as u64 / BLOCK_BYTES;
            put_behind(&mut steps, place * BLOCK_BYTES, bytes);
            records.push(record);
        });
        steps.push(Step::Sync);
        self.under_way = Some(UnderWay::Append { records, before, end, taken, blocks });
        Some(Job { steps })
    }

    fn checkpoint_is_due(&self) -> bool {
        let log_is_long = self.log_blocks >= self.limits.log_blocks.max(self.checkpoint_from);
        let runs_short = self.segments.free() < 2 && self.log_blocks >= 2 * SEGMENT_BLOCKS;
        log_is_long
            || runs_short
                && self.log_blocks >= self.checkpoint_from
                && self.segments.dead(&self.needed_segments()).next().is_some()
    }

    pub(crate) fn needed_segments(&self) -> Vec<u32> {
        let mut needed = self.slot.checkpoint_segments.clone();
        needed.extend([self.log.segment, self.log.next]);
        needed
    }

    /// Stores the map, and gives back what it does not need.
    fn store_map(&mut self) -> Option<Job> {
        if self.waits_for_space {
            return None;
        }
        // What is stored already is stored as it is: only the epoch is new.
        let is_stored = self.log_blocks == 0 && !self.must_checkpoint;
        let bytes = if is_stored { Vec::new() } else { checkpoint::encode(&self.map, &self.snapshots) };
        let count = bytes.len().div_ceil(SEGMENT_BYTES as usize);
        let mut taken = Vec::new();
        while taken.len() < count && self.segments.free() > self.gathered_segments() {
            taken.extend(self.segments.take());
        }
        let allocated = self.segments.holes(count - taken.len());
        let (Some(allocated), true) = (allocated, count <= MAX_CHECKPOINT_SEGMENTS) else {
            self.give_up_checkpoint(&taken);
            return None;
        };
        let places: Vec<u32> = taken.iter().chain(&allocated).copied().collect();
        let (generation, epoch) = (self.slot.generation + 1, self.slot.epoch + u64::from(!self.is_ready));
        if is_stored {
            let slot = Slot { generation, epoch, ..self.slot.clone() };
            let mut steps = self.begin_log();
            steps.extend(slot_steps(&slot, self.slot_order));
            steps.push(Step::Quiesce);
            self.under_way = Some(UnderWay::Checkpoint { slot: Box::new(slot), taken, allocated });
            return Some(Job { steps });
        }
        let slot = Slot {
            identity: self.identity,
            generation,
            epoch,
            log: self.log,
            extents: self.map.len() as u64,
            snapshots: self.snapshots.len() as u32,
            checkpoint_bytes: bytes.len() as u64,
            checkpoint_digest: checkpoint::digest(&bytes),
            checkpoint_segments: places.clone(),
        };
        let mut steps = allocate_steps(&allocated);
        if !self.is_ready {
            steps.extend(self.begin_log());
        }
        for (segment, bytes) in places.iter().zip(bytes.chunks(SEGMENT_BYTES as usize)) {
            let mut bytes = bytes.to_vec();
            bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
            steps.push(Step::Write { offset: first_block(*segment) * BLOCK_BYTES, bytes });
        }
        if !places.is_empty() {
            steps.push(Step::Sync);
        }
        steps.extend(slot_steps(&slot, self.slot_order));
        steps.push(Step::Quiesce);
        self.under_way = Some(UnderWay::Checkpoint { slot: Box::new(slot), taken, allocated });
        Some(Job { steps })
    }

    /// What makes the end of the log ready for the first append of an opening.
    fn begin_log(&self) -> Vec<Step> {
        // A power cut may have taken the next segment away.
        let mut steps = allocate_steps(&[self.log.next]);
        steps.extend(zero_steps(&self.log));
        steps
    }

    /// There is no space for it: later, when the log has become longer.
    fn give_up_checkpoint(&mut self, taken: &[u32]) {
        taken.iter().rev().for_each(|segment| self.segments.put_back(*segment));
        self.take_back_snapshot_change();
        self.checkpoint_from = self.log_blocks + self.limits.log_blocks / 4 + 1;
        self.waits_for_space = !self.is_ready || self.must_checkpoint;
    }

    fn prepare(&mut self, segment: u32) -> Job {
        self.under_way = Some(UnderWay::Prepare { segment });
        let bytes = vec![0; SEGMENT_BYTES as usize];
        Job { steps: vec![Step::Write { offset: first_block(segment) * BLOCK_BYTES, bytes }] }
    }

    fn punch(&mut self) -> Option<Job> {
        let needed = self.needed_segments();
        let runs = self.segments.punchable(self.kept_free, &needed, PUNCHES);
        if runs.is_empty() {
            return None;
        }
        let step = |run: &crate::segments::Run| Step::Punch {
            offset: run.first * BLOCK_BYTES,
            len: run.blocks * BLOCK_BYTES,
        };
        self.under_way = Some(UnderWay::Punch);
        Some(Job { steps: runs.iter().map(step).collect() })
    }

    /// The job that is under way has been done.
    pub fn handle_done(&mut self) {
        match self.under_way.take() {
            Some(UnderWay::Append { records, end, blocks, .. }) => {
                for record in &records {
                    apply(&mut self.map, &mut self.segments, &record.changes);
                }
                self.on_its_way = Batch::default();
                self.log = end;
                self.log_blocks += blocks;
                self.durable = self.batch - 1;
                self.siblings.done();
                self.small_appends = blocks <= SMALL_APPEND_BLOCKS;
                self.kept_free = KEPT_FREE;
                self.figures.appends += 1;
            }
            Some(UnderWay::Checkpoint { slot, allocated, .. }) => {
                self.segments.allocated_and_used(&allocated);
                self.slot = *slot;
                self.slot_order = [0, 1];
                self.is_ready = true;
                self.log_blocks = 0;
                self.checkpoint_from = 0;
                (self.must_checkpoint, self.unstored) = (false, None);
                self.segments.reclaim(&self.needed_segments());
                self.punch_due = self.can_punch;
                self.may_move = true;
                self.figures.checkpoints += 1;
            }
            Some(UnderWay::Prepare { segment }) => {
                self.segments.set_written(segment);
                self.pace.prepared();
            }
            Some(UnderWay::Allocate { segments, .. }) => self.segments.allocated(&segments),
            Some(UnderWay::Punch) | None => {}
        }
    }

    /// The job that is under way has failed. Gives whether the flushes that wait are to be told: with an
    /// error that says that there is no space, or, after a trouble, with EIO.
    pub fn handle_failed(&mut self, failed: Failed) -> bool {
        let for_good = !failed.no_space || failed.step == FailedStep::Sync;
        self.siblings.failed();
        match self.under_way.take() {
            Some(UnderWay::Append { before, taken, .. }) => {
                // What the file has of it is written again, at the same place.
                taken.iter().rev().for_each(|segment| self.segments.put_back(*segment));
                self.log = before;
                let later = std::mem::take(&mut self.gathered);
                self.gathered = std::mem::take(&mut self.on_its_way);
                self.gathered.add(&later);
                self.flush_wanted = false;
            }
            Some(UnderWay::Checkpoint { taken, .. }) => {
                self.give_up_checkpoint(&taken);
                self.flush_wanted &= self.is_ready;
                if !for_good && self.is_ready && !self.must_checkpoint {
                    return false;
                }
            }
            Some(UnderWay::Punch) => {
                self.can_punch = false;
                return false;
            }
            Some(UnderWay::Prepare { .. }) => {
                self.small_appends = false;
                if !for_good {
                    return false;
                }
            }
            // A flush that waits has its space: only the write that asked for more has none.
            Some(UnderWay::Allocate { for_append: false, .. }) if !for_good => return false,
            Some(UnderWay::Allocate { .. }) => self.flush_wanted = false,
            None => {}
        }
        if for_good {
            let trouble = if failed.step == FailedStep::Sync { Trouble::Sync } else { Trouble::Write };
            self.trouble = Some(trouble);
        }
        true
    }
}

/// Adds a write, to the one before where it continues that and both are short.
fn put_behind(steps: &mut Vec<Step>, offset: u64, bytes: Vec<u8>) {
    match steps.last_mut() {
        Some(Step::Write { offset: before, bytes: all })
            if *before + all.len() as u64 == offset && all.len() + bytes.len() <= SEGMENT_BYTES as usize =>
        {
            all.extend(bytes);
        }
        _ => steps.push(Step::Write { offset, bytes }),
    }
}

pub(super) fn allocate_steps(segments: &[u32]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for segment in segments {
        let at = first_block(*segment) * BLOCK_BYTES;
        match steps.last_mut() {
            Some(Step::Allocate { offset, len }) if *offset + *len == at => *len += SEGMENT_BYTES,
            _ => steps.push(Step::Allocate { offset: at, len: SEGMENT_BYTES }),
        }
    }
    steps
}

/// Zeros behind the end of the log: an append to what was written before is a sync of data only, which does
/// not wait for the journal of the file system.
pub(super) fn zero_steps(log: &LogEnd) -> Vec<Step> {
    let zeros = |place: u64, blocks: u64| Step::Write {
        offset: place * BLOCK_BYTES,
        bytes: vec![0; (blocks * BLOCK_BYTES) as usize],
    };
    let mut steps = vec![zeros(first_block(log.next), SEGMENT_BLOCKS)];
    if log.block < SEGMENT_BLOCKS {
        steps.insert(0, zeros(first_block(log.segment) + log.block, SEGMENT_BLOCKS - log.block));
    }
    steps
}

/// Both slots, one after the other, so that one of them is always whole.
pub(super) fn slot_steps(slot: &Slot, order: [u64; 2]) -> Vec<Step> {
    let bytes = slot.encode();
    let steps =
        order.map(|number| [Step::Write { offset: number * BLOCK_BYTES, bytes: bytes.clone() }, Step::Sync]);
    steps.into_iter().flatten().collect()
}
