//! What kind of device this is: a few reads of the list's own pages are timed.

use std::collections::BTreeSet;
use std::time::Instant;

use hs_accelerate::{DeviceKind, PageList, PageRequest, ProbeTimes};
use hs_units::Nanos;

use crate::warming::Pages;

/// Reads one after the other, and at once. Of five three may be late.
const ALONE: usize = 5;
const TOGETHER: usize = 6;
/// Places that are looked at: some pages are in the page cache already, and some files gone.
const TRIED: u32 = 40;
/// Pages between two of them at least: more than a drive keeps in its buffer of what passes under its heads.
const APART: u64 = (1 << 20) / 4096;

/// Reads some pages that the start needs anyway, far from each other.
pub(crate) fn measure(list: &PageList, pages: &Pages<'_>) -> DeviceKind {
    let mut places: Vec<(u64, PageRequest)> = list
        .runs
        .iter()
        // Metadata comes beside the files that are opened.
        .filter(|run| run.place != 0 && run.file.is_some())
        .map(|run| (run.place, PageRequest { file: run.file, page: run.page, pages: 1, at_ms: run.at_ms }))
        .collect();
    places.sort_unstable_by_key(|(place, _)| *place);
    let mut uncached = far_apart(&places).filter(|request| pages.open(request) && !pages.is_cached(request));
    let alone = uncached.by_ref().take(ALONE).map(|request| timed(|| pages.bring(&request))).collect();
    let together: Vec<_> = uncached.take(TOGETHER).collect();
    let together_reads = together.len() as u32;
    // No threads: on a busy machine they would wait for a processor, not for the device.
    let together = timed(|| {
        for request in &together {
            let _ = pages.ask(request);
        }
        for request in &together {
            let _ = pages.bring(request);
        }
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

/// Requests so ordered that each is far from the one before: by steps of about 0.38 (the golden ratio) of the
/// part of the device where all lie. None is near to another one. Where a step leads to one that would be, as
/// it does between places that lie in a few heaps, the same step by their number is taken.
fn far_apart(places: &[(u64, PageRequest)]) -> impl Iterator<Item = PageRequest> {
    let first = places.first().map_or(0, |(place, _)| *place);
    let span = places.last().map_or(0, |(place, _)| *place - first);
    let mut taken = BTreeSet::new();
    (1..=TRIED).filter_map(move |number| {
        let step = (f64::from(number) * 0.381_966).fract();
        let target = first + (span as f64 * step) as u64;
        let by_place = places.partition_point(|(place, _)| *place < target);
        let by_number = (places.len() as f64 * step) as usize;
        let mut both = [by_place, by_number].into_iter().filter_map(|at| places.get(at));
        let is_near = |place: u64| {
            taken.range(place.saturating_sub(APART)..place.saturating_add(APART)).next().is_some()
        };
        let (place, request) = both.find(|(place, _)| !is_near(*place))?;
        taken.insert(*place);
        Some(*request)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_far_from_each_other() {
        let request = |page| PageRequest { file: None, page, pages: 1, at_ms: 0 };
        let places: Vec<_> = (0..1000_u64).map(|number| (number * APART, request(number))).collect();
        let chosen: Vec<u64> = far_apart(&places).map(|request| request.page).collect();
        assert!(chosen.len() > ALONE + TOGETHER);
        assert!(chosen.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 200), "{chosen:?}");
        let clusters: Vec<_> =
            places.iter().filter(|(_, request)| request.page % 500 < 20).copied().collect();
        let chosen: Vec<u64> =
            far_apart(&clusters).take(ALONE + TOGETHER).map(|request| request.page).collect();
        assert_eq!(chosen.len(), ALONE + TOGETHER, "clusters have enough");
        let far = chosen.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) > 200).count();
        assert!(far * 2 >= chosen.len(), "{chosen:?}");
        let near: Vec<_> = (0..1000).map(|number| (number, request(number))).collect();
        assert!(far_apart(&near).count() <= 4, "each is far from each");
        assert_eq!(far_apart(&places[..1]).count(), 1);
        assert_eq!(far_apart(&[]).count(), 0);
    }
}
