use std::num::NonZeroU32;

use hs_device::Medium;
use hs_engine::PrefetchConfig;
use hs_engine::queue::ElevatorKind;
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba, Nanos};

use super::caches::Caches;
use super::files::PageRun;
use super::page_cache::{PageCache, PageState};
use super::*;

mod limit;
mod served;

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

/// Its image, with the hot blocks in front if there are to be any.
fn image(hot: bool) -> ImageLayout {
    image_of(if hot { program().reads } else { Vec::new() })
}

/// An image, compressed to a third, with what these reads read in front, no block of which is read twice.
fn image_of(hot: Vec<ProgramRead>) -> ImageLayout {
    let mut at = 4096 + 8192;
    let chunk = |reads: &[ProgramRead]| {
        let extents: Vec<BlockRange> =
            reads.iter().map(|read| BlockRange::new(Lba(read.block), read.blocks)).collect();
        let raw_bytes: u64 = extents.iter().map(|run| run.bytes()).sum();
        let range = ByteRange::new(at, raw_bytes / 3);
        at = range.end();
        HotChunk { at: range, raw_bytes: raw_bytes as u32, extents, needed: Nanos::ZERO }
    };
    let chunks: Vec<HotChunk> = hot.chunks(8).map(chunk).collect();
    let window = |number: u64| Some(ByteRange::new(at + number * WINDOW / 3, WINDOW / 3));
    let windows = (0..DISK / WINDOW).map(window).collect();
    let index = ByteRange::new(at + DISK / 3 + WINDOW, 20_000);
    let tables = ByteRange::new(4096, if chunks.is_empty() { 0 } else { 8192 });
    ImageLayout { window_bytes: WINDOW, windows, index, tables, hot: chunks }
}

fn crowd(clients: u32, within_ms: u64) -> Crowd {
    let clients = NonZeroU32::new(clients).expect("clients");
    Crowd { clients, within: Nanos::from_millis(within_ms), edge: None }
}

fn is_hot(disk: &Disk) -> bool {
    matches!(disk, Disk::Image(layout) if !layout.hot.is_empty())
}

fn served(disk: &Disk) -> ServedConfig {
    ServedConfig {
        prefetch: is_hot(disk).then(PrefetchConfig::default),
        decode_bytes_per_s: 4e8,
        read_ahead_bytes: 8 << 20,
        cache_bytes: 40 << 20,
        shared_processors: None,
    }
}

fn predict(disk: &Disk, medium: &str, crowd: Crowd) -> Predicted {
    predict_on(disk, medium, crowd, served(disk))
}

fn predict_on(disk: &Disk, medium: &str, crowd: Crowd, served: ServedConfig) -> Predicted {
    let program = program();
    let predicted = run(&Prediction { crowd, served, ..prediction(&program, disk, medium) });
    assert_eq!(predicted.starts.len(), crowd.clients.get() as usize, "each client gets ready");
    predicted
}

/// One client.
fn prediction<'a>(program: &'a Program, disk: &'a Disk, medium: &str) -> Prediction<'a> {
    Prediction {
        program,
        disk,
        disk_bytes: DISK,
        file_bytes: DISK,
        medium: Medium::parse(medium).expect("known"),
        crowd: Crowd::ALONE,
        front: Front {
            files: None,
            inode_ahead_blocks: 32,
            read_ahead_pages: 32,
            pushed: is_hot(disk),
            overlap: Nanos::ZERO,
        },
        served: served(disk),
        elevator: ElevatorKind::Headstart,
    }
}

fn run(prediction: &Prediction<'_>) -> Predicted {
    prediction.run().expect("it fits").expect("it is modelled")
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
        let [raw, unoptimized, optimized] = [Disk::Raw, Disk::Image(image(false)), Disk::Image(image(true))]
            .map(|disk| predict(&disk, medium, Crowd::ALONE));
        let ready = |predicted: &Predicted| predicted.slowest().ready;
        assert!(ready(&optimized) < ready(&unoptimized), "{medium}: {optimized:?} {unoptimized:?}");
        assert!(optimized.seeks * 4 < raw.seeks, "{medium}: {optimized:?} {raw:?}");
        assert!(optimized.slowest().streamed.is_some() && raw.slowest().streamed.is_none());
        assert!(ready(&optimized) >= program().own_time);
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
    assert_eq!(cache.find(3), PageState::Coming(7));
    cache.arrived(0..4, 7);
    assert_eq!(cache.find(3), PageState::There);
    // A read at the mark makes the kernel read the next window, twice as long, all of it marked.
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
    let program = Program::recorded(&profile, None, None);
    let calls: Vec<(u64, u64)> = program.reads.iter().map(|read| (read.block, read.blocks)).collect();
    assert_eq!(calls, [(10, 3), (13, 1)], "what comes after ready is no part of it");
    assert_eq!(program.bytes(), 4 * BLOCK_BYTES);
    let twice = Program::recorded(&profile, None, Some(Nanos(program.own_time.0 * 2)));
    assert!(twice.reads[1].after.0.abs_diff(program.reads[1].after.0 * 2) <= 1);
}

