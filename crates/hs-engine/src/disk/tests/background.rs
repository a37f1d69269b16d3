//! What comes behind demand, and when nothing does.

use super::*;
use crate::queue::{MediumTraits, QueueConfig};

/// The engine of an image whose hot region has come, and whose rest may come.
fn shell(limits: PrefetchConfig) -> Shell {
    shell_behind(limits, Nanos::ZERO)
}

/// The same from a medium with this latency.
fn shell_behind(limits: PrefetchConfig, latency: Nanos) -> Shell {
    let limits = PrefetchConfig { brings_rest: true, ..limits };
    let config = DiskConfig { prefetch: Some(limits), least_prefetch_bytes: 0, ..DiskConfig::default() };
    let mut shell = Shell::new(config);
    shell.pump();
    while let Some(fetch) = pick(&shell.fetches, 0) {
        bring(&mut shell, fetch, latency);
    }
    assert!(shell.engine.prefetch().ended().is_some(), "the stream is over");
    shell
}

/// A fetch from a medium with this latency and 100 MB/s, and all that follows from it.
pub(super) fn bring(shell: &mut Shell, fetch: FetchId, latency: Nanos) {
    shell.now += latency;
    while !shell.fetches[&fetch].is_empty() {
        shell.now += Nanos(STORED * 10);
        shell.comes(fetch, 0);
    }
    shell.end_fetch(fetch);
    shell.pump();
    while let Some(decoder) = pick(&shell.decoding, 0) {
        shell.decoded(decoder, true);
        shell.pump();
    }
    shell.engine.check();
}

/// The windows of a fetch that is under way, and whether it is to bring them.
fn windows(shell: &Shell, fetch: FetchId) -> Vec<(u64, bool)> {
    let window = |chunk: &FetchChunk| match chunk.key {
        ChunkKey::Cold(window) => Some((window, chunk.is_brought())),
        _ => None,
    };
    shell.fetches[&fetch].iter().filter_map(window).collect()
}

/// An earlier start has read all blocks of these windows.
fn learn(shell: &mut Shell, windows: &[u64]) -> u64 {
    let blocks = windows.iter().map(|window| BlockRange::new(Lba(window * WINDOW_BLOCKS), WINDOW_BLOCKS));
    let learned = shell.engine.handle_learned(blocks);
    shell.pump();
    learned
}

/// Brings all that no read waits for; returns the windows that came.
fn bring_background(shell: &mut Shell, latency: Nanos) -> Vec<u64> {
    let mut came = Vec::new();
    while let Some(fetch) = pick(&shell.fetches, 0) {
        came.extend(windows(shell, fetch).into_iter().filter(|(_, comes)| *comes).map(|(window, _)| window));
        bring(shell, fetch, latency);
    }
    came.sort_unstable();
    came
}

fn read(shell: &mut Shell, window: u64) {
    shell.run(Step::Read { block: window * WINDOW_BLOCKS + WINDOW_BLOCKS - 1, blocks: 1, class: 0 });
}

/// One read after another, each answered before the next; returns how many windows then came behind demand.
fn program(shell: &mut Shell, windows: &[u64], latency: Nanos) -> u64 {
    for window in windows {
        read(shell, *window);
        while !shell.reads.is_empty() {
            if let Some(fetch) = pick(&shell.fetches, 0) {
                bring(shell, fetch, latency);
            } else {
                let decoder = pick(&shell.decoding, 0).expect("something brings it");
                shell.decoded(decoder, true);
                shell.pump();
            }
        }
    }
    shell.engine.stats().background_bytes / STORED
}

const LATENCY: Nanos = Nanos::from_millis(20);

