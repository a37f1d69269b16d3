//! The whole engine against a plain model of what a read must get and may not, whatever the shell does.

mod background;
mod rules;
mod stream;

use std::collections::{BTreeMap, BTreeSet};

use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba, MemorySample};
use proptest::prelude::*;

use super::*;
use crate::PrefetchConfig;
use crate::queue::{Class, ClientKey};

/// Blocks of a window, windows of a page of the index, and windows.
const WINDOW_BLOCKS: u64 = 4;
const PAGE_WINDOWS: u64 = 6;
const WINDOWS: u64 = 24;
const STORED: u64 = 40_000;
const HOT: u32 = 9;

/// A small image: hot chunks of blocks here and there, some windows that are zero.
#[derive(Debug, Default)]
struct Image {
    pages: BTreeSet<u32>,
    /// Whether its index is one page.
    is_one_page: bool,
}

/// The blocks of a hot chunk: two runs of the disk, or one.
fn blocks_of_hot(chunk: u32) -> Vec<u64> {
    let first = u64::from(chunk) * 9 + 2;
    let second = (u64::from(chunk) * 31 + 70) % 90;
    let is_first = |block| (0..u64::from(HOT)).any(|hot| (hot * 9 + 2..hot * 9 + 5).contains(&block));
    let mut blocks = vec![first, first + 1, first + 2];
    if chunk < 7 {
        blocks.extend([second, second + 1].into_iter().filter(|block| !is_first(*block)));
    }
    blocks
}

fn place(number: u64, raw_blocks: u64) -> ChunkLocation {
    let raw_bytes = (raw_blocks * BLOCK_BYTES) as u32;
    ChunkLocation { range: ByteRange::new(number * STORED, STORED), raw_bytes }
}

impl ImageMap for Image {
    fn disk_bytes(&self) -> u64 {
        WINDOWS * WINDOW_BLOCKS * BLOCK_BYTES
    }
    fn window_bytes(&self) -> u64 {
        WINDOW_BLOCKS * BLOCK_BYTES
    }
    fn hot_chunks(&self) -> u32 {
        HOT
    }
    fn hot_chunk(&self, chunk: u32) -> ChunkLocation {
        place(chunk.into(), blocks_of_hot(chunk).len() as u64)
    }
    fn hot_block(&self, lba: Lba) -> Option<HotBlock> {
        (0..HOT).find_map(|chunk| {
            let blocks = blocks_of_hot(chunk);
            let at = blocks.iter().position(|block| *block == lba.0)?;
            let run =
                (at..blocks.len()).take_while(|next| blocks[*next] == lba.0 + (*next - at) as u64).count();
            Some(HotBlock { chunk, block_in_chunk: at as u32, run: run as u32 })
        })
    }
    fn next_hot_after(&self, lba: Lba) -> Option<Lba> {
        (lba.0 + 1..WINDOWS * WINDOW_BLOCKS).map(Lba).find(|lba| self.hot_block(*lba).is_some())
    }
    fn tripwire_block(&self, chunk: u32) -> Option<u32> {
        (!chunk.is_multiple_of(3)).then_some(0)
    }
    fn window(&self, window: u64) -> Option<WindowLocation> {
        self.pages.contains(&self.page_of(window)).then(|| match window {
            7 | 18 => WindowLocation::Zero,
            // These are equal to others, one of them on another page of the index, and share their chunks.
            14 => WindowLocation::Stored(place(u64::from(HOT) + 10 + 2, WINDOW_BLOCKS)),
            21 => WindowLocation::Stored(place(u64::from(HOT) + 10 + 20, WINDOW_BLOCKS)),
            _ => WindowLocation::Stored(place(u64::from(HOT) + 10 + window, WINDOW_BLOCKS)),
        })
    }
    fn page_of(&self, window: u64) -> u32 {
        if self.is_one_page { 0 } else { (window / PAGE_WINDOWS) as u32 }
    }
    fn page(&self, page: u32) -> ChunkLocation {
        place(u64::from(HOT + page), 1)
    }
}

