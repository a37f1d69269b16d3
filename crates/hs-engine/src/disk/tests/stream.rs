//! Each rule of the stream and of what is delivered by itself.

use super::background::bring;
use super::rules::{keys_of, settle, shell};
use super::*;
use crate::{EndReason, LateRule};

#[test]
fn a_late_read_joins_the_stream_and_hurries_it() {
    let mut shell = shell(DiskConfig::default());
    shell.pump();
    assert_eq!(shell.fetches.len(), 1, "the stream begins");
    let fetches = shell.fetched.len();
    shell.run(Step::Read { block: 2, blocks: 1, class: 0 });
    assert_eq!(shell.fetched.len(), fetches, "it is on its way");
    assert_eq!(shell.engine.stats().joined, 1);
    shell.drain();
    assert_eq!(shell.engine.prefetch().ended(), Some(EndReason::Complete));
    assert_eq!(shell.engine.stats().streamed, u64::from(HOT));
}

#[test]
fn one_decoder_delivers_while_another_goes_on_and_the_reads_come_after_it() {
    let delivery = DeliveryConfig { before_answers: true };
    let mut shell = shell(DiskConfig { delivery: Some(delivery), ..DiskConfig::default() });
    shell.pump();
    shell.run(Step::Read { block: 2, blocks: 2, class: 0 });
    shell.run(Step::BringAll(0));
    let first = *shell.decoding.iter().find(|(_, key)| **key == ChunkKey::Hot(0)).expect("it comes").0;
    shell.decoded(first, true);
    shell.pump();
    assert_eq!(shell.deliveries, [(ChunkKey::Hot(0), Deliverer::Decoder(first))]);
    let left_out = shell.engine.left_out(ChunkKey::Hot(0));
    assert!(left_out.len() == 1 && left_out[0] == (0..2), "{left_out:?}");
    assert_eq!(shell.reads.len(), 1, "it is answered after the delivery");
    let other = pick(&shell.decoding, 0).expect("the other decoder goes on");
    shell.decoded(other, true);
    shell.pump();
    assert_eq!(shell.deliveries[1].1, Deliverer::Thread);
    shell.run(Step::Delivered(0, true));
    assert!(shell.reads.is_empty());
}

#[test]
fn the_request_that_opened_the_image_brings_hot_chunks() {
    let mut shell = shell(DiskConfig::default());
    let fetch = shell.engine.handle_opening(Nanos::ZERO, 3, 500).expect("there is a hot region");
    let chunks = shell.engine.fetch(fetch).chunks.to_vec();
    assert_eq!(chunks.len(), 3);
    shell.fetches.insert(fetch, chunks);
    shell.run(Step::Read { block: 2, blocks: 1, class: 0 });
    assert!(shell.fetched.is_empty(), "it is on its way");
    shell.run(Step::FirstByte(0));
    shell.run(Step::Comes(0, 0));
    shell.run(Step::EndFetch(0));
    shell.run(Step::Decoded(0, true));
    assert!(shell.reads.is_empty());
    shell.finish();
}

/// A stream of small requests, and what a late read does.
fn small_requests(late: LateRule) -> DiskConfig {
    let sizes = PrefetchConfig {
        first_request_bytes: STORED,
        max_request_bytes: STORED,
        ..PrefetchConfig::default()
    };
    DiskConfig { prefetch: Some(PrefetchConfig { late, ..sizes }), ..DiskConfig::default() }
}

#[test]
fn a_read_of_what_the_stream_has_not_asked_for_waits_for_it_or_fetches_by_the_rule() {
    for (late, fetched) in [(LateRule::Join, false), (LateRule::Fetch, true)] {
        let mut shell = shell(small_requests(late));
        shell.pump();
        shell.run(Step::Read { block: blocks_of_hot(5)[0], blocks: 1, class: 0 });
        assert_eq!(keys_of(&shell).contains(&ChunkKey::Hot(5)), fetched, "{late:?}");
        shell.drain();
        assert!(shell.reads.is_empty());
        assert_eq!(shell.fetched.len() as u32, HOT, "each chunk is fetched once");
    }
}

