mod slow_disc;
mod throttling;
mod tripwires;

use super::*;

const CHUNK: ChunkSize = ChunkSize { stored_bytes: 100_000, raw_bytes: 256 * 1024 };

fn config() -> PrefetchConfig {
    PrefetchConfig { first_request_bytes: 250_000, max_request_bytes: 2_000_000, ..PrefetchConfig::default() }
}

/// A medium of 10 ms and 25 MB/s that serves whatever is asked for at once; returns the runs.
fn run_to_end(prefetch: &mut Prefetch) -> Vec<Range<u32>> {
    let mut now = Nanos::ZERO;
    let mut runs = Vec::new();
    loop {
        match prefetch.poll(now) {
            Next::Request(id, run) => {
                now += Nanos::from_millis(10);
                prefetch.handle_first_byte(now, id, 0);
                let bytes = u64::from(run.end - run.start) * 100_000;
                now += Nanos(bytes * 40);
                for chunk in run.clone() {
                    prefetch.handle_arrived(chunk);
                    prefetch.handle_released(chunk);
                }
                prefetch.handle_finished(now, id, Some(bytes));
                runs.push(run);
            }
            Next::WaitUntil(then) => now = then,
            Next::Wait => panic!("nothing is under way, so nothing can wake it"),
            Next::Done(reason) => {
                assert_eq!(reason, EndReason::Complete);
                return runs;
            }
        }
    }
}

#[test]
fn every_chunk_is_asked_for_once_in_order_with_growing_requests() {
    let mut prefetch = Prefetch::new(config(), vec![CHUNK; 100]);
    let runs = run_to_end(&mut prefetch);
    assert_eq!(runs[0], 0..2);
    assert!(runs.windows(2).all(|pair| pair[0].end == pair[1].start));
    assert_eq!(runs.last().map(|run| run.end), Some(100));
    assert!(runs.iter().any(|run| run.end - run.start > 8), "requests grow: {runs:?}");
}

#[test]
fn a_request_never_occupies_the_medium_beyond_its_limit() {
    let limits = PrefetchConfig { max_occupancy: Nanos::from_millis(40), ..config() };
    let mut prefetch = Prefetch::new(limits, vec![CHUNK; 100]);
    // 40 ms at 25 MB/s is 1 MB, ten chunks.
    assert!(run_to_end(&mut prefetch).iter().all(|run| run.end - run.start <= 10));
}

#[test]
fn while_readers_miss_a_request_lasts_half_as_long_as_a_read_elsewhere_or_four_times_its_price() {
    let millis = Nanos::from_millis;
    for (jump_ms, lasts_ms) in [(60, 30), (10, 8)] {
        let mut prefetch = Prefetch::new(large(), vec![CHUNK; 100]);
        prefetch.estimate.observe_rate(Nanos::ZERO, millis(4), 100_000);
        prefetch.estimate.observe_gap(millis(2), 0);
        prefetch.estimate.observe_jump(millis(jump_ms), 0);
        prefetch.handle_miss(millis(1_000));
        assert_eq!(prefetch.occupancy(millis(1_001)), millis(lasts_ms), "{jump_ms} ms");
    }
}

#[test]
fn the_budget_holds_requests_back_until_chunks_are_released() {
    let limits = PrefetchConfig { budget_bytes: 3 * 256 * 1024, ..config() };
    let mut prefetch = Prefetch::new(limits, vec![CHUNK; 4]);
    let Next::Request(first, run) = prefetch.poll(Nanos::ZERO) else { panic!("a request") };
    assert_eq!(run, 0..2);
    // Half of it took 2 ms, so it is nearly done: time for the next.
    prefetch.handle_first_byte(Nanos::from_millis(1), first, 0);
    prefetch.handle_progress(Nanos::from_millis(3), first, 0);
    let Next::Request(second, run) = prefetch.poll(Nanos::from_millis(3)) else { panic!("a request") };
    assert_eq!(run, 2..3);
    (0..3).for_each(|chunk| prefetch.handle_arrived(chunk));
    prefetch.handle_finished(Nanos::from_millis(5), first, Some(200_000));
    prefetch.handle_finished(Nanos::from_millis(9), second, Some(100_000));
    assert_eq!(prefetch.poll(Nanos::from_millis(9)), Next::Wait);
    assert!(prefetch.is_blocked());
    assert_eq!(prefetch.late(3), Late::Fetch, "a stream that stands still is not worth waiting for");
    prefetch.handle_released(0);
    assert!(matches!(prefetch.poll(Nanos::from_millis(9)), Next::Request(_, run) if run == (3..4)));
}

