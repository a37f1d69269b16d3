//! Programs that write to a disk whose changes are kept: the write engine itself, in virtual time.
//!
//! [`simulate_overlay`] does with an [`Overlay`] what the threads of a kept disk do: takes writes, or lets
//! them wait for room, answers flushes, does one job after the other. A job's writes stay in the kernel's
//! memory until its sync, which makes requests of them to the queue before the model of a medium. What a file
//! system writes of its own for the file is not modelled.

mod file;

use std::collections::VecDeque;

use hs_engine::queue::{Class, ClientKey, Direction, QueueConfig};
use hs_overlay::{ChangeKind, Figures, Identity, Limits, Overlay, Refusal, Step, Waiting};
use hs_units::{BLOCK_BYTES, ByteRange, Digest, Nanos};

use self::file::SparseFile;
use crate::simulation::{Io, Run, Station, Workload, simulate};

/// What each byte of a block is that programs write.
const DATA: u8 = 1;
/// After so long without an append the disk has nothing else to do, and its file is made smaller.
const IDLE: Nanos = Nanos::from_millis(2_000);
/// The token of the wakes that look for it.
const IDLE_TOKEN: u64 = u64::MAX;
/// The token of the end of a hold.
const HOLD_TOKEN: u64 = u64::MAX - 1;
/// Blocks that are handed to the overlay as one.
const PART: u64 = 64;
/// Blocks that an overlay in use has written and given free.
const USED: u64 = 16 << 8;
/// The kernel's requests of a sync.
const CLASS: Class = Class::Demand;
const KERNEL: ClientKey = ClientKey(0);

/// What is switched on of the engine, and where its file lies.
#[derive(Clone, Copy, Debug)]
pub struct OverlayConfig {
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Where the file begins on the medium.
    pub file_at: u64,
    /// Bytes of a request of the kernel, at most.
    pub request_bytes: u64,
    /// What may be gathered.
    pub limits: Limits,
    /// The engine is told how long its jobs take, and gathers less on a slow medium.
    pub is_paced: bool,
    /// All that comes during an append is the next one. Else a write waits until the flush before it has
    /// ended, and each flush is an append.
    pub gathers: bool,
    /// Writes that wait for room are taken from one kind after the other. Else in the order in which they
    /// came.
    pub takes_in_turn: bool,
    /// The map is stored now and then, and dead blocks are given back.
    pub gives_back: bool,
    /// The next append waits for the writers that the last one has answered.
    pub waits_for_writers: bool,
}

impl OverlayConfig {
    /// All on, as a server runs it, for a disk of so many bytes.
    #[must_use]
    pub fn new(disk_bytes: u64) -> Self {
        Self {
            disk_bytes,
            file_at: 0,
            request_bytes: 512 << 10,
            limits: Limits::default(),
            is_paced: true,
            gathers: true,
            takes_in_turn: true,
            gives_back: true,
            waits_for_writers: true,
        }
    }
}

/// A change that a program makes, taken as a whole or in parts.
#[derive(Clone, Debug)]
struct Change {
    token: u64,
    requester: u64,
    /// First block and blocks of the parts of what is written, the next one last.
    writes: Vec<(u64, u64)>,
    /// The same of what is discarded afterwards.
    discards: Vec<(u64, u64)>,
}

enum Answer {
    Taken(u64),
    Flushed(u64),
}

/// What programs have had written, and what it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OverlayCounts {
    /// Bytes of the writes that were taken.
    pub taken_bytes: u64,
    /// Bytes that went to the medium.
    pub written_bytes: u64,
    /// Bytes that were read back, to write them elsewhere.
    pub read_bytes: u64,
    /// Bytes that the file takes.
    pub space_bytes: u64,
    /// The most bytes that it took.
    pub most_space_bytes: u64,
}

/// The disk, as programs see it.
pub(crate) struct OverlayDisk {
    config: OverlayConfig,
    overlay: Overlay,
    file: SparseFile,
    /// Steps of the job under way.
    steps: VecDeque<Step>,
    has_job: bool,
    began: Nanos,
    /// What was written since the last sync.
    dirty: Vec<ByteRange>,
    /// Requests to the medium that the job, or a move, waits for.
    pending: usize,
    /// Segments that are read, to be moved.
    moving: Vec<ByteRange>,
    is_idle: bool,
    /// Appends when a move had brought nothing.
    in_vain: Option<u64>,
    last_append: Nanos,
    waiting: Waiting<Change>,
    /// Flushes that wait for a batch.
    flushes: Vec<(u64, u64)>,
    answers: VecDeque<Answer>,
    counts: OverlayCounts,
}

