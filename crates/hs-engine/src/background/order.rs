//! In which order windows that no read has asked for come.
//!
//! First what lies behind the windows that were read last: files of one folder, and the blocks of one file,
//! lie next to each other. Then all from the beginning of the disk, where file systems have their tables.

use std::collections::VecDeque;

/// Places where reads were seen lately.
const FRONTS: usize = 8;
/// How many windows behind a read come before others.
const AHEAD: u64 = 64;

/// What lies behind a read.
#[derive(Debug)]
struct Front {
    next: u64,
    end: u64,
}

/// Which window is next.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The latest first.
    fronts: VecDeque<Front>,
    /// Where the pass over the whole disk is.
    cursor: u64,
}

impl Order {
    /// A window is read.
    pub(crate) fn handle_read(&mut self, window: u64) {
        self.fronts.retain(|front| window.saturating_add(AHEAD) < front.next || window > front.end);
        self.fronts.truncate(FRONTS - 1);
        let next = window.saturating_add(1);
        self.fronts.push_front(Front { next, end: next.saturating_add(AHEAD) });
    }

    /// The next of `windows` windows that `is_wanted`; none when none is any more.
    pub(crate) fn next(&mut self, windows: u64, mut is_wanted: impl FnMut(u64) -> bool) -> Option<u64> {
        while let Some(front) = self.fronts.front_mut() {
            let end = front.end.min(windows);
            while front.next < end {
                if is_wanted(front.next) {
                    return Some(front.next);
                }
                front.next += 1;
            }
            self.fronts.pop_front();
        }
        while self.cursor < windows {
            if is_wanted(self.cursor) {
                return Some(self.cursor);
            }
            self.cursor += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn take(order: &mut Order, had: &mut BTreeSet<u64>, windows: u64, most: usize) -> Vec<u64> {
        let next = |_| {
            let window = order.next(windows, |window| !had.contains(&window))?;
            had.insert(window).then_some(window)
        };
        (0..most).map_while(next).collect()
    }

    #[test]
    fn what_lies_behind_the_latest_reads_comes_first_and_then_all_the_rest() {
        let (mut order, mut had) = (Order::default(), BTreeSet::from([100, 500]));
        order.handle_read(100);
        order.handle_read(500);
        assert_eq!(take(&mut order, &mut had, 1000, 3), [501, 502, 503]);
        order.handle_read(503);
        assert_eq!(take(&mut order, &mut had, 1000, 2), [504, 505]);
        let rest = take(&mut order, &mut had, 1000, 1000);
        let behind_500: Vec<u64> = (506..=567).collect();
        assert_eq!(rest[..62], behind_500);
        assert_eq!(rest[62..126], (101..=164).collect::<Vec<u64>>());
        assert_eq!(rest[126..129], [0, 1, 2]);
        assert_eq!(had.len(), 1000, "each comes once");
        assert_eq!(take(&mut order, &mut had, 1000, 1), []);
    }

    #[test]
    fn reads_at_the_end_of_the_disk_and_beyond_are_no_harm() {
        let (mut order, mut had) = (Order::default(), BTreeSet::new());
        order.handle_read(9);
        order.handle_read(u64::MAX);
        assert_eq!(take(&mut order, &mut had, 10, 100).len(), 10);
    }
}