#[test]
fn the_rest_comes_behind_a_program_where_requests_are_dear() {
    let mut shell = shell(PrefetchConfig::default());
    program(&mut shell, &[0, 8, 13], LATENCY);
    while let Some(fetch) = pick(&shell.fetches, 0) {
        assert_eq!(shell.fetched[&fetch], Class::Fill);
        bring(&mut shell, fetch, LATENCY);
    }
    let came = shell.engine.stats().background_bytes;
    assert!(came > 0);
    let fetched = shell.fetched.len();
    for window in 0..WINDOWS {
        shell.run(Step::Read { block: window * WINDOW_BLOCKS, blocks: WINDOW_BLOCKS, class: 0 });
        while let Some(decoder) = pick(&shell.decoding, 0) {
            shell.decoded(decoder, true);
            shell.pump();
        }
    }
    assert!(shell.reads.is_empty() && shell.fetched.len() == fetched, "nothing is asked for any more");
    assert!(shell.engine.stats().background_used_bytes > 0);
    assert!(shell.engine.filled.bytes() <= STORED, "each was read but one, whose blocks are all hot");
    shell.finish();
}

#[test]
fn nothing_comes_behind_where_bytes_are_dear_or_it_is_not_wanted() {
    let cases = [(Nanos::ZERO, true), (LATENCY, false)];
    for (latency, brings_rest) in cases {
        let mut shell = shell(PrefetchConfig::default());
        let limits = PrefetchConfig { brings_rest, ..PrefetchConfig::default() };
        shell.engine.config.prefetch = Some(limits);
        assert_eq!(program(&mut shell, &[0, 8, 13, 20, 3], latency), 0, "{latency:?} {brings_rest}");
        shell.finish();
    }
}

#[test]
fn a_start_that_finds_all_it_reads_in_the_hot_region_brings_nothing_else() {
    let mut shell = shell_behind(PrefetchConfig::default(), LATENCY);
    shell.run(Step::Read { block: blocks_of_hot(1)[0], blocks: 1, class: 0 });
    assert!(shell.engine.background.pays(STORED), "it would, by what is known of the medium");
    assert!(shell.fetches.is_empty() && shell.engine.stats().background_bytes == 0);
    assert!(program(&mut shell, &[8, 13], LATENCY) > 0, "until a read misses");
    shell.finish();
}

#[test]
fn a_start_that_uses_its_hot_region_brings_the_rest_when_it_misses_often() {
    for uses in [true, false] {
        let limits = PrefetchConfig { brings_rest: true, ..PrefetchConfig::default() };
        let mut shell = Shell::new(DiskConfig {
            prefetch: Some(limits),
            least_prefetch_bytes: 0,
            visibility: UseVisibility::Tripwires,
            ..DiskConfig::default()
        });
        shell.pump();
        assert!((0..HOT).all(|hot| shell.engine.handle_left_out(hot, 0)));
        while let Some(fetch) = pick(&shell.fetches, 0) {
            bring(&mut shell, fetch, LATENCY);
        }
        for hot in 0..HOT {
            shell.engine.handle_released(shell.now, hot);
            if uses {
                shell.run(Step::Read { block: blocks_of_hot(hot)[0], blocks: 1, class: 0 });
            }
        }
        assert!(shell.reads.is_empty(), "they are in memory");
        let came = program(&mut shell, &[1, 4, 6, 8, 12, 15, 20], LATENCY);
        assert_eq!(came == 0, uses, "{came} windows came");
        assert!(program(&mut shell, &[22, 13], LATENCY) > 0, "it needs more than its profile knows");
        shell.finish();
    }
}

