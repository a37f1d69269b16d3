//! A disc that takes long for each chunk, and longer to go elsewhere; it hands out pieces.

use super::*;

const PIECE_BYTES: u64 = 64_000;

/// 1 MB/s, so that a chunk takes 100 ms and a piece 64.
fn disc() -> Prefetch {
    let mut prefetch = Prefetch::new(large(), vec![CHUNK; 400]);
    prefetch.estimate.observe_rate(Nanos::ZERO, Nanos::from_millis(100), 100_000);
    prefetch
}

fn request(prefetch: &mut Prefetch, now: Nanos) -> (RequestId, Range<u32>) {
    match prefetch.poll(now) {
        Next::Request(id, run) => (id, run),
        next => panic!("{next:?} at {now}"),
    }
}

/// One that was asked for when the medium had nothing to do has its first piece after `latency_ms` and the
/// piece's time, one that was asked for during another right after that and the piece's time.
fn come(prefetch: &mut Prefetch, begun: Nanos, latency_ms: u64, (id, run): (RequestId, Range<u32>)) -> Nanos {
    let first = begun + Nanos::from_millis(latency_ms + 64);
    prefetch.handle_first_byte(first, id, PIECE_BYTES);
    let done = begun + Nanos::from_millis(latency_ms + u64::from(run.end - run.start) * 100);
    prefetch.handle_progress(done, id, run.end - 1);
    finish(prefetch, done, id, run);
    done
}

#[test]
fn a_disc_that_was_led_elsewhere_does_not_overlap_requests() {
    let mut prefetch = disc();
    let opening = request(&mut prefetch, Nanos::ZERO);
    let mut now = come(&mut prefetch, Nanos::ZERO, 3, opening);
    for _ in 0..4 {
        // A miss moves the head, so the next request finds it elsewhere, and the one that follows does not.
        prefetch.handle_miss(now);
        now += Nanos::from_millis(150);
        prefetch.handle_miss_answered(now);
        now += Nanos::from_millis(10_000);
        let back = request(&mut prefetch, now);
        prefetch.handle_first_byte(now + Nanos::from_millis(150 + 64), back.0, PIECE_BYTES);
        let then = now + Nanos::from_millis(150 + 64);
        let following = loop {
            match prefetch.poll(then.max(now)) {
                Next::Request(id, run) => break (id, run),
                Next::WaitUntil(until) => now = until,
                next => panic!("{next:?}"),
            }
        };
        now = come(&mut prefetch, then, 0, back);
        now = come(&mut prefetch, now, 0, following);
        assert!(!prefetch.overlaps);
    }
}

#[test]
fn where_a_chunk_takes_longer_than_half_a_read_the_stream_waits_for_the_program() {
    let millis = Nanos::from_millis;
    // A read elsewhere takes 64 ms more than the way there.
    for (jump_ms, waits) in [(100, true), (200, false)] {
        let mut prefetch = disc();
        prefetch.estimate.observe_gap(millis(1 + 64), PIECE_BYTES);
        prefetch.estimate.observe_jump(millis(jump_ms + 64), PIECE_BYTES);
        prefetch.handle_miss(millis(1_000));
        prefetch.handle_miss_answered(millis(1_100));
        assert!(!prefetch.has_dear_requests());
        let (id, run) = request(&mut prefetch, millis(1_200));
        assert_eq!(run.end - run.start, 1, "the smallest there is");
        prefetch.handle_first_byte(millis(1_264), id, PIECE_BYTES);
        finish(&mut prefetch, millis(1_300), id, run);
        let next = prefetch.poll(millis(1_300));
        if waits {
            assert_eq!(next, Next::WaitUntil(millis(1_305)));
            prefetch.handle_wanted(millis(1_302), 9);
            assert!(matches!(prefetch.poll(millis(1_302)), Next::Request(..)), "it needs the stream");
        } else {
            assert!(matches!(next, Next::Request(..)), "{next:?}");
        }
    }
}
