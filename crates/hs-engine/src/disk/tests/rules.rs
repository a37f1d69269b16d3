//! Each rule of reads, fetches and the cache by itself.

use super::*;
use crate::EndReason;
use crate::queue::{Event, MediumTraits, QueueConfig};

pub(super) fn shell(config: DiskConfig) -> Shell {
    Shell::new(config)
}

/// Brings and decompresses everything that is under way now.
pub(super) fn settle(shell: &mut Shell) {
    while let Some(fetch) = pick(&shell.fetches, 0) {
        shell.bring_all(fetch);
        shell.pump();
    }
    while let Some(decoder) = pick(&shell.decoding, 0) {
        shell.decoded(decoder, true);
        shell.pump();
    }
}

#[test]
fn a_hit_is_answered_by_the_next_poll() {
    let mut shell = shell(DiskConfig { prefetch: None, ..DiskConfig::default() });
    shell.run(Step::Read { block: 16, blocks: 4, class: 0 });
    settle(&mut shell);
    shell.drain();
    assert!(shell.reads.is_empty());
    let range = ByteRange::new(17 * BLOCK_BYTES, BLOCK_BYTES);
    let read = shell.engine.handle_read(shell.now, Requester::default(), range);
    assert_eq!(shell.engine.poll(shell.now), Action::Answer(read));
}

#[test]
fn neighbours_come_with_a_miss_and_cost_no_request_of_their_own() {
    let mut shell = cold_shell(DiskConfig::default());
    let fetch = pick(&shell.fetches, 0).expect("the window is fetched");
    let chunks: Vec<ChunkKey> = shell.engine.fetch(fetch).chunks.iter().map(|chunk| chunk.key).collect();
    assert_eq!(
        chunks,
        (0..6).map(ChunkKey::Cold).collect::<Vec<_>>(),
        "up to the end of what the index says"
    );
    shell.run(Step::BringAll(0));
    let fetches = shell.fetched.len();
    shell.run(Step::Decoded(0, true));
    shell.run(Step::Read { block: 5, blocks: 1, class: 0 });
    assert!(shell.fetched.len() == fetches && !shell.decoding.is_empty(), "it is there, and decompressed");
}

#[test]
fn scattered_neighbours_do_not_come_with_a_first_miss() {
    // A read of a cold window, once the index has come: which windows come with it.
    let windows = |scattered: bool, prefetch: Option<PrefetchConfig>| {
        let mut shell = shell(DiskConfig { scattered, prefetch, ..DiskConfig::default() });
        shell.run(Step::Read { block: 0, blocks: 1, class: 0 });
        let mut cold = Vec::new();
        while cold.is_empty() {
            shell.run(Step::BringAll(0));
            shell.run(Step::Decoded(0, true));
            cold = keys_of(&shell);
            cold.retain(|key| matches!(key, ChunkKey::Cold(_)));
        }
        cold.len()
    };
    let prefetch = DiskConfig::default().prefetch;
    assert!(prefetch.is_some());
    assert_eq!(windows(true, prefetch), 1);
    assert_eq!(windows(false, prefetch), 6);
    assert_eq!(windows(true, None), 6, "without a stream nothing is known of the start");
}

#[test]
fn a_damaged_hot_chunk_is_read_from_its_cold_copy() {
    let mut shell = shell(DiskConfig { prefetch: None, ..DiskConfig::default() });
    shell.run(Step::Read { block: 2, blocks: 1, class: 0 });
    shell.run(Step::BringAll(0));
    shell.run(Step::Decoded(0, false));
    assert_eq!(shell.reads.len(), 1, "it waits for the cold copy");
    shell.drain();
    assert!(shell.reads.is_empty() && shell.engine.stats().answered_reads == 1);
}

/// A read of cold windows, whose first page of the index has come: a window and those behind it are under
/// way.
pub(super) fn cold_shell(config: DiskConfig) -> Shell {
    let mut shell = shell(DiskConfig { prefetch: None, ..config });
    shell.run(Step::Read { block: 0, blocks: 1, class: 0 });
    shell.run(Step::BringAll(0));
    shell.run(Step::Decoded(0, true));
    shell
}

pub(super) fn keys_of(shell: &Shell) -> Vec<ChunkKey> {
    shell.fetches.values().flatten().map(|chunk| chunk.key).collect()
}