#[test]
fn readers_that_have_left_the_stream_for_as_long_as_its_rest_takes_join_it() {
    let mut config = small_requests(LateRule::ByCost);
    config.prefetch =
        config.prefetch.map(|limits| PrefetchConfig { first_request_bytes: 2 * STORED, ..limits });
    let mut shell = shell(config);
    shell.pump();
    // The stream takes 150 ms for a chunk, a request elsewhere 180 ms more. Chunks 2 to 8 are to come.
    shell.run(Step::Hold);
    for step in [Step::FirstByte(0), Step::Pass(150), Step::Comes(0, 0), Step::Pass(150), Step::BringAll(0)] {
        shell.run(step);
    }
    let mut fetched = Vec::new();
    let mut read = |block| {
        shell.run(Step::Read { block, blocks: 1, class: 0 });
        fetched.extend(keys_of(&shell));
        shell.run(Step::Pass(330));
        shell.run(Step::BringAll(0));
    };
    // A page of the index: what jumps cost is known.
    read(0);
    [8, 7, 6].into_iter().for_each(|chunk| read(blocks_of_hot(chunk)[0]));
    assert_eq!(fetched, [ChunkKey::Page(0), ChunkKey::Hot(8), ChunkKey::Hot(7)]);
    assert_eq!(shell.engine.stats().joined, 1);
    shell.run(Step::Begin);
    shell.drain();
    assert!(shell.reads.is_empty());
}

#[test]
fn the_stream_waits_compressed_while_much_is_to_be_delivered_and_reads_do_not() {
    let delivery = DeliveryConfig { before_answers: false };
    let mut shell = shell(DiskConfig {
        visibility: UseVisibility::Hidden,
        delivery: Some(delivery),
        decoders: 1,
        ..DiskConfig::default()
    });
    shell.pump();
    shell.run(Step::BringAll(0));
    settle(&mut shell);
    // One is being delivered, four wait.
    let raw = shell.bytes.iter().filter(|(_, form)| *form == Form::Raw).count();
    assert_eq!((raw, shell.deliveries.len()), (5, 1));
    shell.run(Step::Read { block: blocks_of_hot(6)[0], blocks: 1, class: 0 });
    settle(&mut shell);
    assert!(shell.reads.is_empty(), "a delivery may wait for just this read");
    shell.drain();
}

#[test]
fn a_stream_that_ends_for_want_of_memory_is_cancelled_and_its_readers_fetch() {
    let mut shell = shell(DiskConfig::default());
    shell.pump();
    let fetch = pick(&shell.fetches, 0).expect("the stream begins");
    shell.run(Step::Memory(0));
    assert_eq!(shell.engine.prefetch().ended(), Some(EndReason::Memory));
    assert!(shell.cancelled.contains(&fetch));
    shell.run(Step::Read { block: 2, blocks: 1, class: 0 });
    shell.run(Step::EndFetch(0));
    assert_eq!(keys_of(&shell), [ChunkKey::Hot(0)]);
    shell.drain();
    assert!(shell.reads.is_empty());
}

#[test]
fn the_stream_passes_over_what_it_cannot_read_and_gives_up_when_that_is_too_much() {
    let mut shell = shell(DiskConfig::default());
    shell.pump();
    shell.run(Step::Comes(0, 0));
    shell.run(Step::EndFetch(0));
    assert_eq!(keys_of(&shell), (2..HOT).map(ChunkKey::Hot).collect::<Vec<_>>(), "behind the bad place");
    shell.engine.unreadable_in_a_row = super::super::stream::UNREADABLE_IN_A_ROW - 1;
    shell.run(Step::EndFetch(0));
    assert_eq!(shell.engine.prefetch().ended(), Some(EndReason::Failed));
    assert!(shell.fetches.is_empty());
}

#[test]
fn the_stream_is_past_a_chunk_that_a_read_has_asked_for_when_it_cannot_read_over_it() {
    let mut shell = Shell::new(DiskConfig::default());
    shell.run(Step::Hold);
    shell.run(Step::Read { block: blocks_of_hot(1)[0], blocks: 1, class: 0 });
    shell.run(Step::Begin);
    assert_eq!(keys_of(&shell)[..3], [1, 0, 1].map(ChunkKey::Hot), "the stream reads over it");
    shell.run(Step::Comes(1, 0));
    shell.run(Step::EndFetch(1));
    shell.drain();
    assert!(shell.reads.is_empty());
    assert_eq!(shell.engine.prefetch().front(), HOT, "nothing is taken for being on its way");
}