#[test]
fn an_index_of_one_page_comes_behind_the_stream() {
    for (brings_rest, is_one_page) in [(true, true), (true, false), (false, true)] {
        let limits = PrefetchConfig { brings_rest, ..PrefetchConfig::default() };
        let config = DiskConfig { prefetch: Some(limits), least_prefetch_bytes: 0, ..DiskConfig::default() };
        let mut shell = Shell::new(config);
        shell.engine.map_mut().is_one_page = is_one_page;
        shell.pump();
        while let Some(fetch) = pick(&shell.fetches, 0) {
            bring(&mut shell, fetch, LATENCY);
        }
        let has_come = brings_rest && is_one_page;
        assert_eq!(shell.engine.map_mut().pages.contains(&0), has_come, "{brings_rest} {is_one_page}");
        read(&mut shell, 8);
        let fetch = pick(&shell.fetches, 0).expect("a read misses");
        assert_eq!(windows(&shell, fetch).is_empty(), !has_come, "it waits for its window alone");
        while let Some(fetch) = pick(&shell.fetches, 0) {
            bring(&mut shell, fetch, LATENCY);
        }
        shell.finish();
    }
}

#[test]
fn a_stream_that_is_one_answer_says_nothing_of_the_latency() {
    for most_under_way in [1, Prefetch::MOST_UNDER_WAY] {
        let limits = PrefetchConfig { most_under_way, ..PrefetchConfig::default() };
        let mut shell = shell(limits);
        program(&mut shell, &[0, 8], LATENCY);
        let in_a_latency = shell.engine.background.request_bytes(0, true).map(|bytes| bytes * 4);
        // 20 ms at 100 MB/s.
        let is_all = in_a_latency.is_some_and(|bytes| bytes > 1_900_000);
        assert_eq!(is_all, most_under_way == 1, "{most_under_way}: {in_a_latency:?}");
        shell.finish();
    }
}

#[test]
fn what_waits_is_bounded_by_memory_and_leaves_where_that_is_short() {
    let mut shell = shell(PrefetchConfig { budget_bytes: 4 * STORED, ..PrefetchConfig::default() });
    program(&mut shell, &[0, 8], LATENCY);
    for _ in 0..20 {
        if let Some(fetch) = pick(&shell.fetches, 0) {
            bring(&mut shell, fetch, LATENCY);
        }
        assert!(shell.engine.filled.bytes() <= 4 * STORED);
    }
    shell.run(Step::Memory(1));
    assert_eq!(shell.engine.filled.bytes(), 0);
    shell.finish();
}

#[test]
fn where_others_leave_nothing_half_of_what_the_disk_has_brought_ahead_stays() {
    let mut shell = shell(PrefetchConfig::default());
    program(&mut shell, &[0, 8], LATENCY);
    bring_background(&mut shell, LATENCY);
    let usage = shell.engine.usage();
    let half = (usage.held_bytes + usage.filled_bytes) / 2;
    assert!(usage.filled_bytes > half, "{usage:?}");
    // A sixteenth of the memory is left alone.
    let total_bytes = 1 << 30;
    let sample = MemorySample { total_bytes, available_bytes: total_bytes / 16, pressure: None };
    shell.engine.handle_memory(shell.now, &sample);
    shell.pump();
    let left = shell.engine.usage().filled_bytes + usage.held_bytes;
    assert!(left <= half && left + STORED > half, "{left} of twice {half}");
    shell.finish();
}

#[test]
fn a_window_that_has_come_and_has_left_does_not_come_again() {
    let mut shell = shell(PrefetchConfig::default());
    program(&mut shell, &[8], LATENCY);
    let mut came = Vec::new();
    // Neighbours of the first: a read of each looks behind it.
    let mut others = [9, 10, 11].into_iter();
    while let Some(fetch) = pick(&shell.fetches, 0) {
        came.extend(windows(&shell, fetch));
        bring(&mut shell, fetch, LATENCY);
        // Others need the memory.
        shell.engine.shrink_filled(0);
        shell.pump();
        others.next().into_iter().for_each(|window| read(&mut shell, window));
    }
    assert!(came.len() > 6 && others.next().is_none(), "{came:?}");
    let once: BTreeSet<_> = came.iter().collect();
    assert_eq!(once.len(), came.len(), "{came:?}");
    shell.finish();
}