/// What a profile could say: runs of blocks, some of which are empty, known already or outside the disk.
fn learned(seed: u64) -> impl Iterator<Item = BlockRange> {
    (0..8).map(move |at| {
        let bits = seed.rotate_left(8 * at);
        let start = if bits.is_multiple_of(13) { u64::MAX - 1 } else { bits % 110 };
        BlockRange {
            start: Lba(start),
            count: if bits.is_multiple_of(11) { u64::MAX } else { bits / 128 % 12 },
        }
    })
}

/// What the shell may do next. Numbers choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read { block: u64, blocks: u64, class: u8 },
    Unaligned { offset: u64, len: u64 },
    Cancel(usize),
    FirstByte(usize),
    Comes(usize, usize),
    EndFetch(usize),
    BringAll(usize),
    Decoded(usize, bool),
    Delivered(usize, bool),
    Memory(u64),
    CacheBudget(u64),
    Lose(u8),
    Restart(u8),
    Expect(u32),
    Release(u32),
    LeftOut(u32, u32),
    Learn(u64),
    Permit(u64),
    PermitDone(usize),
    Hold,
    Begin,
    StopPrefetch,
    HideUse,
    Used,
    Pass(u64),
    Shutdown,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..96u64, 1..9u64, 0..8u8)
            .prop_map(|(block, blocks, class)| Step::Read { block, blocks, class }),
        2 => (0..96 * 4096u64, 1..20_000u64).prop_map(|(offset, len)| Step::Unaligned { offset, len }),
        3 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::FirstByte),
        12 => any::<(usize, usize)>().prop_map(|(fetch, chunk)| Step::Comes(fetch, chunk)),
        3 => any::<usize>().prop_map(Step::EndFetch),
        8 => any::<usize>().prop_map(Step::BringAll),
        14 => (any::<usize>(), 0..8u8).prop_map(|(which, bad)| Step::Decoded(which, bad > 0)),
        6 => any::<(usize, bool)>().prop_map(|(which, taken)| Step::Delivered(which, taken)),
        1 => (0..2_000u64).prop_map(Step::Memory),
        1 => (0..40u64).prop_map(Step::CacheBudget),
        1 => (0..6u8).prop_map(Step::Lose),
        3 => (0..6u8).prop_map(Step::Restart),
        1 => (0..HOT).prop_map(Step::Expect),
        1 => (0..HOT).prop_map(Step::Release),
        2 => (0..HOT, 0..2u32).prop_map(|(chunk, block)| Step::LeftOut(chunk, block)),
        1 => any::<u64>().prop_map(Step::Learn),
        2 => (0..40u64).prop_map(Step::Permit),
        3 => any::<usize>().prop_map(Step::PermitDone),
        1 => (0..12u8).prop_map(|which| match which {
            0 => Step::StopPrefetch,
            1..3 => Step::HideUse,
            3..6 => Step::Used,
            6..8 => Step::Hold,
            _ => Step::Begin,
        }),
        6 => (1..400u64).prop_map(Step::Pass),
    ]
}

fn config() -> impl Strategy<Value = DiskConfig> {
    let delivery = prop_oneof![
        Just(None),
        Just(Some((true, UseVisibility::Tripwires))),
        Just(Some((true, UseVisibility::Asked))),
        Just(Some((false, UseVisibility::Hidden))),
    ];
    let sizes = (1..4u32, 1..4u32, 0..30u64, 1..40u64);
    (delivery, sizes, any::<[bool; 5]>()).prop_map(
        |(delivery, (decoders, fetchers, cache, budget), flags)| {
            let [prefetches, readers_keep, times_out, sees_use, brings_rest] = flags;
            let limits = PrefetchConfig {
                budget_bytes: budget * BLOCK_BYTES,
                first_request_bytes: 2 * STORED,
                sees_use,
                brings_rest,
                ..PrefetchConfig::default()
            };
            DiskConfig {
                decoders,
                fetchers,
                cache_bytes: cache * BLOCK_BYTES,
                least_prefetch_bytes: 0,
                prefetch: prefetches.then_some(limits),
                readers_keep,
                read_timeout: times_out.then_some(Nanos::from_millis(300)),
                visibility: delivery.map(|(_, visibility)| visibility).unwrap_or_default(),
                delivery: delivery.map(|(before_answers, _)| DeliveryConfig { before_answers }),
                ..DiskConfig::default()
            }
        },
    )
}