#[test]
fn memory_that_has_room_for_more_does_not_raise_the_configured_budget() {
    let limits = PrefetchConfig { budget_bytes: 256 * 1024, ..config() };
    let mut prefetch = Prefetch::new(limits, vec![CHUNK; 4]);
    prefetch.handle_budget(u64::MAX);
    assert!(matches!(prefetch.poll(Nanos::ZERO), Next::Request(_, run) if run == (0..1)));
}

#[test]
fn a_rate_is_no_allowance_that_idle_time_adds_to() {
    let (second, rate) = (Nanos::from_millis(1_000), PrefetchRate::BytesPerS(1_000_000));
    let mut deadlines = Deadlines::default();
    for began in [Nanos::ZERO, Nanos::from_millis(10_000)] {
        assert!(deadlines.may_begin(rate, 0, Nanos::ZERO) <= began);
        deadlines.handle_request(began, rate, 1_000_000);
        assert_eq!(deadlines.may_begin(rate, 1, Nanos::ZERO), began + second);
    }
}

#[test]
fn a_doubted_profile_fills_only_the_pauses() {
    let mut prefetch = Prefetch::new(config(), vec![CHUNK; 100]);
    for _ in 0..=TRUSTED_MISSES {
        prefetch.handle_miss_beside(Nanos(4));
        prefetch.handle_miss_answered(Nanos(4));
    }
    assert!(!prefetch.is_doubted(), "the same reads wait for hot chunks");
    for _ in 0..=TRUSTED_MISSES {
        prefetch.handle_miss(Nanos(5));
    }
    assert_eq!(prefetch.poll(Nanos(6)), Next::Wait);
    for _ in 0..=TRUSTED_MISSES {
        prefetch.handle_miss_answered(Nanos(10));
    }
    assert_eq!(prefetch.poll(Nanos(11)), Next::WaitUntil(Nanos(10) + PAUSE));
    assert!(matches!(prefetch.poll(Nanos(10) + PAUSE), Next::Request(_, run) if run == (0..2)));
}

#[test]
fn a_medium_that_sends_by_itself_is_asked_for_one_thing_at_a_time() {
    let mut prefetch = Prefetch::new(PrefetchConfig { most_under_way: 1, ..config() }, vec![CHUNK; 100]);
    let Next::Request(id, _) = prefetch.poll(Nanos::ZERO) else { panic!("a request") };
    prefetch.handle_first_byte(Nanos::from_millis(10), id, 0);
    prefetch.handle_arrived(0);
    assert!(!matches!(prefetch.poll(Nanos::from_millis(12)), Next::Request(..)), "the first is under way");
    prefetch.handle_arrived(1);
    prefetch.handle_finished(Nanos::from_millis(18), id, Some(200_000));
    assert!(matches!(prefetch.poll(Nanos::from_millis(18)), Next::Request(..)));
}

#[test]
fn what_the_stream_has_passed_over_or_brings_in_pauses_only_is_sought() {
    let mut prefetch = Prefetch::new(config(), vec![CHUNK; 100]);
    let Next::Request(id, run) = prefetch.poll(Nanos::ZERO) else { panic!("a request") };
    assert_eq!(run, 0..2);
    prefetch.handle_first_byte(Nanos::from_millis(10), id, 0);
    prefetch.handle_arrived(0);
    prefetch.handle_finished(Nanos::from_millis(18), id, Some(200_000));
    assert_eq!([1, 2].map(|chunk| prefetch.late(chunk)), [Late::Fetch, Late::Join]);
    (0..=TRUSTED_MISSES).for_each(|_| prefetch.handle_miss(Nanos::from_millis(20)));
    assert_eq!(prefetch.late(2), Late::Fetch, "the profile is doubted");
}

