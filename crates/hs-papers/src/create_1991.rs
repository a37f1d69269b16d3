//! Many small creates and deletes (Tezuka 1991, section 8, c).
//!
//! Merging and gathering made the transfer of files quicker, and their creation and deletion hardly. Programs
//! create files of 4 to 16 KiB, each in its own directory, and delete every second one later. Each of that
//! writes the same few blocks again: two bitmaps, a block of i-nodes, a block of the directory.
//!
//! - *In place*: i-node and directory are written synchronously where they lie, one after the other; data and
//!   bitmaps are left to the disk (4.3BSD).
//! - *A flush for each*: all that a file needs is written to the disk of an overlay, and flushed.
//! - *Gathered*: the same, and what all programs have written during an append is the next one.
//! - *Synced*: one program of the latter kind, that syncs after a hundred files, as a file system with a
//!   journal does.

use std::collections::VecDeque;

use hs_engine::queue::Direction;
use hs_lab::{
    Cell, Figure, Io, Model, OverlayConfig, OverlayIo, OverlayWorkload, Report, Target, Workload, simulate,
    simulate_overlay,
};
use hs_units::{BLOCK_BYTES, ByteRange, Nanos, Prng};

use crate::kernel_1991::{ASYNCHRONOUS, PROGRAM, SYNCHRONOUS};

/// Blocks of the disk: 512 MiB.
const BLOCKS: u64 = 1 << 17;
/// The bitmaps of i-nodes and of blocks.
const BITMAPS: [(u64, u64); 2] = [(1, 1), (2, 1)];
/// The blocks of i-nodes, of 128 bytes each; directories, whose entries take 32; data.
const INODES: u64 = 8;
const INODES_OF_BLOCK: u64 = 32;
const DIRECTORIES: u64 = 1 << 10;
const DIRECTORY_BLOCKS: u64 = 1 << 7;
const ENTRIES_OF_BLOCK: u64 = 128;
const DATA: u64 = 1 << 12;
/// Blocks of a file at most.
const FILE_BLOCKS: u64 = 4;
/// What the processor takes for a create or a delete, as for a block elsewhere.
const PROCESSOR: Nanos = Nanos::from_millis(1);
const PROGRAMS: u64 = 8;
/// The paper's disk, and one of 2005.
const DISKS: [&str; 2] = ["hd286", "hdd-7200"];

/// A file system that hands out i-nodes and blocks.
struct FileSystem {
    prng: Prng,
    inodes: u64,
    data: u64,
    /// Bytes of all files that were created.
    file_bytes: u64,
}

/// A file: its i-node's block, its directory's block, its data.
#[derive(Clone, Copy)]
struct Made {
    inode: u64,
    directory: u64,
    data: (u64, u64),
}

impl FileSystem {
    fn new(seed: u64) -> Self {
        Self { prng: Prng::new(seed), inodes: 0, data: DATA, file_bytes: 0 }
    }

    fn create(&mut self, program: u64, number: u64) -> Made {
        let blocks = 1 + self.prng.below(FILE_BLOCKS);
        let inode = INODES + self.inodes / INODES_OF_BLOCK;
        let directory = DIRECTORIES + program * DIRECTORY_BLOCKS + number / ENTRIES_OF_BLOCK;
        let data = (self.data, blocks);
        (self.inodes, self.data) = (self.inodes + 1, self.data + blocks);
        self.file_bytes += blocks * BLOCK_BYTES;
        Made { inode, directory, data }
    }
}

/// Programs that create and delete.
struct Programs {
    system: FileSystem,
    /// Of each program its files that are there, and creates and deletes so far.
    files: Vec<VecDeque<Made>>,
    done: Vec<u64>,
    /// Creates and deletes of each program.
    each: u64,
    /// A program syncs after so many.
    sync_every: u64,
    ended: Nanos,
}

/// A step of a program: what is written, and what is discarded.
struct Change {
    made: Made,
    is_delete: bool,
}

impl Programs {
    fn new(programs: u64, each: u64, sync_every: u64, seed: u64) -> Self {
        let files = vec![VecDeque::new(); programs as usize];
        let done = vec![0; programs as usize];
        Self { system: FileSystem::new(seed), files, done, each, sync_every, ended: Nanos::ZERO }
    }

    /// Two files are created, then the oldest one is deleted.
    fn next(&mut self, program: u64) -> Option<Change> {
        let at = program as usize;
        if self.done[at] == self.each {
            return None;
        }
        self.done[at] += 1;
        if self.done[at].is_multiple_of(3)
            && let Some(made) = self.files[at].pop_front()
        {
            return Some(Change { made, is_delete: true });
        }
        let made = self.system.create(program, self.done[at]);
        self.files[at].push_back(made);
        Some(Change { made, is_delete: false })
    }

    fn all(&self) -> u64 {
        self.done.iter().sum()
    }
}

impl OverlayWorkload for Programs {
    fn start(&mut self, io: &mut OverlayIo<'_>) {
        (0..self.files.len() as u64).for_each(|program| io.wake(PROCESSOR, program));
    }

    fn handle_wake(&mut self, io: &mut OverlayIo<'_>, program: u64) {
        let Some(Change { made, is_delete }) = self.next(program) else { return };
        let mut writes = vec![(made.inode, 1), (made.directory, 1), BITMAPS[0], BITMAPS[1]];
        let mut discards = Vec::new();
        let changed = if is_delete { &mut discards } else { &mut writes };
        changed.push(made.data);
        io.change(program, program, &writes, &discards);
    }

