//! A client that reads.

use hs_engine::queue::Class;
use hs_units::{BLOCK_BYTES, ByteRange, Nanos, Prng};

use super::image::{Image, RAW, WINDOW_BLOCKS};

/// What kind of reader it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Habit {
    /// As the profile says, with something else now and then.
    Start,
    /// Anywhere.
    Random,
    /// One window after the other, from somewhere.
    Sequential,
}

pub(super) struct Client {
    habit: Habit,
    next: u64,
    /// Reads that it still makes.
    pub(super) left: u32,
    think: u64,
    /// Of 10,000 reads of a start so many are not in the profile.
    strays: u64,
    /// How urgent its reads are.
    pub(super) class: Class,
}

impl Client {
    /// One that reads of so many windows, or mostly what the profile says.
    pub(super) fn new(prng: &mut Prng, windows: u64, as_recorded: bool) -> Self {
        let habits = [Habit::Start, Habit::Random, Habit::Sequential];
        let habit = if as_recorded { Habit::Start } else { habits[prng.below(3) as usize] };
        let next = if habit == Habit::Start { 0 } else { prng.below(windows) };
        let strays = if as_recorded { 1 + prng.below(20) } else { 200 };
        let class = if prng.below(10) == 0 { Class::Fill } else { Class::Demand };
        Self {
            habit,
            next,
            left: 200 + prng.below(1_200) as u32,
            think: 1 + prng.below(2_000_000),
            strays,
            class,
        }
    }

    /// What it reads now.
    pub(super) fn choose(&mut self, prng: &mut Prng, image: &Image) -> ByteRange {
        let windows = image.windows;
        let any = |prng: &mut Prng| {
            let block = prng.below(windows * WINDOW_BLOCKS);
            // Over the end of a window now and then.
            ByteRange::new(block * BLOCK_BYTES, (1 + prng.below(40)) * BLOCK_BYTES)
        };
        let hot = |chunk: u64, prng: &mut Prng| {
            // A part of it, or all of the two windows of which it has parts.
            let first = Image::block_of(chunk as u32, prng.below(WINDOW_BLOCKS));
            match prng.below(16) {
                0 => ByteRange::new(chunk * 2 * RAW, 2 * RAW),
                1 => ByteRange::new(first * BLOCK_BYTES + prng.below(4_000), 1 + prng.below(9_000)),
                _ => ByteRange::new(first * BLOCK_BYTES, BLOCK_BYTES * (1 + prng.below(8))),
            }
        };
        let range = match self.habit {
            Habit::Start if self.next < image.hot.into() && prng.below(10_000) >= self.strays => {
                self.next += 1;
                hot(self.next - 1, prng)
            }
            Habit::Start if image.hot > 0 && prng.below(2) == 0 => hot(prng.below(image.hot.into()), prng),
            Habit::Sequential => {
                self.next = (self.next + 1) % windows;
                ByteRange::new(self.next * RAW, RAW)
            }
            Habit::Start | Habit::Random => any(prng),
        };
        ByteRange::new(range.offset, range.len.min(windows * RAW - range.offset))
    }

    /// How long it thinks before the next read.
    pub(super) fn thinks(&self, prng: &mut Prng) -> Nanos {
        Nanos(prng.below(self.think))
    }
}