#[test]
fn a_near_chunk_is_waited_for_and_a_far_one_is_sought() {
    let mut prefetch = Prefetch::new(config(), vec![CHUNK; 100]);
    let Next::Request(id, _) = prefetch.poll(Nanos::ZERO) else { panic!("a request") };
    prefetch.handle_first_byte(Nanos::from_millis(10), id, 0);
    prefetch.handle_arrived(0);
    prefetch.handle_arrived(1);
    prefetch.handle_finished(Nanos::from_millis(18), id, Some(200_000));
    // 4 ms a chunk. What a seek costs is unknown: 100 ms, three times.
    assert_eq!(prefetch.late(76), Late::Join);
    assert_eq!(prefetch.late(78), Late::Fetch);
    assert_eq!(prefetch.late(0), Late::Fetch, "what came and went must be asked for again");
    // A reader left the stream: 100,000 bytes took 34 ms, of which 30 are a seek.
    prefetch.handle_fetched(Nanos::from_millis(20), Nanos::from_millis(54), 100_000);
    assert_eq!(prefetch.late(24), Late::Join, "22 chunks before it, 88 ms, are sooner than three seeks");
    assert_eq!(prefetch.late(26), Late::Fetch);
    // Requests have a price of their own: 50 chunks, 200 ms, are waited for all the same.
    prefetch.config.least_gain = Nanos::from_millis(200);
    assert_eq!((prefetch.late(52), prefetch.late(54)), (Late::Join, Late::Fetch));
    for (rule, late) in [(LateRule::Join, Late::Join), (LateRule::Fetch, Late::Fetch)] {
        prefetch.config.late = rule;
        assert_eq!((prefetch.late(4), prefetch.late(60)), (late, late));
    }
}

#[test]
fn a_stream_that_was_left_for_as_long_as_its_rest_takes_is_joined() {
    let leaves = |config, overlaps, jump_ms: Option<u64>| {
        let mut prefetch = Prefetch::new(config, vec![CHUNK; 100]);
        let Next::Request(id, run) = prefetch.poll(Nanos::ZERO) else { panic!("a request") };
        prefetch.handle_first_byte(Nanos::from_millis(10), id, 0);
        run.for_each(|chunk| prefetch.handle_arrived(chunk));
        prefetch.handle_finished(Nanos::from_millis(18), id, Some(200_000));
        if let Some(jump) = jump_ms {
            prefetch.handle_fetched(Nanos::from_millis(20), Nanos::from_millis(24 + jump), 100_000);
        }
        prefetch.overlaps = overlaps;
        (0..100).find(|_| {
            // What the stream has passed does not count.
            prefetch.handle_stream_left(0);
            let joins = prefetch.late(99) == Late::Join;
            prefetch.handle_stream_left(99);
            joins
        })
    };
    // 98 chunks of 4 ms are to come. Leaving costs three times 30 ms.
    assert_eq!(leaves(config(), false, Some(30)), Some(5));
    assert_eq!(leaves(config(), false, None), None, "nothing is known of jumps");
    assert_eq!(leaves(config(), true, Some(30)), None, "requests overlap");
    let network = PrefetchConfig { most_under_way: 1, ..config() };
    assert_eq!(leaves(network, false, Some(30)), None, "requests have connections of their own");
}