#[test]
fn where_requests_have_a_price_neighbours_that_take_longer_do_not_come() {
    for (request_price, windows) in [(Nanos::ZERO, 6), (Nanos::from_millis(1), 1)] {
        let limits = PrefetchConfig { request_price, ..PrefetchConfig::default() };
        let mut shell = shell(DiskConfig { prefetch: Some(limits), ..DiskConfig::default() });
        shell.pump();
        shell.run(Step::Pass(20));
        shell.run(Step::FirstByte(0));
        let stream = pick(&shell.fetches, 0).expect("the stream has begun");
        bring(&mut shell, stream, Nanos::ZERO);
        shell.run(Step::Read { block: 0, blocks: 1, class: 0 });
        let page = pick(&shell.fetches, 0).expect("a page of the index comes first");
        bring(&mut shell, page, Nanos::ZERO);
        assert_eq!(keys_of(&shell).len(), windows, "{request_price}");
        shell.finish();
    }
}

#[test]
fn a_prefetch_that_is_held_asks_for_nothing_and_reads_that_wait_for_it_get_what_they_want() {
    let mut shell = Shell::new(DiskConfig::default());
    shell.run(Step::Hold);
    assert!(shell.fetches.is_empty());
    shell.run(Step::Read { block: 2, blocks: 1, class: 0 });
    shell.drain();
    assert!(shell.reads.is_empty());
    // That which the read has brought is not streamed.
    assert_eq!(shell.engine.arrivals().iter().flatten().count(), HOT as usize - 1);
    let stopped = &mut Shell::new(DiskConfig::default());
    stopped.run(Step::Hold);
    stopped.engine.handle_expected(0);
    stopped.run(Step::Read { block: 2, blocks: 1, class: 0 });
    assert!(stopped.fetches.is_empty(), "it waits for the stream");
    stopped.run(Step::StopPrefetch);
    let classes: Vec<Class> = stopped.fetches.keys().map(|fetch| stopped.fetched[fetch]).collect();
    assert_eq!(classes, [Class::Prefetch], "it is fetched, and no program waits for it");
    stopped.drain();
    assert!(stopped.reads.is_empty());
}

#[test]
fn programs_wait_for_what_they_ask_for_and_not_for_what_only_is_to_come() {
    let mut shell = Shell::new(DiskConfig::default());
    shell.run(Step::Hold);
    shell.engine.handle_expected(0);
    shell.run(Step::Read { block: 2, blocks: 1, class: 0 });
    shell.run(Step::Pass(5));
    assert_eq!(shell.engine.program_wait(shell.now), Nanos::ZERO);
    shell.run(Step::Read { block: 68, blocks: 1, class: 0 });
    shell.run(Step::Pass(5));
    assert_eq!(shell.engine.program_wait(shell.now), Nanos::from_millis(5));
    shell.run(Step::Pass(5));
    shell.drain();
    assert!(shell.engine.program_wait(shell.now) >= Nanos::from_millis(10));
    assert!(shell.engine.stats().outside_bytes > 0);
    assert_eq!(shell.expected, [ByteRange::new(2 * BLOCK_BYTES, BLOCK_BYTES)]);
}

#[test]
fn a_read_of_what_is_not_to_come_is_no_expected_one_however_urgent_it_is() {
    for class in [0, 7] {
        let mut shell = shell(DiskConfig::default());
        shell.run(Step::Read { block: 68, blocks: 1, class });
        shell.drain();
        assert!(shell.reads.is_empty() && shell.expected.is_empty(), "{class}");
    }
}

#[test]
fn late_bytes_are_those_of_the_hot_region_that_had_not_come() {
    let mut shell = shell(DiskConfig::default());
    // A cold block, and two hot ones.
    for _ in 0..2 {
        shell.run(Step::Read { block: 1, blocks: 3, class: 0 });
        shell.drain();
        // The second time all of it is here.
        assert_eq!(shell.late_bytes, 2 * BLOCK_BYTES);
    }
}