#[test]
fn what_fails_among_others_is_fetched_alone_and_then_fails_its_reads() {
    let mut shell = cold_shell(DiskConfig::default());
    assert_eq!(keys_of(&shell).len(), 6);
    shell.run(Step::EndFetch(0));
    assert_eq!(keys_of(&shell), [ChunkKey::Cold(0)], "what nothing waits for is not asked for again");
    assert_eq!(shell.reads.len(), 1);
    shell.run(Step::EndFetch(0));
    assert!(shell.reads.is_empty() && shell.fetches.is_empty());
    assert_eq!((shell.engine.stats().failed_reads, shell.engine.stats().chunk_errors), (1, 1));
}

/// Two reads of windows that are equal, which one fetch brings.
fn shell_of_equal_windows() -> Shell {
    let config = DiskConfig { prefetch: None, fetchers: 1, ..DiskConfig::default() };
    let mut shell = shell(config);
    shell.engine.map_mut().pages.extend(0..4);
    // Blocks of windows 10, 2 and 14 that are not hot.
    for block in [41, 8, 59] {
        shell.run(Step::Read { block, blocks: 1, class: 0 });
    }
    assert_eq!(shell.fetches.len(), 1);
    shell.run(Step::BringAll(0));
    let keys = keys_of(&shell);
    assert_eq!(keys[..2], [ChunkKey::Cold(2), ChunkKey::Cold(14)]);
    shell
}

#[test]
fn windows_that_are_equal_come_with_one_fetch() {
    let mut shell = shell_of_equal_windows();
    let fetches = shell.fetched.len();
    settle(&mut shell);
    assert!(shell.reads.is_empty() && shell.fetched.len() == fetches);
}

#[test]
fn bytes_that_windows_share_come_once() {
    let mut shell = shell_of_equal_windows();
    shell.engine.start_recording(1);
    let fetch = pick(&shell.fetches, 0).expect("it is under way");
    let asked = shell.engine.fetch(fetch).range.len;
    shell.run(Step::BringAll(0));
    let ended = shell.engine.queue().recorder().and_then(|recorder| recorder.last(1).next());
    let came = ended.map(|recorded| match recorded.event {
        Event::Ended { bytes, .. } => bytes,
        event => panic!("{event:?}"),
    });
    assert_eq!(came, Some(asked));
}

#[test]
fn windows_that_are_equal_and_cannot_be_read_fail_their_reads() {
    let mut shell = shell_of_equal_windows();
    for _ in 0..4 {
        shell.run(Step::EndFetch(0));
    }
    assert!(shell.fetches.is_empty(), "it is not asked for again and again");
    assert_eq!(shell.engine.stats().failed_reads, 2);
}

/// A place has just failed, slowly enough to be left alone for a while.
fn shell_after_a_slow_failure() -> Shell {
    let mut shell = cold_shell(DiskConfig::default());
    shell.run(Step::EndFetch(0));
    shell.run(Step::Pass(250));
    shell.run(Step::EndFetch(0));
    shell
}

#[test]
fn a_place_that_failed_slowly_is_left_alone_for_a_while_and_one_that_failed_at_once_is_not() {
    let mut shell = shell_after_a_slow_failure();
    let read = Step::Read { block: 0, blocks: 1, class: 0 };
    shell.run(read);
    assert!(shell.reads.is_empty() && shell.fetches.is_empty(), "it fails at once");
    shell.run(Step::Pass(8 * 250));
    shell.run(read);
    assert_eq!(shell.reads.len(), 1, "it is asked for again");
    // What fails at once costs nothing, and may be tried at once.
    while let Some(fetch) = pick(&shell.fetches, 0) {
        shell.end_fetch(fetch);
        shell.pump();
    }
    shell.run(read);
    assert_eq!((shell.reads.len(), shell.fetches.len()), (1, 1));
}

/// The engine's own patience is no reason not to ask a server that is back.
#[test]
fn what_failed_slowly_over_a_network_is_asked_for_again_at_once() {
    let mut shell = cold_shell(DiskConfig { bad_places_rest: false, ..DiskConfig::default() });
    shell.run(Step::EndFetch(0));
    shell.run(Step::Pass(60_000));
    shell.run(Step::EndFetch(0));
    assert_eq!((shell.reads.len(), shell.engine.stats().failed_reads), (0, 1));
    shell.run(Step::Read { block: 0, blocks: 1, class: 0 });
    assert_eq!((shell.reads.len(), shell.fetches.len()), (1, 1));
    settle(&mut shell);
    assert_eq!((shell.reads.len(), shell.engine.stats().answered_reads), (0, 1));
    shell.finish();
}

