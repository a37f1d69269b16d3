//! What kind of device this is: a few reads of the list's own pages are timed.

use std::collections::BTreeSet;
use std::time::Instant;

use hs_accelerate::{DeviceKind, PageList, PageRequest, ProbeTimes};
use hs_units::Nanos;

use crate::warming::Pages;

/// Reads one after the other, and at once.
const ALONE: usize = 3;
const TOGETHER: usize = 6;
/// Places that are looked at: some pages are in the page cache already, and some files gone.
const TRIED: u32 = 40;

/// Reads some pages that the start needs anyway, far from each other.
pub(crate) fn measure(list: &PageList, pages: &Pages<'_>) -> DeviceKind {
    let mut places: Vec<(u64, PageRequest)> = list
        .runs
        .iter()
        .filter(|run| run.place != 0)
        .map(|run| (run.place, PageRequest { file: run.file, page: run.page, pages: 1, at_ms: run.at_ms }))
        .collect();
    places.sort_unstable_by_key(|(place, _)| *place);
    let mut uncached = far_apart(&places).filter(|request| pages.open(request) && !pages.is_cached(request));
    let (alone, together): (Vec<_>, Vec<_>) =
        (uncached.by_ref().take(ALONE).collect(), uncached.take(TOGETHER).collect());
    let alone = alone.iter().map(|request| timed(|| pages.bring(request))).collect();
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
/// part of the device where all lie. Each comes once.
fn far_apart(places: &[(u64, PageRequest)]) -> impl Iterator<Item = PageRequest> {
    let first = places.first().map_or(0, |(place, _)| *place);
    let span = places.last().map_or(0, |(place, _)| *place - first);
    let mut taken = BTreeSet::new();
    (1..=TRIED).filter_map(move |number| {
        let target = first + (span as f64 * (f64::from(number) * 0.381_966).fract()) as u64;
        let at = places.partition_point(|(place, _)| *place < target);
        let (place, request) = places.get(at)?;
        taken.insert(*place).then_some(*request)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_far_from_each_other() {
        let request = |page| PageRequest { file: None, page, pages: 1, at_ms: 0 };
        let places: Vec<_> = (0..1000_u64).map(|place| (place, request(place))).collect();
        let chosen: Vec<u64> = far_apart(&places).map(|request| request.page).collect();
        assert!(chosen.len() > ALONE + TOGETHER);
        assert!(chosen.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 200), "{chosen:?}");
        assert_eq!(far_apart(&places[..1]).count(), 1);
        assert_eq!(far_apart(&[]).count(), 0);
    }
}