#[test]
fn reads_around_hot_blocks_say_nothing_against_the_profile() {
    // A cold block, without and with the two hot ones behind it. Nothing is kept.
    for (blocks, is_doubted) in [(1, true), (3, false)] {
        let mut shell = shell(DiskConfig { cache_bytes: 0, ..DiskConfig::default() });
        for _ in 0..30 {
            shell.run(Step::Read { block: 1, blocks, class: 0 });
            shell.drain();
        }
        assert_eq!(shell.engine.prefetch().is_doubted(), is_doubted, "{blocks}");
        shell.finish();
    }
}

#[test]
fn only_a_read_that_a_program_waits_for_hurries_a_request_of_the_stream() {
    for (class, hurried) in [(0, Class::Demand), (7, Class::Prefetch)] {
        let mut shell = shell(DiskConfig { fetchers: 1, ..DiskConfig::default() });
        shell.run(Step::Hold);
        // A page of the index is under way; the stream waits for the only fetcher.
        shell.run(Step::Read { block: 0, blocks: 1, class: 0 });
        shell.run(Step::Begin);
        shell.run(Step::Read { block: 2, blocks: 1, class });
        shell.run(Step::BringAll(0));
        let classes: Vec<Class> = shell.fetches.keys().map(|fetch| shell.fetched[fetch]).collect();
        assert_eq!(classes, [hurried]);
        assert!(keys_of(&shell).contains(&ChunkKey::Hot(0)));
        shell.drain();
    }
}

#[test]
fn the_stream_is_settled_when_all_that_it_brought_is_decompressed_and_delivered() {
    let delivery = DeliveryConfig { before_answers: false };
    let visibility = UseVisibility::Hidden;
    let mut shell = shell(DiskConfig { visibility, delivery: Some(delivery), ..DiskConfig::default() });
    assert!(!shell.engine.is_stream_settled(), "it has not begun");
    shell.pump();
    while shell.last != Action::Idle {
        assert!(!shell.engine.is_stream_settled());
        if let Some(fetch) = pick(&shell.fetches, 0) {
            shell.bring_all(fetch);
        } else if let Some(decoder) = pick(&shell.decoding, 0) {
            shell.decoded(decoder, true);
        } else {
            shell.step(Step::Delivered(0, true));
        }
        shell.pump();
    }
    assert!(shell.engine.is_stream_settled());
}

#[test]
fn a_use_that_a_reader_reports_restores_confidence_in_the_stream() {
    let mut config = small_requests(LateRule::ByCost);
    config.prefetch = config.prefetch.map(|limits| PrefetchConfig { sees_use: true, ..limits });
    let mut shell = shell(config);
    shell.pump();
    shell.run(Step::Read { block: 16, blocks: 1, class: 0 });
    assert!(shell.engine.prefetch().is_throttled(), "the first that was read lies elsewhere");
    shell.run(Step::Used);
    assert!(!shell.engine.prefetch().is_throttled());
}

#[test]
fn of_what_the_stream_brings_that_is_decompressed_first_which_a_read_waits_for() {
    let mut shell = shell(DiskConfig { decoders: 1, ..DiskConfig::default() });
    shell.pump();
    shell.run(Step::Read { block: blocks_of_hot(6)[0], blocks: 1, class: 0 });
    let fetch = pick(&shell.fetches, 0).expect("the stream begins");
    shell.bring_all(fetch);
    shell.pump();
    assert_eq!(shell.decoding.values().collect::<Vec<_>>(), [&ChunkKey::Hot(6)]);
    shell.drain();
}

#[test]
fn a_prefetch_that_is_held_has_no_time_at_which_it_goes_on() {
    let mut shell = shell(DiskConfig::default());
    shell.pump();
    shell.engine.prefetch_then = Some(shell.now + Nanos::from_millis(10));
    shell.run(Step::Hold);
    // The shell asserts that nothing waits for the past.
    shell.run(Step::Pass(20));
    shell.finish();
}