/// Programs that write.
pub trait OverlayWorkload {
    /// The clock begins.
    fn start(&mut self, io: &mut OverlayIo<'_>);

    /// The writes with this token are taken: reads would see them.
    fn handle_taken(&mut self, io: &mut OverlayIo<'_>, token: u64);

    /// What was taken before the flush with this token is on the medium.
    fn handle_flushed(&mut self, io: &mut OverlayIo<'_>, token: u64);

    /// A time that [`OverlayIo::wake`] was called for has come.
    fn handle_wake(&mut self, _io: &mut OverlayIo<'_>, _token: u64) {}
}

/// The clock and the disk, as programs see them.
pub struct OverlayIo<'a> {
    io: &'a mut Io,
    disk: &'a mut OverlayDisk,
}

impl OverlayIo<'_> {
    /// The time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.io.now()
    }

    /// Plans a call of [`OverlayWorkload::handle_wake`] with `token`, which is not one of the two largest.
    pub fn wake(&mut self, then: Nanos, token: u64) {
        assert!(token < HOLD_TOKEN, "the token is the disk's own");
        self.io.wake(then, token);
    }

    /// A program writes: first block and number of blocks of each write.
    pub fn write(&mut self, requester: u64, token: u64, writes: &[(u64, u64)]) {
        self.change(requester, token, writes, &[]);
    }

    /// The same, and it discards blocks afterwards.
    pub fn change(&mut self, requester: u64, token: u64, writes: &[(u64, u64)], discards: &[(u64, u64)]) {
        let parts = |(start, blocks): &(u64, u64)| {
            let (start, blocks) = (*start, *blocks);
            (0..blocks).step_by(PART as usize).map(move |at| (start + at, PART.min(blocks - at)))
        };
        let mut writes: Vec<(u64, u64)> = writes.iter().flat_map(parts).collect();
        writes.reverse();
        let change = Change { token, requester, writes, discards: discards.to_vec() };
        self.disk.is_idle = false;
        self.disk.push(change);
    }

    /// Everything that was taken is to be on the medium.
    pub fn flush(&mut self, token: u64) {
        let batch = self.disk.overlay.handle_flush();
        self.disk.flushes.push((batch, token));
    }

    /// The simulation ends after this.
    pub const fn stop(&mut self) {
        self.io.stop();
    }

    /// What the overlay consists of.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.disk.overlay.figures()
    }
}

impl OverlayDisk {
    fn new(config: OverlayConfig) -> Self {
        let identity = Identity { id: [1; 16], disk_digest: Digest([1; 32]), disk_bytes: config.disk_bytes };
        let log_blocks = if config.gives_back { config.limits.log_blocks } else { u64::MAX };
        let (mut overlay, job) = Overlay::create(identity, Limits { log_blocks, ..config.limits });
        if config.is_paced {
            overlay.begin_paced();
        }
        let mut disk = Self {
            config,
            overlay,
            file: SparseFile::default(),
            steps: VecDeque::new(),
            has_job: false,
            began: Nanos::ZERO,
            dirty: Vec::new(),
            pending: 0,
            moving: Vec::new(),
            is_idle: false,
            in_vain: None,
            last_append: Nanos::ZERO,
            waiting: Waiting::default(),
            flushes: Vec::new(),
            answers: VecDeque::new(),
            counts: OverlayCounts::default(),
        };
        job.steps.iter().for_each(|step| disk.keep(step));
        disk.use_once();
        disk
    }

    /// The file is there when the clock begins, and was used: it has segments that can be written again.
    fn use_once(&mut self) {
        let parts = (0..USED).step_by(PART as usize).map(|at| (at, PART)).collect();
        let mut change = Change { token: 0, requester: 0, writes: parts, discards: vec![(0, USED)] };
        while !self.offer(&mut change) {
            self.run_all();
        }
        self.overlay.handle_close();
        self.run_all();
        self.dirty.clear();
        self.counts = OverlayCounts { space_bytes: self.file.space_bytes(), ..OverlayCounts::default() };
    }

    fn run_all(&mut self) {
        while let Some(job) = self.overlay.poll() {
            job.steps.iter().for_each(|step| self.keep(step));
            self.overlay.handle_done();
        }
    }

    fn push(&mut self, change: Change) {
        let blocks: u64 = change.writes.iter().map(|(_, blocks)| blocks).sum();
        let kind = ChangeKind::of(change.requester, blocks * BLOCK_BYTES);
        self.waiting.push(if self.config.takes_in_turn { kind } else { ChangeKind::of(0, 0) }, change);
    }

