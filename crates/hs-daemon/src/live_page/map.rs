//! What is known of each block of an image while it is served.

use std::collections::VecDeque;
use std::time::Instant;

use hs_disk::{DemandEvent, FetchEvent, FetchPurpose, Watch};
use hs_output::report_page::packed;
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba};
use parking_lot::Mutex;

use super::feed::MapFeed;

/// More cells than this are not kept: then several blocks share a cell. A byte each.
const MOST_CELLS: u64 = 1 << 24;
/// Changes that are remembered. A page that asks for older ones gets the whole map.
const MOST_CHANGES: usize = 8192;

/// States of a cell, by the names and numbers that the page has of them (`report-ui/src/blocks.ts`). A cell
/// that has several blocks shows the highest.
const HOT: u8 = 2;
const PREFETCHED: u8 = 5;
const CACHED: u8 = 6;
const USED: u8 = 7;
const READ: u8 = 8;
const LATE: u8 = 9;

/// The map of one image. It sees what a served disk does.
#[derive(Debug)]
pub(crate) struct LiveMap {
    began: Instant,
    state: Mutex<Cells>,
}

#[derive(Debug, Default)]
struct Cells {
    blocks: u64,
    blocks_per_cell: u64,
    states: Vec<u8>,
    changes: VecDeque<Change>,
    /// The number of the next change.
    next: u64,
    /// What came before the size was known.
    early: Vec<(BlockRange, BlockEvent)>,
}

/// Cells in order that got one state.
#[derive(Clone, Copy, Debug)]
struct Change {
    first: u32,
    count: u32,
    state: u8,
}

/// What happens to a block.
#[derive(Clone, Copy, Debug)]
enum BlockEvent {
    Prefetched,
    /// A page cache took it, which asks before a program does.
    Cached,
    Read {
        late: bool,
    },
}

impl LiveMap {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), state: Mutex::default() }
    }

    /// So large it is, and these blocks of it are hot.
    pub(crate) fn describe(&self, bytes: u64, hot: impl Iterator<Item = BlockRange>) {
        let mut cells = self.state.lock();
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        let blocks_per_cell = blocks.div_ceil(MOST_CELLS).max(1).next_power_of_two();
        (cells.blocks, cells.blocks_per_cell) = (blocks, blocks_per_cell);
        cells.states = vec![0; blocks.div_ceil(blocks_per_cell) as usize];
        for run in hot {
            cells.change(run, |_| HOT);
        }
        for (run, seen) in std::mem::take(&mut cells.early) {
            cells.see(run, seen);
        }
    }

    /// Bytes of a file were given to a client.
    pub(crate) fn sent(&self, bytes: ByteRange) {
        if bytes.len > 0 {
            self.see(BlockRange::covering(bytes.offset, bytes.len), BlockEvent::Read { late: false });
        }
    }

    fn see(&self, run: BlockRange, seen: BlockEvent) {
        self.state.lock().see(run, seen);
    }

    /// How long there has been a map.
    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// What has changed since the change with the number `from`; everything when that is not remembered.
    pub(crate) fn since(&self, from: Option<u64>) -> MapFeed {
        let cells = self.state.lock();
        let oldest = cells.next - cells.changes.len() as u64;
        let known = from.filter(|from| (oldest..=cells.next).contains(from));
        let mut feed = MapFeed {
            blocks: cells.blocks as f64,
            blocks_per_cell: cells.blocks_per_cell as u32,
            next: cells.next as f64,
            ..MapFeed::default()
        };
        let whole = known.is_none().then(|| cells.states.clone());
        let after = known.map_or(cells.changes.len(), |from| (from - oldest) as usize);
        for change in cells.changes.range(after..) {
            feed.first.push(change.first);
            feed.count.push(change.count);
            feed.state.push(change.state);
        }
        // What is served waits for the lock, and packing takes long.
        drop(cells);
        feed.states = whole.map(|states| packed(&states));
        feed
    }
}

impl Cells {
    fn see(&mut self, run: BlockRange, seen: BlockEvent) {
        if self.states.is_empty() {
            if self.early.len() < MOST_CHANGES {
                self.early.push((run, seen));
            }
            return;
        }
        self.change(run, |old| match seen {
            BlockEvent::Prefetched => PREFETCHED,
            BlockEvent::Cached if old >= PREFETCHED => CACHED,
            BlockEvent::Read { late: true } => LATE,
            BlockEvent::Cached | BlockEvent::Read { .. } if old < PREFETCHED => READ,
            BlockEvent::Cached | BlockEvent::Read { .. } => USED,
        });
    }

