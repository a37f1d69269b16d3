//! Reading whole files ahead against the size of memory (Kitagawa and others 2005, figure 3).
//!
//! A start refers to blocks of files. *Whole files*: a second program reads every file that the start will
//! use, from its first byte to its last, while the hardware is probed and further on. *Blocks*: it reads only
//! what will be used, and no further ahead than half of the memory that is free. All share one page cache
//! under LRU. The figure has no numbers.

use hs_device::Medium;
use hs_engine::queue::{Class, ClientKey, Direction};
use hs_lab::{Cell, Claim, Figure, Io, Report, Workload, simulate};
use hs_units::{ByteRange, Nanos};
use lru::LruCache;

use crate::knoppix::{BLOCKS, FILE_BYTES, TABLE_2, queue, scattered, think};
use crate::{lru_of, lru_size};

/// Blocks that a start uses (table 3), and decompressed bytes of one.
const USED: u64 = 2_175;
const BLOCK_BYTES: u64 = 64 << 10;

/// Blocks of a file that are used, and all of its blocks: another start read 226 MB of its 300 MB of files
/// (seeds 003).
const OF_A_FILE: u64 = 9;
const FILE_BLOCKS: u64 = 12;

/// The memory of the programs and the kernel at the end: KNOPPIX asks for 96 MB for its desktop.
const PROGRAMS: u64 = 96 << 20;

/// The hardware is probed and hardly anything read (section 3): from second 16 to 30 in the breakdown of
/// seeds 001.
const PROBING: Nanos = Nanos::from_millis(14_000);

/// Sizes of memory in MiB, as `mem=` would give them; 768 is what the computer has.
const MEMORY: [u64; 6] = [128, 160, 192, 256, 384, 768];

/// The kind of prefetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ahead {
    Nothing,
    WholeFiles,
    Blocks,
}

/// The memory of the kernel alone.
const KERNEL: u64 = 16 << 20;

/// Files that the start uses.
const FILES: u64 = USED / OF_A_FILE;

/// A block of a file: files are numbered by when the start uses them.
type Block = u64;

/// Two programs and a page cache.
struct Machine {
    /// The place of each file on the disc.
    files: Vec<u64>,
    memory_bytes: u64,
    cache: LruCache<Block, ()>,
    /// What the start refers to, and its progress.
    order: Vec<Block>,
    next: usize,
    start_waits: bool,
    /// What the second program reads, its progress, and how far before the start it may be.
    list: Vec<Block>,
    ahead: usize,
    window: Option<usize>,
    /// The block that it waits for.
    reading: Option<Block>,
    /// The block of each request.
    of: Vec<Block>,
    ended: Nanos,
}

impl Machine {
    fn new(seed: u64, memory_mib: u64, ahead: Ahead) -> Self {
        let used = |file: u64| (0..OF_A_FILE).map(move |block| file * FILE_BLOCKS + block * 4 / 3);
        let order: Vec<Block> = (0..FILES).flat_map(used).collect();
        let list = match ahead {
            Ahead::Nothing => Vec::new(),
            Ahead::WholeFiles => (0..FILES * FILE_BLOCKS).collect(),
            Ahead::Blocks => order.clone(),
        };
        let memory_bytes = memory_mib << 20;
        let free = memory_bytes.saturating_sub(PROGRAMS) / BLOCK_BYTES;
        let blocks = scattered(seed, FILES).into_iter();
        Self {
            files: blocks.map(|block| (block as f64 / BLOCKS as f64 * FILE_BYTES as f64) as u64).collect(),
            memory_bytes,
            cache: lru_of(memory_bytes - KERNEL, BLOCK_BYTES),
            order,
            next: 0,
            start_waits: false,
            list,
            ahead: 0,
            window: (ahead == Ahead::Blocks).then_some(free as usize / 2),
            reading: None,
            of: Vec::new(),
            ended: Nanos::ZERO,
        }
    }

    fn request(&mut self, io: &mut Io, client: u64, block: Block) {
        let len = TABLE_2.block_bytes();
        let offset = self.files[(block / FILE_BLOCKS) as usize] + block % FILE_BLOCKS * len;
        let range = ByteRange::new(offset.min(FILE_BYTES - len), len);
        let number = io.request(Class::Demand, ClientKey(client), Direction::Read, range);
        assert_eq!(number, self.of.len(), "no other requests");
        self.of.push(block);
    }

