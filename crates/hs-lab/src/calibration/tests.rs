use hs_device::{ModelKind, SsdRates, SsdSpec};

use super::*;

const FILE: u64 = 256 * MIB;

/// What the probes would find on a medium, in a second each.
fn probed(medium: &Medium) -> Vec<Measured> {
    let one = |probe: Probe| {
        let device = medium.device(FILE).expect("fits").expect("modelled");
        let mut replay = Replay::new(Replayed::Readable(device), Pace::Depth(probe.threads));
        let reads = if probe.bytes < MIB { 600 } else { 60 };
        for range in Places::new(probe, FILE, 1).take(reads) {
            replay.handle(&BlockRequest { at: Nanos::ZERO, writes: false, range });
        }
        Measured { probe, reads: reads as u64, time: replay.finish().ended }
    };
    PROBES.iter().copied().map(one).collect()
}

fn named() -> ModelName {
    ModelName::new("again").expect("a name")
}

/// The model found for a medium, and by which factor each probe is off.
fn found(medium: &Medium) -> (Model, Vec<f64>) {
    let measured = probed(medium);
    let model = fit(named(), FILE, &measured);
    let off = |each: &Measured| {
        let ratio = modelled(&model, FILE, each, 1).as_secs_f64() / each.time.as_secs_f64();
        ratio.max(1.0 / ratio)
    };
    let off: Vec<f64> = measured.iter().map(off).collect();
    (model, off)
}

#[test]
fn a_model_is_found_again() {
    for (queued, latency) in [(true, 80_000), (false, 0)] {
        for stream in [None, std::num::NonZeroU64::new(100_000_000).filter(|_| queued)] {
            let read = SsdRates { bytes_per_s: 400_000_000, sequential_per_s: 50_000, random_per_s: 20_000 };
            let kind = ModelKind::Ssd(SsdSpec {
                read,
                write: read,
                latency: Nanos(latency),
                stream_bytes_per_s: stream,
                queued,
                apart: !queued,
            });
            let model = Model { name: named(), capacity_bytes: Some(FILE), kind };
            let (found, off) = found(&Medium::Model(model));
            assert!(matches!(found.kind, ModelKind::Ssd(_)), "{found:?}");
            assert!(off.iter().all(|off| *off < 1.1), "{off:?}");
        }
    }
}

/// Disks and telephones' flash, whose time depends on the step: the right class is found, its figures, and
/// what other probes take.
#[test]
fn media_whose_time_depends_on_the_step_are_found() {
    for (name, worst) in [("hdd-7200", 1.5), ("hdd-2010", 1.5), ("emmc-2010", 1.1), ("emmc-2012", 1.1)] {
        let medium = Medium::parse(name).expect("known");
        let (model, mut off) = found(&medium);
        match model.kind {
            ModelKind::Disk(spec) => {
                let turns = 60e9 / spec.turn.0 as f64;
                assert!(name.starts_with("hdd") && (turns / 7_200.0 - 1.0).abs() < 0.05, "{name}: {turns}");
            }
            ModelKind::Emmc(spec) => {
                assert!(name.starts_with("emmc"), "{name}: {spec:?}");
                assert!((spec.page_read.0 as f64 / 75_000.0 - 1.0).abs() < 0.1, "{name}: {spec:?}");
            }
            other => panic!("{name}: {other:?}"),
        }
        off.sort_by(f64::total_cmp);
        assert!(off[off.len() / 2] < 1.1 && off[off.len() - 1] < worst, "{name}: {off:?}");
    }
}

#[test]
fn a_cd_drive_is_found_as_a_disk() {
    let (model, mut off) = found(&Medium::Cd24xCav);
    let ModelKind::Disk(spec) = model.kind else { panic!("{model:?}") };
    // 4,722 turns a minute.
    assert!((60e9 / spec.turn.0 as f64 / 4_722.0 - 1.0).abs() < 0.05, "{spec:?}");
    off.sort_by(f64::total_cmp);
    assert!(off[off.len() / 2] < 1.2, "{off:?}");
}

