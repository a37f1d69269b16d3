//! Windows that an earlier start from the same image has read, in its order.
//!
//! The next start reads nearly all of them again, so their bytes are transferred anyway. What a window costs
//! is its transfer, times the chance that it is not needed; what it saves is a latency, times the chance that
//! it is. The chance is observed: it is the share of the reads that the earlier start has made as well.

use std::collections::BTreeSet;

/// The most windows that are kept. A start that reads more is not shortened by much at its end.
const MOST_WINDOWS: usize = 1 << 16;
/// So many windows that follow each other come in the order in which they lie on the disk. That saves seeks
/// and requests, and few of them come later than the program wants them.
const GROUP: usize = 64;
/// The chance that a window is needed before anything is observed: starts with one command differ by a few
/// windows.
const ASSUMED_CHANCE: f64 = 0.9;
/// How many reads that assumption weighs.
const ASSUMED_READS: f64 = 64.0;

/// See [the module](self).
#[derive(Debug, Default)]
pub(crate) struct Learned {
    windows: Vec<u64>,
    /// Those before this one are not wanted any more.
    next: usize,
    set: BTreeSet<u64>,
    reads: u64,
    foreseen: u64,
}

impl Learned {
    /// These windows, the first to be read first. Each is kept once, and only the first of too many.
    pub(crate) fn new(in_order: impl IntoIterator<Item = u64>) -> Self {
        let mut set = BTreeSet::new();
        let mut windows: Vec<u64> =
            in_order.into_iter().filter(|window| set.insert(*window)).take(MOST_WINDOWS).collect();
        windows.chunks_mut(GROUP).for_each(<[u64]>::sort_unstable);
        Self { windows, set, ..Self::default() }
    }

    pub(crate) const fn len(&self) -> usize {
        self.windows.len()
    }

    pub(crate) fn contains(&self, window: u64) -> bool {
        self.set.contains(&window)
    }

    /// A window is read.
    pub(crate) fn handle_read(&mut self, window: u64) {
        self.reads += 1;
        self.foreseen += u64::from(self.contains(window));
    }

    /// The chance that one of them is needed.
    pub(crate) fn chance(&self) -> f64 {
        (self.foreseen as f64 + ASSUMED_CHANCE * ASSUMED_READS) / (self.reads as f64 + ASSUMED_READS)
    }

    /// The next one that `is_wanted`; none when none is any more.
    pub(crate) fn next(&mut self, is_wanted: impl FnMut(u64) -> bool) -> Option<u64> {
        let wanted = self.windows[self.next..].iter().copied().position(is_wanted);
        self.next = wanted.map_or(self.windows.len(), |wanted| self.next + wanted);
        self.windows.get(self.next).copied()
    }

    /// Those of its group that lie behind a window that was the next one, ascending.
    pub(crate) fn behind(&self, window: u64) -> impl Iterator<Item = u64> {
        let end = (self.next / GROUP + 1) * GROUP;
        let group = &self.windows[self.next..end.min(self.windows.len())];
        group.iter().copied().filter(move |other| *other > window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_once_and_neighbours_come_together() {
        let mut learned = Learned::new([9, 3, 9, 4, 3, 100]);
        let mut had = Vec::new();
        while let Some(window) = learned.next(|window| !had.contains(&window)) {
            assert!(learned.behind(window).all(|other| other > window));
            had.push(window);
        }
        assert_eq!(had, [3, 4, 9, 100]);
        assert_eq!(Learned::new([9, 3, 4]).behind(3).collect::<Vec<_>>(), [4, 9]);
    }

    #[test]
    fn groups_come_in_the_order_in_which_they_were_read() {
        let late_first = (0..GROUP as u64).map(|window| 1000 - window).chain([7, 5]);
        let mut learned = Learned::new(late_first);
        assert_eq!(learned.next(|_| true), Some(1001 - GROUP as u64));
        assert_eq!(learned.behind(1001 - GROUP as u64).last(), Some(1000), "not of the next group");
        assert_eq!(learned.next(|window| window < 1001 - GROUP as u64), Some(5));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        assert_eq!(Learned::new(0..2 * MOST_WINDOWS as u64).len(), MOST_WINDOWS);
    }

    #[test]
    fn reads_of_other_windows_lower_the_chance() {
        let mut learned = Learned::new(0..100);
        let before = learned.chance();
        (0..50).for_each(|window| learned.handle_read(window));
        assert!(learned.chance() > before);
        (200..800).for_each(|window| learned.handle_read(window));
        assert!(learned.chance() < 0.2, "{}", learned.chance());
    }
}
