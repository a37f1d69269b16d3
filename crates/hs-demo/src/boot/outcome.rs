//! The result of the boots: waits, the limit, the ratios, and whether they meet their goals.

use hs_device::Medium;
use serde::Serialize;

use super::contenders::{CLOOP_LIKE, CloopLike, OPTIMIZED, UNOPTIMIZED, WARM};
use super::delivery::Delivery;
use super::paper::Paper;
use crate::limit::Limit;
use crate::outcome::Common;
use crate::ratio::{Goal, Ratio, Spread};
use crate::turns::Tally;
use hs_start::summary::Summary;

/// An optimized boot may take so many times the limit.
const GOAL_LIMIT: Goal = Goal::AtMost(1.10);
/// An optimized boot's share of the seeks of an unoptimized boot.
const GOAL_SEEKS: Goal = Goal::AtMost(0.05);
/// The share of the medium's rate that prefetching uses.
const GOAL_RATE: Goal = Goal::AtLeast(0.95);

/// An optimized boot's wait for its medium over that of an unoptimized boot.
fn goal_wait(medium: Medium) -> Option<Goal> {
    match medium {
        Medium::Cd24xCav => Some(Goal::AtMost(0.10)),
        Medium::Hdd7200 => Some(Goal::AtMost(0.15)),
        _ => None,
    }
}

/// What came out for one contender.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Timed {
    pub(super) contender: &'static str,
    pub(super) label: &'static str,
    /// Start → ready of every boot, in seconds.
    pub(super) all_ready_s: Vec<f64>,
    /// Start → ready.
    pub(super) ready_s: Spread,
    /// How long the guest had a processor of that, where it could be seen.
    pub(super) guest_cpu_s: Option<f64>,
    /// What of that the medium costs: the difference to the boots from memory, both at the same [`Pace`].
    pub(super) storage_wait_s: Option<Spread>,
    /// Rate at which the medium delivered while it was busy, in the median boot.
    pub(super) busy_bytes_per_second: Option<f64>,
}

/// The ratios that count; `None` where the boots do not decide them, since the second figure may be zero.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Ratios {
    /// Storage wait of the optimized boot over that of the unoptimized one.
    pub(super) wait_to_unoptimized: Option<Ratio>,
    /// And over that of the cloop-like one.
    pub(super) wait_to_cloop_like: Option<Ratio>,
    /// Time of the optimized boot over the limit.
    pub(super) ready_to_limit: Option<Ratio>,
    /// The seeks of the optimized boot over those of the unoptimized one.
    pub(super) seeks_to_unoptimized: Option<Ratio>,
    /// Its rate while prefetching over that of the medium at the place of the hot region.
    pub(super) prefetch_rate_to_medium: Option<Ratio>,
}

/// The result of the second story: `boot` in the demo's JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    #[serde(flatten)]
    pub(super) common: Common,
    /// What booted.
    pub(super) guest: &'static str,
    /// The line of its console that shows that it is ready.
    pub(super) ready: &'static str,
    /// How the cloop-like image is made.
    pub(super) cloop_like: CloopLike,
    /// The time that the medium needs for the hot region alone.
    pub(super) delivery: Option<Delivery>,
    pub(super) ratios: Ratios,
    /// In the order in which they took turns.
    pub(super) contenders: Vec<Timed>,
    /// What others measured.
    pub(super) paper: Paper,
}

/// Limit, ratios and figures of the boots in `tallies`, at the places of the contenders, on a medium that
/// brings the hot region alone by `delivery`.
pub(super) fn judge(
    tallies: &[Tally],
    medium: Medium,
    delivery: Option<Delivery>,
) -> (Limit, Ratios, Vec<Timed>) {
    let at = |place: usize| &tallies[place];
    let warm = ready(at(WARM));
    let pace = Pace::of(at(WARM));
    let wait = |tally: &Tally| pace.ready(tally).minus(pace.ready(at(WARM)));
    let limit = Limit::new(warm.median, delivery.map(|delivery| delivery.delivery_s));
    // Where the guest is the limit, both are compared at its pace; a slow medium has its own.
    let to_limit = if limit.is_the_medium() {
        Ratio::of_runs(
            ready(at(OPTIMIZED)),
            warm.at_least(limit.medium_s.unwrap_or_default()),
            Some(GOAL_LIMIT),
        )
    } else {
        Ratio::of_runs(pace.ready(at(OPTIMIZED)), pace.ready(at(WARM)), Some(GOAL_LIMIT))
    };
    let seeks = |place| spread(at(place), |run| run.seeks as f64);
    let optimized = at(OPTIMIZED);
    let ratios = Ratios {
        wait_to_unoptimized: Ratio::of_runs(wait(optimized), wait(at(UNOPTIMIZED)), goal_wait(medium)),
        wait_to_cloop_like: Ratio::of_runs(wait(optimized), wait(at(CLOOP_LIKE)), goal_wait(medium)),
        ready_to_limit: to_limit,
        seeks_to_unoptimized: Ratio::of_runs(seeks(OPTIMIZED), seeks(UNOPTIMIZED), Some(GOAL_SEEKS)),
        prefetch_rate_to_medium: delivery.and_then(|delivery| {
            let rate = spread(optimized, |run| prefetch_rate(run).unwrap_or_default());
            Ratio::of_runs(rate, Spread::exact(delivery.bytes_per_second), Some(GOAL_RATE))
        }),
    };
    let timed = |(place, tally): (usize, &Tally)| Timed {
        contender: tally.key,
        label: tally.label,
        all_ready_s: tally.all_ready_s(),
        ready_s: ready(tally),
        guest_cpu_s: median(tally.runs.iter().filter_map(|run| run.guest_cpu_s)),
        storage_wait_s: (place != WARM).then(|| wait(tally)),
        busy_bytes_per_second: tally.median().and_then(busy_rate),
    };
    (limit, ratios, tallies.iter().enumerate().map(timed).collect())
}