/// A shell that does what it is told, in an order that a test chooses, and looks whether it makes sense.
struct Shell {
    engine: DiskEngine<Image>,
    now: Nanos,
    bytes: BTreeSet<(ChunkKey, Form)>,
    reads: BTreeMap<ReadId, ByteRange>,
    /// Answered reads for which no program waited.
    expected: Vec<ByteRange>,
    /// Bytes of answered reads that lie in the hot region and had not come.
    late_bytes: u64,
    fetches: BTreeMap<FetchId, Vec<FetchChunk>>,
    fetched: BTreeMap<FetchId, Class>,
    cancelled: BTreeSet<FetchId>,
    decoding: BTreeMap<DecoderId, ChunkKey>,
    lost: BTreeSet<u8>,
    deliveries: Vec<(ChunkKey, Deliverer)>,
    /// Permits, and whether they are granted.
    permits: BTreeMap<PermitId, bool>,
    delivery: Option<DeliveryConfig>,
    /// The prefetch waits for its page cache.
    held: bool,
    /// Chunks that were reported damaged or not brought at least once, or were with a worker that broke down.
    faulty: BTreeSet<ChunkKey>,
    times_out: bool,
    shut_down: bool,
    last: Action,
}

impl Shell {
    fn new(config: DiskConfig) -> Self {
        Self {
            engine: DiskEngine::new(Nanos::ZERO, config, Image::default()),
            now: Nanos::ZERO,
            bytes: BTreeSet::new(),
            reads: BTreeMap::new(),
            expected: Vec::new(),
            late_bytes: 0,
            fetches: BTreeMap::new(),
            fetched: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            decoding: BTreeMap::new(),
            lost: BTreeSet::new(),
            deliveries: Vec::new(),
            permits: BTreeMap::new(),
            delivery: config.delivery,
            held: false,
            faulty: BTreeSet::new(),
            times_out: config.read_timeout.is_some(),
            shut_down: false,
            last: Action::Wait,
        }
    }

    fn run(&mut self, step: Step) {
        self.step(step);
        self.pump();
        self.engine.check();
    }

