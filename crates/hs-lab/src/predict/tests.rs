use std::num::NonZeroU32;

use hs_device::Medium;
use hs_engine::PrefetchConfig;
use hs_engine::queue::ElevatorKind;
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba, Nanos};

use super::page_cache::{Found, PageCache};
use super::*;

const WINDOW: u64 = 128 << 10;
const DISK: u64 = 400 * WINDOW;

/// A program that reads eight pages of every third window, 5 ms apart.
fn program() -> Program {
    let read = |number: u64| ProgramRead {
        after: Nanos::from_millis(5 * number),
        block: (number * 37 % 130) * 3 * 32 + 5,
        blocks: 8,
    };
    Program { reads: (0..130).map(read).collect(), own_time: Nanos::from_millis(700) }
}

/// Its image, compressed to a third, with the hot blocks in front if there are to be any.
fn image(hot: bool) -> ImageLayout {
    let mut at = 4096 + 8192;
    let chunk = |reads: &[ProgramRead]| {
        let extents: Vec<BlockRange> =
            reads.iter().map(|read| BlockRange::new(Lba(read.block), read.blocks)).collect();
        let raw_bytes: u64 = extents.iter().map(|run| run.bytes()).sum();
        let range = ByteRange::new(at, raw_bytes / 3);
        at = range.end();
        HotChunk { at: range, raw_bytes: raw_bytes as u32, extents }
    };
    let chunks = if hot { program().reads.chunks(8).map(chunk).collect() } else { Vec::new() };
    let window = |number: u64| Some(ByteRange::new(at + number * WINDOW / 3, WINDOW / 3));
    let windows = (0..DISK / WINDOW).map(window).collect();
    let index = ByteRange::new(at + DISK / 3 + WINDOW, 20_000);
    let tables = ByteRange::new(4096, if hot { 8192 } else { 0 });
    ImageLayout { window_bytes: WINDOW, windows, index, tables, hot: chunks }
}

fn crowd(clients: u32, within_ms: u64) -> Crowd {
    let clients = NonZeroU32::new(clients).expect("somebody");
    Crowd { clients, within: Nanos::from_millis(within_ms), edge: None }
}

fn predict(disk: &Disk, medium: &str, crowd: Crowd) -> Predicted {
    let hot = matches!(disk, Disk::Image(layout) if !layout.hot.is_empty());
    let prediction = Prediction {
        program: &program(),
        disk,
        disk_bytes: DISK,
        file_bytes: DISK,
        medium: Medium::parse(medium).expect("known"),
        crowd,
        front: Front { read_ahead_pages: 32, pushed: hot, overlap: Nanos::ZERO },
        served: ServedConfig {
            prefetch: hot.then(PrefetchConfig::default),
            decode_bytes_per_s: 4e8,
            read_ahead_bytes: 8 << 20,
        },
        elevator: ElevatorKind::Headstart,
    };
    let predicted = prediction.run().expect("it fits").expect("it is modelled");
    assert_eq!(predicted.starts.len(), crowd.clients.get() as usize, "everybody gets ready");
    predicted
}

#[test]
fn a_raw_start_is_its_program_and_its_waits() {
    let predicted = predict(&Disk::Raw, "flat-10ms-25mbs-serial", Crowd::ALONE);
    let start = predicted.slowest();
    assert_eq!((predicted.requests, start.waits), (130, 130));
    assert_eq!(start.ready, start.own + start.waited);
    // 10 ms and 32 KiB at 25 MB/s each.
    let wait = 130.0 * (0.010 + 32_768.0 / 25e6);
    assert!((start.waited.as_secs_f64() - wait).abs() < 1e-3, "{start:?}");
    assert_eq!(predicted.bytes, program().bytes());
}

#[test]
fn a_hot_region_saves_waits_and_seeks_on_every_medium() {
    for medium in ["cd-24x-cav", "hdd-7200", "flat-10ms-25mbs", "sd-uhs1", "lan-10m", "nvme"] {
        let [raw, unoptimised, optimised] = [Disk::Raw, Disk::Image(image(false)), Disk::Image(image(true))]
            .map(|disk| predict(&disk, medium, Crowd::ALONE));
        let ready = |predicted: &Predicted| predicted.slowest().ready;
        assert!(ready(&optimised) < ready(&unoptimised), "{medium}: {optimised:?} {unoptimised:?}");
        assert!(optimised.seeks * 4 < raw.seeks, "{medium}: {optimised:?} {raw:?}");
        assert!(optimised.slowest().streamed.is_some() && raw.slowest().streamed.is_none());
        assert!(ready(&optimised) >= program().own_time);
    }
}

#[test]
fn many_clients_share_one_medium() {
    let disk = Disk::Image(image(true));
    let one = predict(&disk, "lan-10m", Crowd::ALONE);
    let eight = predict(&disk, "lan-10m", crowd(8, 0));
    assert!(eight.bytes >= 7 * one.bytes && eight.slowest().ready > one.slowest().ready, "{one:?} {eight:?}");
    assert_eq!(predict(&disk, "lan-10m", crowd(8, 0)), eight, "the same comes out again");
}

