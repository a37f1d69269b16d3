//! Throttling, when the stream is unused.

use hs_units::Prng;

use super::*;

/// A stream whose use is seen, on a known medium: 10 ms elsewhere, 4 ms a chunk.
fn seen() -> Prefetch {
    let mut prefetch = Prefetch::new(PrefetchConfig { sees_use: true, ..large() }, vec![CHUNK; 4_000]);
    prefetch.estimate.observe_rate(Nanos::ZERO, Nanos::from_millis(4), 100_000);
    prefetch.estimate.observe_jump(Nanos::from_millis(14), 100_000);
    prefetch.estimate.observe_gap(Nanos(100_000), 0);
    prefetch
}

fn miss(prefetch: &mut Prefetch, now: Nanos) -> Nanos {
    prefetch.handle_miss(now);
    assert_eq!(prefetch.poll(now), Next::Wait, "another reader has the medium");
    let answered = now + Nanos::from_millis(14);
    prefetch.handle_miss_answered(answered);
    answered
}

#[test]
fn it_is_throttled_until_it_is_used() {
    type Use = fn(&mut Prefetch);
    let uses: [Use; 2] =
        [|prefetch| prefetch.handle_used(), |prefetch| prefetch.handle_wanted(Nanos::ZERO, 9)];
    for used in uses {
        let mut prefetch = seen();
        let now = miss(&mut prefetch, Nanos::from_millis(1_000));
        let Next::WaitUntil(until) = prefetch.poll(now) else { panic!("it is throttled") };
        assert!(until >= now + Nanos::from_millis(400), "for forty reads: {now}, {until}");
        assert!(prefetch.is_throttled() && prefetch.is_stalled(), "no reader may wait for it");
        used(&mut prefetch);
        assert!(matches!(prefetch.poll(now), Next::Request(..)));
        assert!(!prefetch.is_throttled());
    }
}

#[test]
fn it_goes_on_by_itself_when_no_reader_has_missed_for_long() {
    let mut prefetch = seen();
    let now = miss(&mut prefetch, Nanos::from_millis(1_000));
    let Next::WaitUntil(until) = prefetch.poll(now) else { panic!("it is throttled") };
    assert!(matches!(prefetch.poll(until), Next::Request(..)));
}

/// Where everything is to be brought in the end, a reader that always misses does not stop an unused stream.
#[test]
fn it_ages_where_it_is_told_to() {
    let pause = Nanos::from_millis(5_000);
    for ageing in [None, Some(pause)] {
        let config = PrefetchConfig { sees_use: true, ageing, ..large() };
        let mut prefetch = Prefetch::new(config, vec![CHUNK; 4_000]);
        let mut asked = Vec::new();
        // A reader waits all the time, except for a moment between two misses.
        for step in 0..6_000 {
            let now = Nanos::from_millis(1_000 + step * 10);
            prefetch.handle_miss(now);
            for answered in [false, true] {
                if answered {
                    prefetch.handle_miss_answered(now + Nanos::from_millis(9));
                }
                let now = now + Nanos::from_millis(if answered { 9 } else { 0 });
                match prefetch.poll(now) {
                    Next::Request(id, run) => {
                        asked.push(now);
                        finish(&mut prefetch, now, id, run);
                    }
                    Next::WaitUntil(then) => assert!(then > now, "{then} is over at {now}"),
                    next => assert_eq!(next, Next::Wait),
                }
            }
        }
        let apart = asked.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        match ageing {
            None => assert!(asked.len() <= 1, "{asked:?}"),
            Some(_) => assert!(apart.clone().all(|apart| apart >= pause) && apart.count() >= 9, "{asked:?}"),
        }
    }
}

#[test]
fn a_start_that_misses_now_and_then_is_not_kept_waiting() {
    let mut prefetch = seen();
    let mut now = Nanos::ZERO;
    for _ in 0..20 {
        (0..8).for_each(|_| prefetch.handle_used());
        now += Nanos::from_millis(50);
        prefetch.handle_miss(now);
        assert!(!prefetch.is_throttled());
        let Next::Request(id, run) = prefetch.poll(now) else { panic!("a lone miss says nothing") };
        finish(&mut prefetch, now + Nanos::from_millis(10), id, run);
        prefetch.handle_miss_answered(now);
    }
}

