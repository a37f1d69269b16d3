//! An overlay in use.

use hs_units::BLOCK_BYTES;

use crate::batch::Batch;
use crate::checkpoint;
use crate::error::{OverlayError, Refusal};
use crate::job::{Failed, FailedStep, Job, Step};
use crate::layout::{BLOCK, Identity, MAX_SNAPSHOTS, SEGMENT_BLOCKS, SEGMENT_BYTES, first_block};
use crate::map::{Content, ExtentMap};
use crate::record::{Binding, Change, Record, Writer, segments_for};
use crate::segments::Segments;
use crate::slot::{LogEnd, MAX_CHECKPOINT_SEGMENTS, Slot};
use crate::snapshot::{Snapshot, check_name};

/// Segments that can be written to and are kept for that, instead of giving their space back.
const KEPT_FREE: usize = 16;
/// Runs that one job makes holes of.
const PUNCHES: usize = 256;
/// An append of at most so many blocks is one that waits for its sync: the segments of such are written
/// before they are used, so that an append changes no metadata of the file system.
const SMALL_APPEND_BLOCKS: u64 = 32;

/// What an overlay may hold and leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Gathered bytes from which on they are written without a flush.
    pub write_back_bytes: u64,
    /// Gathered bytes from which on writes have to wait.
    pub gathered_bytes: u64,
    /// Blocks of the log from which on the map is stored again: what an opening reads at most.
    pub log_blocks: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { write_back_bytes: 4 << 20, gathered_bytes: 16 << 20, log_blocks: (64 << 20) / BLOCK_BYTES }
    }
}

/// Where the content of blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In memory: see [`Overlay::gathered`].
    Gathered(u64),
    /// In memory, on its way to the file: see [`Overlay::on_its_way`].
    OnItsWay(u64),
    /// In the file, from this byte on.
    File(u64),
    /// They are zero, and were written so.
    Zero,
    /// They are zero, since they were discarded.
    Discarded,
    /// In the disk below.
    Below,
}

/// A run of blocks with one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First block of the disk.
    pub start: u64,
    /// The block behind the last.
    pub end: u64,
    /// Where the content of the first block is; that of the others follows it.
    pub source: Source,
}

/// What failed, after which nothing is written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Bytes could not be written.
    Write,
    /// What was written may not be on the medium, and asking again would not tell.
    Sync,
    /// Writes that were answered and not flushed are gone: see [`Overlay::refuse_writes`].
    Lost,
}

/// What an overlay consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Extents of the map.
    pub extents: u64,
    /// Blocks of the disk with data in the file.
    pub data_blocks: u64,
    /// Bytes that writes have brought and the file does not have yet.
    pub gathered_bytes: u64,
    /// Number of the last record.
    pub records: u64,
    /// Segments that have space of their own.
    pub segments: u64,
    /// Appends with a sync of their own, since it was opened.
    pub appends: u64,
    /// Flushes that were asked for, since it was opened.
    pub flushes: u64,
    /// Maps that were stored, since it was opened.
    pub checkpoints: u64,
}

/// A job that is under way, with what its end changes.
enum UnderWay {
    Append { records: Vec<Record>, before: LogEnd, end: LogEnd, taken: Vec<u32>, blocks: u64 },
    Checkpoint { slot: Box<Slot>, taken: Vec<u32>, allocated: Vec<u32> },
    Prepare { segment: u32 },
    Allocate { segments: Vec<u32> },
    Punch,
}

