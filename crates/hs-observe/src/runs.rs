//! One time for each page of an object, kept as runs.

use std::collections::BTreeMap;
use std::ops::Range;

use hs_units::Nanos;

/// Pages and a time for each. Neighbours with the same time are one run, so that the cost follows the
/// accesses and not the pages.
#[derive(Clone, Debug, Default)]
pub(super) struct PageTimes {
    /// First page → page after the run, and the time.
    runs: BTreeMap<u64, (u64, Nanos)>,
}

impl PageTimes {
    /// Number of runs.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Every run, ascending: pages and time.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Range<u64>, Nanos)> + '_ {
        self.runs.iter().map(|(&start, &(end, at))| (start..end, at))
    }

    /// The runs that touch `pages`, cut to it, ascending.
    pub(super) fn within(&self, pages: Range<u64>) -> impl Iterator<Item = (Range<u64>, Nanos)> + '_ {
        let before = self.runs.range(..pages.start).next_back().map(|(&start, _)| start);
        let from = before.unwrap_or(pages.start).min(pages.end);
        self.runs.range(from..pages.end).filter_map(move |(&start, &(end, at))| {
            let cut = start.max(pages.start)..end.min(pages.end);
            (!cut.is_empty()).then_some((cut, at))
        })
    }

    /// Gives `pages` the time `at`, except those that have an earlier one.
    pub(super) fn keep_earliest(&mut self, pages: Range<u64>, at: Nanos) {
        self.merge(pages, at, Nanos::min);
    }

    /// Gives `pages` the time `at`, except those that have a later one.
    pub(super) fn keep_latest(&mut self, pages: Range<u64>, at: Nanos) {
        self.merge(pages, at, Nanos::max);
    }

    fn merge(&mut self, pages: Range<u64>, at: Nanos, choose: fn(Nanos, Nanos) -> Nanos) {
        if pages.is_empty() {
            return;
        }
        let known: Vec<_> = self.within(pages.clone()).collect();
        // By far the most frequent case: everything is known and nothing changes.
        if let [(run, old)] = &known[..]
            && *run == pages
            && choose(*old, at) == *old
        {
            return;
        }
        let mut new: Vec<(Range<u64>, Nanos)> = Vec::with_capacity(2 * known.len() + 1);
        let mut next = pages.start;
        for (run, old) in known {
            push(&mut new, next..run.start, at);
            next = run.end;
            push(&mut new, run, choose(old, at));
        }
        push(&mut new, next..pages.end, at);
        self.cut_out(&pages);
        for (run, at) in new {
            self.put(run, at);
        }
    }

    /// Removes `pages`; what reaches over their ends stays.
    fn cut_out(&mut self, pages: &Range<u64>) {
        let before = self.runs.range(..pages.start).next_back().map(|(&start, &run)| (start, run));
        if let Some((start, (end, at))) = before.filter(|(_, (end, _))| *end > pages.start) {
            self.runs.insert(start, (pages.start, at));
            if end > pages.end {
                self.runs.insert(pages.end, (end, at));
                return;
            }
        }
        while let Some((&start, &(end, at))) = self.runs.range(pages.start..pages.end).next() {
            self.runs.remove(&start);
            if end > pages.end {
                self.runs.insert(pages.end, (end, at));
            }
        }
    }

    /// Adds a run where there is none, joined to neighbours of the same time.
    fn put(&mut self, run: Range<u64>, at: Nanos) {
        let (mut start, mut end) = (run.start, run.end);
        if let Some((&before, &(before_end, before_at))) = self.runs.range(..start).next_back()
            && (before_end, before_at) == (start, at)
        {
            start = before;
        }
        if let Some(&(after_end, after_at)) = self.runs.get(&end)
            && after_at == at
        {
            self.runs.remove(&end);
            end = after_end;
        }
        self.runs.insert(start, (end, at));
    }
}

fn push(runs: &mut Vec<(Range<u64>, Nanos)>, run: Range<u64>, at: Nanos) {
    match runs.last_mut().filter(|(last, last_at)| last.end == run.start && *last_at == at) {
        Some((last, _)) => last.end = run.end,
        None if run.is_empty() => {}
        None => runs.push((run, at)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_map_from_page_to_time(
            steps in prop::collection::vec((0..60_u64, 0..20_u64, 0..6_u64), 0..40),
            latest: bool,
            probe in (0..70_u64, 0..20_u64),
        ) {
            let mut model: BTreeMap<u64, Nanos> = BTreeMap::new();
            let mut times = PageTimes::default();
            for (start, count, at) in steps {
                let (pages, at) = (start..start + count, Nanos(at));
                for page in pages.clone() {
                    let old = model.get(&page).copied().unwrap_or(at);
                    model.insert(page, if latest { old.max(at) } else { old.min(at) });
                }
                if latest { times.keep_latest(pages, at) } else { times.keep_earliest(pages, at) }
            }
            let flat = |runs: &mut dyn Iterator<Item = (Range<u64>, Nanos)>| -> Vec<(u64, Nanos)> {
                runs.flat_map(|(run, at)| run.map(move |page| (page, at))).collect()
            };
            prop_assert_eq!(flat(&mut times.iter()), model.clone().into_iter().collect::<Vec<_>>());
            let probe = probe.0..probe.0 + probe.1;
            let expected: Vec<_> = model.range(probe.clone()).map(|(&page, &at)| (page, at)).collect();
            prop_assert_eq!(flat(&mut times.within(probe)), expected);
            let runs: Vec<_> = times.iter().collect();
            let apart = |pair: &[(Range<u64>, Nanos)]| pair[0].0.end < pair[1].0.start || pair[0].1 != pair[1].1;
            prop_assert!(runs.windows(2).all(apart), "neighbours of one time are joined: {:?}", runs);
        }
    }
}
