//! How use is seen where other components have the pages.

use super::*;

const NOW: Nanos = Nanos::from_millis(10);

fn stream(sees_use: bool) -> Prefetch {
    let mut prefetch = Prefetch::new(PrefetchConfig { sees_use, ..large() }, vec![CHUNK; 1_000]);
    assert!(matches!(prefetch.poll(Nanos::ZERO), Next::Request(..)));
    prefetch
}

/// Delivers chunks, and marks those that are to be; returns them.
fn deliver(prefetch: &mut Prefetch, now: Nanos, chunks: Range<u32>) -> Vec<u32> {
    let mut marked = Vec::new();
    for chunk in chunks {
        if prefetch.handle_delivery(now, chunk) {
            prefetch.handle_tripwire(chunk);
            marked.push(chunk);
        }
    }
    marked
}

fn misses(prefetch: &mut Prefetch, now: Nanos, count: usize) {
    for _ in 0..count {
        prefetch.handle_miss(now);
        prefetch.handle_miss_answered(now);
    }
}

#[test]
fn fewer_chunks_have_one_while_all_is_well_than_where_confidence_is_low() {
    let mut prefetch = stream(true);
    assert_eq!(deliver(&mut prefetch, NOW, 0..5), [0, 1, 2, 3, 4], "it is not used yet");
    (0..2).for_each(|_| prefetch.handle_used());
    let calm = deliver(&mut prefetch, NOW, 5..25);
    assert!(calm.len() <= 10 && calm.windows(2).all(|pair| pair[1] - pair[0] <= 2), "{calm:?}");
    misses(&mut prefetch, NOW, 1);
    assert_eq!(deliver(&mut prefetch, NOW, 25..30), [25, 26, 27, 28, 29]);
}

/// A stream that is used, on a medium with these times for a chunk and for a request that continues; a
/// request from rest takes 10 ms.
fn used_on(a_chunk: Nanos, goes_on: Nanos) -> Prefetch {
    let mut prefetch = stream(true);
    prefetch.estimate.observe_latency(Nanos::ZERO, Nanos::from_millis(10), 0);
    prefetch.estimate.observe_rate(Nanos::ZERO, a_chunk, u64::from(CHUNK.stored_bytes));
    prefetch.estimate.observe_gap(goes_on, 0);
    prefetch.handle_used();
    prefetch
}

#[test]
fn markers_are_as_far_apart_as_the_medium_is_fast() {
    let micros = |micros: u64| Nanos(micros * 1_000);
    // The time of a chunk, the cost of a request that continues, and how many chunks share one tripwire: 30
    // ms, 2 to 16 chunks.
    let media = [
        ("fast", micros(100), micros(100), 16),
        ("nearly as fast", micros(1_900), micros(100), 15),
        ("in between", micros(4_000), micros(100), 7),
        ("slow", micros(15_500), micros(100), 2),
        ("slower", micros(400_000), micros(100), 2),
        ("fast and dear", micros(100), micros(10_000), 2),
        ("in between and dear", micros(4_000), micros(6_000), 2),
    ];
    for (medium, a_chunk, goes_on, apart) in media {
        let mut prefetch = used_on(a_chunk, goes_on);
        let marked = deliver(&mut prefetch, NOW, 0..200);
        let expected: Vec<u32> = (0..200).step_by(apart).collect();
        assert_eq!(marked, expected, "{medium}");
    }
    // Or as the configuration says.
    let mut prefetch = used_on(micros(4_000), micros(100));
    prefetch.config.tripwires_apart = micros(48_000);
    assert_eq!(deliver(&mut prefetch, NOW, 0..30), [0, 12, 24]);
}

#[test]
fn a_disk_that_answers_the_first_request_at_once_has_no_dear_ones() {
    for (first_ms, goes_on_ms, is_dear) in [(1, 1, false), (2, 2, false), (3, 3, true), (10, 4, false)] {
        let mut prefetch = stream(true);
        prefetch.estimate.observe_latency(Nanos::ZERO, Nanos::from_millis(first_ms), 0);
        prefetch.estimate.observe_gap(Nanos::from_millis(goes_on_ms), 0);
        assert_eq!(prefetch.has_dear_requests(), is_dear, "{first_ms} ms, {goes_on_ms} ms");
        // A medium that sends by itself gets no requests, so a delay there comes from this machine.
        prefetch.config.most_under_way = 1;
        assert!(!prefetch.has_dear_requests(), "{first_ms} ms, {goes_on_ms} ms");
    }
}

#[test]
fn no_tripwire_is_due_where_use_is_not_looked_at_or_everything_was_asked_for() {
    assert_eq!(deliver(&mut stream(false), NOW, 0..40), []);
    let mut prefetch = Prefetch::new(PrefetchConfig { sees_use: true, ..large() }, vec![CHUNK; 10]);
    prefetch.handle_head(Nanos::ZERO, 10, 0);
    assert_eq!(deliver(&mut prefetch, NOW, 0..10), [], "there is nothing left to decide");
}

#[test]
fn what_comes_before_the_first_marker_speaks_for_nothing() {
    let mut prefetch = stream(true);
    prefetch.handle_use_by_tripwires();
    misses(&mut prefetch, NOW, 4);
    let _ = prefetch.poll(NOW);
    assert!(!prefetch.is_throttled() && !prefetch.lacks_confidence());
    assert_eq!(deliver(&mut prefetch, NOW, 0..1), [0]);
    misses(&mut prefetch, NOW, 2);
    let _ = prefetch.poll(NOW);
    assert!(prefetch.is_throttled());
}

#[test]
fn where_no_marker_had_a_place_nothing_is_held_against_the_stream() {
    let mut prefetch = stream(true);
    // A place for the first few only, and none for any of the others.
    assert_eq!(deliver(&mut prefetch, NOW, 0..5), [0, 1, 2, 3, 4]);
    (5..40).for_each(|chunk| assert!(prefetch.handle_delivery(NOW, chunk), "it is asked for on and on"));
    misses(&mut prefetch, NOW, 4);
    let _ = prefetch.poll(NOW);
    assert!(!prefetch.is_throttled());
    // With the next tripwire use is seen again.
    prefetch.handle_tripwire(40);
    misses(&mut prefetch, NOW, 2);
    let _ = prefetch.poll(NOW);
    assert!(prefetch.is_throttled());
    prefetch.handle_used();
    prefetch.handle_used();
    let _ = prefetch.poll(NOW);
    assert!(!prefetch.is_throttled());
}