    /// Takes a change for which there is room; false where there is none, or no room.
    fn take_one(&mut self) -> bool {
        // Without gathering, the flush of one program is over before the write of another is taken.
        if !self.config.gathers && !self.flushes.is_empty() {
            return false;
        }
        let Some((kind, change)) = self.waiting.pop() else { return false };
        self.take(kind, change)
            || kind.is_large() && {
                let small = self.waiting.pop_small();
                small.is_some_and(|(kind, change)| self.take(kind, change))
            }
    }

    fn take(&mut self, kind: ChangeKind, mut change: Change) -> bool {
        if self.offer(&mut change) {
            self.answers.push_back(Answer::Taken(change.token));
            return true;
        }
        self.waiting.put_back(kind, change);
        false
    }

    /// Gives the overlay what it has room for; false when that is not all.
    fn offer(&mut self, change: &mut Change) -> bool {
        while let Some((start, blocks)) = change.writes.last().copied() {
            let bytes = vec![DATA; (blocks * BLOCK_BYTES) as usize];
            match self.overlay.handle_write(start, &bytes) {
                Ok(()) => self.counts.taken_bytes += blocks * BLOCK_BYTES,
                Err(refusal) if self.makes_room(refusal, blocks) => continue,
                Err(_) => return false,
            }
            change.writes.pop();
        }
        while let Some((start, blocks)) = change.discards.last().copied() {
            match self.overlay.handle_zero(start, blocks, true) {
                Ok(()) => _ = change.discards.pop(),
                Err(refusal) if self.makes_room(refusal, 0) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Takes space, which needs no request to the medium.
    fn makes_room(&mut self, refusal: Refusal, blocks: u64) -> bool {
        assert!(matches!(refusal, Refusal::Full | Refusal::NeedsSpace), "{refusal}");
        if refusal == Refusal::Full {
            return false;
        }
        let Some(job) = self.overlay.space_needed(blocks) else { return false };
        job.steps.iter().for_each(|step| self.keep(step));
        self.overlay.handle_done();
        true
    }

    /// What a step does to the file in the kernel's memory.
    fn keep(&mut self, step: &Step) {
        match step {
            Step::Write { offset, bytes } => {
                self.file.write(*offset, bytes);
                self.dirty.push(ByteRange::new(*offset, bytes.len() as u64));
            }
            Step::Allocate { offset, len } => self.file.allocate(*offset, *len),
            Step::Punch { offset, len } => self.file.punch(*offset, *len),
            Step::Sync | Step::Quiesce => {}
        }
        self.counts.space_bytes = self.file.space_bytes();
        self.counts.most_space_bytes = self.counts.most_space_bytes.max(self.counts.space_bytes);
    }

    /// Requests to the medium for what was written since the last sync.
    fn sync(&mut self, io: &mut Io) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_by_key(|range| range.offset);
        let mut whole: Vec<ByteRange> = Vec::new();
        for range in dirty {
            match whole.last_mut() {
                Some(last) if range.offset <= last.end() => {
                    *last = ByteRange::new(last.offset, range.end().max(last.end()) - last.offset);
                }
                _ => whole.push(range),
            }
        }
        for range in whole {
            self.counts.written_bytes += range.len;
            self.request(io, Direction::Write, range);
        }
    }

    fn request(&mut self, io: &mut Io, direction: Direction, range: ByteRange) {
        let most = self.config.request_bytes;
        for at in (0..range.len).step_by(most as usize) {
            let part = ByteRange::new(self.config.file_at + range.offset + at, most.min(range.len - at));
            io.request(CLASS, KERNEL, direction, part);
            self.pending += 1;
        }
    }

    /// Does steps of the job until one has to wait for the medium.
    fn go_on(&mut self, io: &mut Io) {
        while self.pending == 0 {
            match self.steps.pop_front() {
                Some(Step::Sync) => self.sync(io),
                Some(step) => self.keep(&step),
                None if std::mem::take(&mut self.has_job) => return self.end_job(io),
                None => return,
            }
        }
    }

    fn end_job(&mut self, io: &mut Io) {
        let appends = self.overlay.figures().appends;
        if self.config.is_paced {
            self.overlay.handle_done_in(io.now() - self.began);
        } else {
            self.overlay.handle_done();
        }
        if self.overlay.figures().appends > appends {
            self.last_append = io.now();
            io.wake(io.now() + IDLE, IDLE_TOKEN);
        }
    }

    /// Whether the next append waits for the writers that the last one has answered.
    fn holds(&self, io: &mut Io) -> bool {
        let rest = self.overlay.waits_for_writers(io.now() - self.last_append);
        let Some(rest) = rest.filter(|_| self.config.waits_for_writers) else { return false };
        io.wake(io.now() + rest, HOLD_TOKEN);
        true
    }

    /// Begins the next job, or a move of segments; false where there is nothing to do now.
    fn begin(&mut self, io: &mut Io) -> bool {
        if self.has_job || self.pending > 0 || self.holds(io) {
            return false;
        }
        if let Some(job) = self.overlay.poll() {
            (self.steps, self.has_job, self.began) = (job.steps.into(), true, io.now());
            self.go_on(io);
            return true;
        }
        let appends = self.overlay.figures().appends;
        if !self.config.gives_back || self.in_vain == Some(appends) {
            return false;
        }
        let Some(segments) = self.overlay.sparse(self.is_idle) else { return false };
        for range in &segments {
            self.counts.read_bytes += range.len;
            self.request(io, Direction::Read, *range);
        }
        self.moving = segments;
        true
    }

    /// The segments that are to be moved were read.
    fn move_segments(&mut self) {
        let segments = std::mem::take(&mut self.moving);
        for range in &segments {
            let bytes = self.file.read(*range);
            let mut moved = self.overlay.handle_segment(*range, &bytes);
            if moved == Err(Refusal::NeedsSpace)
                && self.makes_room(Refusal::NeedsSpace, range.len / BLOCK_BYTES)
            {
                moved = self.overlay.handle_segment(*range, &bytes);
            }
            if moved.is_err() {
                break;
            }
        }
        self.overlay.handle_flush();
        let figures = self.overlay.figures();
        self.in_vain = self.overlay.is_flushed().then_some(figures.appends);
    }

    /// Answers a flush whose batch is on the medium, if there is one.
    fn answer_flush(&mut self) -> bool {
        let at = self.flushes.iter().position(|(batch, _)| self.overlay.is_durable(*batch));
        let Some(at) = at else { return false };
        let (_, token) = self.flushes.remove(at);
        self.answers.push_back(Answer::Flushed(token));
        true
    }
}

/// The disk with its programs.
struct Driven<'a, W> {
    disk: OverlayDisk,
    programs: &'a mut W,
}

impl<W: OverlayWorkload> Driven<'_, W> {
    /// Answers, takes writes, and begins the next job, until all wait.
    fn settle(&mut self, io: &mut Io) {
        loop {
            let Self { disk, programs } = self;
            match disk.answers.pop_front() {
                Some(Answer::Taken(token)) => programs.handle_taken(&mut OverlayIo { io, disk }, token),
                Some(Answer::Flushed(token)) => programs.handle_flushed(&mut OverlayIo { io, disk }, token),
                None if disk.answer_flush() || disk.take_one() || disk.begin(io) => {}
                None => return,
            }
        }
    }
}