#[test]
fn who_already_waits_for_the_stream_gets_what_he_waits_for() {
    let mut prefetch = seen();
    prefetch.handle_wanted(Nanos::ZERO, 0);
    let now = Nanos::from_millis(100);
    for _ in 0..3 {
        prefetch.handle_miss(now);
        prefetch.handle_miss_answered(now);
    }
    let Next::Request(_, run) = prefetch.poll(now) else { panic!("chunk 0 is waited for") };
    assert!(run.contains(&0));
    // Beyond that it is throttled.
    assert!(matches!(prefetch.poll(now + Nanos::from_millis(200)), Next::WaitUntil(_)));
    assert!(prefetch.is_throttled());
}

#[test]
fn where_use_is_not_seen_nothing_is_held_against_it() {
    for hidden_later in [false, true] {
        let mut prefetch = if hidden_later { seen() } else { Prefetch::new(large(), vec![CHUNK; 100]) };
        prefetch.handle_use_hidden();
        for _ in 0..TRUSTED_MISSES {
            prefetch.handle_miss(Nanos::from_millis(5));
            prefetch.handle_miss_answered(Nanos::from_millis(5));
        }
        assert!(matches!(prefetch.poll(Nanos::from_millis(5)), Next::Request(..)));
        assert!(!prefetch.lacks_confidence());
    }
}

/// However far misses are apart, few of them find the stream at work once some have been seen.
#[test]
fn misses_at_random_hardly_meet_it() {
    for mean_ms in [3, 40, 150, 700, 3_000] {
        let (mut met, mut misses) = (0, 0);
        for seed in 0..50 {
            let mut prng = Prng::new(seed);
            let mut prefetch = seen();
            let mut now = Nanos::from_millis(100);
            for number in 0..60 {
                if number >= 4 {
                    misses += 1;
                    met += u32::from(is_at_work(&mut prefetch, now));
                }
                prefetch.handle_miss(now);
                now += Nanos::from_millis(14);
                prefetch.handle_miss_answered(now);
                let uniform = (prng.below(1 << 32) + 1) as f64 / (1_u64 << 32) as f64;
                now += Nanos((-uniform.ln() * mean_ms as f64 * 1e6) as u64);
            }
        }
        assert!(met * 100 <= misses, "{mean_ms} ms apart: {met} of {misses}");
    }
}

fn is_at_work(prefetch: &mut Prefetch, now: Nanos) -> bool {
    let Next::Request(id, run) = prefetch.poll(now) else { return false };
    finish(prefetch, now, id, run);
    true
}

/// On a link where each request takes its latency, an unused stream takes only a part of it, for a while.
#[test]
fn on_a_link_without_overlap_it_is_careful_until_it_is_used() {
    let busy = |used: bool| {
        let config = PrefetchConfig { sees_use: true, ..large() };
        let mut prefetch = Prefetch::new(config, vec![CHUNK; 4_000]);
        if used {
            prefetch.handle_used();
        }
        // 10 ms and 4 ms a chunk, one after the other.
        let lasted = run_serial_until(&mut prefetch, Nanos::from_millis(450));
        lasted.0 as f64 / 450e6
    };
    assert!(busy(false) < 0.5, "{}", busy(false));
    assert!(busy(true) > 0.9, "{}", busy(true));
}

/// How long a medium that takes 10 ms before each request and 4 ms a chunk works until then.
fn run_serial_until(prefetch: &mut Prefetch, until: Nanos) -> Nanos {
    let (mut now, mut worked, mut free) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
    let mut pending: VecDeque<(RequestId, Range<u32>, Nanos, Nanos)> = VecDeque::new();
    while now < until {
        let next = prefetch.poll(now);
        if let Next::Request(id, run) = next {
            let first_byte = now.max(free) + Nanos::from_millis(10);
            let began = now.max(free);
            free = first_byte + Nanos(u64::from(run.end - run.start) * 4_000_000);
            worked += free.min(until.max(began)).saturating_sub(began);
            pending.push_back((id, run, first_byte, free));
            continue;
        }
        let wake = if let Next::WaitUntil(then) = next { then } else { Nanos(u64::MAX) };
        let Some((_, run, first_byte, done)) = pending.front().cloned() else {
            now = wake;
            continue;
        };
        let id = pending[0].0;
        prefetch.handle_first_byte(first_byte.max(now), id, 0);
        // The first chunk shows the rate.
        if wake == Nanos(u64::MAX) && now < first_byte + Nanos::from_millis(4) && run.end - run.start > 1 {
            now = first_byte + Nanos::from_millis(4);
            prefetch.handle_progress(now, id, run.start);
        } else if wake < done {
            now = wake.max(now + Nanos(1));
        } else {
            pending.pop_front();
            now = done.max(now);
            finish(prefetch, now, id, run);
        }
    }
    worked
}