#[test]
fn a_place_that_is_asked_for_again_comes_although_another_one_fails_meanwhile() {
    let mut shell = shell_after_a_slow_failure();
    shell.run(Step::Pass(8 * 250));
    shell.run(Step::Read { block: 0, blocks: 1, class: 0 });
    // A page of the index, which fails slowly as well.
    shell.run(Step::Read { block: 24, blocks: 1, class: 0 });
    assert_eq!(keys_of(&shell).last(), Some(&ChunkKey::Page(1)));
    shell.run(Step::Pass(250));
    shell.run(Step::EndFetch(1));
    assert_eq!((shell.reads.len(), shell.engine.stats().failed_reads), (1, 2));
    settle(&mut shell);
    assert_eq!((shell.reads.len(), shell.engine.stats().answered_reads), (0, 1));
    shell.finish();
}

#[test]
fn bytes_that_came_early_and_are_damaged_are_fetched_again() {
    let mut shell = cold_shell(DiskConfig::default());
    shell.run(Step::BringAll(0));
    shell.run(Step::Decoded(0, true));
    shell.run(Step::Read { block: 5, blocks: 1, class: 0 });
    shell.run(Step::Decoded(0, false));
    assert_eq!(keys_of(&shell), [ChunkKey::Cold(1)]);
    shell.run(Step::BringAll(0));
    shell.run(Step::Decoded(0, false));
    assert!(shell.reads.is_empty() && shell.engine.stats().failed_reads == 1, "and then not");
}

#[test]
fn neighbours_that_a_read_joins_on_their_way_and_that_are_damaged_are_fetched_again() {
    let mut shell = cold_shell(DiskConfig::default());
    shell.run(Step::Read { block: 5, blocks: 1, class: 0 });
    shell.run(Step::BringAll(0));
    shell.run(Step::Decoded(0, true));
    shell.run(Step::Decoded(0, false));
    assert_eq!(keys_of(&shell), [ChunkKey::Cold(1)]);
    shell.run(Step::BringAll(0));
    shell.run(Step::Decoded(0, false));
    assert!(shell.reads.is_empty() && shell.engine.stats().failed_reads == 1, "and then not");
}

#[test]
fn a_hot_chunk_is_tried_again_when_its_cold_copy_has_failed() {
    let mut shell = shell(DiskConfig { prefetch: None, ..DiskConfig::default() });
    let read = Step::Read { block: 2, blocks: 1, class: 0 };
    shell.run(read);
    shell.run(Step::BringAll(0));
    shell.run(Step::Decoded(0, false));
    // The page of the index, and then the window and its neighbours.
    shell.run(Step::BringAll(0));
    shell.run(Step::Decoded(0, true));
    shell.run(Step::BringAll(0));
    shell.run(Step::Decoded(0, false));
    assert!(shell.reads.is_empty());
    shell.run(read);
    assert_eq!(keys_of(&shell), [ChunkKey::Hot(0)]);
}

#[test]
fn a_cancelled_read_takes_back_what_only_it_has_waited_for() {
    let config = DiskConfig { fetchers: 1, ..DiskConfig::default() };
    let mut shell = shell(DiskConfig { prefetch: None, ..config });
    // A page is under way; another one waits for the only fetcher.
    shell.run(Step::Read { block: 0, blocks: 1, class: 0 });
    shell.run(Step::Read { block: 90, blocks: 1, class: 0 });
    shell.run(Step::Read { block: 91, blocks: 1, class: 0 });
    assert_eq!(shell.engine.queue().waiting(), 1);
    shell.run(Step::Cancel(1));
    assert_eq!(shell.engine.queue().waiting(), 1, "another read waits for it");
    shell.run(Step::Cancel(1));
    assert_eq!(shell.engine.queue().waiting(), 0);
    shell.drain();
    assert!(shell.reads.is_empty());
}

/// All hot chunks are delivered and taken.
pub(super) fn delivered(visibility: UseVisibility) -> Shell {
    let delivery = DeliveryConfig { before_answers: true };
    // Small requests: once everything is asked for there is nothing to learn.
    let sizes = PrefetchConfig {
        first_request_bytes: STORED,
        max_request_bytes: STORED,
        ..PrefetchConfig::default()
    };
    let limits = PrefetchConfig { sees_use: true, ..sizes };
    let prefetch = Some(limits);
    let config = DiskConfig {
        visibility,
        delivery: Some(delivery),
        readers_keep: true,
        prefetch,
        ..DiskConfig::default()
    };
    let mut shell = shell(config);
    shell.drain();
    assert_eq!(shell.engine.prefetch().ended(), Some(EndReason::Complete));
    shell
}

