//! One world: clients, a medium and workers around an engine, everything that happens, and what has to hold.

mod workers;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use hs_engine::PrefetchConfig;
use hs_engine::disk::{
    Action, ChunkKey, DeliveryConfig, DiskConfig, FetchChunk, FetchId, Form, ReadId, Requester,
    UseVisibility, Why, Worker,
};
use hs_engine::queue::{Class, ClientKey, ElevatorKind, MediumTraits, QueueConfig};
use hs_units::{ByteRange, MemorySample, Nanos, Prng};
use workers::{Delivery, worker};

use super::WorldCounts;
use super::client::Client;
use super::image::{Image, RAW};
use super::medium::{DISK_BYTES, FaultyMedium};
use super::planted::{Fault, PlantedEngine};
use super::schedule::Schedule;
use super::shell::Shell;
use super::trouble::Trouble;

/// A read is answered in this time as long as one waits: eight clients, several tries each, on a CD.
const LONGEST_SILENCE: Nanos = Nanos::from_millis(60_000);
/// Everything is looked at once in so many steps.
const CHECKED_EVERY: u64 = 512;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A client goes on.
    Read(usize),
    Cancel(usize, ReadId),
    FirstByte(FetchId),
    /// A chunk of a fetch comes.
    Came(FetchId, usize),
    FetchDone(FetchId),
    Decoded(u32),
    Delivered(u64),
    Restart(u32),
    /// The engine wanted to be asked again.
    Poll,
    /// Memory is looked at.
    Memory,
    Shutdown,
}

/// A fetch that is under way.
struct UnderWay {
    /// None of the request that opened the image.
    class: Option<Class>,
    chunks: Vec<FetchChunk>,
    /// How many of them come, and have come.
    come: usize,
    came: usize,
}

/// A read that waits.
struct Waiting {
    client: usize,
    range: ByteRange,
    class: Class,
}

/// See [`super`].
pub struct World {
    seed: u64,
    prng: Prng,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    engine: PlantedEngine,
    config: DiskConfig,
    trouble: Trouble,
    schedule: Schedule,
    shell: Shell,
    medium: FaultyMedium,
    clients: Vec<Client>,
    reads: BTreeMap<ReadId, Waiting>,
    /// Reads that were cancelled, until their name is used again.
    cancelled: BTreeSet<ReadId>,
    fetches: BTreeMap<FetchId, UnderWay>,
    /// What each decoder is at, those that the engine counts and the world does not have included.
    decoding: BTreeMap<u32, ChunkKey>,
    /// Decoders that have something to do and that no thread has taken.
    unattended: Vec<u32>,
    deliveries: BTreeMap<u64, Delivery>,
    lost: BTreeSet<u32>,
    /// Chunks that failed in one way or another, or were with a worker that broke down.
    faulty: BTreeSet<ChunkKey>,
    cache_budget: u64,
    asked: u64,
    answered: u64,
    last_answer: Nanos,
    planned: BTreeSet<Nanos>,
    is_shut_down: bool,
    last: Action,
    seen: WorldCounts,
}

