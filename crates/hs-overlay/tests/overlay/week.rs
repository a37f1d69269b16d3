//! A week of random overwrites: the space of the file stays near that of its data.

use std::collections::HashMap;

use hs_overlay::{Job, Limits, Overlay, Refusal, Step};
use hs_units::{BLOCK_BYTES, ByteRange, Prng};

use crate::power_cuts::number;
use crate::world::BLOCK;

/// Blocks of the disk, all of which are written at first: 256 MiB.
const BLOCKS: u64 = 1 << 16;
/// What each block that is written holds.
const DATA: u8 = 1;
/// Hours of `make test`; `HEADSTART_OVERLAY_HOURS=168` is a week.
const HOURS: u64 = 4;

/// A file, of which the blocks that hold data are not kept.
#[derive(Default)]
struct File {
    /// Blocks with space, and the first byte of each.
    space: HashMap<u64, u8>,
    /// Blocks that hold anything else than one byte.
    others: HashMap<u64, Vec<u8>>,
    written_bytes: u64,
}

impl File {
    fn run(&mut self, job: &Job) {
        for step in &job.steps {
            match step {
                Step::Write { offset, bytes } => {
                    self.written_bytes += bytes.len() as u64;
                    for (block, bytes) in (offset / BLOCK_BYTES..).zip(bytes.chunks(BLOCK)) {
                        self.space.insert(block, bytes[0]);
                        self.others.remove(&block);
                        if bytes != [bytes[0]; BLOCK] {
                            self.others.insert(block, bytes.to_vec());
                        }
                    }
                }
                Step::Allocate { offset, len } => blocks(*offset, *len).for_each(|block| {
                    self.space.entry(block).or_default();
                }),
                Step::Punch { offset, len } => blocks(*offset, *len).for_each(|block| {
                    self.space.remove(&block);
                    self.others.remove(&block);
                }),
                Step::Sync | Step::Quiesce => {}
            }
        }
    }

    fn read(&self, range: ByteRange) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(range.len as usize);
        for block in blocks(range.offset, range.len) {
            let data = self.space.get(&block).copied().unwrap_or_default();
            match self.others.get(&block) {
                Some(other) => bytes.extend_from_slice(other),
                None => bytes.resize(bytes.len() + BLOCK, data),
            }
        }
        bytes
    }
}

fn blocks(offset: u64, len: u64) -> std::ops::Range<u64> {
    offset / BLOCK_BYTES..(offset + len) / BLOCK_BYTES
}

struct Disk {
    overlay: Overlay,
    file: File,
}

impl Disk {
    fn new() -> Self {
        let identity = hs_overlay::Identity { disk_bytes: BLOCKS * BLOCK_BYTES, ..crate::world::identity() };
        let (overlay, job) = Overlay::create(identity, Limits::default());
        let mut disk = Self { overlay, file: File::default() };
        disk.file.run(&job);
        (0..BLOCKS).step_by(256).for_each(|start| disk.write(start, 256));
        disk.flush();
        disk
    }

    fn run_all(&mut self) {
        while let Some(job) = self.overlay.poll() {
            self.file.run(&job);
            self.overlay.handle_done();
        }
    }

    fn flush(&mut self) {
        self.overlay.handle_flush();
        self.run_all();
    }

    fn write(&mut self, start: u64, blocks: u64) {
        let bytes = vec![DATA; (blocks * BLOCK_BYTES) as usize];
        while let Err(refusal) = self.overlay.handle_write(start, &bytes) {
            self.make_room(refusal, blocks);
        }
    }

    fn make_room(&mut self, refusal: Refusal, blocks: u64) {
        if refusal == Refusal::NeedsSpace
            && let Some(job) = self.overlay.space_needed(blocks)
        {
            self.file.run(&job);
            self.overlay.handle_done();
        } else {
            self.run_all();
        }
    }

    /// What is done where nothing else is, or between writes.
    fn shrink(&mut self, is_idle: bool) {
        while let Some(segments) = self.overlay.sparse(is_idle) {
            for range in segments {
                let bytes = self.file.read(range);
                while let Err(refusal) = self.overlay.handle_segment(range, &bytes) {
                    self.make_room(refusal, 256);
                }
            }
            self.flush();
        }
    }

    fn ratio(&self) -> f64 {
        self.file.space.len() as f64 / self.overlay.figures().data_blocks as f64
    }
}

/// Hours of overwrites with these lengths, synced each, and a pause at the end of each hour. In an hour a
/// sixteenth of the disk is written. Gives the largest space at the end of an hour and within one, by the
/// data.
fn week(seed: u64, lengths: &std::ops::RangeInclusive<u64>, hours: u64, is_skewed: bool) -> (f64, f64) {
    let (mut prng, mut disk) = (Prng::new(seed), Disk::new());
    let (mut after, mut within, mut bytes) = (0.0_f64, 0.0_f64, 0);
    for _ in 0..hours {
        let mut written = 0;
        while written < BLOCKS / 16 {
            let blocks = lengths.start() + prng.below(lengths.end() - lengths.start() + 1);
            let is_hot = is_skewed && prng.below(10) > 0;
            disk.write(prng.below(if is_hot { BLOCKS / 10 } else { BLOCKS - blocks }), blocks);
            disk.flush();
            disk.shrink(false);
            written += blocks;
        }
        bytes += written * BLOCK_BYTES;
        within = within.max(disk.ratio());
        disk.shrink(true);
        after = after.max(disk.ratio());
    }
    // What of it the log and the moves have written for each byte.
    let amplified = (disk.file.written_bytes - (BLOCKS * BLOCK_BYTES)) as f64 / bytes as f64;
    eprintln!("{lengths:?} {is_skewed}: after {after:.3}, within {within:.3}, written {amplified:.2}");
    (after, within)
}

#[test]
fn a_file_stays_near_its_data() {
    let hours = number("HEADSTART_OVERLAY_HOURS").unwrap_or(HOURS);
    for (lengths, is_skewed) in [(1..=1, false), (1..=64, true), (64..=256, false)] {
        let (after, within) = week(1, &lengths, hours, is_skewed);
        assert!(after <= 1.2 && within <= 1.6, "{lengths:?}: {after} after an hour, {within} within");
    }
}

/// What the medium has changed is not written again as if it was right.
#[test]
fn a_damaged_block_is_not_moved() {
    let mut disk = Disk::new();
    for start in (0..BLOCKS).filter(|block| block % 4 > 0) {
        disk.write(start, 1);
    }
    disk.flush();
    let mut place = None;
    disk.overlay.lookup(100, 101, &mut |piece| place = Some(piece.source));
    let Some(hs_overlay::Source::File(offset)) = place else { panic!("{place:?}") };
    disk.file.space.insert(offset / BLOCK_BYTES, DATA + 1);
    let before = disk.file.space.len();
    disk.shrink(true);
    assert!(disk.file.space.len() < before - (BLOCKS / 2) as usize, "{} of {before}", disk.file.space.len());
    disk.overlay.lookup(100, 101, &mut |piece| assert_eq!(Some(piece.source), place));
    let mut checking = hs_overlay::Checking::new(&disk.overlay);
    while let Some(range) = checking.poll() {
        checking.handle_bytes(&disk.file.read(range));
    }
    assert_eq!(checking.finish().named, [100]);
}