/// A link without overlap, 10 ms for each request, with a recent miss, and the request under way there.
fn dear(now: Nanos) -> (Prefetch, RequestId) {
    let mut prefetch = Prefetch::new(large(), vec![CHUNK; 400]);
    prefetch.estimate.observe_latency(Nanos::ZERO, Nanos::from_millis(10), 0);
    prefetch.estimate.observe_rate(Nanos::ZERO, Nanos::from_millis(4), 100_000);
    prefetch.estimate.observe_gap(Nanos::from_millis(10), 0);
    prefetch.handle_miss(now);
    prefetch.handle_miss_answered(now);
    let Next::Request(id, run) = prefetch.poll(now) else { panic!("a request") };
    assert!(
        prefetch.estimate.transfer(prefetch.chunks.stored(&run)) <= Some(Nanos::from_millis(30)),
        "a small one"
    );
    (prefetch, id)
}

#[test]
fn where_requests_are_dear_and_a_reader_misses_it_waits_for_the_program_to_think() {
    let millis = Nanos::from_millis;
    for wanted in [false, true] {
        let (mut prefetch, id) = dear(millis(100));
        prefetch.handle_first_byte(millis(110), id, 0);
        assert_eq!(prefetch.poll(millis(125)), Next::Wait, "one is under way");
        prefetch.handle_finished(millis(130), id, Some(400_000));
        assert_eq!(prefetch.poll(millis(130)), Next::WaitUntil(millis(135)), "the program thinks");
        if wanted {
            prefetch.handle_wanted(millis(132), 9);
            assert!(matches!(prefetch.poll(millis(132)), Next::Request(..)), "it needs the stream");
        } else {
            assert!(
                matches!(prefetch.poll(millis(135)), Next::Request(..)),
                "it thinks for longer, or has no need"
            );
        }
    }
    // Long after the last miss the stream is no longer limited.
    let (mut prefetch, id) = dear(millis(100));
    prefetch.handle_first_byte(millis(110), id, 0);
    prefetch.handle_finished(millis(5_000), id, Some(400_000));
    assert!(matches!(prefetch.poll(millis(5_000)), Next::Request(..)));
}

/// On a slow disc that hands out pieces of 64 kB, each of which takes longer than the rest of the request, an
/// unused stream goes on at once. Where each request costs as much as the first did, it leaves the medium to
/// others for a while.
#[test]
fn a_disc_that_hands_out_pieces_is_not_taken_for_a_link_without_overlap() {
    let millis = Nanos::from_millis;
    // 4 MB/s: a chunk takes 25 ms, a piece 16 ms; a request from rest costs 12 ms.
    for (goes_on_ms, is_dear) in [(1, false), (12, true)] {
        let mut prefetch = Prefetch::new(PrefetchConfig { sees_use: true, ..large() }, vec![CHUNK; 400]);
        let Next::Request(first, run) = prefetch.poll(Nanos::ZERO) else { panic!("a request") };
        let bytes = |run: &Range<u32>| u64::from(run.end - run.start) * 100_000;
        prefetch.handle_first_byte(millis(12 + 16), first, 64_000);
        let mut now = millis(12) + Nanos(bytes(&run) * 250);
        // The second is requested while the first is under way.
        prefetch.handle_progress(millis(12 + 25), first, run.start);
        let Next::WaitUntil(then) = prefetch.poll(millis(12 + 25)) else { panic!("the next has time") };
        let Next::Request(second, next) = prefetch.poll(then) else { panic!("now is the time") };
        finish(&mut prefetch, now, first, run);
        prefetch.handle_first_byte(now + millis(goes_on_ms + 16), second, 64_000);
        now = now + millis(goes_on_ms) + Nanos(bytes(&next) * 250);
        finish(&mut prefetch, now, second, next);
        assert!(prefetch.is_careful(now));
        assert_eq!(prefetch.has_dear_requests(), is_dear, "{goes_on_ms} ms");
        assert_eq!(matches!(prefetch.poll(now), Next::WaitUntil(_)), is_dear, "{goes_on_ms} ms");
    }
}
