//! Whether an append waits for the writers that the last one has answered.
//!
//! A writer that flushes again and again comes back a moment after its answer. The first of several would
//! take an append for itself, and all others the next one. So what is due waits until as many flushes are
//! there as the last append answered and left waiting. The wait is a small part of what that append took, so
//! a writer that stays away costs the others little, and it is not waited for a second time. Where waits are
//! in vain, because writers come back late or in no order, they become rare. A writer alone is never waited
//! for. (PostgreSQL has the idea as `commit_delay` and `commit_siblings`.)

use hs_units::Nanos;

use crate::overlay::Overlay;

/// The part of the last append's time that the next one may wait.
const PART_OF_APPEND: u64 = 8;
/// Appends without a wait after waits in vain, at most.
const MOST_WITHOUT: u32 = 63;

/// The flushes of a batch, of the one before, and what is known of those who make them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Siblings {
    /// Flushes of the gathered batch.
    waiting: u64,
    /// Flushes of the batch on its way.
    on_its_way: u64,
    /// Flushes that may come together.
    expected: u64,
    /// What the last append took.
    took: Nanos,
    /// Appends that do not wait after the next wait in vain, and that are still to come after the last one.
    penalty: u32,
    without: u32,
}

impl Siblings {
    pub(crate) const fn flush(&mut self) {
        self.waiting += 1;
    }

    /// A flush of what is on its way already.
    pub(crate) const fn flush_on_its_way(&mut self) {
        self.on_its_way += 1;
    }

    pub(crate) fn append(&mut self) {
        if self.expected > 1 {
            let in_vain = self.waiting < self.expected;
            self.penalty = if in_vain { (2 * self.penalty + 1).min(MOST_WITHOUT) } else { self.penalty / 2 };
            self.without = if in_vain { self.penalty } else { 0 };
        }
        self.on_its_way = std::mem::take(&mut self.waiting);
    }

    pub(crate) fn done(&mut self) {
        self.expected = std::mem::take(&mut self.on_its_way) + self.waiting;
        self.took = Nanos::ZERO;
        if self.without > 0 {
            self.without -= 1;
            self.expected = 0;
        }
    }

    pub(crate) const fn took(&mut self, took: Nanos) {
        self.took = took;
    }

    /// Those that wait are told of the failure.
    pub(crate) const fn failed(&mut self) {
        let Self { penalty, without, .. } = *self;
        *self = Self { waiting: 0, on_its_way: 0, expected: 0, took: Nanos::ZERO, penalty, without };
    }

    /// How long the next append waits from the end of the last one on; zero when all are there.
    const fn wait(&self) -> Nanos {
        if 0 < self.waiting && self.waiting < self.expected {
            return Nanos(self.took.0 / PART_OF_APPEND);
        }
        Nanos::ZERO
    }
}

impl Overlay {
    /// How much longer the next append is to wait for writers that the last one has answered, which ended so
    /// long ago. To be asked before [`Overlay::poll`] and [`Overlay::poll_append`]; nothing is lost where it
    /// is not.
    #[must_use]
    pub fn waits_for_writers(&self, since_append: Nanos) -> Option<Nanos> {
        if !self.is_due_by_flush_alone() {
            return None;
        }
        let rest = self.siblings.wait().saturating_sub(since_append);
        (rest > Nanos::ZERO).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(flushes: u64, meanwhile: u64, took: u64) -> Siblings {
        let mut siblings = Siblings::default();
        (0..flushes).for_each(|_| siblings.flush());
        siblings.append();
        (0..meanwhile).for_each(|_| siblings.flush());
        siblings.done();
        siblings.took(Nanos(took));
        siblings
    }

    #[test]
    fn all_that_were_there_are_waited_for() {
        let mut siblings = after(7, 1, 800);
        for _ in 1..8 {
            assert_eq!(siblings.wait(), Nanos(100));
            siblings.flush();
        }
        assert_eq!(siblings.wait(), Nanos::ZERO);
    }

    #[test]
    fn one_that_stays_away_is_waited_for_once() {
        let mut siblings = after(2, 0, 800);
        siblings.flush();
        assert_eq!(siblings.wait(), Nanos(100));
        siblings.append();
        siblings.done();
        siblings.took(Nanos(800));
        siblings.flush();
        assert_eq!(siblings.wait(), Nanos::ZERO);
    }

    #[test]
    fn waits_in_vain_become_rare() {
        let mut siblings = Siblings::default();
        siblings.flush();
        let mut waits = |together: bool| {
            siblings.append();
            if !together {
                siblings.flush();
            }
            siblings.done();
            siblings.took(Nanos(800));
            if together {
                siblings.flush();
            }
            let waits = siblings.wait() > Nanos::ZERO;
            if together {
                siblings.flush();
            }
            waits
        };
        // Two writers, of which one comes back during the append of the other.
        assert!((0..1_000).filter(|_| waits(false)).count() < 25);
        // Where both come a moment after their answers, each append waits again.
        assert!((0..1_000).filter(|_| waits(true)).count() > 900);
    }

    #[test]
    fn a_writer_alone_is_not_waited_for() {
        assert_eq!(after(1, 0, 800).wait(), Nanos::ZERO);
        let mut siblings = after(1, 0, 800);
        siblings.flush();
        assert_eq!(siblings.wait(), Nanos::ZERO);
        // Nor is it where no time is told.
        let mut siblings = after(3, 0, 0);
        siblings.flush();
        assert_eq!(siblings.wait(), Nanos::ZERO);
    }
}