#[test]
fn a_tripwire_is_answered_from_memory_and_tells_that_its_chunk_is_used() {
    let mut shell = delivered(UseVisibility::Tripwires);
    assert!(shell.engine.tripwire_count().placed > 0);
    let chunk = *shell.bytes.iter().find(|(_, form)| *form == Form::Tripwire).map(|(key, _)| key).unwrap();
    let ChunkKey::Hot(number) = chunk else { panic!("hot chunks have tripwires") };
    let fetches = shell.fetched.len();
    shell.run(Step::Read { block: blocks_of_hot(number)[0], blocks: 1, class: 0 });
    assert!(shell.reads.is_empty() && shell.fetched.len() == fetches && shell.decoding.is_empty());
    assert_eq!(shell.engine.tripwire_count().used, 1);
    assert!(!shell.bytes.contains(&(chunk, Form::Tripwire)), "it is a block like any other");
}

#[test]
fn a_chunk_whose_pages_are_dropped_is_decompressed_from_what_is_kept() {
    let mut shell = delivered(UseVisibility::Asked);
    assert!(!shell.bytes.contains(&(ChunkKey::Hot(0), Form::Raw)), "the page cache has it");
    let fetches = shell.fetched.len();
    shell.run(Step::Read { block: 2, blocks: 1, class: 0 });
    assert_eq!(shell.decoding.values().next(), Some(&ChunkKey::Hot(0)));
    shell.drain();
    assert!(shell.reads.is_empty() && shell.fetched.len() == fetches);
    assert!(!shell.bytes.contains(&(ChunkKey::Hot(0), Form::Raw)), "it was delivered as a whole again");
}

/// A disk whose chunks are delivered, and of which nothing is prefetched.
fn delivering(readers_keep: bool) -> Shell {
    let delivery = Some(DeliveryConfig { before_answers: true });
    shell(DiskConfig { prefetch: None, delivery, readers_keep, ..DiskConfig::default() })
}

fn has(shell: &Shell, form: Form) -> bool {
    shell.bytes.contains(&(ChunkKey::Hot(0), form))
}

#[test]
fn a_chunk_that_a_read_brings_is_delivered_and_stays_as_it_is_stored() {
    let mut shell = delivering(true);
    for block in &blocks_of_hot(0)[..3] {
        shell.run(Step::Read { block: *block, blocks: 1, class: 0 });
        shell.drain();
        assert!(shell.reads.is_empty() && !has(&shell, Form::Raw) && has(&shell, Form::Stored), "{block}");
        assert_eq!(shell.fetched.len(), 1, "{block}: its pages were dropped, and come from memory");
    }
}

#[test]
fn a_chunk_that_a_read_brings_stays_raw_where_it_cannot_be_delivered() {
    // Readers that keep nothing, a page cache that refuses it.
    for refuses in [false, true] {
        let mut shell = delivering(refuses);
        shell.run(Step::Read { block: blocks_of_hot(0)[0], blocks: 1, class: 0 });
        settle(&mut shell);
        assert_eq!(shell.deliveries.len(), usize::from(refuses));
        if refuses {
            shell.run(Step::Delivered(0, false));
        }
        assert!(shell.reads.is_empty() && has(&shell, Form::Raw), "{refuses}");
        // What was to be delivered is kept as it is stored until it leaves.
        assert_eq!(has(&shell, Form::Stored), refuses);
    }
}

#[test]
fn while_deliveries_wait_what_reads_bring_is_not_delivered() {
    let mut shell = delivering(true);
    for chunk in 0..7 {
        shell.run(Step::Read { block: blocks_of_hot(chunk)[0], blocks: 1, class: 0 });
        settle(&mut shell);
    }
    let raw = shell.bytes.iter().filter(|(key, form)| matches!(key, ChunkKey::Hot(_)) && *form == Form::Raw);
    assert_eq!(raw.count(), 7, "none is delivered yet");
    shell.drain();
    assert!(shell.reads.is_empty());
    let raw = shell.bytes.iter().filter(|(key, form)| matches!(key, ChunkKey::Hot(_)) && *form == Form::Raw);
    assert!((1..7).contains(&raw.count()), "some stay here");
}