#[test]
fn memory_is_watched_while_something_may_come_or_waits() {
    let mut shell = shell(PrefetchConfig::default());
    assert!(shell.engine.watches_memory(), "a read may begin it");
    program(&mut shell, &[0, 8], LATENCY);
    bring_background(&mut shell, LATENCY);
    assert!(shell.engine.watches_memory() && shell.engine.filled.bytes() > 0);
    let Action::WaitUntil(then) = shell.last else { panic!("it waits to drop it: {:?}", shell.last) };
    shell.now = then;
    shell.pump();
    assert!(!shell.engine.watches_memory(), "nothing waits, and nothing comes");
    shell.finish();
}

#[test]
fn a_request_behind_demand_brings_a_part_of_what_comes_in_a_latency() {
    let mut shell = shell(PrefetchConfig::default());
    program(&mut shell, &[0, 8], LATENCY);
    let limit = |shell: &Shell, reads_wait| {
        shell.engine.background.request_bytes(0, reads_wait).expect("the medium is known")
    };
    // The first was asked for while a read waited.
    let (mut most, mut largest) = (limit(&shell, true), 0);
    while let Some(fetch) = pick(&shell.fetches, 0) {
        let bytes = windows(&shell, fetch).len() as u64 * STORED;
        assert!(bytes <= most, "{bytes} of {most}");
        largest = largest.max(bytes);
        bring(&mut shell, fetch, LATENCY);
        most = limit(&shell, false);
    }
    assert!(largest > STORED, "several windows come together where they fit");
    shell.finish();
}

#[test]
fn what_nothing_has_wanted_for_long_is_dropped() {
    let mut shell = shell(PrefetchConfig::default());
    program(&mut shell, &[0, 8], LATENCY);
    while let Some(fetch) = pick(&shell.fetches, 0) {
        bring(&mut shell, fetch, LATENCY);
    }
    assert!(shell.engine.filled.bytes() > 0);
    let Action::WaitUntil(then) = shell.last else { panic!("it waits to drop it: {:?}", shell.last) };
    shell.now = then;
    shell.pump();
    assert_eq!((shell.engine.filled.bytes(), shell.last), (0, Action::Idle));
    shell.finish();
}

#[test]
fn a_read_that_wants_what_is_on_its_way_waits_for_it_and_makes_no_request() {
    let mut shell = shell(PrefetchConfig::default());
    program(&mut shell, &[0, 8], LATENCY);
    let (fetch, chunk) = shell
        .fetches
        .iter()
        .find_map(|(fetch, chunks)| Some((*fetch, *chunks.last()?)))
        .expect("something is on its way");
    let ChunkKey::Cold(window) = chunk.key else { panic!("{:?} comes", chunk.key) };
    let fetched = shell.fetched.len();
    read(&mut shell, window);
    assert_eq!(shell.fetched.len(), fetched);
    bring(&mut shell, fetch, LATENCY);
    assert!(shell.reads.is_empty());
    shell.finish();
}

#[test]
fn a_page_that_cannot_be_had_is_asked_for_once() {
    let mut shell = shell(PrefetchConfig::default());
    program(&mut shell, &[0], LATENCY);
    for _ in 0..50 {
        let Some(fetch) = pick(&shell.fetches, 0) else { break };
        let is_page = shell.fetches[&fetch].iter().any(|chunk| matches!(chunk.key, ChunkKey::Page(_)));
        if is_page {
            shell.end_fetch(fetch);
            shell.pump();
        } else {
            bring(&mut shell, fetch, LATENCY);
        }
    }
    assert!(shell.fetches.is_empty(), "it goes on without end");
    shell.finish();
}

