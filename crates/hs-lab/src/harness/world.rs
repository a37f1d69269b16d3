//! One world: everything that happens in it, and what has to hold.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Range;

use hs_engine::cache::{Cache, Origin, PolicyKind};
use hs_engine::queue::{
    Class, ClientKey, Direction, Dispatch, ElevatorKind, MediumTraits, Poll, QueueConfig, Request,
    RequestTag, Ticket,
};
use hs_engine::{
    ChunkSize, EndReason, Late, MemoryBudget, MemoryBudgetConfig, MemorySample, Next, Prefetch,
    PrefetchConfig, RequestId,
};
use hs_units::{ByteRange, Nanos, Prng};

use super::Seen;
use super::client::{Client, Piece};
use super::medium::{Answer, DISK_BYTES, FaultyMedium};
use super::planted::{self, Fault, PlantedQueue};

/// Stored bytes of a piece, and decompressed ones.
const STORED: u64 = 48 << 10;
const RAW: u64 = 128 << 10;
/// A piece that has failed so often is answered with an error.
const TRIES: u32 = 3;
/// Somebody is answered in this time as long as anybody waits: eight clients, three tries each, on a CD.
const LONGEST_SILENCE: Nanos = Nanos::from_millis(60_000);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A client goes on.
    Read(usize),
    FirstByte(usize),
    Done(usize),
    /// The queue, or the policy, wanted to be asked again.
    Poll,
    /// Somebody looks how much memory there is.
    Memory,
}

/// A piece that somebody waits for, or that is on its way.
#[derive(Debug, Default)]
struct Wanted {
    /// Clients, one for each of their reads.
    readers: Vec<usize>,
    /// The queue has a request for it.
    asked: Option<(u64, Ticket)>,
    /// Its readers wait for the stream.
    joined: bool,
    failures: u32,
}

/// What a request to the queue is for.
#[derive(Clone, Debug)]
enum Purpose {
    Piece(Piece, Nanos),
    Stream(RequestId, Range<u32>),
}

/// See [`super`].
pub struct World {
    seed: u64,
    prng: Prng,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    config: QueueConfig,
    queue: PlantedQueue,
    fault: Option<Fault>,
    policy: Prefetch,
    budget: MemoryBudget,
    prefetch_budget: u64,
    cache: Cache<Piece, ()>,
    cache_budget: u64,
    medium: FaultyMedium,
    clients: Vec<Client>,
    hot: u32,
    cold: u32,
    wanted: BTreeMap<Piece, Wanted>,
    purposes: BTreeMap<u64, Purpose>,
    next_tag: u64,
    /// Requests that are in service.
    sent: BTreeSet<u64>,
    dispatches: Vec<Option<(Dispatch, Answer)>>,
    in_service: [u32; Class::COUNT],
    /// Requests that wait in the queue, by class, and since when that class has not been served.
    waiting: [u64; Class::COUNT],
    since: [Nanos; Class::COUNT],
    longest_service: Nanos,
    asked: u64,
    answered: u64,
    last_answer: Nanos,
    planned: BTreeSet<Nanos>,
    seen: Seen,
}