#[test]
fn places_lie_in_the_file() {
    for probe in PROBES {
        for file_bytes in [MIB, 3 * MIB + 5, FILE] {
            let places: Vec<ByteRange> = Places::new(probe, file_bytes, 3).take(600).collect();
            assert!(places.iter().all(|place| place.fits_in(file_bytes)), "{}", probe.name);
        }
    }
    let shuffle = PROBES.into_iter().find(|probe| probe.name == "shuffle").expect("it is one");
    let shuffled = Places::new(shuffle, 100 * MIB, 3).take(100);
    let distinct: std::collections::BTreeSet<u64> = shuffled.map(|place| place.offset).collect();
    assert_eq!(distinct.len(), 100, "each place once");
}

/// How a probe of two seconds goes, whose reads end at `ends`.
fn course(ends: impl IntoIterator<Item = Nanos>) -> Course {
    let mut course = Course::new(Nanos::from_millis(2_000));
    ends.into_iter().for_each(|end| course.note(end));
    course
}

/// When reads of 4 KiB end behind a bucket of tokens: `saved` reads at `burst`, the rest at `sustained` a
/// second.
fn bucket(saved: u64, burst: f64, sustained: f64) -> impl Iterator<Item = Nanos> {
    let end = move |read: u64| {
        let paid = read.saturating_sub(saved) as f64 / sustained;
        Nanos::from_secs_f64(read.min(saved) as f64 / burst + paid)
    };
    (1..).map(end).take_while(|end| *end <= Nanos::from_millis(2_010))
}

#[test]
fn a_bucket_of_tokens_shows_and_the_sustained_rate_is_measured() {
    let probe = PROBES[3];
    for (saved, burst, sustained) in
        [(3_000, 3_000.0, 400.0), (500, 1_000.0, 500.0), (20_000, 40_000.0, 20_000.0)]
    {
        let (measured, found) = course(bucket(saved, burst, sustained)).measured(probe);
        let found = found.expect("it became slower");
        let rate = measured.reads as f64 / measured.time.as_secs_f64();
        assert!((rate / sustained - 1.0).abs() < 0.1, "{rate} {found:?}");
        assert!((found.burst_per_s / burst - 1.0).abs() < 0.1, "{found:?}");
        assert!((found.after.as_secs_f64() - saved as f64 / burst).abs() < 0.1, "{found:?}");
    }
}

#[test]
fn a_steady_or_uneven_device_shows_no_bucket() {
    let probe = PROBES[3];
    // Empty before the probe begins, or not within it.
    for steady in [bucket(0, 3_000.0, 400.0), bucket(1 << 40, 3_000.0, 400.0), bucket(0, 1.0, 5.0)] {
        let (measured, found) = course(steady).measured(probe);
        assert_eq!(found, None);
        assert!(measured.time <= Nanos::from_millis(2_010) && measured.reads > 0);
    }
    // It becomes quicker, or stalls for a while in the middle, or at the end.
    let quicker = bucket(400, 400.0, 3_000.0);
    let stalls = |from: u64, until: u64| {
        (0..2_000).map(Nanos::from_millis).filter(move |end| !(from..until).contains(&(end.0 / 1_000_000)))
    };
    assert_eq!(course(quicker).measured(probe).1, None);
    for (from, until) in [(700, 900), (1_000, 1_600), (1_700, 1_990)] {
        let ends = stalls(from, until).chain([Nanos::from_millis(2_001)]);
        assert_eq!(course(ends).measured(probe).1, None, "{from} to {until}");
    }
}

/// No model of a medium is taken for a bucket: what its time depends on is the place.
#[test]
fn no_medium_is_taken_for_a_bucket() {
    for name in ["cd-24x-cav", "hdd-7200", "emmc-2012", "ssd-sata", "usb2-stick"] {
        let medium = Medium::parse(name).expect("known");
        for probe in PROBES {
            let device = medium.device(FILE).expect("fits").expect("modelled");
            let mut places = Places::new(probe, FILE, 1);
            let mut course = Course::new(Nanos::from_millis(1_000));
            let mut device = device;
            let mut readers = vec![Nanos::ZERO; probe.threads as usize];
            loop {
                readers.sort_unstable();
                if readers[0] > Nanos::from_millis(1_000) {
                    break;
                }
                let done = device.submit(readers[0], places.next().expect("without end")).done;
                readers[0] = done;
                course.note(done);
            }
            assert_eq!(course.measured(probe).1, None, "{name}: {}", probe.name);
        }
    }
}