#[test]
fn who_begins_together_is_simulated_once_and_nothing_is_lost_by_it() {
    let disk = Disk::Image(image(true));
    let edge = |crowd: Crowd| Crowd { edge: Medium::parse("lan-1g").expect("known").link(), ..crowd };
    for (crowd, what) in [(crowd(10_000, 0), "at once"), (crowd(10_000, 4_000), "within four seconds")] {
        let direct = predict(&disk, "lan-1g", crowd);
        let cached = predict(&disk, "lan-10m", edge(crowd));
        let alone = predict(&disk, "lan-1g", Crowd::ALONE);
        assert_eq!(direct.bytes, 10_000 * alone.bytes, "{what}");
        // The link is busy all the time, or nearly.
        let least = direct.bytes as f64 / 117_685_305.0;
        let last = direct.slowest().ready.as_secs_f64();
        assert!(last + 4.0 > least && last < least * 1.2 + 4.0, "{what}: {last} {least}");
        // A cache asks for each byte once, so a slow origin does for ten thousand.
        let cached_last = cached.slowest().ready.as_secs_f64();
        assert!(
            cached.bytes <= DISK && cached_last < last * 2.0,
            "{what}: {} {cached_last} {last}",
            cached.bytes
        );
    }
    assert!((predict(&disk, "lan-1g", crowd(10_000, 0)).jain_index() - 1.0).abs() < 1e-9);
}

#[test]
fn a_cohort_of_three_is_three_clients() {
    let disk = Disk::Image(image(false));
    // Three that begin within a nanosecond are simulated one by one, three that begin together are not.
    let together = predict(&disk, "lan-10m", crowd(3, 0));
    let clients = NonZeroU32::new(3).expect("three");
    let apart = predict(&disk, "lan-10m", Crowd { clients, within: Nanos(3), edge: None });
    assert_eq!(together.bytes, apart.bytes);
    let (one, other) = (together.slowest().ready.as_secs_f64(), apart.slowest().ready.as_secs_f64());
    // Who of them is a nanosecond earlier decides what is asked for first, here and there.
    assert!((one / other - 1.0).abs() < 1e-2, "{one} {other}");
}

#[test]
fn the_kernel_reads_ahead_where_pages_follow_on_each_other() {
    let mut cache = PageCache::new(10_000, 32);
    // A small random read is read as it is.
    assert_eq!(cache.miss(500, 3), (500..503, None));
    // The first read of a file begins a window of four times its size, marked behind what was asked for.
    assert_eq!(cache.miss(0, 1), (0..4, Some(1)));
    assert_eq!(cache.ask(0..4, Some(1), 7), vec![0..4]);
    assert_eq!(cache.find(3), Found::Coming(7));
    cache.arrived(0..4, 7);
    assert_eq!(cache.find(3), Found::There);
    // Whoever comes to the mark has the next window read, twice as long, all of it marked.
    assert_eq!(cache.hit(1, 1), Some((4..12, Some(4))));
    assert_eq!(cache.hit(1, 1), None, "a mark is used once");
    cache.ask(4..12, Some(4), 8);
    assert_eq!(cache.hit(4, 1), Some((12..28, Some(12))));
    // A read directly behind the last one is sequential, whatever is cached.
    cache.read_until(600);
    assert_eq!(cache.miss(600, 2), (600..604, Some(602)));
    // What is there already is not asked for again, and no request is longer than the window.
    cache.put(100..104);
    assert_eq!(cache.ask(96..140, None, 20), vec![96..100, 104..136, 136..140]);
    // Without read-ahead it is page by page.
    let mut plain = PageCache::new(100, 0);
    assert_eq!(plain.miss(5, 9), (5..6, None));
    assert_eq!(plain.ask(99..102, None, 0), vec![99..100], "the file ends");
}

#[test]
fn think_times_are_scaled_and_pages_of_one_call_put_together() {
    use hs_trace::{Profile, Read};
    let read = |at_us: u64, block: u64| Read {
        at: Nanos(at_us * 1_000),
        blocks: BlockRange::new(Lba(block), 1),
        cost: Nanos(5_000),
    };
    let profile = Profile {
        disk_bytes: 1 << 30,
        reads: vec![read(1_000, 10), read(1_020, 11), read(1_040, 12), read(5_000, 13), read(9_000, 99)],
        ready: Some(Nanos(8_000_000)),
        ended: Nanos(10_000_000),
        ..Profile::default()
    };
    let program = Program::recorded(&profile, None);
    let calls: Vec<(u64, u64)> = program.reads.iter().map(|read| (read.block, read.blocks)).collect();
    assert_eq!(calls, [(10, 3), (13, 1)], "what comes after ready is no part of it");
    assert_eq!(program.bytes(), 4 * BLOCK_BYTES);
    let twice = Program::recorded(&profile, Some(Nanos(program.own_time.0 * 2)));
    assert!(twice.reads[1].after.0.abs_diff(program.reads[1].after.0 * 2) <= 1);
}