#[test]
fn what_a_sequential_reader_will_want_is_decompressed_before_it_asks() {
    let mut shell = cold_shell(DiskConfig::default());
    for window in 0..5 {
        shell.run(Step::Read { block: window * WINDOW_BLOCKS + 1, blocks: 1, class: 0 });
        settle(&mut shell);
    }
    let ahead = shell.bytes.contains(&(ChunkKey::Cold(5), Form::Raw));
    assert!(!ahead, "five windows are no sequence");
    shell.run(Step::Read { block: 6 * WINDOW_BLOCKS + 3, blocks: 1, class: 0 });
    settle(&mut shell);
    shell.drain();
    shell.run(Step::Read { block: 8 * WINDOW_BLOCKS + 3, blocks: 1, class: 0 });
    settle(&mut shell);
    shell.drain();
    assert!((9..12).any(|window| shell.bytes.contains(&(ChunkKey::Cold(window), Form::Raw))));
}

#[test]
fn a_miss_of_a_cold_chunk_takes_a_lock_five_times_and_a_hit_once() {
    let mut shell = cold_shell(DiskConfig::default());
    settle(&mut shell);
    shell.drain();
    let range = ByteRange::new(23 * BLOCK_BYTES, BLOCK_BYTES);
    assert!(!shell.bytes.contains(&(ChunkKey::Cold(5), Form::Raw)));
    shell.engine.set_cache_budget(0);
    shell.pump();
    shell.engine.set_cache_budget(1 << 20);
    shell.engine.map_mut().pages.insert(0);
    // The read.
    let read = shell.engine.handle_read(shell.now, Requester::default(), range);
    let Action::Fetch { id, .. } = shell.engine.poll(shell.now) else { panic!("it is fetched") };
    assert_eq!(shell.engine.poll(shell.now), Action::Wait);
    // The second time, a fetcher takes it up; the third time, it has brought it.
    let chunks = shell.engine.fetch(id).chunks.to_vec();
    for chunk in chunks {
        assert!(shell.engine.handle_stored(shell.now, id, chunk.key, STORED));
    }
    shell.engine.handle_fetch_done(shell.now, id);
    let Action::Decode { key, .. } = shell.engine.poll(shell.now) else { panic!("it is decompressed") };
    assert_eq!(shell.engine.poll(shell.now), Action::Wait);
    // The fourth time, a decoder takes it up; the fifth time, it has it.
    shell.engine.handle_decoded(shell.now, key, Ok(()));
    let mut next = || loop {
        match shell.engine.poll(shell.now) {
            Action::Drop(..) => {}
            action => return action,
        }
    };
    assert_eq!(next(), Action::Answer(read));
    let read = shell.engine.handle_read(shell.now, Requester::default(), range);
    assert_eq!(shell.engine.poll(shell.now), Action::Answer(read));
}

#[test]
fn it_may_be_behind_a_lock_of_threads() {
    fn is_send<T: Send>(_: &T) {}
    is_send(&shell(DiskConfig::default()).engine);
}

#[test]
fn a_read_that_waits_makes_what_is_queued_for_another_as_urgent() {
    let mut shell = shell(DiskConfig { prefetch: None, fetchers: 1, ..DiskConfig::default() });
    shell.run(Step::Read { block: 0, blocks: 1, class: 0 });
    shell.run(Step::Read { block: 94, blocks: 1, class: 7 });
    shell.run(Step::Read { block: 95, blocks: 1, class: 0 });
    shell.run(Step::BringAll(0));
    assert_eq!(keys_of(&shell), [ChunkKey::Page(3)]);
    let fetch = pick(&shell.fetches, 0).unwrap();
    assert_eq!(shell.fetched[&fetch], Class::Demand);
    shell.drain();
}

#[test]
fn what_readers_have_and_keep_is_not_kept_here() {
    for readers_keep in [true, false] {
        let mut shell = cold_shell(DiskConfig { readers_keep, ..DiskConfig::default() });
        settle(&mut shell);
        shell.drain();
        shell.run(Step::Read { block: 20, blocks: 4, class: 0 });
        shell.drain();
        let kept = shell.bytes.contains(&(ChunkKey::Cold(5), Form::Raw));
        // The hot region has the first of its blocks, so not all of the window was asked for.
        assert!(kept, "a part of it may be asked for");
        shell.run(Step::Read { block: 16, blocks: 4, class: 0 });
        shell.drain();
        assert_eq!(shell.bytes.contains(&(ChunkKey::Cold(4), Form::Raw)), !readers_keep);
    }
}

