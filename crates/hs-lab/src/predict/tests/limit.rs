//! The limit of a start.

use hs_units::Prng;

use super::*;

/// The limit in milliseconds: of the program, and of the stream.
fn limit(program: &Program, disk: &Disk, medium: &str) -> (f64, f64) {
    let medium = Medium::parse(medium).expect("known");
    let limit =
        Limit::new(program, disk, DISK, medium, Nanos::ZERO).expect("it fits").expect("it is modelled");
    (limit.ready.as_secs_f64() * 1e3, limit.streamed.as_secs_f64() * 1e3)
}

fn is_about(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 0.002
}

/// A call of 500 blocks, which take 81.92 ms of 25 MB/s.
fn call(after_ms: u64, block: u64) -> ProgramRead {
    ProgramRead { after: Nanos::from_millis(after_ms), block, blocks: 500 }
}

#[test]
fn what_comes_late_and_the_computing_behind_it_add_up() {
    let program =
        |reads: &[ProgramRead]| Program { reads: reads.to_vec(), own_time: Nanos::from_millis(400) };
    let cases = [
        // It waits for the first call: 10 ms of latency and its bytes. The second one is there in time.
        (vec![call(0, 0), call(300, 1_000)], 491.92, 173.84),
        // The second one is late as well: 173.84 ms, and 390 ms are left.
        (vec![call(0, 0), call(10, 1_000)], 563.84, 173.84),
        // What was read before is there, all of it or half.
        (vec![call(0, 0), call(10, 0)], 491.92, 91.92),
        (vec![call(0, 0), call(10, 250)], 91.92 + 40.96 + 390.0, 132.88),
        // A program that computes for longer than the stream lasts waits for nothing.
        (vec![call(200, 0), call(300, 1_000)], 400.0, 173.84),
        (vec![], 400.0, 10.0),
    ];
    for (reads, ready, streamed) in cases {
        for medium in ["flat-10ms-25mbs", "flat-10ms-25mbs-serial"] {
            let found = limit(&program(&reads), &Disk::Raw, medium);
            assert!(is_about(found.0, ready) && is_about(found.1, streamed), "{reads:?}: {found:?}");
        }
    }
}

#[test]
fn an_image_is_opened_first_and_its_blocks_are_compressed() {
    let (program, disk) = (program(), Disk::Image(image(true)));
    // Tables of 8 KiB, then 32 KiB each 5 ms, compressed to a third: only the first wait is one.
    let first = 10.0 + (8_192.0 + 32_768.0 / 3.0) / 25e3;
    // Chunks of eight reads, and a last one of two.
    let hot = f64::from(16 * (262_144 / 3) + 65_536 / 3);
    let streamed = 10.0 + (8_192.0 + hot) / 25e3;
    let found = limit(&program, &disk, "flat-10ms-25mbs");
    assert!(is_about(found.0, first + 700.0) && is_about(found.1, streamed), "{found:?}");
    // 9.3 ms each on a slow link: it waits for the last one, and has 55 ms to do then.
    let streamed = 1.0 + (8_192.0 + hot) / 1_176.853_05;
    let found = limit(&program, &disk, "lan-10m");
    assert!(is_about(found.0, streamed + 55.0) && is_about(found.1, streamed), "{found:?}");
    // Without the hot region the same blocks are a quarter of each window, and no tables precede them.
    let cold = 130.0 * f64::from(131_072 / 3) / 4.0;
    let found = limit(&program, &Disk::Image(image(false)), "lan-10m");
    assert!(is_about(found.1, 1.0 + cold / 1_176.853_05), "{found:?}");
}

#[test]
fn processes_that_compute_while_one_waits_need_less() {
    let medium = Medium::parse("flat-10ms-25mbs").expect("known");
    let of = |overlap_ms| {
        let program = Program { reads: vec![call(0, 0)], own_time: Nanos::from_millis(400) };
        let overlap = Nanos::from_millis(overlap_ms);
        let limit = Limit::new(&program, &Disk::Raw, DISK, medium, overlap);
        limit.expect("it fits").expect("it is modelled").ready
    };
    assert_eq!(of(0) - of(4), Nanos::from_millis(4));
    assert_eq!(of(500), Nanos::from_millis(400));
}

/// A program that reads here and there, some of it twice.
fn random_program(prng: &mut Prng) -> Program {
    // Reads that are not the same do not overlap.
    let spots = DISK / BLOCK_BYTES / 16;
    let (mut reads, mut own): (Vec<ProgramRead>, u64) = (Vec::new(), 0);
    let longest_us = 1 + prng.below(20_000);
    for _ in 0..1 + prng.below(150) {
        own += prng.below(longest_us);
        let after = Nanos(own * 1_000);
        let spot = prng.below(spots);
        let read = match reads.get(prng.below(4 * reads.len() as u64 + 1) as usize) {
            Some(read) => ProgramRead { after, ..*read },
            None if reads.iter().any(|read| read.block / 16 == spot) => continue,
            None => ProgramRead { after, block: spot * 16 + prng.below(4), blocks: 1 + prng.below(12) },
        };
        reads.push(read);
    }
    Program { reads, own_time: Nanos((own + prng.below(longest_us)) * 1_000) }
}

/// What a profile of the program brings to the front, without a part of it, and with something else.
fn random_hot(program: &Program, prng: &mut Prng) -> Vec<ProgramRead> {
    let (mut hot, missing): (Vec<ProgramRead>, u64) = (Vec::new(), prng.below(3));
    let other = if prng.below(2) == 0 { random_program(prng).reads } else { Vec::new() };
    let program = program.reads.iter().filter(|_| prng.below(8) >= missing);
    for read in program.copied().collect::<Vec<_>>().into_iter().chain(other) {
        if hot.iter().all(|known| known.block / 16 != read.block / 16) {
            hot.push(read);
        }
    }
    hot
}

#[test]
fn no_start_is_quicker_than_its_limit() {
    const MEDIA: [&str; 11] = [
        "cd-24x-cav",
        "hdd-7200",
        "flat-10ms-25mbs",
        "flat-10ms-25mbs-serial",
        "usb2-stick",
        "sd-uhs1",
        "emmc-2012",
        "ssd-sata",
        "nvme",
        "lan-10m",
        "wan-20ms",
    ];
    for seed in 1..=60 {
        let mut prng = Prng::new(seed);
        let program = random_program(&mut prng);
        let disks = [Vec::new(), random_hot(&program, &mut prng)].map(|hot| Disk::Image(image_of(hot)));
        for disk in disks.into_iter().chain([Disk::Raw]) {
            for medium in MEDIA {
                let (ready, _) = limit(&program, &disk, medium);
                let start = run(&prediction(&program, &disk, medium)).slowest();
                let simulated = start.ready.as_secs_f64() * 1e3;
                assert!(ready <= simulated, "seed {seed}, {medium}: {ready} of {start:?}");
                assert!(ready >= program.own_time.as_secs_f64() * 1e3, "seed {seed}, {medium}");
            }
        }
    }
}
