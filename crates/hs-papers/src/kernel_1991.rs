//! The kernel of 1991, in terms of the engine's queue.

use hs_engine::queue::{Class, ClassConfig, ClientKey, Direction, ElevatorKind, MediumTraits, QueueConfig};
use hs_lab::{Io, Workload};
use hs_units::{ByteRange, Nanos};

/// Bytes of a block of the file system.
pub(crate) const BLOCK: u64 = 8 << 10;

/// Most bytes of a merged transfer (Tezuka 1991, section 3).
pub(crate) const MERGE: u64 = 128 << 10;

/// A queue like that of the kernel's disk driver: one request at a time, sorted one way across the disk,
/// without shares of clients. `merge` is the paper's section 3, `by_class` its section 4, where synchronous
/// requests go before asynchronous ones.
pub(crate) fn kernel(merge: bool, by_class: bool) -> QueueConfig {
    let config =
        QueueConfig::for_medium(MediumTraits { rotational: true, overlaps: false, bytes_per_s: None });
    let merge_bytes = if merge { MERGE } else { 0 };
    // The paper asks for a remedy against starvation and does not name its own: here it is that of the
    // engine.
    let class = |class: ClassConfig| ClassConfig { merge_bytes, depth: 1, hold_off: Nanos::ZERO, ..class };
    QueueConfig {
        elevator: ElevatorKind::CLook,
        classes: config.classes.map(class),
        by_class,
        fairness: None,
        ..config
    }
}

/// What a synchronous request is to the queue, and what an asynchronous one.
pub(crate) const SYNCHRONOUS: Class = Class::Demand;
/// See [`SYNCHRONOUS`].
pub(crate) const ASYNCHRONOUS: Class = Class::Fill;

/// There is one program.
pub(crate) const PROGRAM: ClientKey = ClientKey(0);

/// A program that reads block after block; the kernel reads ahead of it.
pub(crate) struct Reader {
    /// Where its file begins.
    file: u64,
    /// Blocks of the file.
    blocks: u64,
    read_ahead: u64,
    /// What the processor takes for one block.
    processor: Nanos,
    /// Blocks asked for so far; requests have the numbers of their blocks.
    asked: u64,
    /// The block that the program waits for.
    wanted: Option<u64>,
}

impl Reader {
    pub(crate) fn new(file: u64, blocks: u64, read_ahead: u64, processor: Nanos) -> Self {
        Self { file, blocks, read_ahead, processor, asked: 0, wanted: None }
    }

    /// The program wants a block. What the kernel's `breada` does, for any number of blocks: it asks for this
    /// one and for those ahead, as far as they have not been asked for, and waits for this one.
    fn want(&mut self, io: &mut Io, number: u64) {
        let end = (number + 1 + self.read_ahead).min(self.blocks);
        while self.asked < end {
            let class = if self.asked == number { SYNCHRONOUS } else { Class::ReadAhead };
            let range = ByteRange::new(self.file + self.asked * BLOCK, BLOCK);
            io.request(class, PROGRAM, Direction::Read, range);
            self.asked += 1;
        }
        self.wanted = Some(number);
        self.take(io);
    }

    /// Goes on when the block that is waited for is there.
    fn take(&mut self, io: &mut Io) {
        if let Some(number) = self.wanted
            && io.requests()[number as usize].done.is_some()
        {
            self.wanted = None;
            io.wake(io.now() + self.processor, number + 1);
        }
    }
}

impl Workload for Reader {
    fn start(&mut self, io: &mut Io) {
        self.want(io, 0);
    }

    fn handle_wake(&mut self, io: &mut Io, number: u64) {
        if number < self.blocks {
            self.want(io, number);
        }
    }

    fn handle_done(&mut self, io: &mut Io, _request: usize) {
        self.take(io);
    }
}

/// KiB a second, the paper's KB.
pub(crate) fn rate(bytes: u64, time: Nanos) -> f64 {
    bytes as f64 / 1024.0 / time.as_secs_f64()
}
