//! Somebody who reads.

use hs_units::{Nanos, Prng};

/// What is read as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Piece {
    Hot(u32),
    Cold(u32),
}

/// What kind of reader it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Habit {
    /// As the profile says, with something else now and then.
    Start,
    /// Anywhere.
    Random,
    /// One piece after the other, from somewhere.
    Sequential,
}

pub(super) struct Client {
    habit: Habit,
    next: u32,
    /// Reads that it still makes.
    pub(super) left: u32,
    think: u64,
    /// Of 10,000 reads of a start so many are not in the profile.
    strays: u64,
}

impl Client {
    /// One that reads of so many cold pieces, or mostly what the profile says.
    pub(super) fn new(prng: &mut Prng, cold: u32, as_recorded: bool) -> Self {
        let habits = [Habit::Start, Habit::Random, Habit::Sequential];
        let habit = if as_recorded { Habit::Start } else { habits[prng.below(3) as usize] };
        let next = if habit == Habit::Start { 0 } else { prng.below(cold.into()) as u32 };
        let strays = if as_recorded { 1 + prng.below(20) } else { 200 };
        Self { habit, next, left: 500 + prng.below(3_000) as u32, think: 1 + prng.below(2_000_000), strays }
    }

    /// What it reads now, of so many hot and cold pieces.
    pub(super) fn choose(&mut self, prng: &mut Prng, hot: u32, cold: u32) -> Piece {
        let any = |prng: &mut Prng| Piece::Cold(prng.below(cold.into()) as u32);
        match self.habit {
            Habit::Start if self.next < hot && prng.below(10_000) >= self.strays => {
                self.next += 1;
                Piece::Hot(self.next - 1)
            }
            Habit::Start if hot > 0 && prng.below(2) == 0 => Piece::Hot(prng.below(hot.into()) as u32),
            Habit::Sequential => {
                self.next = (self.next + 1) % cold;
                Piece::Cold(self.next)
            }
            Habit::Start | Habit::Random => any(prng),
        }
    }

    /// How long it thinks before the next read.
    pub(super) fn thinks(&self, prng: &mut Prng) -> Nanos {
        Nanos(prng.below(self.think))
    }
}
