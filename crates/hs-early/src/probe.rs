//! What kind of device this is: a few reads of the list's own pages are timed.

use std::time::Instant;

use hs_accelerate::{DeviceKind, PageList, PageRequest, ProbeTimes};
use hs_units::Nanos;

use crate::warming::Pages;

/// Reads one after the other, and at once.
const ALONE: usize = 3;
const TOGETHER: usize = 6;

/// Reads some pages that the start needs anyway, far from each other.
pub(crate) fn measure(list: &PageList, pages: &Pages<'_>) -> DeviceKind {
    let mut places: Vec<(u64, PageRequest)> = list
        .runs
        .iter()
        .filter(|run| run.place != 0)
        .map(|run| (run.place, PageRequest { file: run.file, page: run.page, pages: 1, at_ms: run.at_ms }))
        .collect();
    places.sort_unstable_by_key(|(place, _)| *place);
    // Metadata needs no file to be opened.
    let metadata: Vec<_> = places.iter().filter(|(_, request)| request.file.is_none()).copied().collect();
    let from = if metadata.len() >= 4 * (ALONE + TOGETHER) { metadata } else { places };
    let mut uncached = far_apart(&from).filter(|request| pages.open(request) && !pages.is_cached(request));
    let (alone, together): (Vec<_>, Vec<_>) =
        (uncached.by_ref().take(ALONE).collect(), uncached.take(TOGETHER).collect());
    let alone = alone.iter().map(|request| timed(|| pages.bring(request))).collect();
    let together_reads = together.len() as u32;
    let together = timed(|| {
        std::thread::scope(|scope| {
            for request in &together {
                scope.spawn(|| pages.bring(request));
            }
        });
    });
    let times = ProbeTimes { alone, together, together_reads };
    let kind = DeviceKind::of(&times);
    log::debug!("the device has {}: {times:?}", kind.name());
    kind
}

fn timed<T>(work: impl FnOnce() -> T) -> Nanos {
    let began = Instant::now();
    work();
    Nanos::from(began.elapsed())
}

/// Requests so ordered that each is far from the one before: by steps of about 0.38 of all (the golden ratio).
fn far_apart(places: &[(u64, PageRequest)]) -> impl Iterator<Item = PageRequest> {
    let count = places.len();
    let step = (count * 382 / 1000).max(1);
    (0..count.min(64)).map(move |number| places[(count / 7 + number * step) % count].1)
}
