//! A week of random overwrites: the space of the file stays near that of its data.

use hs_overlay::{Job, Limits, Overlay, Refusal, Step};
use hs_units::{BLOCK_BYTES, Prng};

/// The space of a file, without its content.
#[derive(Default)]
struct Space {
    taken: Vec<bool>,
}

impl Space {
    fn set(&mut self, offset: u64, len: u64, is_taken: bool) {
        let (first, end) = ((offset / BLOCK_BYTES) as usize, (offset + len).div_ceil(BLOCK_BYTES) as usize);
        self.taken.resize(self.taken.len().max(end), false);
        self.taken[first..end].fill(is_taken);
    }

    fn run(&mut self, job: &Job) {
        for step in &job.steps {
            match step {
                Step::Write { offset, bytes } => self.set(*offset, bytes.len() as u64, true),
                Step::Allocate { offset, len } => self.set(*offset, *len, true),
                Step::Punch { offset, len } => self.set(*offset, *len, false),
                Step::Sync | Step::Quiesce => {}
            }
        }
    }

    fn blocks(&self) -> u64 {
        self.taken.iter().filter(|taken| **taken).count() as u64
    }
}

/// Blocks of the disk, all of which are written at first.
const BLOCKS: u64 = 256 << 8;

fn run_all(overlay: &mut Overlay, space: &mut Space) {
    while let Some(job) = overlay.poll() {
        space.run(&job);
        overlay.handle_done();
    }
}

fn write(overlay: &mut Overlay, space: &mut Space, start: u64, blocks: u64) {
    let bytes = vec![1; (blocks * BLOCK_BYTES) as usize];
    while let Err(refusal) = overlay.handle_write(start, &bytes) {
        if refusal == Refusal::NeedsSpace
            && let Some(job) = overlay.space_needed(blocks)
        {
            space.run(&job);
            overlay.handle_done();
        } else {
            run_all(overlay, space);
        }
    }
}

/// Overwrites with these lengths, synced each, until the disk was written so many times; gives the largest
/// space after the first time, by the data.
fn week(seed: u64, lengths: std::ops::RangeInclusive<u64>, times: u64, hot: bool) -> f64 {
    let mut identity = crate::world::identity();
    identity.disk_bytes = BLOCKS * BLOCK_BYTES;
    let (mut overlay, job) = Overlay::create(identity, Limits::default());
    let (mut prng, mut space) = (Prng::new(seed), Space::default());
    space.run(&job);
    for start in (0..BLOCKS).step_by(256) {
        write(&mut overlay, &mut space, start, 256);
    }
    overlay.handle_flush();
    run_all(&mut overlay, &mut space);
    let (mut written, mut most) = (0, 0.0_f64);
    let mut next = BLOCKS / 16;
    while written < times * BLOCKS {
        let blocks = lengths.start() + prng.below(lengths.end() - lengths.start() + 1);
        let range = if hot && prng.below(10) > 0 { BLOCKS / 10 } else { BLOCKS - blocks };
        write(&mut overlay, &mut space, prng.below(range), blocks);
        written += blocks;
        overlay.handle_flush();
        run_all(&mut overlay, &mut space);
        if written > next {
            next += BLOCKS / 16;
            most = most.max(space.blocks() as f64 / overlay.figures().data_blocks as f64);
        }
    }
    most
}

#[test]
fn space_stays_near_the_data() {
    for (lengths, hot) in [(1..=1, false), (1..=1, true), (1..=64, false), (1..=64, true), (64..=256, false)] {
        eprintln!("{lengths:?} hot {hot}: {:.3}", week(1, lengths.clone(), 2, hot));
    }
}