#[test]
fn a_seek_is_told_from_waiting_for_the_medium() {
    let mut prefetch = Prefetch::new(config(), vec![CHUNK; 100]);
    let Next::Request(first, _) = prefetch.poll(Nanos::ZERO) else { panic!("a request") };
    prefetch.handle_first_byte(Nanos::from_millis(10), first, 0);
    prefetch.handle_finished(Nanos::from_millis(18), first, Some(200_000));
    let Next::Request(second, _) = prefetch.poll(Nanos::from_millis(18)) else { panic!("a request") };
    prefetch.handle_first_byte(Nanos::from_millis(28), second, 0);
    prefetch.handle_finished(Nanos::from_millis(44), second, Some(400_000));
    // Two fetches, asked for while the second request was under way: one after the other, 50 ms each.
    prefetch.handle_fetched(Nanos::from_millis(20), Nanos::from_millis(94), 25_000);
    assert_eq!(prefetch.estimate().jump(), Some(Nanos::from_millis(49)));
    prefetch.handle_fetched(Nanos::from_millis(21), Nanos::from_millis(144), 25_000);
    assert_eq!(prefetch.estimate().jump(), Some(Nanos::from_millis(49)));
}

#[test]
fn a_failure_ends_it_and_an_empty_region_never_starts() {
    let mut prefetch = Prefetch::new(config(), vec![CHUNK; 3]);
    let Next::Request(id, _) = prefetch.poll(Nanos::ZERO) else { panic!("a request") };
    prefetch.handle_finished(Nanos(1), id, None);
    assert_eq!(prefetch.poll(Nanos(2)), Next::Done(EndReason::Failed));
    assert_eq!(prefetch.late(2), Late::Fetch);
    assert_eq!(Prefetch::new(config(), vec![]).poll(Nanos::ZERO), Next::Done(EndReason::Nothing));
}

#[test]
fn the_next_request_comes_one_latency_before_the_end_of_the_last() {
    let mut prefetch = Prefetch::new(config(), vec![CHUNK; 100]);
    let head = prefetch.handle_head(Nanos::ZERO, 10, 0);
    assert_eq!(prefetch.poll(Nanos::ZERO), Next::Wait, "nothing is known of the medium");
    prefetch.handle_first_byte(Nanos::from_millis(10), head, 0);
    prefetch.handle_progress(Nanos::from_millis(14), head, 0);
    // Ten chunks of 4 ms from 10 ms on: done at 50, less 10 ms of latency and the margin.
    assert_eq!(
        prefetch.poll(Nanos::from_millis(14)),
        Next::WaitUntil(Nanos::from_millis(40) - pacing::EARLY)
    );
    assert!(matches!(prefetch.poll(Nanos::from_millis(40)), Next::Request(_, run) if run.start == 10));
}

#[test]
fn until_its_use_is_seen_the_next_request_leaves_the_medium_idle_for_a_quarter_of_the_latency() {
    let mut prefetch = Prefetch::new(PrefetchConfig { sees_use: true, ..config() }, vec![CHUNK; 100]);
    let head = prefetch.handle_head(Nanos::ZERO, 10, 0);
    prefetch.handle_first_byte(Nanos::from_millis(10), head, 0);
    prefetch.handle_progress(Nanos::from_millis(14), head, 0);
    let (done, quarter) = (Nanos::from_millis(50), Nanos(2_500_000));
    let first_byte = done + quarter;
    assert_eq!(prefetch.poll(Nanos::from_millis(14)), Next::WaitUntil(first_byte - Nanos::from_millis(10)));
}

#[test]
fn the_next_request_comes_one_latency_before_the_end_of_all_that_are_under_way() {
    let mut prefetch = Prefetch::new(config(), vec![CHUNK; 100]);
    prefetch.overlaps = true;
    prefetch.estimate.observe_rate(Nanos::ZERO, Nanos::from_millis(4), 100_000);
    let head = prefetch.handle_head(Nanos::ZERO, 10, 0);
    prefetch.handle_first_byte(Nanos::from_millis(10), head, 0);
    prefetch.handle_progress(Nanos::from_millis(14), head, 0);
    let Next::Request(_, run) = prefetch.poll(Nanos::from_millis(40)) else { panic!("a request") };
    assert_eq!(run, 10..11);
    // Ten chunks of 4 ms from 10 ms on, and one more.
    let done = Nanos::from_millis(54);
    let ahead = Nanos::from_millis(10) + pacing::EARLY;
    assert_eq!(prefetch.poll(Nanos::from_millis(40)), Next::WaitUntil(done - ahead));
}

