//! What became of what was prefetched.

use std::collections::HashMap;
use std::ops::Range;

use hs_units::{BLOCK_BYTES, Nanos};

use super::runs::PageTimes;
use super::{Access, AccessKind, Object, Observed};

/// Pages that prefetching brought into a page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefetched {
    /// Whose pages.
    pub object: Object,
    /// The first page.
    pub page: u64,
    /// How many.
    pub pages: u32,
    /// When their data had arrived, on `CLOCK_MONOTONIC`.
    pub at: Nanos,
}

/// Bytes of prefetched pages by what became of them; every page counts in exactly one of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// A program needed it, and it was there.
    pub used_bytes: u64,
    /// A program needed it before it had arrived.
    pub late_bytes: u64,
    /// No program read it, and none could have through a mapping.
    pub unused_bytes: u64,
    /// It was mapped because a neighbour was needed. Whether a program then looked at it is unknown.
    pub mapped_only_bytes: u64,
}

impl Usage {
    /// All of them.
    #[must_use]
    pub const fn total_bytes(&self) -> u64 {
        self.used_bytes + self.late_bytes + self.unused_bytes + self.mapped_only_bytes
    }
}

#[derive(Default)]
struct Touched {
    /// When a program first needed the page.
    needed: PageTimes,
    /// When the page was last mapped with a neighbour.
    mapped: PageTimes,
}

/// Says for every page of `prefetched` what became of it, from what was `observed`. A page that is
/// listed twice counts once, with its first arrival.
///
/// A page needs to be in the cache to be mapped with its neighbours, so only a mapping after its arrival
/// says anything about it.
#[must_use]
pub fn account(observed: &Observed, prefetched: &[Prefetched]) -> Usage {
    let mut touched: HashMap<Object, Touched> = HashMap::new();
    for access in &observed.accesses {
        let touched = touched.entry(access.object).or_default();
        match access.kind {
            AccessKind::MappedAround => touched.mapped.keep_latest(pages_of(access), access.at),
            _ => touched.needed.keep_earliest(pages_of(access), access.at),
        }
    }
    let mut arrivals: HashMap<Object, PageTimes> = HashMap::new();
    for part in prefetched {
        let pages = part.page..part.page.saturating_add(u64::from(part.pages));
        arrivals.entry(part.object).or_default().keep_earliest(pages, part.at);
    }
    let mut usage = Usage::default();
    let untouched = Touched::default();
    for (object, arrived) in &arrivals {
        let touched = touched.get(object).unwrap_or(&untouched);
        arrived.iter().for_each(|(pages, at)| touched.classify(pages, at, &mut usage));
    }
    usage
}

fn pages_of(access: &Access) -> Range<u64> {
    access.page..access.page.saturating_add(u64::from(access.pages))
}

impl Touched {
    fn classify(&self, pages: Range<u64>, arrived: Nanos, usage: &mut Usage) {
        let mut next = pages.start;
        for (run, at) in self.needed.within(pages.clone()) {
            self.not_needed(next..run.start, arrived, usage);
            let bytes = if at < arrived { &mut usage.late_bytes } else { &mut usage.used_bytes };
            *bytes += bytes_of(&run);
            next = run.end;
        }
        self.not_needed(next..pages.end, arrived, usage);
    }

    fn not_needed(&self, pages: Range<u64>, arrived: Nanos, usage: &mut Usage) {
        let maybe = self.mapped.within(pages.clone()).filter(|(_, at)| *at >= arrived);
        let mapped: u64 = maybe.map(|(run, _)| bytes_of(&run)).sum();
        usage.mapped_only_bytes += mapped;
        usage.unused_bytes += bytes_of(&pages) - mapped;
    }
}

fn bytes_of(pages: &Range<u64>) -> u64 {
    (pages.end - pages.start) * BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Object = Object::Inode(7);

    fn access(object: Object, page: u64, pages: u32, at: u64, kind: AccessKind) -> Access {
        Access { at: Nanos(at), object, page, pages, kind }
    }

    fn brought(object: Object, page: u64, pages: u32, at: u64) -> Prefetched {
        Prefetched { object, page, pages, at: Nanos(at) }
    }

    /// Pages used, late, unused, only mapped.
    fn pages(accesses: Vec<Access>, prefetched: &[Prefetched]) -> [u64; 4] {
        let observed = Observed { accesses, ..Observed::default() };
        let usage = account(&observed, prefetched);
        let all = [usage.used_bytes, usage.late_bytes, usage.unused_bytes, usage.mapped_only_bytes];
        assert_eq!(usage.total_bytes(), all.iter().sum::<u64>());
        all.map(|bytes| bytes / BLOCK_BYTES)
    }

    #[test]
    fn the_first_need_decides() {
        use AccessKind::{Fault, Read};
        let accesses = vec![access(FILE, 0, 4, 100, Read), access(FILE, 2, 4, 10, Fault)];
        assert_eq!(pages(accesses.clone(), &[brought(FILE, 0, 8, 50)]), [2, 4, 2, 0]);
        assert_eq!(pages(accesses.clone(), &[brought(FILE, 0, 8, 10)]), [6, 0, 2, 0]);
        assert_eq!(pages(accesses.clone(), &[brought(Object::Device, 0, 8, 10)]), [0, 0, 8, 0]);
        assert_eq!(pages(accesses, &[]), [0; 4]);
    }

    #[test]
    fn mapping_counts_only_when_the_page_was_there() {
        use AccessKind::{Fault, MappedAround};
        let early = access(FILE, 0, 16, 10, MappedAround);
        assert_eq!(pages(vec![early], &[brought(FILE, 0, 4, 50)]), [0, 0, 4, 0]);
        let again = access(FILE, 2, 16, 60, MappedAround);
        assert_eq!(pages(vec![early, again], &[brought(FILE, 0, 4, 50)]), [0, 0, 2, 2]);
        assert_eq!(pages(vec![again, early], &[brought(FILE, 0, 4, 50)]), [0, 0, 2, 2]);
        let fault = access(FILE, 3, 1, 70, Fault);
        assert_eq!(pages(vec![again, fault], &[brought(FILE, 0, 4, 50)]), [1, 0, 2, 1]);
    }

    #[test]
    fn a_page_counts_once() {
        let accesses = vec![access(Object::Device, 5, 1, 20, AccessKind::Referenced)];
        let twice = [brought(Object::Device, 4, 2, 30), brought(Object::Device, 5, 2, 15)];
        assert_eq!(pages(accesses, &twice), [1, 0, 2, 0]);
    }
}