    /// The start needs its next block.
    fn want(&mut self, io: &mut Io) {
        // The programs grow while they start, evenly.
        let grown = (PROGRAMS - KERNEL) * self.next as u64 / self.order.len() as u64;
        self.cache.resize(lru_size(self.memory_bytes.saturating_sub(KERNEL + grown), BLOCK_BYTES));
        let block = self.order[self.next];
        if self.cache.get(&block).is_some() {
            return self.go_on(io);
        }
        self.start_waits = true;
        if self.reading != Some(block) {
            self.request(io, 0, block);
        }
    }

    fn go_on(&mut self, io: &mut Io) {
        self.start_waits = false;
        self.next += 1;
        self.ended = io.now();
        if self.next < self.order.len() {
            io.wake(io.now() + think(), 0);
        }
        self.read_ahead(io);
    }

    /// The second program goes on, unless it waits or is far enough ahead.
    fn read_ahead(&mut self, io: &mut Io) {
        while self.reading.is_none() && self.ahead < self.list.len() {
            if self.window.is_some_and(|window| self.ahead >= self.next + window) {
                return;
            }
            let block = self.list[self.ahead];
            self.ahead += 1;
            if !self.cache.contains(&block) {
                self.reading = Some(block);
                self.request(io, 1, block);
            }
        }
    }
}

impl Workload for Machine {
    fn start(&mut self, io: &mut Io) {
        io.wake(PROBING, 0);
        self.read_ahead(io);
    }

    fn handle_wake(&mut self, io: &mut Io, _token: u64) {
        self.want(io);
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        let block = self.of[request];
        self.cache.put(block, ());
        if self.reading == Some(block) && io.requests()[request].client == ClientKey(1) {
            self.reading = None;
            self.read_ahead(io);
        }
        if self.start_waits && self.order[self.next] == block {
            self.go_on(io);
        }
    }
}

/// Seconds until the start has come to its end, and MB that it took from the disc.
fn measure(seed: u64, memory_mib: u64, ahead: Ahead) -> (f64, f64) {
    let mut machine = Machine::new(seed, memory_mib, ahead);
    let drive = Medium::Cd24xCav.device(FILE_BYTES).expect("fits").expect("modelled");
    let run = simulate(queue(), drive, Nanos(u64::MAX), &mut machine);
    let bytes: u64 = run.requests.iter().map(|request| request.range.len).sum();
    (machine.ended.as_secs_f64(), bytes as f64 / 1e6)
}

pub(crate) fn run(seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    for memory in MEMORY {
        let took =
            [Ahead::Nothing, Ahead::WholeFiles, Ahead::Blocks].map(|ahead| measure(seed, memory, ahead));
        let mut row = vec![Cell::Number(memory as f64, 0)];
        row.extend(took.iter().map(|(seconds, _)| Cell::Number(*seconds, 1)));
        row.extend(took.iter().map(|(_, megabytes)| Cell::Number(*megabytes, 1)));
        rows.push(row);
        ratios.push((memory, took[1].0 / took[0].0, took[2].0 / took[0].0));
    }
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    let figures = vec![
        Figure::new(format!("start with whole files read ahead ÷ without, {} MiB", most.0), most.1)
            .off(1.0)
            .published("000 figure 3", Claim::Less),
        Figure::new(format!("start with whole files read ahead ÷ without, {} MiB", least.0), least.1)
            .off(1.0)
            .published("000 figure 3", Claim::More),
        Figure::new(
            format!("start with blocks read ahead ÷ whole files, {} MiB", least.0),
            least.2 / least.1,
        )
        .off(1.0)
        .published("000 section 4", Claim::Less),
    ];
    let columns = vec![
        "memory (MiB)",
        "without (s)",
        "whole files (s)",
        "blocks (s)",
        "without (MB)",
        "files (MB)",
        "blocks (MB)",
    ];
    Report { columns, rows, figures, seed: Some(seed) }
}