    /// Gives cells a higher state, and remembers that.
    fn change(&mut self, run: BlockRange, state_after: impl Fn(u8) -> u8) {
        let per_cell = self.blocks_per_cell;
        let first = (run.start.0 / per_cell).min(self.states.len() as u64) as usize;
        let end = (run.start.0 + run.count).div_ceil(per_cell).min(self.states.len() as u64) as usize;
        let mut open: Option<Change> = None;
        for cell in first..end {
            let state = state_after(self.states[cell]);
            if state <= self.states[cell] {
                continue;
            }
            self.states[cell] = state;
            match &mut open {
                Some(change) if change.state == state && (change.first + change.count) as usize == cell => {
                    change.count += 1;
                }
                _ => {
                    let next = Change { first: cell as u32, count: 1, state };
                    if let Some(done) = open.replace(next) {
                        self.remember(done);
                    }
                }
            }
        }
        if let Some(done) = open {
            self.remember(done);
        }
    }

    fn remember(&mut self, change: Change) {
        if self.changes.len() == MOST_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
        self.next += 1;
    }
}

impl Watch for LiveMap {
    fn demand(&self, event: &DemandEvent) {
        let late = event.late_bytes > 0;
        let seen = if event.expected { BlockEvent::Cached } else { BlockEvent::Read { late } };
        self.see(BlockRange::covering(event.range.offset, event.range.len), seen);
    }

    fn fetched(&self, event: FetchEvent) {
        if event.purpose == FetchPurpose::Demand {
            return;
        }
        for run in event.blocks {
            self.see(BlockRange::new(Lba(run.start.0), run.count), BlockEvent::Prefetched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(map: &LiveMap) -> Vec<u8> {
        map.state.lock().states.clone()
    }

    fn read(map: &LiveMap, first: u64, count: u64, late: bool) {
        map.see(BlockRange::new(Lba(first), count), BlockEvent::Read { late });
    }

    #[test]
    fn cells_rise_and_what_came_early_counts() {
        let map = LiveMap::new();
        map.see(BlockRange::new(Lba(1), 2), BlockEvent::Prefetched);
        map.describe(8 * BLOCK_BYTES, [BlockRange::new(Lba(0), 4)].into_iter());
        assert_eq!(states(&map), [HOT, PREFETCHED, PREFETCHED, HOT, 0, 0, 0, 0]);
        map.see(BlockRange::new(Lba(1), 1), BlockEvent::Cached);
        read(&map, 2, 1, false);
        read(&map, 3, 1, true);
        read(&map, 6, 100, false);
        assert_eq!(states(&map), [HOT, CACHED, USED, LATE, 0, 0, READ, READ]);
        map.see(BlockRange::new(Lba(0), 8), BlockEvent::Prefetched);
        read(&map, u64::MAX >> 13, 1, false);
        assert_eq!(states(&map), [5, CACHED, USED, LATE, 5, 5, READ, READ]);
    }

    /// A page that applies what it is told has the map, from whatever moment on.
    #[test]
    fn changes_lead_to_the_map() {
        let map = LiveMap::new();
        map.describe(64 * BLOCK_BYTES, std::iter::empty());
        let (mut shown, mut from) = (vec![0; 64], map.since(Some(0)).next);
        for round in 0..40_u64 {
            for step in 0..7 {
                read(&map, (round * 31 + step * 5) % 64, 1 + step % 3, step == 6);
            }
            let feed = map.since(Some(from as u64));
            assert!(feed.states.is_none(), "round {round}");
            for ((first, count), state) in feed.first.iter().zip(&feed.count).zip(&feed.state) {
                shown[*first as usize..][..*count as usize].fill(*state);
            }
            from = feed.next;
            assert_eq!(shown, states(&map), "round {round}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_then_everything_is_told() {
        let map = LiveMap::new();
        map.describe((4 * MOST_CHANGES as u64) * BLOCK_BYTES, std::iter::empty());
        for block in 0..2 * MOST_CHANGES as u64 {
            read(&map, 2 * block, 1, false);
        }
        assert_eq!(map.state.lock().changes.len(), MOST_CHANGES);
        assert!(map.since(Some(0)).states.is_some() && map.since(None).states.is_some());
        assert!(map.since(Some(u64::MAX)).states.is_some(), "of another server");
        let last = map.since(Some(2 * MOST_CHANGES as u64));
        assert!(last.states.is_none() && last.first.is_empty());
    }

    #[test]
    fn a_large_disk_shares_cells() {
        let map = LiveMap::new();
        map.describe(3 * MOST_CELLS * BLOCK_BYTES, std::iter::empty());
        read(&map, 7, 2, false);
        let cells = states(&map);
        assert_eq!((cells.len() as u64, &cells[..4]), (3 * MOST_CELLS / 4, &[0, READ, READ, 0][..]));
    }
}