/// A file's path, and its runs: page, block, blocks.
type Laid<'a> = (&'a str, &'a [(u64, u64, u64)]);

/// A recording of single pages, and of these files.
fn recording(reads: &[u64], files: &[Laid<'_>]) -> hs_trace::Profile {
    use hs_trace::{FileRun, FileUse, Read};
    let read = |(number, block): (u64, &u64)| Read {
        at: Nanos::from_millis(number),
        blocks: BlockRange::new(Lba(*block), 1),
        cost: Nanos(1_000),
    };
    let run = |(page, block, count): &(u64, u64, u64)| FileRun {
        page: *page,
        blocks: BlockRange::new(Lba(*block), *count),
    };
    let file = |(inode, (path, runs)): (u64, &Laid<'_>)| FileUse {
        path: (*path).to_owned(),
        inode,
        runs: runs.iter().map(run).collect(),
    };
    hs_trace::Profile {
        disk_bytes: DISK,
        reads: (1..).zip(reads).map(read).collect(),
        ready: Some(Nanos::from_millis(1_000)),
        ended: Nanos::from_millis(1_000),
        files: (12..).zip(files).map(file).collect(),
        ..hs_trace::Profile::default()
    }
}

#[test]
fn files_are_known_when_they_are_known_as_wholes() {
    let partly = recording(&[100, 101], &[("/a.py", &[(0, 100, 2)])]);
    assert_eq!(Files::recorded(&partly), None, "as older recordings are");
    assert_eq!(Files::recorded(&recording(&[100], &[])), None, "as those of guests are");

    let profile =
        recording(&[100, 7, 300], &[("/a.py", &[(0, 100, 3), (3, 200, 2)]), ("/b.py", &[(1, 300, 1)])]);
    let files = Files::recorded(&profile).expect("/a.py has more than was read");
    let place = |file, page, pages| PageRun { file, page, pages };
    assert_eq!(files.locate(100, 108), place(Some(0), 0, 3), "up to the end of the run");
    assert_eq!(files.locate(201, 202), place(Some(0), 4, 1));
    assert_eq!(files.locate(90, 110), place(None, 90, 10), "metadata up to the next file");
    assert_eq!(files.locate(400, 410), place(None, 400, 10));
    assert_eq!(files.locate(300, 310), place(Some(1), 1, 1));
    let blocks = |file, pages| {
        files.blocks(file, pages).iter().map(|run| (run.start.0, run.count)).collect::<Vec<_>>()
    };
    assert_eq!(blocks(0, 1..5), [(101, 2), (200, 2)], "two pieces");
    assert_eq!(blocks(0, 4..9), [(201, 1)], "nothing behind the end");
    assert_eq!(blocks(1, 0..2), [(300, 1)], "a hole has no blocks");
}

#[test]
fn the_kernel_reads_ahead_in_files_and_around_faults() {
    let whole = [(0, 1_000, 100)];
    let profile = recording(&[1_000], &[("/usr/lib/x/a.py", &[(0, 500, 3)]), ("/usr/lib/libx.so.6", &whole)]);
    let tables = vec![BlockRange::new(Lba(4_010), 255)];
    let files = Files::recorded(&profile).expect("they are wholes").with_inode_tables(tables);
    let mut caches = Caches::new(10_000, 32, Some(&files), 32);
    let mut ask = |block: u64, end: u64| {
        let place = caches.locate(block, end);
        assert_eq!(caches.find(place), PageState::Missing);
        let (pages, mark) = caches.miss(place);
        let asked = caches.ask(place.file, pages, mark, 0);
        asked.iter().flat_map(|wanted| &wanted.blocks).map(|run| (run.start.0, run.count)).collect::<Vec<_>>()
    };
    assert_eq!(ask(500, 501), [(500, 3)], "the file ends before the window does");
    assert_eq!(ask(50, 52), [(50, 1)], "metadata comes block by block");
    assert_eq!(ask(1_000, 1_001), [(1_000, 4)], "the head of a library is read");
    assert_eq!(ask(1_040, 1_041), [(1_024, 32)], "around a fault");
    assert_eq!(ask(1_099, 1_100), [(1_083, 17)], "and not beyond the end");
    assert_eq!(ask(4_012, 4_013), [(4_010, 33)], "inodes come together, from their table's beginning on");
    assert_eq!(ask(4_070, 4_071), [(4_064, 33)]);
    assert_eq!(ask(4_263, 4_264), [(4_256, 9)], "within the table");
    // What was pushed into the cache of a file is there.
    caches.put(1_060, 1_062);
    let place = caches.locate(1_061, 1_070);
    assert_eq!((place.page, caches.find(place)), (61, PageState::There));
}

#[test]
fn a_fault_that_meets_a_mark_reads_as_far_ahead_as_may_be() {
    let whole = [(0, 1_000, 100)];
    let profile =
        recording(&[1_000, 2_000], &[("/usr/lib/libx.so.6", &whole), ("/srv/x", &[(0, 2_000, 100)])]);
    let files = Files::recorded(&profile).expect("they are wholes");
    for (first, ahead) in [(1_000, 32), (2_000, 8)] {
        let mut caches = Caches::new(10_000, 32, Some(&files), 32);
        let mut ask = |block: u64| {
            let place = caches.locate(block, block + 1);
            let hit = caches.hit(place);
            let (pages, mark) = hit.unwrap_or_else(|| caches.miss(place));
            caches.ask(place.file, pages.clone(), mark, 0);
            pages
        };
        assert_eq!(ask(first), 0..4, "the head, marked behind its first page");
        ask(first + 60);
        assert_eq!(ask(first + 1), 4..4 + ahead, "read {first}");
    }
}

#[test]
fn what_is_mapped_goes_by_names() {
    let mapped = ["/usr/lib/x/libx.so.6", "/usr/bin/x", "/usr/lib/locale/C.utf8/LC_CTYPE"];
    let read = ["/usr/lib/x/a.py", "/etc/locale.conf"];
    let run = [(0, 100, 9)];
    for (path, is_mapped) in mapped.map(|path| (path, true)).into_iter().chain(read.map(|path| (path, false)))
    {
        let files = Files::recorded(&recording(&[100], &[(path, &run)])).expect("it is a whole");
        assert_eq!(files.all()[0].mapped, is_mapped, "{path}");
    }
}

#[test]
fn after_a_hundred_faults_in_vain_nothing_is_read_around_them() {
    let mut cache = PageCache::new(1 << 20, 32);
    for fault in 1..=100 {
        assert_eq!(
            cache.fault(fault * 100, &(0..0)),
            (fault * 100 - 16..fault * 100 + 16, Some(fault * 100 + 8))
        );
    }
    assert_eq!(cache.fault(20_000, &(0..0)), (20_000..20_001, None));
}

#[test]
fn code_is_read_from_the_fault_on_up_to_its_end() {
    let mut cache = PageCache::new(1 << 20, 32);
    assert_eq!(cache.fault(120, &(100..140)), (120..140, None));
    assert_eq!(cache.fault(100, &(100..140)), (100..132, None));
    assert_eq!(cache.fault(140, &(100..140)), (124..156, Some(148)));
}

/// Against a plain list of which page of which file each block is.
#[test]
fn files_are_found_as_in_a_plain_list() {
    let mut prng = hs_units::Prng::new(5);
    for _ in 0..50 {
        let mut owners = vec![None; 600];
        let mut laid = vec![Vec::new(); 5];
        let (mut block, mut pages) = (0, [0_u64; 5]);
        while block < 560 {
            let (file, count) = (prng.below(6) as usize, 1 + prng.below(20));
            if file < 5 {
                pages[file] += prng.below(2) * prng.below(9);
                laid[file].push((pages[file], block, count));
                (0..count).for_each(|n| owners[(block + n) as usize] = Some((file, pages[file] + n)));
                pages[file] += count;
            }
            block += count;
        }
        let paths = ["/0", "/1", "/2", "/3", "/4"];
        let named: Vec<Laid<'_>> = paths.into_iter().zip(laid.iter().map(Vec::as_slice)).collect();
        let Some(files) = Files::recorded(&recording(&[599], &named)) else { continue };
        for block in 0..600 {
            let end = (block + 1 + prng.below(40)).min(600);
            let place = files.locate(block, end);
            let owner = |n: u64| owners[(block + n) as usize];
            let expected = owner(0).map_or((None, block), |(file, page)| (Some(file), page));
            assert_eq!((place.file, place.page), expected);
            for n in 0..place.pages {
                assert_eq!(owner(n), place.file.map(|file| (file, place.page + n)));
            }
            assert!(place.pages > 0 && block + place.pages <= end);
        }
        for (file, end) in pages.iter().enumerate() {
            let from = prng.below(end + 3);
            let pages = from..from + prng.below(40);
            let found: Vec<u64> = files
                .blocks(file, pages.clone())
                .into_iter()
                .flat_map(BlockRange::blocks)
                .map(|lba| lba.0)
                .collect();
            let mut expected: Vec<(u64, u64)> = (0..600)
                .filter_map(|block| {
                    owners[block as usize]
                        .filter(|(owner, page)| *owner == file && pages.contains(page))
                        .map(|(_, page)| (page, block))
                })
                .collect();
            expected.sort_unstable();
            assert_eq!(found, expected.into_iter().map(|(_, block)| block).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_raw_start_reads_its_files_ahead_behind_a_loop_device() {
    // Every other page of forty files of 20 pages, in order.
    let layouts: Vec<[(u64, u64, u64); 1]> = (0..40).map(|file| [(0, 400 + file * 40, 20)]).collect();
    let paths: Vec<String> = (0..40).map(|file| format!("/f{file}")).collect();
    let named: Vec<Laid<'_>> =
        paths.iter().zip(&layouts).map(|(path, runs)| (path.as_str(), &runs[..])).collect();
    let reads: Vec<u64> = (0..400).map(|read| 400 + read / 10 * 40 + read % 10 * 2).collect();
    let profile = recording(&reads, &named);
    let (program, files) =
        (Program::recorded(&profile, None, None), Files::recorded(&profile).expect("wholes"));
    let prediction = prediction(&program, &Disk::Raw, "flat-10ms-25mbs-serial");
    let page_wise = run(&prediction);
    let in_files =
        run(&Prediction { front: Front { files: Some(&files), ..prediction.front }, ..prediction });
    assert_eq!(page_wise.starts.len() + in_files.starts.len(), 2, "both get ready");
    assert!(
        in_files.requests * 2 < page_wise.requests,
        "the disk does not know where files begin: {in_files:?}"
    );
    // The loop device's own read-ahead goes beyond the end of a file, and that of a file does not.
    assert!(in_files.bytes >= 40 * 20 * BLOCK_BYTES, "{in_files:?}");
    assert!(in_files.slowest().ready < page_wise.slowest().ready);
}

#[test]
fn what_a_client_prefetches_over_a_link_is_one_answer() {
    let disk = Disk::Image(image(true));
    let stays = PrefetchConfig {
        least_gain: Nanos::from_millis(5_000),
        request_price: Nanos::from_millis(50),
        most_under_way: 1,
        ..PrefetchConfig::default()
    };
    let served = ServedConfig { prefetch: Some(stays), ..served(&disk) };
    let predicted = predict_on(&disk, "wan-20ms", Crowd::ALONE, served);
    // Opening, and the stream; the reads of this program are all in it.
    assert_eq!(predicted.requests, 2, "{predicted:?}");
    // Also where a read waits for what the stream has not asked for, which makes it as urgent.
    let mut program = program();
    program.reads[8].block = program.reads[129].block;
    let small = PrefetchConfig { first_request_bytes: 64 << 10, ..stays };
    let served = ServedConfig { prefetch: Some(small), ..served };
    let early = run(&Prediction { served, ..prediction(&program, &disk, "wan-20ms") });
    assert!(early.requests == 2 && early.slowest().waits > 1, "{early:?}");
    let streamed = predicted.slowest().streamed.expect("there is a stream");
    let hot: u64 = image(true).hot.iter().map(|chunk| chunk.at.len).sum();
    let transfer =
        hot as f64 / Medium::parse("wan-20ms").unwrap().link().unwrap().rate_bytes_per_second().get() as f64;
    // Two round trips at least, and few besides.
    let rest = streamed.as_secs_f64() - transfer;
    assert!((0.04..0.07).contains(&rest), "{streamed:?} {transfer}");
}

#[test]
fn clients_that_share_processors_are_ready_no_sooner_than_those_have_worked_for_all() {
    let disk = Disk::Image(image(true));
    let hot_bytes: u64 = image(true).hot.iter().map(|chunk| u64::from(chunk.raw_bytes)).sum();
    let ready = |clients: u32, shared_processors| {
        let served = ServedConfig { shared_processors, ..served(&disk) };
        predict_on(&disk, "lan-1g", crowd(clients, 0), served).slowest().ready.as_secs_f64()
    };
    // A third of a second each.
    let shared = |clients_each| {
        Some(SharedProcessors { clients_each, seconds_per_byte: 1.0 / 3.0 / hot_bytes as f64 })
    };
    let (alone, crowded) = (ready(1, None), ready(50, None));
    assert!((ready(1, shared(1.0)) - alone).abs() < 0.1, "there is time enough: {alone} s");
    let limit = 25.0 / 3.0;
    let found = ready(50, shared(25.0));
    assert!((limit..1.1 * limit).contains(&found) && crowded < limit / 2.0, "{found} s, {crowded} s");
}