#[test]
fn a_block_that_is_left_out_elsewhere_is_copied_when_its_chunk_comes_and_shows_use() {
    let config = DiskConfig { visibility: UseVisibility::Tripwires, ..DiskConfig::default() };
    let mut shell = shell(config);
    assert!(shell.engine.handle_left_out(1, 0) && !shell.engine.handle_left_out(1, 1), "one for each chunk");
    shell.drain();
    let key = ChunkKey::Hot(1);
    assert!(shell.bytes.contains(&(key, Form::Tripwire)));
    shell.engine.handle_released(shell.now, 1);
    shell.run(Step::Read { block: blocks_of_hot(1)[0], blocks: 1, class: 0 });
    assert!(shell.reads.is_empty(), "it is answered from memory");
    assert_eq!(shell.engine.tripwire_count(), TripwireCount { placed: 1, used: 1 });
    assert!(!shell.bytes.contains(&(key, Form::Tripwire)), "all of it was handed over");
}

#[test]
fn a_block_of_a_chunk_that_has_left_is_not_left_out() {
    let mut shell = delivered(UseVisibility::Asked);
    assert!(!shell.engine.handle_left_out(1, 0));
    let mut other = self::shell(DiskConfig { prefetch: None, ..DiskConfig::default() });
    assert!(!other.engine.wants_tripwire(other.now, 1), "nothing streams");
}

#[test]
fn a_permit_waits_for_what_reads_want_and_ends_when_it_is_given_back() {
    let serial = MediumTraits { rotational: true, overlaps: false, bytes_per_s: None };
    let queue = QueueConfig::for_medium(serial);
    let mut shell = cold_shell(DiskConfig { queue, fetchers: 1, ..DiskConfig::default() });
    shell.drain();
    shell.run(Step::Read { block: 60, blocks: 1, class: 0 });
    shell.run(Step::Permit(30));
    assert_eq!(shell.permits.values().collect::<Vec<_>>(), [&false], "a read waits for the medium");
    shell.run(Step::BringAll(0));
    while shell.permits.values().any(|granted| !granted) {
        let Action::WaitUntil(then) = shell.last else { panic!("{:?}", shell.last) };
        shell.now = then;
        shell.pump();
    }
    shell.run(Step::Permit(31));
    shell.drain();
    assert!(shell.permits.is_empty());
}

#[test]
fn hits_keep_their_chunk_in_the_cache() {
    // Two windows have room beside their pages of the index, and no third.
    let cache_bytes = 14 * BLOCK_BYTES;
    let mut shell = shell(DiskConfig { cache_bytes, prefetch: None, ..DiskConfig::default() });
    for block in [16, 24, 16, 16, 32] {
        shell.run(Step::Read { block, blocks: 1, class: 0 });
        shell.drain();
    }
    let is_kept = |window| shell.bytes.contains(&(ChunkKey::Cold(window), Form::Raw));
    assert_eq!([4, 6, 8].map(is_kept), [true, false, true]);
}

#[test]
fn shared_bytes_are_those_that_were_never_asked_for_and_those_that_readers_keep() {
    let mut shell = shell(DiskConfig { readers_keep: true, ..DiskConfig::default() });
    shell.pump();
    assert_eq!(shell.engine.shared_bytes(), SharedBytes::default(), "nothing has come");
    shell.drain();
    let unserved = shell.engine.stats().streamed_bytes;
    assert_eq!(shell.engine.shared_bytes(), SharedBytes { unserved, duplicate: 0 });
    shell.run(Step::Read { block: 2, blocks: 1, class: 0 });
    let rest = SharedBytes { unserved: unserved - BLOCK_BYTES, duplicate: BLOCK_BYTES };
    assert_eq!(shell.engine.shared_bytes(), rest);
}

#[test]
fn reads_that_wait_are_counted_from_the_oldest_on() {
    let mut shell = cold_shell(DiskConfig::default());
    shell.drain();
    assert_eq!(shell.engine.waiting(), (0, None));
    let began = shell.now;
    shell.run(Step::Read { block: 60, blocks: 1, class: 0 });
    shell.run(Step::Pass(5));
    shell.run(Step::Read { block: 92, blocks: 1, class: 0 });
    assert_eq!(shell.engine.waiting(), (2, Some(began)));
    shell.run(Step::Cancel(0));
    assert_eq!(shell.engine.waiting(), (1, Some(began + Nanos::from_millis(5))));
}