#[test]
fn learned_windows_come_before_any_read_has_waited_and_before_the_rest() {
    let mut shell = shell_behind(PrefetchConfig::default(), LATENCY);
    assert_eq!(learn(&mut shell, &[20, 13, 4, 13, 1000]), 3, "each once, and only those of the disk");
    assert_eq!(bring_background(&mut shell, LATENCY), [4, 13, 20]);
    let fetched = shell.fetched.len();
    for window in [20, 13, 4] {
        read(&mut shell, window);
        while let Some(decoder) = pick(&shell.decoding, 0) {
            shell.decoded(decoder, true);
            shell.pump();
        }
    }
    let stats = shell.engine.stats();
    assert!(shell.reads.is_empty() && stats.background_used_bytes == 3 * STORED);
    // The rest comes as before.
    assert!(shell.fetched.len() > fetched && shell.fetched.values().any(|class| *class == Class::Fill));
    shell.finish();
}

#[test]
fn learned_windows_come_where_the_rest_does_not() {
    for (latency, medium) in [(LATENCY, "slow"), (Nanos::from_millis(1), "quick")] {
        let mut shell = shell_behind(PrefetchConfig::default(), latency);
        shell.engine.config.prefetch = Some(PrefetchConfig::default());
        learn(&mut shell, &[1, 22]);
        assert_eq!(bring_background(&mut shell, latency), [1, 22], "{medium}");
        assert_eq!(program(&mut shell, &[8, 13, 20], latency), 2, "{medium}: and nothing else does");
        shell.finish();
    }
}

#[test]
fn a_request_for_learned_windows_reads_over_small_gaps_on_a_medium_that_serves_one_at_a_time() {
    let serial = MediumTraits { rotational: true, overlaps: false, bytes_per_s: None };
    let config = DiskConfig { queue: QueueConfig::for_medium(serial), ..DiskConfig::default() };
    let mut shell = Shell::new(config);
    shell.pump();
    while let Some(fetch) = pick(&shell.fetches, 0) {
        bring(&mut shell, fetch, LATENCY);
    }
    learn(&mut shell, &[8, 10, 22]);
    shell.now += Nanos::from_millis(10);
    shell.pump();
    // The pages of the index come first, each when it is needed.
    while let Some(fetch) = pick(&shell.fetches, 0)
        && windows(&shell, fetch).is_empty()
    {
        bring(&mut shell, fetch, LATENCY);
    }
    let fetch = pick(&shell.fetches, 0).expect("learned windows come");
    assert_eq!(windows(&shell, fetch)[..3], [(8, true), (9, false), (10, true)]);
    for _ in 0..2 {
        bring_background(&mut shell, LATENCY);
        // The queue waits for a moment, since a read could follow.
        shell.now += Nanos::from_millis(10);
        shell.pump();
    }
    assert_eq!(shell.engine.stats().background_bytes, 3 * STORED);
    let fetched = shell.fetched.len();
    shell.run(Step::Read { block: 9 * WINDOW_BLOCKS, blocks: 1, class: 0 });
    assert!(shell.fetched.len() > fetched, "what was read over was dropped");
    bring_background(&mut shell, LATENCY);
    shell.finish();
}

#[test]
fn of_blocks_that_an_earlier_start_has_read_windows_whose_own_are_all_hot_do_not_come() {
    let mut shell = shell(PrefetchConfig::default());
    // All of window 3 is hot, and of window 2 some blocks are not.
    let blocks = BlockRange::new(Lba(2 * WINDOW_BLOCKS), 2 * WINDOW_BLOCKS);
    assert_eq!(shell.engine.handle_learned([blocks]), 1);
    shell.finish();
}

#[test]
fn learned_windows_end_when_the_start_reads_others() {
    let mut shell = shell_behind(PrefetchConfig::default(), LATENCY);
    assert_eq!(learn(&mut shell, &[3]), 0, "all of its blocks are hot");
    learn(&mut shell, &[8, 22]);
    // Each of them costs its transfer and saves nothing.
    (0..5_000).for_each(|_| shell.engine.learned.handle_read(13));
    let chance = shell.engine.learned.chance();
    assert!(!shell.engine.background.learned_pays(chance, 100 * STORED), "{chance}");
    bring_background(&mut shell, LATENCY);
    shell.finish();
}