impl<W: OverlayWorkload> Workload for Driven<'_, W> {
    fn start(&mut self, io: &mut Io) {
        self.programs.start(&mut OverlayIo { io, disk: &mut self.disk });
        self.settle(io);
    }

    fn handle_done(&mut self, io: &mut Io, _request: usize) {
        let disk = &mut self.disk;
        disk.pending -= 1;
        if disk.pending == 0 && !disk.moving.is_empty() {
            disk.move_segments();
        }
        disk.go_on(io);
        self.settle(io);
    }

    fn handle_wake(&mut self, io: &mut Io, token: u64) {
        let Self { disk, programs } = self;
        if token == IDLE_TOKEN {
            disk.is_idle |= io.now() >= disk.last_append + IDLE && disk.overlay.is_flushed();
        } else if token < HOLD_TOKEN {
            programs.handle_wake(&mut OverlayIo { io, disk }, token);
        }
        self.settle(io);
    }
}

/// Runs programs that write to an empty overlay whose file lies on this medium.
pub fn simulate_overlay(
    config: OverlayConfig,
    queue: QueueConfig,
    station: impl Station + 'static,
    programs: &mut impl OverlayWorkload,
) -> (Run, OverlayCounts, Figures) {
    let mut driven = Driven { disk: OverlayDisk::new(config), programs };
    let run = simulate(queue, station, Nanos(u64::MAX), &mut driven);
    let OverlayDisk { counts, overlay, .. } = driven.disk;
    (run, counts, overlay.figures())
}

#[cfg(test)]
mod tests;