#[test]
fn requests_stay_small_where_the_medium_overlaps_them() {
    for (gap_ms, overlaps) in [(0, true), (10, false)] {
        // The first request lasts for longer than the latency of the next.
        let limits = PrefetchConfig { first_request_bytes: 500_000, max_request_bytes: 8 << 20, ..config() };
        let mut prefetch = Prefetch::new(limits, vec![CHUNK; 400]);
        let mut largest = 0;
        // The medium is free again at this time; 25 MB/s, 10 ms of latency that overlaps or does not.
        let mut free = Nanos::ZERO;
        let mut now = Nanos::ZERO;
        let mut under_way: Option<(RequestId, Range<u32>, Nanos)> = None;
        loop {
            match prefetch.poll(now) {
                Next::Request(id, run) => {
                    largest = largest.max(run.end - run.start);
                    let first_byte = (now + Nanos::from_millis(10)).max(free + Nanos::from_millis(gap_ms));
                    if let Some((id, run, done)) = under_way.take() {
                        prefetch.handle_finished(done, id, Some(u64::from(run.end - run.start) * 100_000));
                    }
                    prefetch.handle_first_byte(first_byte, id, 0);
                    prefetch.handle_progress(first_byte + Nanos::from_millis(4), id, run.start);
                    free = first_byte + Nanos(u64::from(run.end - run.start) * 4_000_000);
                    now = first_byte + Nanos::from_millis(4);
                    under_way = Some((id, run, free));
                }
                Next::WaitUntil(then) => now = then,
                Next::Wait | Next::Done(_) => break,
            }
        }
        // 40 ms at 25 MB/s are ten chunks.
        assert_eq!(largest <= 10, overlaps, "{largest} chunks in one request");
    }
}

/// Brings the next request's chunks at once, and returns them.
fn bring(prefetch: &mut Prefetch, now: Nanos) -> Option<Range<u32>> {
    let Next::Request(id, run) = prefetch.poll(now) else { return None };
    prefetch.handle_first_byte(now, id, 0);
    run.clone().for_each(|chunk| prefetch.handle_arrived(chunk));
    prefetch.handle_finished(now + Nanos::from_millis(4), id, Some(u64::from(run.end - run.start) * 100_000));
    Some(run)
}

#[test]
fn what_is_resident_is_passed_over() {
    let mut prefetch = Prefetch::new(config(), vec![CHUNK; 20]);
    (0..3).for_each(|chunk| prefetch.handle_resident(chunk));
    // A gap of one chunk is read again rather than sought over; one of ten is not.
    prefetch.handle_resident(4);
    (6..16).for_each(|chunk| prefetch.handle_resident(chunk));
    assert!(prefetch.has_arrived(4) && !prefetch.has_arrived(5));
    let mut asked = Vec::new();
    while let Some(run) = bring(&mut prefetch, Nanos::ZERO) {
        run.clone().for_each(|chunk| prefetch.handle_released(chunk));
        asked.extend(run);
    }
    assert_eq!(asked, [3, 4, 5, 16, 17, 18, 19]);
    assert_eq!(prefetch.ended(), Some(EndReason::Complete));
    assert_eq!(prefetch.held_bytes(), 0);
}

#[test]
fn it_ends_when_what_it_brings_is_dropped_again() {
    let mut prefetch = Prefetch::new(config(), vec![CHUNK; 400]);
    let mut brought = 0;
    while brought < 60
        && let Some(run) = bring(&mut prefetch, Nanos::ZERO)
    {
        run.clone().for_each(|chunk| prefetch.handle_released(chunk));
        brought = run.end;
    }
    // Of 15 MiB and more, 8 MiB are 32 chunks.
    let half = (brought / 2).max(31);
    (0..half).for_each(|chunk| prefetch.handle_dropped(chunk));
    assert_eq!(prefetch.ended(), None, "half of it helped");
    prefetch.handle_dropped(half);
    assert_eq!(prefetch.poll(Nanos::ZERO), Next::Done(EndReason::NoHelp));
    assert_eq!(prefetch.late(399), Late::Fetch);
}