/// How fast the guest's processor was, by the boots from memory. The speed of a shared machine changes from
/// minute to minute. The processor time that a guest is charged for then grows in the same proportion as its
/// boot from memory. So boots are compared as if each had been charged for as much as the median one from
/// memory. Waiting for a medium is no processor time and stays what it was, up to that factor.
#[derive(Clone, Copy)]
struct Pace {
    /// Seconds of processor time; `None` where it cannot be seen.
    guest_cpu_s: Option<f64>,
}

impl Pace {
    fn of(warm: &Tally) -> Self {
        Self { guest_cpu_s: median(warm.runs.iter().filter_map(|run| run.guest_cpu_s)) }
    }

    /// Start → ready of the boots in `tally` at this pace.
    fn ready(self, tally: &Tally) -> Spread {
        let at_pace = |run: &Summary| {
            let ratio = self.guest_cpu_s.zip(run.guest_cpu_s).map_or(1.0, |(pace, own)| pace / own);
            Some(run.ready_s? * ratio)
        };
        let all = tally.runs.iter().filter_map(at_pace);
        Spread::new(median(all.clone()).unwrap_or(f64::NAN), all)
    }
}

/// The middle one; of an even number the smaller of the two in the middle, as [`Tally::median`] takes it.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// A figure's median over all boots, with the least and the most.
fn spread(tally: &Tally, figure: impl Fn(&Summary) -> f64 + Clone) -> Spread {
    let all = tally.runs.iter().map(figure);
    Spread::new(median(all.clone()).unwrap_or(f64::NAN), all)
}

fn ready(tally: &Tally) -> Spread {
    spread(tally, |run| run.ready_s.unwrap_or(f64::NAN))
}

/// Bytes a second of the prefetch's stream, as observed.
fn prefetch_rate(run: &Summary) -> Option<f64> {
    let (bytes, seconds) = (run.prefetch_stream_bytes?, run.prefetch_stream_s?);
    (seconds > 0.0).then(|| bytes as f64 / seconds)
}

