//! A buffer cache as large as memory against one of a tenth (Tezuka 1991, section 2).
//!
//! A compilation reads the same headers and some sources again and again, and writes objects. Buffers are
//! under LRU, the disk is `hd286` behind the engine's queue. The paper gives no numbers: four of its claims
//! are judged by their direction.

use hs_device::NewsDisk;
use hs_engine::queue::Direction;
use hs_lab::{Cell, Claim, Figure, Io, Report, Workload, simulate};
use hs_units::{ByteRange, Nanos, Prng};
use lru::LruCache;

use crate::kernel_1991::{ASYNCHRONOUS, BLOCK, PROGRAM, SYNCHRONOUS, kernel};
use crate::lru_of;

/// Memory of the workstation of 1988 (table 1), and the memory of kernel and programs.
const MEMORY: u64 = 16 << 20;
const PROGRAMS: u64 = 6 << 20;

/// Blocks of headers and sources that a compilation reads: 4 MiB.
const SOURCES: u64 = 512;

/// Where the files begin.
const FILES: u64 = 50 << 20;

/// Blocks that are written: 4 MiB.
const WRITTEN: u64 = 512;

/// The processor's time for a block, as elsewhere.
const PROCESSOR: Nanos = Nanos::from_millis(1);

/// A program that reads blocks one after the other, through the cache.
struct Reading {
    order: Vec<u64>,
    next: usize,
    cache: LruCache<u64, ()>,
    /// When each pass over the sources had ended.
    passes: Vec<Nanos>,
}

impl Reading {
    fn go_on(&mut self, io: &mut Io) {
        self.next += 1;
        if self.next.is_multiple_of(SOURCES as usize) {
            self.passes.push(io.now());
        }
        if self.next < self.order.len() {
            io.wake(io.now() + PROCESSOR, 0);
        }
    }
}

impl Workload for Reading {
    fn start(&mut self, io: &mut Io) {
        io.wake(PROCESSOR, 0);
    }

    fn handle_wake(&mut self, io: &mut Io, _token: u64) {
        let block = self.order[self.next];
        if self.cache.get(&block).is_some() {
            return self.go_on(io);
        }
        io.request(SYNCHRONOUS, PROGRAM, Direction::Read, ByteRange::new(FILES + block * BLOCK, BLOCK));
    }

    fn handle_done(&mut self, io: &mut Io, _request: usize) {
        self.cache.put(self.order[self.next], ());
        self.go_on(io);
    }
}

/// Seconds of the first and of the second reading of the sources, in the orders of two compilations.
fn read_twice(seed: u64, buffers: u64) -> [f64; 2] {
    let mut prng = Prng::new(seed);
    let mut order = Vec::new();
    for _ in 0..2 {
        let mut pass: Vec<u64> = (0..SOURCES).collect();
        (1..pass.len()).rev().for_each(|last| pass.swap(last, prng.below(last as u64 + 1) as usize));
        order.extend(pass);
    }
    let cache = lru_of(buffers, BLOCK);
    let mut reading = Reading { order, next: 0, cache, passes: Vec::new() };
    simulate(kernel(true, true), NewsDisk::Wren4.device(), Nanos(u64::MAX), &mut reading);
    let [first, second] = [0, 1].map(|pass| reading.passes[pass].as_secs_f64());
    [first, second - first]
}

/// A program that writes blocks and waits only for a free buffer; some blocks must be looked up first.
struct Writing {
    buffers: u64,
    /// Blocks that lie in directories and indirect blocks, which are read unless they are in the cache.
    cache: LruCache<u64, ()>,
    next: u64,
    dirty: u64,
    waits: bool,
    looking_up: Option<usize>,
    returned: Nanos,
}

/// How many blocks of data need one more block of the file system, and how many of these there are.
const LOOK_UP: u64 = 4;
const METADATA: u64 = 96;

impl Writing {
    fn go_on(&mut self, io: &mut Io) {
        if self.dirty + 1 > self.buffers {
            self.waits = true;
            return;
        }
        self.waits = false;
        let block = self.next;
        self.next += 1;
        self.dirty += 1;
        self.returned = io.now();
        io.request(ASYNCHRONOUS, PROGRAM, Direction::Write, ByteRange::new(FILES + block * BLOCK, BLOCK));
        if self.next < WRITTEN {
            io.wake(io.now() + PROCESSOR, 0);
        }
    }
}

impl Workload for Writing {
    fn start(&mut self, io: &mut Io) {
        io.wake(PROCESSOR, 0);
    }

    fn handle_wake(&mut self, io: &mut Io, _token: u64) {
        let own = self.next / LOOK_UP * 7 % METADATA;
        if self.next.is_multiple_of(LOOK_UP) && self.cache.get(&own).is_none() {
            let range = ByteRange::new(FILES / 2 + own * BLOCK, BLOCK);
            self.looking_up = Some(io.request(SYNCHRONOUS, PROGRAM, Direction::Read, range));
            return;
        }
        self.go_on(io);
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        if self.looking_up == Some(request) {
            self.looking_up = None;
            let own = self.next / LOOK_UP * 7 % METADATA;
            self.cache.put(own, ());
            return self.go_on(io);
        }
        self.dirty -= 1;
        if self.waits {
            self.go_on(io);
        }
    }
}

/// Seconds until the program has written, and until the disk has the rest, which is the time of `sync`.
fn write(buffers: u64) -> [f64; 2] {
    // Of the buffers, those of the file system's own blocks stay a quarter.
    let mut writing = Writing {
        buffers: buffers / BLOCK * 3 / 4,
        cache: lru_of(buffers / 4, BLOCK),
        next: 0,
        dirty: 0,
        waits: false,
        looking_up: None,
        returned: Nanos::ZERO,
    };
    let run = simulate(kernel(true, true), NewsDisk::Wren4.device(), Nanos(u64::MAX), &mut writing);
    let returned = writing.returned.as_secs_f64();
    [returned, run.ended.as_secs_f64() - returned]
}

pub(crate) fn run(seed: u64) -> Report {
    let cases = [("a tenth", MEMORY / 10), ("all that is free", MEMORY - PROGRAMS)];
    let measured = cases.map(|(_, buffers)| (read_twice(seed, buffers), write(buffers)));
    let rows = cases.iter().zip(measured).map(|((name, buffers), (read, write))| {
        let numbers = [*buffers as f64 / 1e6, read[0], read[1], write[0], write[1]];
        [(*name).into()].into_iter().chain(numbers.map(|number| Cell::Number(number, 2))).collect()
    });
    let rows = rows.collect();
    let [(read_off, write_off), (read_on, write_on)] = measured;
    let figures = vec![
        Figure::new("first reading, all of memory ÷ a tenth", read_on[0] / read_off[0]).off(1.0),
        Figure::new("second reading, all of memory ÷ a tenth", read_on[1] / read_off[1])
            .off(1.0)
            .published("002 section 2 a", Claim::Less),
        Figure::new("until a file is written, all of memory ÷ a tenth", write_on[0] / write_off[0])
            .off(1.0)
            .published("002 section 2 b, c", Claim::Less),
        Figure::new("what is left for sync, all of memory ÷ a tenth", write_on[1] / write_off[1])
            .off(1.0)
            .published("002 section 2, side effect b", Claim::More),
    ];
    let columns =
        vec!["buffers", "MB", "first reading (s)", "second reading (s)", "written (s)", "left for sync (s)"];
    Report { columns, rows, figures, seed: Some(seed) }
}