/// The overlay of a disk: what was written to it.
pub struct Overlay {
    pub(crate) identity: Identity,
    pub(crate) limits: Limits,
    /// What the file has, as far as it is known to be on the medium.
    pub(crate) map: ExtentMap,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) segments: Segments,
    pub(crate) log: LogEnd,
    /// The superblock on the medium.
    pub(crate) slot: Slot,
    /// Blocks of the log behind the checkpoint.
    pub(crate) log_blocks: u64,
    /// The slots of the superblock in the order in which they are written: not the valid one first.
    pub(crate) slot_order: [u64; 2],
    /// The superblock names the epoch of the records that this opening writes.
    pub(crate) is_ready: bool,
    /// The map is to be stored when nothing is gathered.
    pub(crate) must_checkpoint: bool,
    /// A map was stored since it was last looked for sparse segments, and what of them is needed.
    pub(crate) may_move: bool,
    pub(crate) moving: Vec<Piece>,
    /// Storing it failed for want of space: not tried again before a flush.
    waits_for_space: bool,
    /// The same, where the log can still grow: tried again when it is so long.
    checkpoint_from: u64,
    gathered: Batch,
    on_its_way: Batch,
    /// Number of the gathered batch; the one on its way has the number before.
    batch: u64,
    /// Number of the last batch that is on the medium.
    durable: u64,
    flush_wanted: bool,
    small_appends: bool,
    pub(crate) can_punch: bool,
    pub(crate) punch_due: bool,
    /// Free segments that no holes are made of.
    pub(crate) kept_free: usize,
    under_way: Option<UnderWay>,
    trouble: Option<Trouble>,
    figures: Figures,
}

impl Overlay {
    /// A new overlay, and what its file consists of: it is empty otherwise.
    #[must_use]
    pub fn create(identity: Identity, limits: Limits) -> (Self, Job) {
        let log = LogEnd { segment: 0, block: 0, next: 1, sequence: 0, chain: [0; 32] };
        let slot = Slot {
            identity,
            generation: 1,
            epoch: 1,
            log,
            extents: 0,
            snapshots: 0,
            checkpoint_bytes: 0,
            checkpoint_digest: checkpoint::digest(&[]),
            checkpoint_segments: Vec::new(),
        };
        let mut steps = allocate_steps(&[0, 1]);
        steps.extend(zero_steps(&log));
        steps.extend(slot_steps(&slot, [0, 1]));
        let segments = Segments::new(2);
        let mut overlay = Self::opened(slot, limits, ExtentMap::default(), Vec::new(), segments, log);
        overlay.is_ready = true;
        (overlay, Job { steps })
    }

    /// An overlay whose file has this content. A new epoch begins before anything is written.
    pub(crate) fn opened(
        slot: Slot,
        limits: Limits,
        map: ExtentMap,
        snapshots: Vec<Snapshot>,
        mut segments: Segments,
        log: LogEnd,
    ) -> Self {
        for segment in [log.segment, log.next].iter().chain(&slot.checkpoint_segments) {
            segments.set_used(*segment);
        }
        Self {
            identity: slot.identity,
            limits,
            map,
            snapshots,
            segments,
            log,
            slot,
            log_blocks: 0,
            slot_order: [0, 1],
            is_ready: false,
            must_checkpoint: false,
            may_move: false,
            moving: Vec::new(),
            waits_for_space: false,
            checkpoint_from: 0,
            gathered: Batch::default(),
            on_its_way: Batch::default(),
            batch: 1,
            durable: 0,
            flush_wanted: false,
            small_appends: false,
            can_punch: true,
            punch_due: false,
            kept_free: KEPT_FREE,
            under_way: None,
            trouble: None,
            figures: Figures::default(),
        }
    }