fn busy_rate(run: &Summary) -> Option<f64> {
    (run.store_bytes > 0 && run.medium_busy_s > 0.0).then(|| run.store_bytes as f64 / run.medium_busy_s)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::boot::contenders::CONTENDERS;
    use crate::boot::paper;

    /// Boots that were ready after these times.
    fn tally(place: usize, times: &[f64], run: Summary) -> Tally {
        let mut tally = CONTENDERS[place].tally();
        tally.runs = times.iter().map(|&time| Summary { ready_s: Some(time), ..run.clone() }).collect();
        tally
    }

    /// Boots of every contender.
    pub(crate) fn tallies() -> Vec<Tally> {
        let read = |requests, seeks, megabytes: u64, busy, image_bytes| Summary {
            medium: "cd-24x-cav".to_owned(),
            store_requests: requests,
            seeks,
            store_bytes: megabytes * 1_000_000,
            medium_busy_s: busy,
            image_bytes,
            ..Summary::default()
        };
        let optimized = Summary {
            hot_bytes: 36_000_000,
            hot_compressed_bytes: 10_000_000,
            demand_wait_s: Some(0.25),
            prefetch_stream_bytes: Some(9_900_000),
            prefetch_stream_s: Some(3.0),
            ..read(7, 1, 10, 3.0, 110_000_000)
        };
        vec![
            tally(0, &[30.0], read(812, 413, 40, 20.0, 400_000_000)),
            tally(CLOOP_LIKE, &[20.0, 19.0, 21.0], read(300, 200, 20, 10.0, 120_000_000)),
            tally(UNOPTIMIZED, &[18.0, 18.5, 17.5], read(96, 91, 20, 8.0, 100_000_000)),
            tally(OPTIMIZED, &[10.2, 10.4, 10.3], optimized),
            tally(WARM, &[10.0, 9.9, 10.1], read(0, 0, 0, 0.0, 400_000_000)),
        ]
    }

    fn delivery() -> Option<Delivery> {
        Some(Delivery { offset: 8192, bytes: 10_000_000, delivery_s: 3.1, bytes_per_second: 3_400_000.0 })
    }

    /// The outcome of them on `medium`.
    pub(crate) fn outcome(medium: &str, repeats: usize) -> (Outcome, Vec<Tally>) {
        let mut tallies = tallies();
        tallies.iter_mut().for_each(|tally| tally.runs.truncate(repeats));
        let medium = Medium::parse(medium).unwrap();
        let delivery = delivery().filter(|_| medium != Medium::None);
        let (limit, ratios, contenders) = judge(&tallies, medium, delivery);
        let outcome = Outcome {
            common: Common::new(medium, limit, 3.0, BTreeMap::new()),
            guest: crate::guest::Guest::Uml.label(),
            ready: "login:",
            cloop_like: CloopLike::PARAMETERS,
            delivery,
            ratios,
            contenders,
            paper: paper::KITAGAWA_2005,
        };
        (outcome, tallies)
    }

    /// A profile without a read.
    pub(crate) fn profile() -> hs_trace::Profile {
        hs_trace::Profile { disk_bytes: 4096, ..hs_trace::Profile::default() }
    }

    fn about(ratio: Option<Ratio>, expected: f64) -> Ratio {
        let ratio = ratio.unwrap();
        assert!((ratio.ratio - expected).abs() < 1e-9, "{ratio:?}");
        ratio
    }

    #[test]
    fn ratios_take_the_right_contenders() {
        let (limit, ratios, timed) = judge(&tallies(), Medium::Cd24xCav, delivery());
        assert_eq!((limit.limit_s, limit.program_s, limit.medium_s), (10.0, 10.0, Some(3.1)));
        let wait = about(ratios.wait_to_unoptimized, 0.3 / 8.0);
        assert_eq!((wait.goal, wait.met, wait.sure), (Some(Goal::AtMost(0.10)), Some(true), Some(true)));
        about(ratios.wait_to_cloop_like, 0.3 / 10.0);
        let to_limit = about(ratios.ready_to_limit, 1.03);
        assert_eq!((to_limit.met, to_limit.sure), (Some(true), Some(true)));
        assert_eq!(about(ratios.seeks_to_unoptimized, 1.0 / 91.0).met, Some(true));
        assert_eq!(about(ratios.prefetch_rate_to_medium, 3.3 / 3.4).met, Some(true));
        assert_eq!(timed[0].all_ready_s, [30.0]);
        assert_eq!(timed[3].busy_bytes_per_second, Some(10e6 / 3.0));
        assert!(timed[4].storage_wait_s.is_none() && timed[4].busy_bytes_per_second.is_none());
    }

    #[test]
    fn a_slow_minute_of_the_machine_is_no_wait() {
        let mut tallies = tallies();
        for (place, slowness) in [(UNOPTIMIZED, 1.5), (OPTIMIZED, 1.25), (WARM, 1.0)] {
            for run in &mut tallies[place].runs {
                run.guest_cpu_s = Some(8.0 * slowness);
                run.ready_s = run.ready_s.map(|ready| ready * slowness);
            }
        }
        let (_, ratios, timed) = judge(&tallies, Medium::Cd24xCav, delivery());
        about(ratios.wait_to_unoptimized, 0.3 / 8.0);
        assert_eq!((timed[3].guest_cpu_s, timed[3].ready_s.median), (Some(10.0), 10.3 * 1.25));
        assert!((timed[3].storage_wait_s.unwrap().median - 0.3).abs() < 1e-9, "{timed:?}");
    }

    #[test]
    fn each_drive_has_its_goal_and_a_slow_medium_is_the_limit() {
        let (_, ratios, _) = judge(&tallies(), Medium::Hdd7200, delivery());
        assert_eq!(ratios.wait_to_unoptimized.unwrap().goal, Some(Goal::AtMost(0.15)));
        let flat = Medium::parse("flat-10ms-25mbs").unwrap();
        let slow = Delivery { delivery_s: 20.0, ..delivery().unwrap() };
        let (limit, ratios, _) = judge(&tallies(), flat, Some(slow));
        assert_eq!(ratios.wait_to_unoptimized.unwrap().goal, None);
        assert!(limit.is_the_medium());
        assert_eq!(ratios.ready_to_limit.unwrap().ratio, 10.3 / 20.0);
    }

    #[test]
    fn without_waits_and_seeks_there_is_no_ratio_to_them() {
        let mut tallies = tallies();
        for place in [CLOOP_LIKE, UNOPTIMIZED] {
            tallies[place] = tally(place, &[9.9, 10.0, 10.2], Summary::default());
        }
        tallies[OPTIMIZED].runs[0].prefetch_stream_s = Some(0.0);
        let (_, ratios, _) = judge(&tallies, Medium::None, None);
        assert!(ratios.wait_to_unoptimized.is_none() && ratios.seeks_to_unoptimized.is_none());
        assert!(ratios.prefetch_rate_to_medium.is_none() && ratios.ready_to_limit.is_some());
    }
}