impl World {
    /// The world of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_fault(seed, None)
    }

    /// The world of `seed`, whose engine has a mistake.
    #[must_use]
    pub fn with_fault(seed: u64, fault: Option<Fault>) -> Self {
        let mut prng = Prng::new(seed);
        let medium = FaultyMedium::new(&mut prng);
        let trouble = Trouble::new(&mut prng);
        let image = image(&mut prng);
        let config = config(&mut prng, &medium);
        let as_recorded = prng.below(2) == 0;
        let clients =
            (0..=prng.below(8)).map(|_| Client::new(&mut prng, image.windows, as_recorded)).collect();
        Self {
            engine: PlantedEngine::new(config, image, fault),
            schedule: Schedule::new(config.queue_limits()),
            cache_budget: config.cache_bytes,
            config,
            trouble,
            seed,
            prng,
            now: Nanos::ZERO,
            events: BinaryHeap::new(),
            sequence: 0,
            shell: Shell::default(),
            medium,
            clients,
            reads: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            fetches: BTreeMap::new(),
            decoding: BTreeMap::new(),
            unattended: Vec::new(),
            deliveries: BTreeMap::new(),
            lost: BTreeSet::new(),
            faulty: BTreeSet::new(),
            asked: 0,
            answered: 0,
            last_answer: Nanos::ZERO,
            planned: BTreeSet::new(),
            is_shut_down: false,
            last: Action::Wait,
            seen: WorldCounts::default(),
        }
    }

    /// Runs it to its end, checking all the time.
    ///
    /// # Panics
    /// When something does not hold.
    pub fn run(mut self) -> WorldCounts {
        for client in 0..self.clients.len() {
            let begins = Nanos(self.prng.below(50_000_000));
            self.plan(begins, Event::Read(client));
        }
        self.open();
        self.plan(Nanos::ZERO, Event::Poll);
        self.plan(Nanos::from_millis(100), Event::Memory);
        if let Some(then) = self.trouble.ends_at {
            self.plan(then, Event::Shutdown);
        }
        self.run_events();
        if !self.is_shut_down {
            self.must(self.last == Action::Idle, || "it is not idle at the end".to_owned());
            self.shut_down();
            self.pump();
        }
        self.check_end();
        let stats = self.engine.engine.stats();
        (self.seen.joined, self.seen.streamed) = (stats.joined, stats.streamed);
        self.seen.background_bytes = stats.background_bytes;
        self.seen
    }

    fn run_events(&mut self) {
        while let Some(Reverse((then, _, event))) = self.events.pop() {
            assert!(then >= self.now, "{self}: time went back to {then}");
            self.now = then;
            self.seen.steps += 1;
            self.handle(event);
            self.pump();
            self.check();
        }
    }

    fn must(&self, holds: bool, why: impl FnOnce() -> String) {
        assert!(holds, "{self}: {}", why());
    }

    fn holds(&self, result: Result<(), String>) {
        if let Err(why) = result {
            panic!("{self}: {why}");
        }
    }

    fn plan(&mut self, then: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((then, self.sequence, event)));
    }

    fn plan_within(&mut self, most: u64, event: Event) {
        let then = self.now + Nanos(1 + self.prng.below(most));
        self.plan(then, event);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Read(client) => self.read(client),
            Event::Cancel(client, read) => self.cancel(client, read),
            Event::FirstByte(fetch) => self.engine.engine.handle_first_byte(self.now, fetch, 4_096),
            Event::Came(fetch, number) => self.came(fetch, number),
            Event::FetchDone(fetch) => self.fetch_done(fetch),
            Event::Decoded(decoder) => self.decoded(decoder),
            Event::Delivered(number) => self.delivered(number),
            Event::Restart(number) => {
                self.lost.remove(&number);
                self.engine.engine.handle_worker_restarted(self.now, worker(number));
            }
            Event::Poll => {
                self.planned.remove(&self.now);
            }
            Event::Memory => self.look_at_memory(),
            Event::Shutdown => self.shut_down(),
        }
    }

    fn read(&mut self, number: usize) {
        let client = &mut self.clients[number];
        client.left -= 1;
        let range = client.choose(&mut self.prng, self.engine.engine.map());
        let class = client.class;
        self.asked += 1;
        let requester = Requester { client: ClientKey(number as u64), class };
        let read = self.engine.handle_read(self.now, requester, range);
        let before = self.reads.insert(read, Waiting { client: number, range, class });
        assert!(before.is_none(), "{self}: {read:?} is the name of two reads");
        self.cancelled.remove(&read);
        if Trouble::happens(self.trouble.cancelled, &mut self.prng) {
            self.plan_within(20_000_000, Event::Cancel(number, read));
        }
    }

    fn cancel(&mut self, client: usize, read: ReadId) {
        if self.reads.get(&read).is_none_or(|waiting| waiting.client != client) {
            return;
        }
        let is_cancelled = self.engine.handle_cancel(self.now, read);
        self.must(is_cancelled, || format!("{read:?} cannot be cancelled"));
        self.cancelled.insert(read);
        self.seen.cancelled += 1;
        self.over(read);
    }

    /// A read has ended: its client goes on, and so do deliveries that waited for its pages.
    fn over(&mut self, read: ReadId) {
        self.must(!self.cancelled.contains(&read) || self.reads.contains_key(&read), || {
            format!("{read:?} was cancelled, and has ended once more")
        });
        let waiting = self.reads.remove(&read);
        let waiting = waiting.unwrap_or_else(|| panic!("{self}: {read:?} has ended twice"));
        self.answered += 1;
        self.last_answer = self.now;
        let client = waiting.client;
        if self.clients[client].left > 0 {
            let then = self.now + self.clients[client].thinks(&mut self.prng);
            self.plan(then, Event::Read(client));
        }
        let freed: Vec<u64> = self
            .deliveries
            .iter()
            .filter(|(_, delivery)| delivery.until == Some(read))
            .map(|(number, _)| *number)
            .collect();
        for number in freed {
            self.plan_within(50_000, Event::Delivered(number));
        }
    }

    /// Does what the engine says until it waits.
    fn pump(&mut self) {
        loop {
            self.last = self.engine.poll(self.now);
            match self.last {
                Action::Answer(read) => self.answer(read),
                Action::Fail(read, why) => self.fail(read, why),
                Action::Drop(key, form) => self.drop(key, form),
                Action::Fetch { id, range, class } => self.send(id, range, class),
                Action::CancelFetch(fetch) => {
                    self.must(self.fetches.contains_key(&fetch), || {
                        "what is not under way is cancelled".to_owned()
                    });
                    if self.prng.below(2) == 0 {
                        self.plan(self.now, Event::FetchDone(fetch));
                    }
                }
                Action::Decode { key, decoder } => self.decode(key, decoder.0),
                Action::Deliver { key, by, tripwire } => self.deliver(key, by, tripwire),
                // No world leaves blocks out elsewhere or asks for a permit.
                Action::HoldBack { .. } | Action::Grant(_) => self.must(false, || format!("{:?}", self.last)),
                Action::WaitUntil(then) => {
                    self.must(then > self.now, || "it waits for the past".to_owned());
                    if self.planned.insert(then) {
                        self.plan(then, Event::Poll);
                    }
                    break;
                }
                Action::Wait | Action::Idle | Action::Done => break,
            }
        }
        let result = self.schedule.observe(self.engine.engine.queue());
        self.holds(result);
    }

    fn answer(&mut self, read: ReadId) {
        self.must(!self.cancelled.contains(&read), || format!("{read:?} was cancelled, and is answered"));
        if let Some(waiting) = self.reads.get(&read) {
            self.holds(self.shell.check(waiting.range, &self.engine.engine.answer(read)));
        }
        self.seen.reads += 1;
        self.over(read);
    }

    fn fail(&mut self, read: ReadId, why: Why) {
        match why {
            Why::Store(key) | Why::Damaged(key) | Why::Unreadable(key) => {
                self.must(self.faulty.contains(&key), || format!("{key:?} has never failed: {why:?}"));
            }
            Why::WorkerLost(_) => self.must(self.seen.lost_workers > 0, || "no worker was lost".to_owned()),
            Why::TimedOut => self.must(self.config.read_timeout.is_some(), || "there is no limit".to_owned()),
            Why::Shutdown => self.must(self.is_shut_down, || "it is not shut down".to_owned()),
            Why::OutsideDisk => panic!("{self}: no read ends beyond the disk"),
        }
        self.seen.errors += 1;
        self.over(read);
    }

    fn drop(&mut self, key: ChunkKey, form: Form) {
        let result = self.shell.drop(key, form);
        self.holds(result);
        if let (ChunkKey::Page(page), Form::Raw) = (key, form) {
            self.engine.engine.map_mut().pages.remove(&page);
        }
    }

    fn send(&mut self, id: FetchId, range: ByteRange, class: Class) {
        self.must(!self.fetches.contains_key(&id), || format!("{id:?} was sent twice"));
        self.must(range.fits_in(DISK_BYTES), || format!("{range} lies outside"));
        let chunks = self.engine.engine.fetch(id).chunks.to_vec();
        for chunk in &chunks {
            let is_held = range.offset <= chunk.range.offset && chunk.range.end() <= range.end();
            self.must(is_held, || format!("{:?} is not in what was sent for it", chunk.key));
            let mut others = self.fetches.values().flat_map(|fetch| &fetch.chunks[fetch.came..]);
            let is_twice =
                chunk.is_brought() && others.any(|other| other.key == chunk.key && other.is_brought());
            self.must(!is_twice, || format!("{:?} is fetched twice", chunk.key));
            self.must(!chunk.is_brought() || !self.is_inverted(class, chunk.key), || {
                format!("a read waits for {:?}, which went as {}", chunk.key, class.name())
            });
        }
        let done = self.serve(id, range, chunks, Some(class));
        let result = self.schedule.begins(class, done.saturating_sub(self.now));
        self.holds(result);
    }

    /// The medium gets to work. Returns when it will be done.
    fn serve(
        &mut self,
        id: FetchId,
        range: ByteRange,
        chunks: Vec<FetchChunk>,
        class: Option<Class>,
    ) -> Nanos {
        let answer = self.medium.serve(self.now, range, &mut self.prng);
        self.plan(answer.first_byte, Event::FirstByte(id));
        let mut come = 0;
        for (number, chunk) in chunks.iter().enumerate() {
            let needs = chunk.range.end() - range.offset;
            if needs <= answer.bytes {
                let lasts = answer.done.saturating_sub(answer.first_byte).0;
                let part = u128::from(lasts) * u128::from(needs) / u128::from(range.len);
                self.plan(answer.first_byte + Nanos(part as u64), Event::Came(id, number));
                come = number + 1;
            }
        }
        self.seen.faults += u64::from(come < chunks.len());
        self.plan(answer.done, Event::FetchDone(id));
        self.fetches.insert(id, UnderWay { class, chunks, come, came: 0 });
        answer.done
    }

    /// The request that opened the image brings some hot chunks as well, in some worlds.
    fn open(&mut self) {
        let hot = self.engine.engine.map().hot;
        // What it asks for before there is a policy, it asks for within the budget.
        let budget = self.config.prefetch.map_or(0, |limits| limits.budget_bytes / RAW);
        let chunks = self.prng.below(40).min(hot.into()).min(budget) as u32;
        if self.prng.below(2) == 0
            && let Some(id) = self.engine.engine.handle_opening(self.now, chunks, 4_096)
        {
            let view = self.engine.engine.fetch(id);
            let (range, chunks) = (view.range, view.chunks.to_vec());
            self.serve(id, range, chunks, None);
        }
    }

    /// Whether a chunk goes less urgently than a read that waits for it.
    fn is_inverted(&self, class: Class, key: ChunkKey) -> bool {
        // A hot chunk that has failed, itself or for want of a decoder, may be fetched for one read while
        // another waits for its cold copy.
        let is_hot = matches!(key, ChunkKey::Hot(_));
        let has_failed = self.faulty.contains(&key) || (is_hot && self.seen.lost_workers > 0);
        if class == Class::Demand || has_failed {
            return false;
        }
        let urgent = self.reads.values().filter(|read| read.class == Class::Demand);
        urgent.into_iter().any(|read| self.engine.engine.map().needs(read.range, key))
    }

    fn came(&mut self, fetch: FetchId, number: usize) {
        let Some(under_way) = self.fetches.get_mut(&fetch) else { return };
        under_way.came = number + 1;
        let chunk = under_way.chunks[number];
        if self.engine.engine.handle_stored(self.now, fetch, chunk.key, chunk.range.len) {
            let result = self.shell.keep(chunk.key, Form::Stored, chunk.range.len);
            self.holds(result);
        }
    }

    fn fetch_done(&mut self, id: FetchId) {
        let Some(fetch) = self.fetches.remove(&id) else { return };
        if let Some(class) = fetch.class {
            self.schedule.ends(class);
        }
        self.faulty.extend(fetch.chunks[fetch.come..].iter().map(|chunk| chunk.key));
        if Trouble::happens(self.trouble.fetcher_breaks_down, &mut self.prng) {
            self.seen.lost_workers += 1;
            self.engine.engine.handle_worker_lost(self.now, Worker::Fetcher(id));
        } else {
            self.engine.engine.handle_fetch_done(self.now, id);
        }
    }

    /// Others use more or less memory than before.
    fn look_at_memory(&mut self) {
        let budget = self.config.prefetch.map_or(RAW, |limits| limits.budget_bytes);
        let total_bytes = budget * 4 + (64 << 20);
        let least = if self.trouble.short_memory { 0 } else { total_bytes / 8 };
        let available_bytes = least + self.prng.below(total_bytes - least);
        self.engine
            .engine
            .handle_memory(self.now, &MemorySample { total_bytes, available_bytes, pressure: None });
        self.cache_budget = RAW * (4 + self.prng.below(200));
        self.engine.set_cache_budget(self.cache_budget);
        let silent = self.now.saturating_sub(self.last_answer);
        let some_wait = !self.reads.is_empty();
        self.must(!some_wait || silent <= LONGEST_SILENCE, || {
            format!("a read is lost: none was answered for {silent}")
        });
        if some_wait || self.clients.iter().any(|client| client.left > 0) {
            self.plan(self.now + Nanos::from_millis(100), Event::Memory);
        }
    }

    fn shut_down(&mut self) {
        self.is_shut_down = true;
        self.engine.handle_shutdown(self.now);
        self.clients.iter_mut().for_each(|client| client.left = client.left.min(3));
    }

    fn check(&self) {
        let usage = self.engine.engine.usage();
        self.holds(self.shell.compare(&usage));
        let budget = self.config.prefetch.map_or(0, |limits| limits.budget_bytes).max(RAW);
        self.must(usage.held_bytes <= budget, || format!("{} bytes wait, of {budget}", usage.held_bytes));
        self.must(usage.filled_bytes <= budget, || {
            format!("{} bytes wait behind demand", usage.filled_bytes)
        });
        let (cached, most) = (usage.cache.bytes, self.cache_budget);
        self.must(cached <= most, || format!("the cache holds {cached} of {most}"));
        if self.seen.steps.is_multiple_of(CHECKED_EVERY) {
            self.engine.engine.check();
        }
    }

    fn check_end(&self) {
        let lost = self.asked - self.answered;
        self.must(lost == 0 && self.reads.is_empty(), || format!("a read is lost: {lost} of them"));
        self.must(self.clients.iter().all(|client| client.left == 0), || "a client stands still".to_owned());
        self.must(self.fetches.is_empty() && self.decoding.is_empty(), || {
            "something is under way".to_owned()
        });
        self.must(self.deliveries.is_empty(), || "a delivery does not return".to_owned());
        let waiting = self.schedule.waiting();
        self.must(waiting == 0, || format!("{waiting} requests still wait"));
        self.must(self.last == Action::Done, || format!("it is not done, but {:?}", self.last));
        self.must(self.shell.is_empty(), || "bytes are left".to_owned());
        self.engine.engine.check();
    }
}

