//! Power cuts at any step: what was flushed is there, and no block is what was never written to it.
//!
//! `HEADSTART_POWER_CUTS` is how many; a failure names its seed, and `HEADSTART_POWER_CUTS_FROM` begins
//! there.

use hs_overlay::Limits;
use hs_units::Prng;

use crate::world::{BLOCKS, Version, World, ZERO};

const DEFAULT_CUTS: u64 = 300;
/// Cuts of one file before another is begun.
const CUTS_OF_FILE: u64 = 10;

/// All versions of each block since the last one that a flush has answered for.
struct Known(Vec<Vec<Version>>);

impl Known {
    fn written(&mut self, start: u64, len: u64, version: Version) {
        self.0[start as usize..(start + len) as usize].iter_mut().for_each(|block| block.push(version));
    }

    /// How many versions each block has now.
    fn lengths(&self) -> Vec<usize> {
        self.0.iter().map(Vec::len).collect()
    }

    /// Of each block the versions up to this one are over: a flush was answered that came after it.
    fn flushed(&mut self, lengths: &[usize], offsets: &mut [usize]) {
        for ((block, length), offset) in self.0.iter_mut().zip(lengths).zip(offsets) {
            let over = (length - 1).saturating_sub(*offset);
            block.drain(..over);
            *offset += over;
        }
    }
}

/// One life of a file, up to a power cut; gives the file behind it.
fn live(world: &mut World, known: &mut Known, version: &mut Version, prng: &mut Prng) {
    let mut flushes: Vec<(u64, Vec<usize>)> = Vec::new();
    let mut offsets = vec![0; BLOCKS as usize];
    let small = prng.below(2) == 0;
    for _ in 0..prng.below(80) {
        *version += 1;
        let start = prng.below(BLOCKS);
        let most = if small { 3 } else { 200 };
        let len = 1 + prng.below((BLOCKS - start).min(most));
        let what = prng.below(13);
        match what {
            0..5 => {
                world.write(start, &vec![*version; len as usize]);
                known.written(start, len, *version);
            }
            5 => {
                world.zero(start, len, prng.below(2) == 0);
                known.written(start, len, ZERO);
            }
            6..9 => {
                let mut lengths = known.lengths();
                lengths.iter_mut().zip(&offsets).for_each(|(length, offset)| *length += offset);
                flushes.push((world.overlay.handle_flush(), lengths));
                if what == 8 {
                    while world.step() {}
                    world.shrink();
                }
            }
            _ => {
                for _ in 0..=prng.below(8) {
                    world.step();
                }
            }
        }
        flushes.retain(|(batch, lengths)| {
            let is_durable = world.overlay.is_durable(*batch);
            if is_durable {
                known.flushed(lengths, &mut offsets);
            }
            !is_durable
        });
    }
}

fn run(seed: u64) -> (u64, u64) {
    let mut prng = Prng::new(seed);
    let limits = Limits {
        write_back_bytes: (1 + prng.below(300)) << 12,
        gathered_bytes: (300 + prng.below(300)) << 12,
        log_blocks: 4 + prng.below(600),
    };
    let mut world = World::create(limits);
    let mut known = Known(vec![vec![0]; BLOCKS as usize]);
    let (mut version, mut moved) = (0, 0);
    for cut in 0..CUTS_OF_FILE {
        live(&mut world, &mut known, &mut version, &mut prng);
        moved += world.moved;
        let device = world.device.cut(&mut prng);
        world = World::open(device, limits)
            .unwrap_or_else(|error| panic!("seed {seed}, cut {cut}: the file cannot be opened: {error}"));
        for (block, found) in world.versions().into_iter().enumerate() {
            let possible = &known.0[block];
            assert!(
                possible.contains(&found),
                "seed {seed}, cut {cut}: block {block} has version {found}, and can only have {possible:?}"
            );
            known.0[block] = vec![found];
        }
    }
    (CUTS_OF_FILE, moved)
}

#[allow(clippy::disallowed_methods, reason = "how many cuts is a setting of the test")]
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

#[test]
fn what_was_flushed_survives_power_cuts() {
    let cuts = number("HEADSTART_POWER_CUTS").unwrap_or(DEFAULT_CUTS);
    let mut seed = number("HEADSTART_POWER_CUTS_FROM").unwrap_or(1);
    let (mut done, mut moved) = (0, 0);
    while done < cuts {
        let run = run(seed);
        (done, moved) = (done + run.0, moved + run.1);
        seed += 1;
    }
    assert!(moved > 0, "no segment was ever moved");
}
