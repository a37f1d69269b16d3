//! The engine's queue before a real device, for readers that always want more.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use hs_engine::queue::{
    Class, ClientKey, Direction, Dispatch, MediumTraits, Poll, Queue, QueueConfig, Request, RequestTag,
};
use hs_units::{ByteRange, Nanos, Prng};
use parking_lot::Mutex;

use super::{Aligned, BYTES, Counted, PAGE, READERS, RealFile};

/// Requests at the medium: the one that it serves, and one that waits there, as on a served disk.
const DEPTH: u32 = 2;

/// Requests of the readers, one of each, and what was served.
struct Shared {
    queue: Queue,
    began: Instant,
    /// When each reader made its request.
    asked: Vec<Nanos>,
    /// Each reader's places.
    places: Vec<Prng>,
    counted: Counted,
}

impl Shared {
    fn now(&self) -> Nanos {
        self.began.elapsed().into()
    }

    fn ask(&mut self, reader: u64) {
        let (now, place) = (self.now(), self.places[reader as usize].below(BYTES / PAGE));
        self.asked[reader as usize] = now;
        let (tag, class, client) = (RequestTag(reader), Class::Demand, ClientKey(reader));
        let range = ByteRange::new(place * PAGE, PAGE);
        self.queue.handle_request(now, Request { tag, class, client, direction: Direction::Read, range });
    }

    fn next(&mut self) -> Option<Dispatch> {
        match self.queue.poll(self.now()) {
            Poll::Dispatch(dispatch) => Some(dispatch),
            Poll::WaitUntil(_) | Poll::Idle => None,
        }
    }

    /// A request to the medium has ended: its readers ask again.
    fn end(&mut self, dispatch: &Dispatch) {
        let now = self.now();
        let ended: Vec<u64> =
            self.queue.handle_done(now, dispatch.id, dispatch.range.len).map(|ended| ended.tag.0).collect();
        for reader in ended {
            self.counted.count(reader, now.saturating_sub(self.asked[reader as usize]));
            self.ask(reader);
        }
    }
}

/// What the readers get until it `ends`, where nothing is known of the medium but that it serves one request
/// at a time.
pub(super) fn read(device: &Path, seed: u64, ends: &AtomicBool) -> anyhow::Result<Counted> {
    let traits = MediumTraits { rotational: false, overlaps: false, bytes_per_s: None };
    let mut config = QueueConfig::for_medium(traits);
    for class in &mut config.classes {
        class.depth = DEPTH;
    }
    let mut shared = Shared {
        queue: Queue::new(config),
        began: Instant::now(),
        asked: vec![Nanos::ZERO; READERS as usize],
        places: (0..READERS).map(|reader| Prng::new(seed * READERS + reader)).collect(),
        counted: Counted::default(),
    };
    (0..READERS).for_each(|reader| shared.ask(reader));
    let shared = Mutex::new(shared);
    let serve = || -> anyhow::Result<()> {
        let (file, mut buffer) = (RealFile::direct(device)?, Aligned::default());
        while !ends.load(Ordering::Relaxed) {
            // As many threads as there may be requests: each of them may have one.
            let dispatch = shared.lock().next().context("the queue holds something back")?;
            file.read(dispatch.range, &mut buffer)?;
            shared.lock().end(&dispatch);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..DEPTH).map(|_| scope.spawn(serve)).collect();
        serve()?;
        others.into_iter().try_for_each(|other| other.join().expect("a reader does not panic"))
    })?;
    Ok(shared.into_inner().counted)
}