impl World {
    /// The world of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_fault(seed, None)
    }

    /// The same world with an engine that makes a mistake.
    #[must_use]
    pub fn with_fault(seed: u64, fault: Option<Fault>) -> Self {
        let mut prng = Prng::new(seed);
        let medium = FaultyMedium::new(&mut prng);
        let elevator = ElevatorKind::ALL[prng.below(5) as usize];
        let traits = MediumTraits {
            rotational: medium.turns,
            overlaps: medium.overlaps,
            bytes_per_s: Some(medium.bytes_per_s),
        };
        let mut config = QueueConfig { elevator, ..QueueConfig::for_medium(traits) };
        if prng.below(4) == 0 {
            config.fairness = None;
        }
        let cold = 1_000 + prng.below(8_000) as u32;
        let hot = if prng.below(8) == 0 { 0 } else { 1 + prng.below(1_500) as u32 };
        let size = ChunkSize { stored_bytes: STORED as u32, raw_bytes: RAW as u32 };
        let prefetch_budget = RAW * (1 + prng.below(400));
        let sees_use = prng.below(2) == 0;
        let limits = PrefetchConfig { budget_bytes: prefetch_budget, sees_use, ..PrefetchConfig::default() };
        let limits = planted::limits(limits, fault);
        let cache_bytes = RAW * (4 + prng.below(500));
        let kind = PolicyKind::ALL[prng.below(4) as usize];
        let bounds = MemoryBudgetConfig { min_bytes: RAW, max_bytes: limits.budget_bytes };
        let as_recorded = prng.below(2) == 0;
        let clients = (0..=prng.below(8)).map(|_| Client::new(&mut prng, cold, as_recorded)).collect();
        Self {
            queue: PlantedQueue::new(config, fault),
            fault,
            policy: Prefetch::new(limits, vec![size; hot as usize]),
            budget: MemoryBudget::new(bounds, limits.budget_bytes),
            cache: Cache::new(kind, cache_bytes),
            cache_budget: cache_bytes,
            seed,
            prng,
            now: Nanos::ZERO,
            events: BinaryHeap::new(),
            sequence: 0,
            config,
            prefetch_budget,
            medium,
            clients,
            hot,
            cold,
            wanted: BTreeMap::new(),
            purposes: BTreeMap::new(),
            next_tag: 0,
            sent: BTreeSet::new(),
            dispatches: Vec::new(),
            in_service: [0; Class::COUNT],
            waiting: [0; Class::COUNT],
            since: [Nanos::ZERO; Class::COUNT],
            longest_service: Nanos::ZERO,
            asked: 0,
            answered: 0,
            last_answer: Nanos::ZERO,
            planned: BTreeSet::new(),
            seen: Seen::default(),
        }
    }

    /// Runs it to its end, checking all the time.
    ///
    /// # Panics
    /// When something does not hold.
    pub fn run(mut self) -> Seen {
        for client in 0..self.clients.len() {
            let begins = Nanos(self.prng.below(50_000_000));
            self.plan(begins, Event::Read(client));
        }
        self.plan(Nanos::ZERO, Event::Poll);
        self.plan(Nanos::from_millis(100), Event::Memory);
        while let Some(Reverse((then, _, event))) = self.events.pop() {
            assert!(then >= self.now, "{self}: time went back to {then}");
            self.now = then;
            self.seen.steps += 1;
            self.handle(event);
            self.pump();
            self.check();
        }
        self.check_end();
        self.seen
    }

    fn plan(&mut self, then: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((then, self.sequence, event)));
    }

    fn plan_poll(&mut self, then: Nanos) {
        if self.planned.insert(then) {
            self.plan(then, Event::Poll);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Read(client) => self.read(client),
            Event::FirstByte(number) => self.first_byte(number),
            Event::Done(number) => self.done(number),
            Event::Poll => {
                self.planned.remove(&self.now);
            }
            Event::Memory => self.look_at_memory(),
        }
    }

    fn read(&mut self, number: usize) {
        let client = &mut self.clients[number];
        client.left -= 1;
        let piece = client.choose(&mut self.prng, self.hot, self.cold);
        self.asked += 1;
        let held = matches!(piece, Piece::Hot(chunk) if self.policy.ended() != Some(EndReason::Nothing) && self.policy.has_arrived(chunk));
        let cached = self.cache.get(&piece).is_some();
        match piece {
            Piece::Hot(_) if cached || held => self.policy.handle_used(),
            Piece::Hot(chunk) => self.policy.handle_wanted(self.now, chunk),
            Piece::Cold(_) => {}
        }
        if cached {
            return self.answer(number, true);
        }
        if held && self.prng.below(2) == 0 {
            // It waits in memory since the stream brought it: whoever asks lets it go.
            if let Piece::Hot(chunk) = piece {
                self.policy.handle_released(chunk);
            }
            self.keep(piece, Origin::Demanded);
            return self.answer(number, true);
        }
        if matches!(piece, Piece::Cold(_)) {
            self.policy.handle_miss(self.now);
        }
        self.wanted.entry(piece).or_default().readers.push(number);
        self.want(piece);
    }

    /// Sees to it that a piece comes that somebody waits for.
    fn want(&mut self, piece: Piece) {
        let wanted = self.wanted.get(&piece).expect("somebody waits for it");
        if let Some((_, ticket)) = wanted.asked {
            if self.queue.handle_promote(self.now, ticket, Class::Demand) {
                self.move_waiting(Class::ReadAhead, Class::Demand);
            }
            return;
        }
        if wanted.joined {
            return;
        }
        if let Piece::Hot(chunk) = piece
            && self.policy.ended() != Some(EndReason::Nothing)
            && !self.policy.stands_still()
            && self.policy.late(chunk) == Late::Join
            && self.policy.ended().is_none()
        {
            self.seen.joined += 1;
            self.wanted.get_mut(&piece).expect("it is wanted").joined = true;
            return;
        }
        self.fetch(piece, Class::Demand);
    }

    fn place(&self, piece: Piece) -> ByteRange {
        match piece {
            Piece::Hot(chunk) => ByteRange::new(u64::from(chunk) * STORED, STORED),
            Piece::Cold(window) => ByteRange::new(u64::from(self.hot + window) * STORED, STORED),
        }
    }

    fn range_of(&self, purpose: &Purpose) -> ByteRange {
        match purpose {
            Purpose::Piece(piece, _) => self.place(*piece),
            Purpose::Stream(_, chunks) => {
                let first = self.place(Piece::Hot(chunks.start));
                ByteRange::new(first.offset, self.place(Piece::Hot(chunks.end - 1)).end() - first.offset)
            }
        }
    }

    fn fetch(&mut self, piece: Piece, class: Class) {
        let range = self.place(piece);
        assert!(range.fits_in(DISK_BYTES), "{self}: {piece:?} lies outside");
        let (tag, ticket) = self.request(class, range, Purpose::Piece(piece, self.now));
        let wanted = self.wanted.entry(piece).or_default();
        assert!(
            wanted.asked.replace((tag, ticket)).is_none(),
            "seed {}: {piece:?} is fetched twice",
            self.seed
        );
        // What comes next may be wanted as well; nobody waits for it.
        let next = match piece {
            Piece::Cold(window) if window + 1 < self.cold => Piece::Cold(window + 1),
            _ => return,
        };
        if class == Class::Demand
            && self.prng.below(16) == 0
            && !self.wanted.contains_key(&next)
            && !self.cache.contains(&next)
        {
            self.fetch(next, Class::ReadAhead);
        }
    }

    fn request(&mut self, class: Class, range: ByteRange, purpose: Purpose) -> (u64, Ticket) {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.purposes.insert(tag, purpose);
        let client = ClientKey(self.prng.below(self.clients.len() as u64));
        let request = Request { tag: RequestTag(tag), class, client, direction: Direction::Read, range };
        if self.waiting[class.index()] == 0 {
            self.since[class.index()] = self.now;
        }
        self.waiting[class.index()] += 1;
        (tag, self.queue.handle_request(self.now, request))
    }

    fn move_waiting(&mut self, from: Class, to: Class) {
        self.waiting[from.index()] -= 1;
        if self.waiting[to.index()] == 0 {
            self.since[to.index()] = self.now;
        }
        self.waiting[to.index()] += 1;
    }

    fn keep(&mut self, piece: Piece, origin: Origin) {
        self.cache.insert(piece, (), RAW, origin, |_, ()| {});
    }

    fn answer(&mut self, client: usize, well: bool) {
        self.answered += 1;
        self.last_answer = self.now;
        assert!(self.answered <= self.asked, "{self}: a read was answered twice");
        self.seen.reads += u64::from(well);
        self.seen.errors += u64::from(!well);
        if self.clients[client].left > 0 {
            let then = self.now + self.clients[client].thinks(&mut self.prng);
            self.plan(then, Event::Read(client));
        }
    }

    /// A piece has come: everybody who waits for it is answered, and nobody else.
    fn came(&mut self, piece: Piece) {
        let readers =
            self.wanted.get_mut(&piece).map(|wanted| std::mem::take(&mut wanted.readers)).unwrap_or_default();
        if let Some(wanted) = self.wanted.get_mut(&piece) {
            wanted.joined = false;
            if wanted.asked.is_none() {
                self.wanted.remove(&piece);
            }
        }
        let origin = if readers.is_empty() { Origin::Prefetched } else { Origin::Demanded };
        if !matches!(piece, Piece::Hot(_)) || !readers.is_empty() {
            self.keep(piece, origin);
        }
        for client in readers {
            if matches!(piece, Piece::Cold(_)) {
                self.policy.handle_miss_answered(self.now);
            }
            self.answer(client, true);
        }
    }

    /// A piece did not come.
    fn failed(&mut self, piece: Piece) {
        let Some(wanted) = self.wanted.get_mut(&piece) else { return };
        wanted.failures += 1;
        if wanted.readers.is_empty() && wanted.asked.is_none() {
            self.wanted.remove(&piece);
        } else if wanted.failures < TRIES {
            self.want(piece);
        } else {
            let readers = self.wanted.remove(&piece).expect("it is wanted").readers;
            for client in readers {
                if matches!(piece, Piece::Cold(_)) {
                    self.policy.handle_miss_answered(self.now);
                }
                self.answer(client, false);
            }
        }
    }

    fn first_byte(&mut self, number: usize) {
        let Some((dispatch, _)) = &self.dispatches[number] else { return };
        let tags: Vec<u64> = self.queue.tags(dispatch.id).map(|tag| tag.0).collect();
        for tag in tags {
            if let Some(Purpose::Stream(id, _)) = self.purposes.get(&tag) {
                self.policy.handle_first_byte(self.now, *id, 0);
            }
        }
    }

    fn done(&mut self, number: usize) {
        let (dispatch, answer) = self.dispatches[number].take().expect("a dispatch ends once");
        self.in_service[dispatch.class.index()] -= 1;
        let failed = answer.bytes < dispatch.range.len;
        self.seen.faults += u64::from(failed);
        let came_until = dispatch.range.offset + answer.bytes;
        let tags = self.queue.handle_done(self.now, dispatch.id, answer.bytes);
        assert!(!tags.is_empty(), "{self}: a dispatch of nothing");
        for tag in tags {
            let purpose = self.purposes.remove(&tag);
            self.sent.remove(&tag);
            let purpose = purpose.unwrap_or_else(|| panic!("{self}: request {tag} has ended twice"));
            let range = self.range_of(&purpose);
            let holds = dispatch.range.offset <= range.offset && range.end() <= dispatch.range.end();
            assert!(holds, "{self}: request {tag} is not in what was sent for it");
            match purpose {
                Purpose::Piece(piece, asked) => self.fetched(piece, asked, came_until),
                Purpose::Stream(id, chunks) => self.streamed(id, chunks, came_until),
            }
        }
    }

    fn fetched(&mut self, piece: Piece, asked: Nanos, came_until: u64) {
        if let Some(wanted) = self.wanted.get_mut(&piece) {
            wanted.asked = None;
        }
        if self.place(piece).end() > came_until {
            return self.failed(piece);
        }
        self.policy.handle_fetched(asked, self.now, STORED);
        if let Piece::Hot(chunk) = piece
            && self.policy.ended() != Some(EndReason::Nothing)
        {
            self.policy.handle_resident(chunk);
        }
        self.came(piece);
    }

    fn streamed(&mut self, id: RequestId, chunks: Range<u32>, came_until: u64) {
        let mut bytes = 0;
        for chunk in chunks.clone() {
            let piece = Piece::Hot(chunk);
            if self.place(piece).end() <= came_until {
                bytes += STORED;
                self.seen.streamed += 1;
                self.policy.handle_progress(self.now, id, chunk);
                self.policy.handle_arrived(chunk);
                let wanted = self.wanted.get(&piece).is_some_and(|wanted| !wanted.readers.is_empty());
                self.came(piece);
                // Most readers take what they have asked for; some chunks wait.
                if wanted || self.prng.below(3) == 0 {
                    self.policy.handle_released(chunk);
                }
            } else {
                // The stream passes over what it could not bring.
                self.policy.handle_arrived(chunk);
                self.policy.handle_released(chunk);
                if let Some(wanted) = self.wanted.get_mut(&piece) {
                    wanted.joined = false;
                    self.failed(piece);
                }
            }
        }
        let gone = self.prng.below(2_000) == 0;
        self.policy.handle_finished(self.now, id, (!gone).then_some(bytes));
    }

    /// Others use more or less memory than before.
    fn look_at_memory(&mut self) {
        let total_bytes = self.prefetch_budget * 4 + (64 << 20);
        let available_bytes = self.prng.below(total_bytes);
        let sample = MemorySample { total_bytes, available_bytes, pressure: None };
        let target = self.budget.handle_sample(&sample, self.policy.held_bytes());
        self.policy.handle_budget(target);
        if self.budget.is_short() && self.prng.below(200) == 0 {
            self.policy.handle_short_memory();
        }
        let cache = RAW * (4 + self.prng.below(500));
        self.cache_budget = cache;
        if self.fault != Some(Fault::IgnoresCacheBudget) {
            self.cache.set_budget(cache, |_, ()| {});
        }
        let silent = self.now.saturating_sub(self.last_answer);
        let some_wait = self.wanted.values().any(|wanted| !wanted.readers.is_empty());
        assert!(
            !some_wait || silent <= LONGEST_SILENCE,
            "{self}: a read is lost: nobody was answered for {silent}"
        );
        if self.answered < self.asked || self.clients.iter().any(|client| client.left > 0) {
            self.plan(self.now + Nanos::from_millis(100), Event::Memory);
        }
    }

    /// Lets the policy and the queue do what they want now.
    fn pump(&mut self) {
        self.poll_policy();
        loop {
            match self.queue.poll(self.now) {
                Poll::Dispatch(dispatch) => self.send(dispatch),
                Poll::WaitUntil(then) => {
                    assert!(then > self.now, "{self}: the queue waits for the past");
                    return self.plan_poll(then);
                }
                Poll::Idle => return,
            }
        }
    }

    fn poll_policy(&mut self) {
        loop {
            match self.policy.poll(self.now) {
                Next::Request(id, chunks) => {
                    let range = ByteRange::new(
                        u64::from(chunks.start) * STORED,
                        u64::from(chunks.end - chunks.start) * STORED,
                    );
                    self.request(Class::Prefetch, range, Purpose::Stream(id, chunks));
                    continue;
                }
                Next::WaitUntil(then) => self.plan_poll(then.max(self.now + Nanos(1))),
                Next::Wait | Next::Done(_) => {}
            }
            break;
        }
        let over = self.policy.ended().is_some();
        if over || self.policy.stands_still() {
            // Whoever has joined the stream fetches for himself.
            let waiting = self.wanted.iter().filter(|(_, wanted)| wanted.joined).map(|(piece, _)| *piece);
            for piece in waiting.collect::<Vec<_>>() {
                self.wanted.get_mut(&piece).expect("it is wanted").joined = false;
                self.fetch(piece, Class::Demand);
            }
        }
    }

    fn send(&mut self, dispatch: Dispatch) {
        let class = dispatch.class.index();
        let tags: Vec<u64> = self.queue.tags(dispatch.id).map(|tag| tag.0).collect();
        let members = tags.len() as u64;
        for tag in tags {
            assert!(self.sent.insert(tag), "{self}: request {tag} was sent twice");
        }
        let bound = Nanos(self.longest_service.0 * Class::COUNT as u64);
        for lower in 0..Class::COUNT {
            let waited = self.now.saturating_sub(self.since[lower]);
            // Demand has no ageing: it is first, and waits for what is in service, and while an elevator waits for a stream.
            let waits = if lower == 0 { self.config.slice_idle } else { self.config.classes[lower].ageing };
            let limit = waits + bound;
            assert!(
                self.waiting[lower] == 0 || waited <= limit,
                "{self}: class {lower} was not served for {waited}, more than {limit}"
            );
        }
        assert!(self.waiting[class] >= members, "{self}: more was sent than waits");
        self.waiting[class] -= members;
        self.since[class] = self.now;
        self.in_service[class] += 1;
        let lower_ones: u32 = self.in_service[class..].iter().sum();
        let depth = self.config.classes[class].depth;
        assert!(lower_ones <= depth, "{self}: {lower_ones} requests in service, of {depth}");
        let answer = self.medium.serve(self.now, dispatch.range, &mut self.prng);
        self.longest_service = self.longest_service.max(answer.done.saturating_sub(self.now));
        let number = self.dispatches.len();
        self.dispatches.push(Some((dispatch, answer)));
        self.plan(answer.first_byte, Event::FirstByte(number));
        self.plan(answer.done, Event::Done(number));
    }

    fn check(&self) {
        let held = self.policy.held_bytes();
        assert!(
            held <= self.prefetch_budget.max(RAW),
            "{self}: {held} bytes wait, of {}",
            self.prefetch_budget
        );
        let cache = self.cache.usage();
        assert!(
            cache.bytes <= self.cache_budget,
            "{self}: the cache holds {} of {}",
            cache.bytes,
            self.cache_budget
        );
    }

    fn check_end(&self) {
        assert!(self.answered == self.asked, "{self}: {} reads are lost", self.asked - self.answered);
        assert!(self.clients.iter().all(|client| client.left == 0), "{self}: a client stands still");
        let readers: usize = self.wanted.values().map(|wanted| wanted.readers.len()).sum();
        assert!(readers == 0, "{self}: {readers} readers still wait");
        assert!(self.dispatches.iter().all(Option::is_none), "{self}: something is still in service");
        assert!(self.queue.waiting() == 0, "{self}: {} requests still wait", self.queue.waiting());
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "world {}, step {}, {} after its beginning", self.seed, self.seen.steps, self.now)
    }
}