fn image(prng: &mut Prng) -> Image {
    let windows = 1_000 + prng.below(8_000);
    let most_hot = (windows / 2).min(1_000);
    let hot = if prng.below(8) == 0 { 0 } else { 1 + prng.below(most_hot) as u32 };
    let pace = if prng.below(3) == 0 { Nanos(prng.below(4_000_000)) } else { Nanos::ZERO };
    let image = Image { hot, windows, pace, pages: BTreeSet::new() };
    assert!(image.bytes() <= DISK_BYTES, "it fits on the medium");
    image
}

fn config(prng: &mut Prng, medium: &FaultyMedium) -> DiskConfig {
    let elevator = ElevatorKind::ALL[prng.below(ElevatorKind::ALL.len() as u64) as usize];
    let traits = MediumTraits {
        rotational: medium.turns,
        overlaps: medium.overlaps,
        bytes_per_s: Some(medium.bytes_per_s),
    };
    let mut queue = QueueConfig { elevator, ..QueueConfig::for_medium(traits) };
    if prng.below(4) == 0 {
        queue.fairness = None;
    }
    let sees_use = prng.below(2) == 0;
    let budget_bytes = RAW * (1 + prng.below(400));
    let limits = PrefetchConfig { budget_bytes, sees_use, ..PrefetchConfig::default() };
    let visibilities = [UseVisibility::Asked, UseVisibility::Tripwires, UseVisibility::Hidden];
    let delivery = DeliveryConfig { before_answers: prng.below(3) > 0 };
    let visibility = visibilities[prng.below(3) as usize];
    let config = DiskConfig {
        queue,
        fetchers: 2 + prng.below(15) as u32,
        decoders: 1 + prng.below(4) as u32,
        prefetch: (prng.below(8) > 0).then_some(limits),
        least_prefetch_bytes: RAW,
        cache_bytes: RAW * (4 + prng.below(200)),
        cache_bounds: None,
        readers_keep: prng.below(2) == 0,
        read_ahead_bytes: RAW * prng.below(65),
        scattered: false,
        bad_places_rest: true,
        visibility,
        delivery: (prng.below(4) > 0).then_some(delivery),
        read_timeout: (prng.below(8) == 0).then(|| Nanos::from_millis(200 + prng.below(10_000))),
    };
    let brings_rest = prng.below(2) == 0;
    let prefetch = config.prefetch.map(|limits| PrefetchConfig { brings_rest, ..limits });
    // Without a draw of its own, so that seeds stay what they were.
    let (scattered, bad_places_rest) = (config.fetchers.is_multiple_of(4), config.fetchers.is_multiple_of(2));
    DiskConfig { prefetch, scattered, bad_places_rest, ..config }
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "world {}, step {}, {} after its beginning", self.seed, self.seen.steps, self.now)
    }
}