#[test]
fn it_ends_when_no_reader_wants_what_a_doubted_profile_brings() {
    for doubted in [false, true] {
        let mut prefetch = Prefetch::new(config(), vec![CHUNK; 400]);
        for _ in 0..if doubted { TRUSTED_MISSES + 1 } else { TRUSTED_MISSES } {
            prefetch.handle_miss(Nanos::ZERO);
            prefetch.handle_miss_answered(Nanos::ZERO);
        }
        let mut now = Nanos::ZERO;
        for _ in 0..60 {
            now += Nanos::from_millis(100);
            bring(&mut prefetch, now);
        }
        let reason = if doubted { EndReason::NoHelp } else { EndReason::Complete };
        assert_eq!(prefetch.ended(), Some(reason));
    }
}

#[test]
fn short_memory_ends_it_and_little_memory_narrows_its_budget() {
    let mut prefetch = Prefetch::new(config(), vec![CHUNK; 10]);
    prefetch.handle_budget(1 << 40);
    prefetch.handle_budget(256 * 1024);
    assert_eq!(bring(&mut prefetch, Nanos::ZERO), Some(0..1));
    assert!(prefetch.is_blocked());
    prefetch.handle_released(0);
    prefetch.handle_budget(3 * 256 * 1024);
    assert_eq!(bring(&mut prefetch, Nanos::ZERO), Some(1..3));
    prefetch.handle_short_memory();
    prefetch.handle_finished(Nanos::ZERO, RequestId(9), None);
    assert_eq!(prefetch.poll(Nanos::ZERO), Next::Done(EndReason::Memory));
    assert_eq!(EndReason::Memory.as_str(), "memory");
    assert!(!EndReason::Memory.is_complete() && EndReason::Complete.is_complete());
    assert_eq!(prefetch.late(5), Late::Fetch, "a reader fetches it");
}

/// A medium of 25 MB/s that serves one request after the other and takes `gap` before each; `miss` is when a
/// reader has waited 50 ms for something else. Returns how long each request lasted without its gap, in
/// milliseconds.
fn run_serial(prefetch: &mut Prefetch, gap: Nanos, miss: Option<Nanos>) -> Vec<u64> {
    let mut now = Nanos::ZERO;
    let mut free = Nanos::ZERO;
    let mut lasted = Vec::new();
    let mut miss = miss;
    let mut pending: VecDeque<(RequestId, Range<u32>, Nanos, Nanos)> = VecDeque::new();
    loop {
        let next = prefetch.poll(now);
        if let Next::Request(id, run) = next {
            prefetch.handle_begun(now.max(free), id);
            let first_byte = now.max(free) + gap;
            free = first_byte + Nanos(u64::from(run.end - run.start) * 4_000_000);
            lasted.push(free.saturating_sub(first_byte).0 / 1_000_000);
            pending.push_back((id, run, first_byte, free));
            continue;
        }
        if next == Next::Done(EndReason::Complete) {
            return lasted;
        }
        if let (Next::WaitUntil(then), true) = (&next, pending.is_empty()) {
            now = *then;
            continue;
        }
        let Some((id, run, first_byte, done)) = pending.pop_front() else {
            panic!("{next:?} with nothing under way")
        };
        prefetch.handle_first_byte(first_byte.max(now), id, 0);
        // What the policy does while the bytes come.
        let mut asked = None;
        match prefetch.poll(first_byte.max(now)) {
            Next::WaitUntil(then) => asked = Some(then),
            Next::Request(id, run) => {
                let first_byte = first_byte.max(now).max(free) + gap;
                free = first_byte + Nanos(u64::from(run.end - run.start) * 4_000_000);
                lasted.push(free.saturating_sub(first_byte).0 / 1_000_000);
                pending.push_back((id, run, first_byte, free));
            }
            Next::Wait | Next::Done(_) => {}
        }
        now = asked.map_or(done, |then| then.clamp(now, done));
        if asked.is_some() && now < done {
            pending.push_front((id, run, first_byte, done));
            if let Next::Request(id, run) = prefetch.poll(now) {
                let first_byte = now.max(free) + gap;
                free = first_byte + Nanos(u64::from(run.end - run.start) * 4_000_000);
                lasted.push(free.saturating_sub(first_byte).0 / 1_000_000);
                pending.push_back((id, run, first_byte, free));
            }
            let (id, run, _, done) = pending.pop_front().expect("just pushed");
            now = done;
            finish(prefetch, now, id, run);
        } else {
            now = done;
            finish(prefetch, now, id, run);
        }
        if miss.is_some_and(|then| now >= then) {
            miss = None;
            prefetch.handle_miss(now);
            prefetch.handle_fetched(now, free.max(now) + Nanos::from_millis(50), 100_000);
            free = free.max(now) + Nanos::from_millis(50);
            prefetch.handle_miss_answered(free);
        }
    }
}

