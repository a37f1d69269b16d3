//! An overlay in use.

mod jobs;

use hs_units::BLOCK_BYTES;

use self::jobs::{allocate_steps, slot_steps, zero_steps};
use crate::batch::Batch;
use crate::checkpoint;
use crate::error::Refusal;
use crate::job::Job;
use crate::layout::{BLOCK, Identity, SEGMENT_BLOCKS, SEGMENT_BYTES};
use crate::map::{Content, ExtentMap, MAX_EXTENT_BLOCKS};
use crate::pace::Pace;
use crate::record::{Change, Record, fits, segments_for};
use crate::segments::Segments;
use crate::siblings::Siblings;
use crate::slot::{LogEnd, Slot};
use crate::snapshot::{Snapshot, Unstored};
use crate::waiting::SMALL_BYTES;

/// Segments that can be written to and are kept for that, instead of giving their space back.
const KEPT_FREE: usize = 16;

/// What an overlay may hold and leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Gathered bytes from which on they are written without a flush.
    pub write_back_bytes: u64,
    /// Gathered bytes from which on writes have to wait; small ones have a quarter more.
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
    Allocate { segments: Vec<u32>, for_append: bool },
    Punch,
}

/// The overlay of a disk: what was written to it.
pub struct Overlay {
    pub(crate) identity: Identity,
    pub(crate) limits: Limits,
    pub(crate) pace: Pace,
    pub(crate) siblings: Siblings,
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
    /// The same at once: a change of the snapshots that no stored map has.
    pub(crate) unstored: Option<Unstored>,
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
            pace: Pace::new(&limits),
            siblings: Siblings::default(),
            map,
            snapshots,
            segments,
            log,
            slot,
            log_blocks: 0,
            slot_order: [0, 1],
            is_ready: false,
            must_checkpoint: false,
            unstored: None,
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
        let (held, bytes) = (self.gathered.bytes(), data * BLOCK_BYTES);
        let most = self.pace.gathered_bytes();
        // Room that is left for small writes, behind which a program often waits.
        let most = if bytes <= SMALL_BYTES { most.saturating_add(most / 4) } else { most };
        if held > 0 && held + bytes > most {
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
        if blocks == 0 && self.on_its_way.is_empty() {
            // On a full medium discards are what gives space back. An extent may cut another one in two, and
            // long ones are more than one in a record.
            let longest = self.identity.disk_blocks() / MAX_EXTENT_BLOCKS + 1;
            if fits(extents + 1 + longest, 0, SEGMENT_BLOCKS - self.log.block) {
                return 0;
            }
        }
        segments_for(extents, blocks) as usize
    }

    /// Segments that the gathered writes may need.
    fn gathered_segments(&self) -> usize {
        if self.gathered.is_empty() { 0 } else { self.promised_segments(0) }
    }

    /// Of these, those that there are not.
    fn missing_segments(&self, data: u64) -> usize {
        self.promised_segments(data).saturating_sub(self.segments.free())
    }

    /// Segments for the next checkpoint that there are not, beside those: without it no space is given back.
    fn missing_reserve(&self, data: u64) -> usize {
        self.reserve(0).saturating_sub(self.free_beside(data))
    }

    /// Segments that the next checkpoint needs at most, with so many extents more.
    fn reserve(&self, more: usize) -> usize {
        let of_snapshots = self.snapshots.iter().map(|snapshot| snapshot.map.len()).sum::<usize>();
        (self.map.len() + of_snapshots + more) * 16 / SEGMENT_BYTES as usize + 1
    }

    /// Segments beside those that the gathered writes, with so many blocks more, may need.
    fn free_beside(&self, data: u64) -> usize {
        self.segments.free().saturating_sub(self.promised_segments(data))
    }

    /// The space that has to be taken before a snapshot: for the map with it, and for the next one, without
    /// which it could not be deleted. As [`Self::space_needed`] otherwise.
    pub fn snapshot_space_needed(&mut self) -> Option<Job> {
        let missing = (2 * self.reserve(self.map.len())).saturating_sub(self.free_beside(0));
        if missing == 0 || self.under_way.is_some() || self.trouble.is_some() {
            return None;
        }
        self.allocation(missing, false)
    }

    /// The space that has to be taken before so many blocks can be written; the job's end is to be reported
    /// before anything else is done. None when there is enough, or a job is under way that may change it.
    pub fn space_needed(&mut self, data: u64) -> Option<Job> {
        let missing = self.missing_segments(data) + self.missing_reserve(data);
        if missing == 0 || self.under_way.is_some() || self.trouble.is_some() {
            return None;
        }
        self.allocation(missing, false)
    }

    fn allocation(&mut self, count: usize, for_append: bool) -> Option<Job> {
        let segments = self.segments.holes(count)?;
        let steps = allocate_steps(&segments);
        self.under_way = Some(UnderWay::Allocate { segments, for_append });
        Some(Job { steps })
    }

    /// Everything that was written so far is to be on the medium: gives the number of the batch with the last
    /// of it. See [`Self::is_durable`].
    pub fn handle_flush(&mut self) -> u64 {
        self.figures.flushes += 1;
        self.waits_for_space = false;
        if !self.gathered.is_empty() {
            self.flush_wanted = true;
            self.siblings.flush();
            return self.batch;
        }
        if self.on_its_way.is_empty() {
            return self.durable;
        }
        self.siblings.flush_on_its_way();
        self.batch - 1
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

    /// Gathered bytes from which on they are written without a flush.
    fn write_back_bytes(&self) -> u64 {
        self.limits.write_back_bytes.min(self.pace.gathered_bytes())
    }

    /// Bytes of the append that is under way.
    pub(crate) fn appending_bytes(&self) -> u64 {
        match self.under_way {
            Some(UnderWay::Append { blocks, .. }) => blocks * BLOCK_BYTES,
            _ => 0,
        }
    }

    /// Whether writes wait for a job, so that one should be asked for.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.under_way.is_none() && (self.flush_wanted || self.gathered.bytes() >= self.write_back_bytes())
    }

    /// Whether writes wait for a job, and only because a flush waits for them.
    pub(crate) fn is_due_by_flush_alone(&self) -> bool {
        let is_asked = self.flush_wanted && !self.must_checkpoint;
        self.under_way.is_none() && is_asked && self.gathered.bytes() < self.write_back_bytes()
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
