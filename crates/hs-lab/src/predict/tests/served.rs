//! The shell around the disk engine.

use hs_engine::PrefetchRate;

use super::*;

#[test]
fn two_chunks_at_a_time_are_decompressed() {
    let disk = Disk::Image(image(true));
    let served = ServedConfig { decode_bytes_per_s: 1e6, ..served(&disk) };
    let ready = predict_on(&disk, "nvme", Crowd::ALONE, served).slowest().ready.as_secs_f64();
    let limit = program().bytes() as f64 / 2e6;
    assert!((limit..1.1 * limit).contains(&ready), "{ready} s of {limit} s");
}

#[test]
fn an_index_that_has_left_memory_is_read_again() {
    let disk = Disk::Image(image(false));
    let requests = |cache_bytes| {
        let served = ServedConfig { cache_bytes, ..served(&disk) };
        predict_on(&disk, "nvme", Crowd::ALONE, served).requests
    };
    let (once, always) = (requests(40 << 20), requests(0));
    assert!(once < 140 && always > 250, "{once} and {always} requests of 130 reads");
}

/// A program that computes for three seconds before it reads.
fn late_program() -> Program {
    let late = Nanos::from_millis(3_000);
    let mut program = program();
    program.reads.iter_mut().for_each(|read| read.after += late);
    Program { own_time: program.own_time + late, ..program }
}

/// A prefetch whose opening request brings one chunk.
fn small_opening() -> PrefetchConfig {
    PrefetchConfig { first_request_bytes: 64 << 10, ..PrefetchConfig::default() }
}

/// A start whose stream brings all of the hot region, and which reads nothing else: how often the program
/// waits, and when all has come, in seconds.
fn stream(prediction: &Prediction<'_>, prefetch: PrefetchConfig) -> (u64, f64) {
    let served = ServedConfig { prefetch: Some(prefetch), ..prediction.served };
    let predicted = run(&Prediction { served, ..*prediction });
    let Disk::Image(layout) = prediction.disk else { unreachable!("it has a hot region") };
    let hot: u64 = layout.hot.iter().map(|chunk| chunk.at.len).sum();
    assert_eq!(predicted.bytes, layout.tables.end() + hot);
    let start = predicted.slowest();
    (start.waits, start.streamed.expect("there is a stream").as_secs_f64())
}

#[test]
fn what_the_page_cache_has_taken_needs_no_memory_of_the_prefetch() {
    let (disk, program) = (Disk::Image(image(true)), late_program());
    let pushed = prediction(&program, &disk, "hdd-7200");
    let kept = Prediction { front: Front { pushed: false, ..pushed.front }, ..pushed };
    let prefetch = PrefetchConfig { budget_bytes: 1 << 20, ..small_opening() };
    let (waits, streamed) = stream(&pushed, prefetch);
    assert!(waits == 0 && streamed < 0.5, "{waits}, {streamed} s");
    let (_, streamed) = stream(&kept, prefetch);
    assert!(streamed > 3.0, "{streamed} s, though it has to wait for its readers");
}

#[test]
fn a_stream_that_waits_goes_on_where_nothing_else_happens() {
    let (disk, program) = (Disk::Image(image(true)), late_program());
    let prefetch = PrefetchConfig { rate: PrefetchRate::BytesPerS(200_000), ..small_opening() };
    let (_, streamed) = stream(&prediction(&program, &disk, "hdd-7200"), prefetch);
    // 1.4 MB at 200 KB/s.
    assert!((1.0..7.2).contains(&streamed), "{streamed} s");
}

#[test]
fn a_medium_that_overlaps_requests_is_kept_busy() {
    let (disk, program) = (Disk::Image(image(true)), late_program());
    let (_, streamed) = stream(&prediction(&program, &disk, "flat-10ms-25mbs"), small_opening());
    // 57 ms of transfer, the first latency, and a few more while nothing is known of the medium.
    assert!(streamed < 0.11, "{streamed} s");
}

/// An image whose windows lie directly behind each other.
fn touching() -> ImageLayout {
    let mut layout = image(false);
    for (window, at) in layout.windows.iter_mut().zip(0..) {
        *window = Some(ByteRange::new((1 << 20) + at * (WINDOW / 4), WINDOW / 4));
    }
    layout
}

/// A program that reads these windows as wholes, a millisecond apart.
fn windows_program(windows: impl IntoIterator<Item = u64>) -> Program {
    let read = |(window, number): (u64, u64)| ProgramRead {
        after: Nanos::from_millis(number),
        block: window * 32,
        blocks: 32,
    };
    let reads: Vec<ProgramRead> = windows.into_iter().zip(0..).map(read).collect();
    Program { own_time: Nanos::from_millis(reads.len() as u64), reads }
}

#[test]
fn a_window_of_which_the_kernel_has_all_is_not_kept() {
    let (disk, program) = (Disk::Image(touching()), windows_program([8, 7]));
    let predicted = run(&prediction(&program, &disk, "nvme"));
    // What opens it, the index, eight windows, and two of which one has been there.
    assert_eq!(predicted.bytes, 4_096 + 20_000 + 10 * WINDOW / 4);
}

#[test]
fn a_sequential_reader_is_read_ahead_of() {
    let (disk, program) = (Disk::Image(touching()), windows_program(0..400));
    let prediction = prediction(&program, &disk, "nvme");
    let without = ServedConfig { read_ahead_bytes: 0, ..prediction.served };
    let (with, without) = (run(&prediction), run(&Prediction { served: without, ..prediction }));
    assert!(with.requests < 20 && without.requests > 50, "{with:?} {without:?}");
}

/// A file that is read from its beginning, and whose pages lie in 200 windows, in no order.
#[test]
fn the_scheduler_orders_what_waits_at_the_same_time() {
    let runs: Vec<(u64, u64, u64)> = (0..200).map(|page| (page, page * 149 % 400 * 32, 1)).collect();
    let reads: Vec<u64> = runs[..199].iter().map(|(_, block, _)| *block).collect();
    let profile = recording(&reads, &[("/f", &runs)]);
    let (program, files) = (Program::recorded(&profile, None, None), Files::recorded(&profile));
    let disk = Disk::Image(image(false));
    let prediction = prediction(&program, &disk, "hdd-7200");
    let front = Front { files: files.as_ref(), ..prediction.front };
    let busy = |elevator| run(&Prediction { front, elevator, ..prediction }).busy;
    let not = busy(ElevatorKind::Noop);
    for elevator in [ElevatorKind::CLook, ElevatorKind::Headstart] {
        let ordered = busy(elevator);
        assert!(files.is_some() && ordered.0 * 10 < not.0 * 8, "{}: {ordered} {not}", elevator.name());
    }
}