    fn handle_taken(&mut self, io: &mut OverlayIo<'_>, program: u64) {
        let done = self.done[program as usize];
        if done.is_multiple_of(self.sync_every) || done == self.each {
            io.flush(program);
        } else {
            io.wake(io.now() + PROCESSOR, program);
        }
    }

    fn handle_flushed(&mut self, io: &mut OverlayIo<'_>, program: u64) {
        self.ended = io.now();
        io.wake(io.now() + PROCESSOR, program);
    }
}

/// The same programs on a disk that is written in place.
struct InPlace {
    programs: Programs,
    /// Of each request, the program that waits for it; and what each program writes behind it.
    of: Vec<Option<u64>>,
    owed: Vec<Option<u64>>,
}

impl InPlace {
    fn write(&mut self, io: &mut Io, waits: Option<u64>, (start, blocks): (u64, u64)) {
        let class = if waits.is_some() { SYNCHRONOUS } else { ASYNCHRONOUS };
        let range = ByteRange::new(start * BLOCK_BYTES, blocks * BLOCK_BYTES);
        io.request(class, PROGRAM, Direction::Write, range);
        self.of.push(waits);
    }
}

impl Workload for InPlace {
    fn start(&mut self, io: &mut Io) {
        (0..self.owed.len() as u64).for_each(|program| io.wake(PROCESSOR, program));
    }

    fn handle_wake(&mut self, io: &mut Io, program: u64) {
        let Some(Change { made, is_delete }) = self.programs.next(program) else { return };
        if !is_delete {
            self.write(io, None, made.data);
        }
        self.owed[program as usize] = Some(made.directory);
        self.write(io, Some(program), (made.inode, 1));
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        let Some(program) = self.of[request] else { return };
        match self.owed[program as usize].take() {
            Some(directory) => self.write(io, Some(program), (directory, 1)),
            None => {
                self.programs.ended = io.now();
                io.wake(io.now() + PROCESSOR, program);
            }
        }
    }
}

/// What a run gave.
#[derive(Clone, Copy)]
struct Outcome {
    /// Creates and deletes a second.
    rate: f64,
    /// Bytes to the disk by those of the files.
    amplified: f64,
    /// Bytes of the overlay's file by those of its data: at the end, and at most.
    space: f64,
    most_space: f64,
}

fn in_place(model: &Model, each: u64, seed: u64) -> f64 {
    let programs = Programs::new(PROGRAMS, each, 1, seed);
    let mut disk = InPlace { programs, of: Vec::new(), owed: vec![None; PROGRAMS as usize] };
    let station = model.writable_station().expect("the disk can be written to");
    simulate(model.kernel_config(), station, Nanos(u64::MAX), &mut disk);
    disk.programs.all() as f64 / disk.programs.ended.as_secs_f64()
}

fn logged(model: &Model, mut programs: Programs, config: OverlayConfig) -> Outcome {
    let station = model.writable_station().expect("the disk can be written to");
    let (_, counts, figures) = simulate_overlay(config, model.kernel_config(), station, &mut programs);
    let live = (figures.data_blocks * BLOCK_BYTES) as f64;
    Outcome {
        rate: programs.all() as f64 / programs.ended.as_secs_f64(),
        amplified: counts.written_bytes as f64 / programs.system.file_bytes as f64,
        space: counts.space_bytes as f64 / live,
        most_space: counts.most_space_bytes as f64 / live,
    }
}

/// Creates and deletes of each program.
const EACH: u64 = 240;
/// The same where the file's space is looked at.
const EACH_FOR_SPACE: u64 = 1_800;

pub(crate) fn run(seed: u64) -> Report {
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for disk in DISKS {
        let model = Model::writable(disk);
        let config = OverlayConfig::new(BLOCKS * BLOCK_BYTES);
        let many = |each| Programs::new(PROGRAMS, each, 1, seed);
        let place = in_place(&model, EACH, seed);
        let off = logged(&model, many(EACH), OverlayConfig { gathers: false, ..config });
        let on = logged(&model, many(EACH), config);
        let synced = logged(&model, Programs::new(1, PROGRAMS * EACH, 100, seed), config);
        for (name, found) in [("a flush for each", off), ("gathered", on), ("synced", synced)] {
            let numbers = [found.rate, place, found.amplified].map(|number| Cell::Number(number, 2));
            rows.push([disk.into(), name.into()].into_iter().chain(numbers).collect());
        }
        figures.extend([
            Figure::new(format!("creates and deletes a second ÷ in place, {disk}"), on.rate / place)
                .off(off.rate / place),
            Figure::new(format!("bytes to the disk ÷ bytes of files, {disk}"), on.amplified)
                .off(off.amplified),
            Figure::new(format!("bytes to the disk ÷ bytes of files, synced, {disk}"), synced.amplified)
                .off(off.amplified),
        ]);
        if disk != DISKS[1] {
            continue;
        }
        let [kept, given] = [false, true]
            .map(|gives_back| logged(&model, many(EACH_FOR_SPACE), OverlayConfig { gives_back, ..config }));
        figures.extend([
            Figure::new(format!("space of the overlay's file ÷ its data, at rest, {disk}"), given.space)
                .off(kept.space)
                .target(Target::AtMost(1.3)),
            Figure::new(format!("the most space ÷ its data, {disk}"), given.most_space).off(kept.most_space),
        ]);
    }
    let columns = vec![
        "disk",
        "writes",
        "creates and deletes a second",
        "in place",
        "bytes to the disk ÷ bytes of files",
    ];
    Report { columns, rows, figures, seed: Some(seed) }
}