fn finish(prefetch: &mut Prefetch, now: Nanos, id: RequestId, run: Range<u32>) {
    let bytes = u64::from(run.end - run.start) * 100_000;
    for chunk in run {
        prefetch.handle_arrived(chunk);
        prefetch.handle_released(chunk);
    }
    prefetch.handle_finished(now, id, Some(bytes));
}

fn large() -> PrefetchConfig {
    PrefetchConfig { budget_bytes: u64::MAX, ..PrefetchConfig::default() }
}

#[test]
fn requests_are_large_where_each_costs_a_latency() {
    let mut prefetch = Prefetch::new(large(), vec![CHUNK; 800]);
    let lasted = run_serial(&mut prefetch, Nanos::from_millis(10), None);
    assert!(lasted[4..lasted.len() - 1].iter().all(|ms| (200..=300).contains(ms)), "{lasted:?}");
}

#[test]
fn requests_become_small_while_a_reader_misses() {
    let mut prefetch = Prefetch::new(large(), vec![CHUNK; 3_200]);
    let lasted = run_serial(&mut prefetch, Nanos::from_millis(10), Some(Nanos::from_millis(1_000)));
    let last_large = lasted.iter().rposition(|ms| *ms > 40).expect("some are large");
    let small = lasted[..last_large].iter().filter(|ms| **ms <= 40).count();
    assert!(small > 80, "for the time of forty jumps, which may last for 100 ms: {lasted:?}");
}

/// A stream that goes by deadlines, of chunks that are needed a tenth of a second apart: how many it has
/// asked for by `until`.
fn asked_by(prefetch: &mut Prefetch, until: Nanos) -> u32 {
    let (mut now, mut asked) = (Nanos::ZERO, prefetch.front());
    loop {
        match prefetch.poll(now) {
            Next::Request(id, run) => {
                asked = run.end;
                prefetch.handle_first_byte(now, id, 0);
                for chunk in run {
                    prefetch.handle_progress(now, id, chunk);
                    prefetch.handle_arrived(chunk);
                    prefetch.handle_released(chunk);
                }
                prefetch.handle_finished(now + Nanos(1), id, Some(1));
                now += Nanos::from_millis(1);
            }
            Next::WaitUntil(then) if then <= until => now = then,
            Next::WaitUntil(_) | Next::Wait | Next::Done(_) => return asked,
        }
    }
}

