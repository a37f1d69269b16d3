//! Programs that always have writes under way.

use hs_units::{BLOCK_BYTES, Nanos, Prng};

use crate::overlay_disk::{OverlayIo, OverlayWorkload};
use crate::streams::Pattern;

/// A program that keeps a number of writes under way, and thinks between the end of one and the next.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Who it is to the disk: the programs of one kernel are one requester.
    pub requester: u64,
    /// The order.
    pub pattern: Pattern,
    /// First block of its part of the disk, and the number of its blocks.
    pub region: (u64, u64),
    /// Blocks of each write.
    pub blocks: u64,
    /// Writes under way.
    pub depth: u64,
    /// A write ends when it is on the medium. Else it ends when it is taken.
    pub syncs: bool,
    /// Time from the end of a write to the next.
    pub think: Nanos,
    /// When it begins.
    pub begins: Nanos,
    /// Writes that it makes; nothing where it writes until the others have ended.
    pub writes: Option<u64>,
}

/// A write of one of the programs.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Which.
    pub writer: usize,
    /// When it was made.
    pub came: Nanos,
    /// When it ended.
    pub done: Option<Nanos>,
    /// Its bytes.
    pub bytes: u64,
}

impl Written {
    /// From making it to its end; `None` when it has not ended.
    #[must_use]
    pub fn wait(&self) -> Option<Nanos> {
        self.done.map(|done| done - self.came)
    }
}

/// Many of them. The simulation ends when all those have ended that make so many writes.
#[derive(Clone, Debug)]
pub struct Writers {
    writers: Vec<Writer>,
    next: Vec<u64>,
    begun: Vec<u64>,
    ended: Vec<u64>,
    written: Vec<Written>,
    prng: Prng,
    /// When the last of them ended.
    finished: Nanos,
}

impl Writers {
    /// These programs, with random places from `seed`.
    #[must_use]
    pub fn new(writers: Vec<Writer>, seed: u64) -> Self {
        let next = writers.iter().map(|writer| writer.region.0).collect();
        let zeros = vec![0; writers.len()];
        let (begun, ended) = (zeros.clone(), zeros);
        Self {
            writers,
            next,
            begun,
            ended,
            written: Vec::new(),
            prng: Prng::new(seed),
            finished: Nanos::ZERO,
        }
    }

    /// Their writes, in the order in which they were made.
    #[must_use]
    pub fn written(&self) -> &[Written] {
        &self.written
    }

    /// When the last program had ended that makes so many writes.
    #[must_use]
    pub const fn finished(&self) -> Nanos {
        self.finished
    }

    /// Bytes a second of the writes of one program that had ended when all had.
    #[must_use]
    pub fn bytes_per_s(&self, writer: usize) -> f64 {
        let done = |written: &&Written| {
            written.writer == writer && written.done.is_some_and(|done| done <= self.finished)
        };
        let bytes: u64 = self.written.iter().filter(done).map(|written| written.bytes).sum();
        bytes as f64 / (self.finished - self.writers[writer].begins).as_secs_f64()
    }

    /// How long the writes of one program took.
    pub fn waits(&self, writer: usize) -> impl Iterator<Item = Nanos> {
        self.written.iter().filter(move |written| written.writer == writer).filter_map(Written::wait)
    }

    fn write(&mut self, io: &mut OverlayIo<'_>, number: usize) {
        let writer = &self.writers[number];
        if writer.writes.is_some_and(|writes| self.begun[number] >= writes) {
            return;
        }
        self.begun[number] += 1;
        let (first, count) = writer.region;
        let start = match writer.pattern {
            Pattern::Random => first + self.prng.below(count / writer.blocks) * writer.blocks,
            Pattern::Sequential => {
                let start = self.next[number];
                let again = start + 2 * writer.blocks > first + count;
                self.next[number] = if again { first } else { start + writer.blocks };
                start
            }
        };
        let token = self.written.len() as u64;
        let bytes = writer.blocks * BLOCK_BYTES;
        self.written.push(Written { writer: number, came: io.now(), done: None, bytes });
        io.write(writer.requester, token, &[(start, writer.blocks)]);
    }

    fn end(&mut self, io: &mut OverlayIo<'_>, token: u64) {
        let written = &mut self.written[token as usize];
        written.done = Some(io.now());
        let number = written.writer;
        self.ended[number] += 1;
        let is_left = |(writer, ended): (&Writer, &u64)| writer.writes.is_some_and(|writes| *ended < writes);
        if !self.writers.iter().zip(&self.ended).any(is_left) {
            self.finished = io.now();
            return io.stop();
        }
        io.wake(io.now() + self.writers[number].think, number as u64);
    }
}

impl OverlayWorkload for Writers {
    fn start(&mut self, io: &mut OverlayIo<'_>) {
        for (writer, number) in self.writers.iter().zip(0..) {
            (0..writer.depth).for_each(|_| io.wake(writer.begins, number));
        }
    }

    fn handle_taken(&mut self, io: &mut OverlayIo<'_>, token: u64) {
        if self.writers[self.written[token as usize].writer].syncs {
            io.flush(token);
        } else {
            self.end(io, token);
        }
    }

    fn handle_flushed(&mut self, io: &mut OverlayIo<'_>, token: u64) {
        self.end(io, token);
    }

    fn handle_wake(&mut self, io: &mut OverlayIo<'_>, token: u64) {
        self.write(io, token as usize);
    }
}