    fn step(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Read { block, blocks, class } => {
                let class = Class::ALL[usize::from(class.saturating_sub(4)).min(3)];
                let blocks = blocks.min(WINDOWS * WINDOW_BLOCKS - block);
                self.read(ByteRange::new(block * BLOCK_BYTES, blocks * BLOCK_BYTES), class);
            }
            Step::Unaligned { offset, len } => self.read(ByteRange::new(offset, len), Class::Demand),
            Step::Cancel(which) => {
                if let Some(read) = pick(&self.reads, which) {
                    assert!(self.engine.handle_cancel(now, read), "a read that waits can be cancelled");
                    assert!(!self.engine.handle_cancel(now, read), "once");
                    self.reads.remove(&read);
                }
            }
            Step::FirstByte(which) => {
                if let Some(fetch) = pick(&self.fetches, which) {
                    self.engine.handle_first_byte(now, fetch, 100);
                }
            }
            Step::Comes(which, chunk) => {
                if let Some(fetch) = pick(&self.fetches, which) {
                    self.comes(fetch, chunk);
                }
            }
            Step::EndFetch(which) => {
                if let Some(fetch) = pick(&self.fetches, which) {
                    self.end_fetch(fetch);
                }
            }
            Step::BringAll(which) => {
                if let Some(fetch) = pick(&self.fetches, which) {
                    self.bring_all(fetch);
                }
            }
            Step::Decoded(which, well) => {
                if let Some(decoder) = pick(&self.decoding, which) {
                    self.decoded(decoder, well);
                }
            }
            Step::Delivered(which, taken) => {
                if !self.deliveries.is_empty() {
                    let (key, _) = self.deliveries.remove(which % self.deliveries.len());
                    let delivered = if taken { Delivered::Taken } else { Delivered::Refused };
                    self.engine.handle_delivered(now, key, delivered);
                }
            }
            Step::Memory(available) => {
                let total_bytes = 2_000 * BLOCK_BYTES;
                let available_bytes = available * BLOCK_BYTES;
                let sample = MemorySample { total_bytes, available_bytes, pressure: None };
                self.engine.handle_memory(now, &sample);
            }
            Step::CacheBudget(blocks) => self.engine.set_cache_budget(blocks * BLOCK_BYTES),
            Step::Lose(which) => self.lose(which),
            Step::Restart(which) => {
                if self.lost.remove(&which) {
                    self.engine.handle_worker_restarted(now, worker(which));
                }
            }
            Step::Expect(chunk) => self.engine.handle_expected(chunk),
            Step::Release(chunk) => self.engine.handle_released(now, chunk),
            Step::Pass(millis) => self.now += Nanos::from_millis(millis),
            Step::Shutdown => {
                self.engine.handle_shutdown(now);
                self.shut_down = true;
            }
            other => self.step_beside(other),
        }
    }

    /// What others than readers and workers do.
    fn step_beside(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::LeftOut(chunk, block) => {
                if self.engine.wants_tripwire(now, chunk) {
                    self.engine.handle_left_out(chunk, block);
                }
            }
            Step::Learn(seed) => {
                self.engine.handle_learned(learned(seed));
            }
            Step::Permit(block) => {
                let permit = self.engine.handle_permit(now, ByteRange::new(block * STORED, STORED));
                assert!(self.permits.insert(permit, false).is_none(), "{permit:?} is another's name");
            }
            Step::PermitDone(which) => {
                if let Some(permit) = pick(&self.permits, which) {
                    self.permits.remove(&permit);
                    self.engine.handle_permit_done(now, permit);
                    self.engine.handle_permit_done(now, permit);
                }
            }
            Step::Hold => {
                self.engine.hold_prefetch();
                self.held = true;
            }
            Step::Begin => {
                self.engine.begin_prefetch(self.delivery);
                self.held = false;
            }
            Step::StopPrefetch => {
                self.engine.stop_prefetch();
                self.held = false;
            }
            Step::HideUse => self.engine.handle_use_hidden(),
            Step::Used => self.engine.handle_used(),
            other => unreachable!("{other:?} is a step of readers and workers"),
        }
    }

    fn read(&mut self, range: ByteRange, class: Class) {
        let requester = Requester { client: ClientKey(range.offset % 3), class };
        let read = self.engine.handle_read(self.now, requester, range);
        assert!(self.reads.insert(read, range).is_none(), "{read:?} is the name of another read");
    }

    fn comes(&mut self, fetch: FetchId, which: usize) {
        let left = self.fetches.get_mut(&fetch).expect("it is under way");
        if left.is_empty() {
            return;
        }
        let chunk = left.remove(which % left.len());
        if self.engine.handle_stored(self.now, fetch, chunk.key, STORED) {
            assert!(self.bytes.insert((chunk.key, Form::Stored)), "{:?} was there", chunk.key);
        }
        assert!(!self.engine.handle_stored(self.now, fetch, chunk.key, STORED), "it comes once");
    }

    fn bring_all(&mut self, fetch: FetchId) {
        while !self.fetches[&fetch].is_empty() {
            self.comes(fetch, 0);
        }
        self.end_fetch(fetch);
    }

    fn end_fetch(&mut self, fetch: FetchId) {
        let left = self.fetches.remove(&fetch).expect("it is under way");
        self.faulty.extend(left.iter().map(|chunk| chunk.key));
        self.engine.handle_fetch_done(self.now, fetch);
        self.engine.handle_fetch_done(self.now, fetch);
    }

    fn decoded(&mut self, decoder: DecoderId, well: bool) {
        let key = self.decoding.remove(&decoder).expect("it is under way");
        if well {
            assert!(self.bytes.insert((key, Form::Raw)), "{key:?} was there");
            if let ChunkKey::Page(page) = key {
                self.engine.map_mut().pages.insert(page);
            }
        } else {
            self.faulty.insert(key);
        }
        self.engine.handle_decoded(self.now, key, if well { Ok(()) } else { Err(Damage) });
        if well && self.shut_down {
            // The engine has no use for it.
            self.bytes.remove(&(key, Form::Raw));
        }
    }

    fn lose(&mut self, which: u8) {
        match worker(which) {
            Worker::Decoder(decoder) => {
                if let Some(key) = self.decoding.remove(&decoder) {
                    self.faulty.insert(key);
                }
                self.deliveries.retain(|(_, by)| *by != Deliverer::Decoder(decoder));
            }
            Worker::DeliveryThread => self.deliveries.retain(|(_, by)| *by != Deliverer::Thread),
            Worker::Fetcher(_) => {
                if let Some(fetch) = pick(&self.fetches, 0) {
                    let left = self.fetches.remove(&fetch).expect("it is under way");
                    self.faulty.extend(left.iter().map(|chunk| chunk.key));
                    self.engine.handle_worker_lost(self.now, Worker::Fetcher(fetch));
                }
                return;
            }
        }
        self.lost.insert(which);
        self.engine.handle_worker_lost(self.now, worker(which));
    }

    /// Does what the engine says until it waits.
    fn pump(&mut self) {
        for _ in 0..10_000 {
            self.last = self.engine.poll(self.now);
            match self.last {
                Action::Answer(read) => self.answer(read),
                Action::Fail(read, why) => self.fail(read, why),
                Action::Drop(key, form) => {
                    assert!(self.bytes.remove(&(key, form)), "{key:?} {form:?} is dropped, and not there");
                    if let (ChunkKey::Page(page), Form::Raw) = (key, form) {
                        self.engine.map_mut().pages.remove(&page);
                    }
                }
                Action::Fetch { id, range, class } => self.fetch(id, range, class),
                Action::CancelFetch(id) => {
                    assert!(self.fetches.contains_key(&id), "it is under way");
                    assert!(self.cancelled.insert(id), "it is cancelled once");
                }
                Action::Decode { key, decoder } => {
                    assert!(self.bytes.contains(&(key, Form::Stored)), "{key:?} is not there");
                    assert!(!self.lost.contains(&(decoder.0 as u8)), "{decoder:?} is lost");
                    assert!(self.decoding.insert(decoder, key).is_none(), "{decoder:?} is busy");
                }
                Action::Deliver { key, by, tripwire } => self.deliver(key, by, tripwire),
                Action::HoldBack { chunk, block } => {
                    let key = ChunkKey::Hot(chunk);
                    assert!(self.bytes.contains(&(key, Form::Raw)), "{key:?} is not there");
                    assert!(block < 2 && self.bytes.insert((key, Form::Tripwire)), "it has a tripwire");
                }
                Action::Grant(permit) => {
                    let granted = self.permits.get_mut(&permit).expect("it is waited for");
                    assert!(!std::mem::replace(granted, true), "it is granted once");
                }
                Action::WaitUntil(then) => {
                    assert!(then > self.now, "it waits for the past");
                    return;
                }
                Action::Wait => return assert!(self.is_busy() || self.held, "it waits for nothing"),
                Action::Idle => {
                    assert!(!self.is_busy() && self.reads.is_empty(), "something is left to do");
                    return;
                }
                Action::Done => {
                    assert!(!self.is_busy() && self.reads.is_empty() && self.shut_down, "something is left");
                    return assert!(self.bytes.is_empty(), "{:?} are left", self.bytes);
                }
            }
        }
        panic!("it never waits");
    }

    fn is_busy(&self) -> bool {
        let none = self.fetches.is_empty() && self.decoding.is_empty() && self.deliveries.is_empty();
        !none || self.permits.values().any(|granted| *granted)
    }

    fn fetch(&mut self, id: FetchId, range: ByteRange, class: Class) {
        assert!(self.fetched.insert(id, class).is_none(), "{id:?} is fetched twice");
        let chunks = self.engine.fetch(id).chunks.to_vec();
        assert_eq!(self.engine.fetch(id).range, range);
        let mut at = range.offset;
        let mut last = None;
        for chunk in &chunks {
            let is_shared = last == Some(chunk.range);
            assert!(is_shared || chunk.range.offset == at, "chunks lie behind each other");
            (at, last) = (chunk.range.end(), Some(chunk.range));
            let twice = |other: &FetchChunk| other.key == chunk.key && other.owned && chunk.owned;
            assert!(!self.fetches.values().flatten().any(twice), "{:?} is fetched twice at once", chunk.key);
            assert!(
                !(chunk.owned && self.bytes.contains(&(chunk.key, Form::Raw))),
                "{:?} is there",
                chunk.key
            );
        }
        assert_eq!(at, range.end());
        self.fetches.insert(id, chunks);
    }

    fn deliver(&mut self, key: ChunkKey, by: Deliverer, tripwire: Option<u32>) {
        assert!(self.bytes.contains(&(key, Form::Raw)), "{key:?} is not there");
        let decoders = 0..3u8;
        if let Deliverer::Decoder(decoder) = by {
            assert!(!self.lost.contains(&(decoder.0 as u8)) && !self.decoding.contains_key(&decoder));
            let alone = !self.deliveries.iter().any(|(_, by)| matches!(by, Deliverer::Decoder(_)));
            assert!(alone, "two decoders wait for readers");
            let goes_on = |other: u8| u32::from(other) != decoder.0 && !self.lost.contains(&other);
            assert!(decoders.into_iter().any(goes_on), "no decoder goes on");
        } else {
            assert!(!self.deliveries.iter().any(|(_, by)| *by == Deliverer::Thread), "the thread is busy");
        }
        if let Some(block) = tripwire {
            assert!(self.engine.left_out(key).contains(&(block..block + 1)), "it is left out");
            assert!(self.bytes.insert((key, Form::Tripwire)), "it has a tripwire");
        }
        self.deliveries.push((key, by));
    }

    fn answer(&mut self, read: ReadId) {
        let range = self.reads.remove(&read).expect("it waits");
        let answer = self.engine.answer(read);
        assert_eq!(answer.range, range);
        if answer.expected {
            self.expected.push(range);
        }
        self.late_bytes += answer.late_bytes;
        let mut at = range.offset;
        for span in answer.spans {
            self.check_span(at, span);
            at += u64::from(span.len);
        }
        assert_eq!(at, range.end(), "all of it is answered");
    }

    /// Whether the bytes of the disk from `at` on are those of the span.
    fn check_span(&self, at: u64, span: &Span) {
        let lbas = (at..at + u64::from(span.len)).map(|at| (at / BLOCK_BYTES, at % BLOCK_BYTES));
        let here = |number: u64| (u64::from(span.from) + number) / BLOCK_BYTES;
        for (number, (lba, in_block)) in (0..).zip(lbas).step_by(512) {
            assert_eq!(in_block, (u64::from(span.from) + number) % BLOCK_BYTES);
            match span.source {
                Source::Chunk(key @ ChunkKey::Hot(chunk)) => {
                    assert!(self.bytes.contains(&(key, Form::Raw)), "{key:?} is not there");
                    assert_eq!(blocks_of_hot(chunk)[here(number) as usize], lba);
                }
                Source::Chunk(key @ ChunkKey::Cold(window)) => {
                    assert!(self.bytes.contains(&(key, Form::Raw)), "{key:?} is not there");
                    assert!(window % 11 != 7);
                    assert_eq!(window * WINDOW_BLOCKS + here(number), lba);
                }
                Source::Chunk(ChunkKey::Page(_)) => panic!("the index is not of the disk"),
                Source::Tripwire(chunk, base) => {
                    let key = ChunkKey::Hot(chunk);
                    assert!(self.bytes.contains(&(key, Form::Tripwire)), "{key:?} has no tripwire");
                    assert_eq!(u64::from(base) / BLOCK_BYTES, here(number));
                    assert_eq!(blocks_of_hot(chunk)[here(number) as usize], lba);
                }
                Source::Zero => assert_eq!(lba / WINDOW_BLOCKS % 11, 7, "it is not zero"),
            }
        }
    }

    fn fail(&mut self, read: ReadId, why: Why) {
        let range = self.reads.remove(&read).expect("it waits");
        match why {
            Why::OutsideDisk => assert!(!range.fits_in(self.engine.map().disk_bytes())),
            Why::Store(key) | Why::Damaged(key) | Why::Unreadable(key) | Why::WorkerLost(key) => {
                assert!(matches!(key, ChunkKey::Cold(_) | ChunkKey::Page(_) | ChunkKey::Hot(_)));
                let no_decoder = !self.lost.is_empty();
                assert!(self.faulty.contains(&key) || no_decoder, "{key:?} never failed: {why:?}");
            }
            Why::TimedOut => assert!(self.times_out),
            Why::Shutdown => assert!(self.shut_down),
        }
    }

    /// Lets everything end well.
    fn drain(&mut self) {
        for which in 0..6 {
            self.step(Step::Restart(which));
        }
        self.step(Step::Begin);
        self.pump();
        for _ in 0..100_000 {
            if self.last == Action::Idle || self.last == Action::Done {
                return;
            }
            if let Some(decoder) = pick(&self.decoding, 0) {
                self.decoded(decoder, true);
            } else if !self.deliveries.is_empty() {
                self.step(Step::Delivered(0, true));
            } else if let Some(fetch) = pick(&self.fetches, 0) {
                self.bring_all(fetch);
            } else if let Some(permit) = pick(&self.permits, 0) {
                self.permits.remove(&permit);
                self.engine.handle_permit_done(self.now, permit);
            } else if let Action::WaitUntil(then) = self.last {
                self.now = then;
            }
            self.pump();
        }
        panic!("it never ends: {:?}", self.last);
    }

    fn finish(mut self) {
        self.drain();
        self.engine.check();
        assert!(self.reads.is_empty(), "{:?} are lost", self.reads);
        self.run(Step::Shutdown);
        self.drain();
        assert_eq!(self.last, Action::Done);
        self.run(Step::Read { block: 0, blocks: 1, class: 0 });
    }
}

/// Decoders, the delivery thread, and a fetcher.
fn worker(which: u8) -> Worker {
    match which {
        0..3 => Worker::Decoder(DecoderId(which.into())),
        3 => Worker::DeliveryThread,
        _ => Worker::Fetcher(FetchId::default()),
    }
}

fn pick<K: Copy + Ord, V>(map: &BTreeMap<K, V>, which: usize) -> Option<K> {
    map.keys().nth(which.checked_rem(map.len())?).copied()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_shell_does_a_read_gets_its_bytes_or_an_error_once(
        config in config(),
        steps in prop::collection::vec(step(), 1..120),
        shuts_down_at in prop::option::weighted(0.3, 0..120usize),
    ) {
        let mut shell = Shell::new(config);
        for (number, step) in steps.into_iter().enumerate() {
            if shuts_down_at == Some(number) {
                shell.run(Step::Shutdown);
            }
            shell.run(step);
        }
        shell.finish();
    }
}