#[test]
fn what_is_told_of_a_fetch_that_is_over_is_not_taken_for_another() {
    let mut shell = shell(DiskConfig::default());
    shell.run(Step::Hold);
    shell.run(Step::Read { block: 0, blocks: 1, class: 0 });
    let over = pick(&shell.fetches, 0).expect("a page of the index is fetched");
    shell.run(Step::Cancel(0));
    shell.run(Step::BringAll(0));
    shell.run(Step::Begin);
    let stream = pick(&shell.fetches, 0).expect("the stream begins");
    assert_eq!(over.index, stream.index);
    let latency = |shell: &Shell| shell.engine.prefetch().estimate().latency_with_piece();
    shell.engine.handle_first_byte(Nanos::from_millis(10), over, 100);
    assert_eq!(latency(&shell), Nanos::ZERO);
    shell.engine.handle_first_byte(Nanos::from_millis(10), stream, 100);
    assert_eq!(latency(&shell), Nanos::from_millis(10));
}

#[test]
fn a_read_that_only_waits_for_a_delivery_is_answered_when_its_time_is_over() {
    let delivery = Some(DeliveryConfig { before_answers: true });
    let read_timeout = Some(Nanos::from_millis(300));
    let mut shell = shell(DiskConfig { delivery, read_timeout, ..DiskConfig::default() });
    shell.pump();
    shell.run(Step::Read { block: 2, blocks: 1, class: 0 });
    shell.run(Step::BringAll(0));
    let decoder = *shell.decoding.iter().find(|(_, key)| **key == ChunkKey::Hot(0)).expect("it comes").0;
    shell.decoded(decoder, true);
    shell.pump();
    assert!(shell.reads.len() == 1 && shell.deliveries.len() == 1);
    shell.run(Step::Pass(300));
    assert!(shell.reads.is_empty());
    assert_eq!((shell.engine.stats().answered_reads, shell.engine.stats().failed_reads), (1, 0));
    shell.drain();
}

#[test]
fn a_time_limit_that_is_set_later_holds_for_reads_that_wait_already() {
    let mut shell = cold_shell(DiskConfig { read_timeout: None, ..DiskConfig::default() });
    shell.run(Step::Pass(300));
    assert_eq!(shell.reads.len(), 1, "it waits for as long as it takes");
    shell.engine.set_read_timeout(Some(Nanos::from_millis(400)));
    shell.times_out = true;
    shell.run(Step::Pass(50));
    assert_eq!(shell.last, Action::WaitUntil(Nanos::from_millis(400)));
    shell.run(Step::Pass(50));
    assert!(shell.reads.is_empty() && shell.engine.stats().failed_reads == 1);
    shell.drain();
}

#[test]
fn usage_is_what_the_shell_has() {
    let mut shell = shell(DiskConfig { visibility: UseVisibility::Tripwires, ..DiskConfig::default() });
    assert!(shell.engine.handle_left_out(1, 0));
    shell.run(Step::Read { block: 16, blocks: 1, class: 0 });
    shell.drain();
    let has = |form: Form, bytes: fn(ChunkKey) -> u64| -> u64 {
        shell.bytes.iter().filter(|(_, other)| *other == form).map(|(key, _)| bytes(*key)).sum()
    };
    let raw_bytes = |key| match key {
        ChunkKey::Hot(chunk) => blocks_of_hot(chunk).len() as u64 * BLOCK_BYTES,
        ChunkKey::Cold(_) => WINDOW_BLOCKS * BLOCK_BYTES,
        ChunkKey::Page(_) => BLOCK_BYTES,
    };
    let usage = shell.engine.usage();
    assert_eq!(usage.raw_bytes, has(Form::Raw, raw_bytes));
    assert_eq!(usage.stored_bytes, has(Form::Stored, |_| STORED));
    assert_eq!(usage.tripwire_bytes, BLOCK_BYTES);
    assert_eq!(usage.held_bytes, shell.engine.stats().streamed_bytes);
    assert!(usage.stored_bytes > u64::from(HOT) * STORED && usage.cache.bytes > 0);
}
