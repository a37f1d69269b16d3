//! Sequential reads of a disk whose changes are kept, before and after `overlay compact`.
//!
//! All of a disk is written, then half of it again, block by block at random, each synced. A program reads
//! the disk from its beginning to its end. *Compacted*: the log is written anew in the order of the disk, as
//! the command does. *Plain*: a file that holds the same.

use hs_engine::queue::{Class, ClientKey, Direction};
use hs_overlay::{Content, Identity, Limits, Overlay, Refusal, Source};
use hs_units::{BLOCK_BYTES, ByteRange, Digest, Nanos, Prng};

use crate::models::Model;
use crate::report::{Cell, Figure, Report, Target};
use crate::simulation::{Io, Workload, simulate};

/// Blocks of the disk: 64 MiB.
const BLOCKS: u64 = 1 << 14;
/// Blocks of a segment, in which the command copies at most.
const PIECE: u64 = 256;
/// What the kernel reads ahead at a time, and how many such reads are under way.
const WINDOW_BYTES: u64 = 128 << 10;
const WINDOWS: usize = 2;
const MEDIA: [&str; 3] = ["hd286", "hdd-7200", "ssd-sata"];

fn empty() -> Overlay {
    let identity = Identity { id: [1; 16], disk_digest: Digest([1; 32]), disk_bytes: BLOCKS * BLOCK_BYTES };
    Overlay::create(identity, Limits::default()).0
}

/// Does what is to be done; time does not matter here.
fn run_all(overlay: &mut Overlay) {
    while overlay.poll().is_some() {
        overlay.handle_done();
    }
}

fn write(overlay: &mut Overlay, start: u64, blocks: u64) {
    let bytes = vec![1; (blocks * BLOCK_BYTES) as usize];
    while let Err(refusal) = overlay.handle_write(start, &bytes) {
        if refusal == Refusal::NeedsSpace && overlay.space_needed(blocks).is_some() {
            overlay.handle_done();
        } else {
            run_all(overlay);
        }
    }
}

fn overwritten(seed: u64) -> Overlay {
    let (mut prng, mut overlay) = (Prng::new(seed), empty());
    (0..BLOCKS).step_by(PIECE as usize).for_each(|start| write(&mut overlay, start, PIECE));
    for _ in 0..BLOCKS / 2 {
        write(&mut overlay, prng.below(BLOCKS), 1);
        overlay.handle_flush();
        run_all(&mut overlay);
    }
    overlay
}

/// What `overlay compact` makes of it.
fn compacted(overlay: &Overlay) -> Overlay {
    let mut copy = empty();
    for (start, blocks, content) in overlay.extents() {
        assert!(matches!(content, Content::Data(_)), "all of the disk was written");
        write(&mut copy, start, blocks);
    }
    copy.handle_close();
    run_all(&mut copy);
    copy
}

/// Where the disk's blocks lie in the file, in the order of the disk, window by window.
fn windows(overlay: &Overlay) -> Vec<Vec<ByteRange>> {
    let window = WINDOW_BYTES / BLOCK_BYTES;
    let pieces = |start| {
        let mut ranges = Vec::new();
        overlay.lookup(start, start + window, &mut |piece| {
            let Source::File(at) = piece.source else { panic!("{piece:?}") };
            ranges.push(ByteRange::new(at, (piece.end - piece.start) * BLOCK_BYTES));
        });
        ranges
    };
    (0..BLOCKS).step_by(window as usize).map(pieces).collect()
}

fn plain() -> Vec<Vec<ByteRange>> {
    let window = |at| vec![ByteRange::new(at, WINDOW_BYTES)];
    (0..BLOCKS * BLOCK_BYTES).step_by(WINDOW_BYTES as usize).map(window).collect()
}

/// A program for which the kernel reads ahead.
struct Reader {
    windows: Vec<Vec<ByteRange>>,
    next: usize,
    /// Of each request its window, and of each window the requests that have not ended.
    of: Vec<usize>,
    left: Vec<usize>,
}

impl Reader {
    fn read(&mut self, io: &mut Io) {
        let Some(ranges) = self.windows.get(self.next) else { return };
        for range in ranges {
            io.request(Class::Demand, ClientKey(1), Direction::Read, *range);
            self.of.push(self.next);
        }
        self.left.push(ranges.len());
        self.next += 1;
    }
}

impl Workload for Reader {
    fn start(&mut self, io: &mut Io) {
        (0..WINDOWS).for_each(|_| self.read(io));
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        let window = self.of[request];
        self.left[window] -= 1;
        if self.left[window] == 0 {
            self.read(io);
        }
    }
}

/// MB a second, and seeks a MiB.
fn read(model: &Model, windows: Vec<Vec<ByteRange>>) -> (f64, f64) {
    let mut reader = Reader { windows, next: 0, of: Vec::new(), left: Vec::new() };
    let station = model.writable_station().expect("the medium can be written to");
    let run = simulate(model.kernel_config(), station, Nanos(u64::MAX), &mut reader);
    let jumps = |pair: &&[crate::Sent]| pair[0].dispatch.range.end() != pair[1].dispatch.range.offset;
    let (bytes, seeks) = ((BLOCKS * BLOCK_BYTES) as f64, run.sent.windows(2).filter(jumps).count());
    (bytes / 1e6 / run.ended.as_secs_f64(), seeks as f64 / (bytes / (1 << 20) as f64))
}

pub(super) fn run(seed: u64) -> Report {
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    let before = overwritten(seed);
    let after = compacted(&before);
    for name in MEDIA {
        let model = Model::writable(name);
        let reads = [
            ("a plain file", plain()),
            ("half overwritten", windows(&before)),
            ("compacted", windows(&after)),
        ];
        let rates = reads.map(|(what, windows)| {
            let (rate, seeks) = read(&model, windows);
            rows.push(vec![name.into(), what.into(), Cell::Number(rate, 2), Cell::Number(seeks, 1)]);
            rate
        });
        let [plain, before, after] = rates;
        figures.push(
            Figure::new(format!("reads after compact ÷ of a plain file, {name}"), after / plain)
                .off(before / plain)
                .target(Target::AtLeast(0.9)),
        );
    }
    let columns = vec!["medium", "read", "MB/s of reading", "jumps a MiB"];
    Report { columns, rows, figures, seed: Some(seed) }
}
