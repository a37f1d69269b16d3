//! The engine under everything that can go wrong, in virtual time: a seed chooses the world, and every step
//! is checked.
//!
//! A [`World`] has clients that read a disk through the very [`DiskEngine`](hs_engine::disk::DiskEngine) that
//! is to serve live ones, before the model of a medium that is late, breaks off and fails. Chunks are
//! damaged, in the image or on their way; memory is short; reads are cancelled; deliveries are slow, or do
//! not return before another chunk was decompressed; workers break down; the disk is shut down at any moment.
//! What has to hold whatever happens is asserted at every step; a failure names the seed, and the same seed
//! fails again at the same step.
//!
//! - *Nothing lost*: every read is answered, with all its bytes and none that is damaged, or with an error
//!   that something gave rise to. The shell has the bytes that the engine knows of, and in the end none.
//! - *Nothing duplicated*: every read is answered once, and not after it was cancelled; every fetch is made
//!   once, and no chunk is brought by two at the same time.
//! - *Starvation*: no class that has room waits longer than its ageing and one request of each class.
//! - *Budget*: what waits for its readers stays within the prefetch's budget, but for one chunk; the cache
//!   within its own; no class has more requests in service than it may.
//! - *The end*: after a shutdown everything that is under way is waited for, and then the engine is done.
//!
//! That it would see an engine that breaks one of these is tested by planting a [`Fault`].

mod client;
mod image;
mod medium;
mod planted;
mod schedule;
mod shell;
mod trouble;
mod world;

use hs_units::Prng;

pub use planted::Fault;
pub use world::World;

/// What a run of worlds has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorldCounts {
    /// Events.
    pub steps: u64,
    /// Reads that were answered with their bytes.
    pub reads: u64,
    /// Reads that were answered with an error.
    pub errors: u64,
    /// Requests to the medium that failed or broke off.
    pub faults: u64,
    /// Reads that waited for the stream.
    pub joined: u64,
    /// Chunks that the stream brought.
    pub streamed: u64,
    /// Bytes that came behind demand.
    pub background_bytes: u64,
    /// Chunks that were damaged.
    pub damaged: u64,
    /// Reads that were cancelled.
    pub cancelled: u64,
    /// Deliveries that waited for a read.
    pub blocked: u64,
    /// Workers that broke down.
    pub lost_workers: u64,
}

impl WorldCounts {
    fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.reads += other.reads;
        self.errors += other.errors;
        self.faults += other.faults;
        self.joined += other.joined;
        self.streamed += other.streamed;
        self.background_bytes += other.background_bytes;
        self.damaged += other.damaged;
        self.cancelled += other.cancelled;
        self.blocked += other.blocked;
        self.lost_workers += other.lost_workers;
    }
}

/// Runs worlds, each of a seed that follows from `seed`, until they have made so many `steps`. `begun` is
/// told the seed of each before it begins, so that it is known when one fails.
pub fn run_worlds(seed: u64, steps: u64, mut begun: impl FnMut(u64)) -> WorldCounts {
    let mut prng = Prng::new(seed);
    let mut seen = WorldCounts::default();
    while seen.steps < steps {
        let seed = prng.next_u64();
        begun(seed);
        seen.add(&World::new(seed).run());
    }
    seen
}
