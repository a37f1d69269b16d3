//! Engines with a mistake in them, to see that a [`World`](super::World) notices.

use hs_engine::PrefetchConfig;
use hs_engine::disk::{Action, ChunkKey, Damage, DiskConfig, DiskEngine, Form, ReadId, Requester};
use hs_engine::queue::Class;
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba, Nanos};

use super::image::Image;

/// A mistake of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A fetch is forgotten.
    LosesRequest,
    /// A read has everything, and is not answered.
    LosesEnd,
    /// A read is answered twice.
    EndsTwice,
    /// A request to the medium is shorter than what it is said to hold.
    CutsShort,
    /// The same request to the medium is made twice.
    SendsTwice,
    /// A class that waits is never served while a higher one wants something.
    Starves,
    /// What no read waits for goes before what one waits for.
    Inverts,
    /// More requests are in service than may be.
    IgnoresDepth,
    /// The prefetch holds more than its budget.
    IgnoresPrefetchBudget,
    /// The cache keeps what it held when its budget shrinks.
    IgnoresCacheBudget,
    /// Damage is not noticed.
    HidesDamage,
    /// A cancelled read is answered.
    IgnoresCancel,
    /// Bytes are dropped that are needed.
    DropsEarly,
    /// Bytes that nothing needs are not dropped.
    LosesDrop,
    /// A decoder waits for a reader although no other goes on.
    DeliversOnAll,
    /// The end is not noticed.
    IgnoresShutdown,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::LosesRequest,
        Self::LosesEnd,
        Self::EndsTwice,
        Self::CutsShort,
        Self::SendsTwice,
        Self::Starves,
        Self::Inverts,
        Self::IgnoresDepth,
        Self::IgnoresPrefetchBudget,
        Self::IgnoresCacheBudget,
        Self::HidesDamage,
        Self::IgnoresCancel,
        Self::DropsEarly,
        Self::LosesDrop,
        Self::DeliversOnAll,
        Self::IgnoresShutdown,
    ];
}

/// A call goes wrong when so many went well, as a mistake does that shows seldom.
const WELL: u64 = 20;

/// What an earlier start could have read of a disk of so many blocks: some of them twice, some not of it.
fn learned(blocks: u64) -> impl Iterator<Item = BlockRange> {
    (0..400).map(move |at| BlockRange::new(Lba(at % 300 * 7919 % (blocks + 100)), at % 70))
}

/// The engine, perhaps with a mistake in what goes in or comes out.
pub(super) struct PlantedEngine {
    pub(super) engine: DiskEngine<Image>,
    fault: Option<Fault>,
    calls: u64,
    again: Option<Action>,
    /// The last chunk that was decompressed.
    decoded: Option<ChunkKey>,
}

impl PlantedEngine {
    pub(super) fn new(config: DiskConfig, image: Image, fault: Option<Fault>) -> Self {
        let config = with(config, fault);
        let blocks = image.bytes() / BLOCK_BYTES;
        let mut engine = DiskEngine::new(Nanos::ZERO, config, image);
        engine.start_recording(1 << 14);
        // Without a draw of its own, so that seeds stay what they were.
        if config.fetchers.is_multiple_of(3) {
            engine.handle_learned(learned(blocks));
        }
        Self { engine, fault, calls: 0, again: None, decoded: None }
    }

    /// Whether a mistake of this kind shows now.
    fn goes_wrong(&mut self, fault: Fault) -> bool {
        if self.fault != Some(fault) {
            return false;
        }
        self.calls += 1;
        self.calls == WELL
    }

    pub(super) fn handle_read(&mut self, now: Nanos, requester: Requester, range: ByteRange) -> ReadId {
        let class = match (self.fault, requester.class) {
            (Some(Fault::Inverts), Class::Demand) => Class::Prefetch,
            (Some(Fault::Inverts), _) => Class::Demand,
            (_, class) => class,
        };
        self.engine.handle_read(now, Requester { class, ..requester }, range)
    }

    pub(super) fn handle_cancel(&mut self, now: Nanos, read: ReadId) -> bool {
        self.fault == Some(Fault::IgnoresCancel) || self.engine.handle_cancel(now, read)
    }

    /// Whether the engine takes the chunk for what its digest says.
    pub(super) fn handle_decoded(&mut self, now: Nanos, key: ChunkKey, result: Result<(), Damage>) -> bool {
        self.decoded = result.is_ok().then_some(key).or(self.decoded);
        let result = if self.fault == Some(Fault::HidesDamage) { Ok(()) } else { result };
        self.engine.handle_decoded(now, key, result);
        result.is_ok()
    }

    pub(super) fn set_cache_budget(&mut self, bytes: u64) {
        if self.fault != Some(Fault::IgnoresCacheBudget) {
            self.engine.set_cache_budget(bytes);
        }
    }

    pub(super) fn handle_shutdown(&mut self, now: Nanos) {
        if self.fault != Some(Fault::IgnoresShutdown) {
            self.engine.handle_shutdown(now);
        }
    }

    pub(super) fn poll(&mut self, now: Nanos) -> Action {
        if let Some(again) = self.again.take() {
            return again;
        }
        let action = self.engine.poll(now);
        match action {
            Action::Fetch { class: Class::Demand, .. } if self.goes_wrong(Fault::LosesRequest) => {
                self.poll(now)
            }
            Action::Fetch { id, mut range, class } if self.goes_wrong(Fault::CutsShort) => {
                range.len -= range.len / 3;
                Action::Fetch { id, range, class }
            }
            Action::Answer(_) if self.goes_wrong(Fault::LosesEnd) => self.poll(now),
            Action::Drop(..) if self.goes_wrong(Fault::LosesDrop) => self.poll(now),
            Action::Answer(_) if self.goes_wrong(Fault::EndsTwice) => {
                self.again = Some(action);
                action
            }
            Action::Fetch { .. } if self.goes_wrong(Fault::SendsTwice) => {
                self.again = Some(action);
                action
            }
            Action::Answer(_) if self.goes_wrong(Fault::DropsEarly) => {
                self.again = Some(action);
                // One of its chunks, if it has any.
                let spans = self.engine.answer(answered(action)).spans;
                let chunk = spans.iter().find_map(|span| match span.source {
                    hs_engine::disk::Source::Chunk(key) => Some(key),
                    _ => None,
                });
                chunk.or(self.decoded).map_or(action, |key| Action::Drop(key, Form::Raw))
            }
            action => action,
        }
    }
}

fn answered(action: Action) -> ReadId {
    match action {
        Action::Answer(read) => read,
        _ => ReadId::default(),
    }
}

/// What the engine is told of its limits.
fn with(mut config: DiskConfig, fault: Option<Fault>) -> DiskConfig {
    match fault {
        Some(Fault::IgnoresPrefetchBudget) => {
            config.prefetch = config
                .prefetch
                .map(|limits| PrefetchConfig { budget_bytes: limits.budget_bytes * 3, ..limits });
        }
        Some(Fault::DeliversOnAll) => config.decoders += 1,
        Some(Fault::IgnoresDepth) => config.fetchers += 1,
        _ => {}
    }
    for class in &mut config.queue.classes {
        match fault {
            Some(Fault::Starves) => class.ageing = Nanos(u64::MAX / 2),
            Some(Fault::IgnoresDepth) => class.depth += 1,
            _ => {}
        }
    }
    config
}