    /// What it belongs to.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What it consists of.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            extents: self.map.len() as u64,
            data_blocks: self.map.data_blocks(),
            gathered_bytes: self.gathered.bytes() + self.on_its_way.bytes(),
            records: self.log.sequence,
            segments: self.segments.taken() as u64,
            ..self.figures
        }
    }

    /// Why nothing is written any more.
    #[must_use]
    pub const fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    /// Nothing is written any more. A user that has seen writes answered takes them for done when it flushes
    /// the next time, so a server that has lost some must not answer that flush.
    pub fn refuse_writes(&mut self) {
        self.trouble = Some(Trouble::Lost);
    }

    /// Whether everything that was written is on the medium.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.gathered.is_empty() && self.on_its_way.is_empty()
    }

    /// Its snapshots, the oldest first.
    #[must_use]
    pub fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    /// The extents that the file has: first block, blocks, content. Data is named by its block in the file.
    pub fn extents(&self) -> impl Iterator<Item = (u64, u64, Content)> {
        self.map.iter()
    }

    // ---- writes ----

    /// Takes whole blocks, from the block `start` of the disk on.
    ///
    /// # Errors
    /// When they cannot be taken now, or at all. Nothing of them is taken then.
    pub fn handle_write(&mut self, start: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let blocks = bytes.len() as u64 / BLOCK_BYTES;
        if !bytes.len().is_multiple_of(BLOCK) {
            return Err(Refusal::OutsideDisk);
        }
        self.admit(start, blocks, blocks)?;
        self.gathered.write(start, bytes);
        Ok(())
    }

    /// So many blocks, from `start` on, are zero from now on.
    ///
    /// # Errors
    /// As for [`Self::handle_write`].
    pub fn handle_zero(&mut self, start: u64, blocks: u64, discard: bool) -> Result<(), Refusal> {
        self.admit(start, blocks, 0)?;
        let content = if discard { Content::Discarded } else { Content::Zero };
        self.gathered.clear(start, start + blocks, content);
        Ok(())
    }

    fn admit(&mut self, start: u64, blocks: u64, data: u64) -> Result<(), Refusal> {
        if self.trouble.is_some() {
            return Err(Refusal::ReadOnly);
        }
        if start.checked_add(blocks).is_none_or(|end| end > self.identity.disk_blocks()) {
            return Err(Refusal::OutsideDisk);
        }
        let held = self.gathered.bytes();
        if held > 0 && held + data * BLOCK_BYTES > self.limits.gathered_bytes {
            // Which makes room.
            self.flush_wanted = true;
            return Err(Refusal::Full);
        }
        if self.missing_segments(data) + self.missing_reserve(data) > 0 {
            return Err(Refusal::NeedsSpace);
        }
        Ok(())
    }

    /// Segments that the gathered writes, with so many blocks more, may need.
    fn promised_segments(&self, data: u64) -> usize {
        let extents = self.gathered.map.len() as u64 + 1;
        let blocks = self.gathered.bytes() / BLOCK_BYTES + data;
        segments_for(extents, blocks) as usize
    }

    /// Of these, those that there are not.
    fn missing_segments(&self, data: u64) -> usize {
        self.promised_segments(data).saturating_sub(self.segments.free())
    }

    /// Segments for the next checkpoint that there are not, beside those: without it no space is given back.
    fn missing_reserve(&self, data: u64) -> usize {
        let extents =
            self.map.len() + self.snapshots.iter().map(|snapshot| snapshot.map.len()).sum::<usize>();
        let reserve = extents * 16 / SEGMENT_BYTES as usize + 1;
        let beside = self.segments.free().saturating_sub(self.promised_segments(data));
        reserve.saturating_sub(beside)
    }

    /// The space that has to be taken before so many blocks can be written; the job's end is to be reported
    /// before anything else is done. None when there is enough, or a job is under way that may change it.
    pub fn space_needed(&mut self, data: u64) -> Option<Job> {
        let missing = self.missing_segments(data) + self.missing_reserve(data);
        if missing == 0 || self.under_way.is_some() || self.trouble.is_some() {
            return None;
        }
        self.allocation(missing)
    }

    fn allocation(&mut self, count: usize) -> Option<Job> {
        let segments = self.segments.holes(count)?;
        let steps = allocate_steps(&segments);
        self.under_way = Some(UnderWay::Allocate { segments });
        Some(Job { steps })
    }

    /// Everything that was written so far is to be on the medium: gives the number of the batch with the last
    /// of it. See [`Self::is_durable`].
    pub fn handle_flush(&mut self) -> u64 {
        self.figures.flushes += 1;
        self.waits_for_space = false;
        if !self.gathered.is_empty() {
            self.flush_wanted = true;
            return self.batch;
        }
        if self.on_its_way.is_empty() { self.durable } else { self.batch - 1 }
    }

    /// Whether all of this batch, and all before, is on the medium.
    #[must_use]
    pub const fn is_durable(&self, batch: u64) -> bool {
        batch <= self.durable
    }

    /// The map is stored next, so that an opening reads little.
    pub fn handle_close(&mut self) {
        self.handle_flush();
        self.must_checkpoint |=
            self.log_blocks > 0 || !self.gathered.is_empty() || !self.on_its_way.is_empty();
    }

    /// Whether writes wait for a job, so that one should be asked for.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.under_way.is_none()
            && (self.flush_wanted || self.gathered.bytes() >= self.limits.write_back_bytes)
    }

    // ---- reads ----

    /// Where the content of the blocks from `start` up to `end` is: pieces in order.
    pub fn lookup(&self, start: u64, end: u64, each: &mut impl FnMut(Piece)) {
        let source = |content, data: fn(u64) -> Source| match content {
            Content::Data(place) => data(place),
            Content::Zero => Source::Zero,
            Content::Discarded => Source::Discarded,
        };
        self.gathered.map.pieces(start, end, |start, end, content| {
            if let Some(content) = content {
                return each(Piece { start, end, source: source(content, Source::Gathered) });
            }
            self.on_its_way.map.pieces(start, end, |start, end, content| {
                if let Some(content) = content {
                    return each(Piece { start, end, source: source(content, Source::OnItsWay) });
                }
                self.map.pieces(start, end, |start, end, content| {
                    let in_file = |place| Source::File(place * BLOCK_BYTES);
                    let source = content.map_or(Source::Below, |content| source(content, in_file));
                    each(Piece { start, end, source });
                });
            });
        });
    }

    /// Whether any of these blocks was ever written.
    #[must_use]
    pub fn touches(&self, start: u64, end: u64) -> bool {
        [&self.gathered.map, &self.on_its_way.map, &self.map].iter().any(|map| map.touches(start, end))
    }

    /// Gathered blocks.
    #[must_use]
    pub fn gathered(&self, number: u64, blocks: u64) -> &[u8] {
        self.gathered.blocks(number, blocks)
    }

    /// Blocks on their way to the file.
    #[must_use]
    pub fn on_its_way(&self, number: u64, blocks: u64) -> &[u8] {
        self.on_its_way.blocks(number, blocks)
    }

    // ---- jobs ----

    /// Whether a job is under way.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.under_way.is_some()
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
            || self.small_appends && self.segments.unwritten().is_some()
    }

    /// The next job, if there is something to do and none is under way. Its end is to be reported.
    pub fn poll(&mut self) -> Option<Job> {
        if self.under_way.is_some() || self.trouble.is_some() {
            return None;
        }
        let wanted = self.flush_wanted
            || self.must_checkpoint
            || self.gathered.bytes() >= self.limits.write_back_bytes;
        let appends = wanted && !self.gathered.is_empty();
        if !self.is_ready {
            return if appends || self.must_checkpoint { self.store_map() } else { None };
        }
        if std::mem::take(&mut self.punch_due)
            && let Some(job) = self.punch()
        {
            return Some(job);
        }
        if self.checkpoint_is_due() || self.must_checkpoint && !appends {
            return self.store_map();
        }
        if self.small_appends
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
            return self.allocation(missing);
        }
        self.on_its_way = std::mem::take(&mut self.gathered);
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
                && self.segments.dead(&self.needed_segments()) > 0
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
        while taken.len() < count && self.segments.free() > self.promised_segments(0) {
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
                self.must_checkpoint = false;
                self.segments.reclaim(&self.needed_segments());
                self.punch_due = self.can_punch;
                self.may_move = true;
                self.figures.checkpoints += 1;
            }
            Some(UnderWay::Prepare { segment }) => self.segments.set_written(segment),
            Some(UnderWay::Allocate { segments }) => self.segments.allocated(&segments),
            Some(UnderWay::Punch) | None => {}
        }
    }

    /// The job that is under way has failed. Gives whether the flushes that wait are to be told: with an
    /// error that says that there is no space, or, after a trouble, with EIO.
    pub fn handle_failed(&mut self, failed: Failed) -> bool {
        let for_good = !failed.no_space || failed.step == FailedStep::Sync;
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
            Some(UnderWay::Allocate { .. }) => self.flush_wanted = false,
            None => {}
        }
        if for_good {
            let trouble = if failed.step == FailedStep::Sync { Trouble::Sync } else { Trouble::Write };
            self.trouble = Some(trouble);
        }
        true
    }

    // ---- snapshots ----

    /// Keeps the disk as it is, under this name. Everything has to be on the medium: see [`Self::is_idle`].
    ///
    /// # Errors
    /// When the name is not free, or cannot be given.
    pub fn take_snapshot(&mut self, name: &str, now_s: u64) -> Result<(), OverlayError> {
        check_name(name)?;
        if self.snapshots.iter().any(|snapshot| snapshot.name == name) {
            let why = "there is one of this name: delete it first, or choose another name";
            return Err(OverlayError::SnapshotName { name: name.to_owned(), why });
        }
        if self.snapshots.len() == MAX_SNAPSHOTS {
            let (found, limit) = (MAX_SNAPSHOTS as u64 + 1, MAX_SNAPSHOTS as u64);
            return Err(OverlayError::TooLarge { what: "snapshots", found, limit });
        }
        let snapshot = Snapshot { name: name.to_owned(), taken_s: now_s, map: self.map.clone() };
        self.snapshots.push(snapshot);
        self.maps_changed();
        Ok(())
    }

    /// The disk is as it was when this snapshot was taken. The snapshot stays.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn revert(&mut self, name: &str) -> Result<(), OverlayError> {
        let snapshot = self.snapshots.iter().find(|snapshot| snapshot.name == name);
        self.map = snapshot.ok_or_else(|| no_such(name))?.map.clone();
        self.maps_changed();
        Ok(())
    }

    /// The snapshot is not needed any more.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn delete_snapshot(&mut self, name: &str) -> Result<(), OverlayError> {
        let at = self.snapshots.iter().position(|snapshot| snapshot.name == name);
        self.snapshots.remove(at.ok_or_else(|| no_such(name))?);
        self.maps_changed();
        Ok(())
    }

    fn maps_changed(&mut self) {
        let maps = self.snapshots.iter().map(|snapshot| &snapshot.map);
        self.segments.count_again(&self.map, maps);
        // No record is written to a segment that a snapshot refers to.
        self.must_checkpoint = true;
    }

    /// Nothing is gathered, on its way or to be stored.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.gathered.is_empty()
            && self.on_its_way.is_empty()
            && self.under_way.is_none()
            && !self.must_checkpoint
    }
}