#[test]
fn by_deadline_nothing_comes_long_before_its_need_unless_a_reader_waits() {
    let size = ChunkSize { stored_bytes: 1 << 20, raw_bytes: 1 << 20 };
    let millis = Nanos::from_millis;
    let needed: Vec<Nanos> = (0..200).map(|chunk| millis(100 * chunk)).collect();
    let of = |rate| {
        let mut prefetch = Prefetch::new(PrefetchConfig { rate, ..large() }, vec![size; 200]);
        prefetch.set_deadlines(Nanos::ZERO, needed.clone());
        prefetch
    };
    assert_eq!(asked_by(&mut of(PrefetchRate::Full), millis(5_000)), 200);
    let mut paced = of(PrefetchRate::ByDeadline);
    let asked = asked_by(&mut paced, millis(5_000));
    assert!((60..=70).contains(&asked), "{asked}: what is needed within a second");
    assert!(paced.least_slack_s().is_some_and(|slack| slack >= 0.0), "{:?}", paced.least_slack_s());
    // The program is further already: it goes faster than when it was recorded.
    paced.handle_wanted(millis(5_000), 150);
    let asked = asked_by(&mut paced, millis(5_000));
    assert!((160..=170).contains(&asked), "{asked}: up to where a reader waits, and a second");
    let mut limited = of(PrefetchRate::BytesPerS(1 << 20));
    assert!((5..=7).contains(&asked_by(&mut limited, millis(5_000))));
}

#[test]
fn what_comes_after_its_deadline_is_overdue_and_a_program_that_is_further_has_earlier_ones() {
    let millis = Nanos::from_millis;
    let mut prefetch = Prefetch::new(large(), vec![CHUNK; 4]);
    prefetch.set_deadlines(Nanos::ZERO, [0, 100, 200, 300].map(millis).into());
    let Next::Request(id, chunks) = prefetch.poll(Nanos::ZERO) else { panic!("a request") };
    assert_eq!(chunks, 0..4);
    prefetch.handle_first_byte(millis(10), id, 0);
    // The first was needed at once, the second comes in time.
    prefetch.handle_progress(millis(20), id, 0);
    prefetch.handle_progress(millis(90), id, 1);
    // A reader already waits for the third: the last is needed 100 ms from now.
    prefetch.handle_wanted(millis(100), 2);
    prefetch.handle_progress(millis(190), id, 2);
    prefetch.handle_progress(millis(199), id, 3);
    let overdue: Vec<_> = prefetch.overdue().collect();
    assert_eq!(overdue, [(0, CHUNK.raw_bytes), (2, CHUNK.raw_bytes)]);
}

#[test]
fn neighbours_take_no_longer_than_the_request_that_they_may_save() {
    let mut prefetch = Prefetch::new(config(), vec![CHUNK; 100]);
    assert_eq!(prefetch.most_neighbour_bytes(), None, "nothing is known");
    let Next::Request(id, _) = prefetch.poll(Nanos::ZERO) else { panic!("a request") };
    prefetch.handle_first_byte(Nanos::from_millis(10), id, 0);
    prefetch.handle_finished(Nanos::from_millis(210), id, Some(200_000));
    assert_eq!(prefetch.most_neighbour_bytes(), None, "requests cost others nothing");
    // 1,000 bytes a millisecond.
    prefetch.config.request_price = Nanos::from_millis(50);
    assert_eq!(prefetch.most_neighbour_bytes(), Some(50_000));
    prefetch.config.request_price = Nanos::from_millis(1);
    assert_eq!(prefetch.most_neighbour_bytes(), Some(10_000), "a request takes ten milliseconds in any case");
}

#[test]
fn neighbours_are_few_until_the_profile_is_doubted() {
    let mut prefetch = Prefetch::new(config(), vec![CHUNK; 50]);
    prefetch.config.request_price = Nanos::from_millis(50);
    let Next::Request(id, _) = prefetch.poll(Nanos::ZERO) else { panic!("a request") };
    prefetch.handle_first_byte(Nanos::from_millis(10), id, 0);
    prefetch.handle_finished(Nanos::from_millis(210), id, Some(200_000));
    let hot_bytes = 50 * u64::from(CHUNK.stored_bytes);
    assert_eq!(prefetch.most_neighbour_bytes(), Some(hot_bytes / 8 / TRUSTED_MISSES));
    for _ in 0..=TRUSTED_MISSES {
        prefetch.handle_miss(Nanos::from_millis(300));
    }
    assert_eq!(prefetch.most_neighbour_bytes(), Some(50_000));
}
