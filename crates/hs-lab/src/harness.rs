//! The engine under everything that can go wrong, in virtual time: a seed chooses the world, and every step is checked.
//!
//! A [`World`] has clients that read hot and cold pieces of a disk through the engine's own cache, prefetch policy, memory budget
//! and queue, before the model of a medium that is late, breaks off and fails. What has to hold whatever happens
//! is asserted at every step; a failure names the seed, and the same seed fails again at the same step.
//!
//! - *Nothing lost*: every read is answered, with its bytes or, after several failures of the medium, with an error.
//! - *Nothing duplicated*: every read is answered once, every request to the queue ends once, and no piece is fetched by two
//!   requests at the same time.
//! - *Starvation*: no class that has room waits longer than its ageing and one request of each class.
//! - *Budget*: what waits for its readers stays within the prefetch's budget, but for one piece; the cache within its own; no
//!   class has more requests in service than it may.
//!
//! That it would see an engine that breaks one of these is tested by planting a [`Fault`].

mod client;
mod medium;
mod planted;
mod world;

use hs_units::Prng;

pub use planted::Fault;
pub use world::World;

/// What a run of worlds has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
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
    /// Pieces that the stream brought.
    pub streamed: u64,
}

impl Seen {
    fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.reads += other.reads;
        self.errors += other.errors;
        self.faults += other.faults;
        self.joined += other.joined;
        self.streamed += other.streamed;
    }
}

/// Runs worlds, each of a seed that follows from `seed`, until they have made so many `steps`. `begun` is told the seed of
/// each before it begins, so that it is known when one fails.
pub fn run_worlds(seed: u64, steps: u64, mut begun: impl FnMut(u64)) -> Seen {
    let mut prng = Prng::new(seed);
    let mut seen = Seen::default();
    while seen.steps < steps {
        let seed = prng.next_u64();
        begun(seed);
        seen.add(&World::new(seed).run());
    }
    seen
}