/// Makes the changes of a record.
pub(crate) fn apply(map: &mut ExtentMap, segments: &mut Segments, changes: &[Change]) -> bool {
    let mut fits = true;
    for Change { start, end, content } in changes {
        map.insert(*start, *end, *content, &mut |place, blocks| segments.drop_live(place, blocks));
        if let Content::Data(place) = content {
            fits &= segments.add_live(*place, end - start);
        }
    }
    fits
}

fn no_such(name: &str) -> OverlayError {
    OverlayError::NoSuchSnapshot { name: name.to_owned() }
}

/// Adds a write, to the one before where it continues that.
fn put_behind(steps: &mut Vec<Step>, offset: u64, bytes: Vec<u8>) {
    match steps.last_mut() {
        Some(Step::Write { offset: before, bytes: all }) if *before + all.len() as u64 == offset => {
            all.extend(bytes);
        }
        _ => steps.push(Step::Write { offset, bytes }),
    }
}

fn allocate_steps(segments: &[u32]) -> Vec<Step> {
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
fn zero_steps(log: &LogEnd) -> Vec<Step> {
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
fn slot_steps(slot: &Slot, order: [u64; 2]) -> Vec<Step> {
    let bytes = slot.encode();
    let steps =
        order.map(|number| [Step::Write { offset: number * BLOCK_BYTES, bytes: bytes.clone() }, Step::Sync]);
    steps.into_iter().flatten().collect()
}
