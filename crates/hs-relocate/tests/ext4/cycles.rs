//! Upgrades and layouts in turns: the file system does not get worse.

use hs_device::Medium;
use hs_relocate::Outcome;
use hs_testing::{Test, noise};
use hs_units::{ByteRange, Prng};

use crate::mounted::{Mounted, name};

pub(crate) const TESTS: &[Test] = &[(
    "upgrades_and_layouts_do_not_wear_a_file_system_out",
    upgrades_and_layouts_do_not_wear_a_file_system_out,
)];

const CYCLES: u64 = 20;
const FILES: u64 = 150;

/// The drive that reads whole files, and what it is asked for at once.
const DRIVE: &str = "hdd-7200";
const REQUEST_BYTES: u64 = 128 << 10;
/// In so many orders of the files.
const ORDERS: usize = 5;

/// What a reader of all files meets, and what is free.
fn measure(mounted: &Mounted) -> (u64, u64) {
    let fragments = (0..FILES).map(|number| mounted.fragments(&name(number))).sum::<u64>();
    (fragments + mounted.fragments("large"), mounted.free_bytes())
}

/// Milliseconds in which a drive reads these files whole, one after the other.
fn reading_ms(mounted: &Mounted, files: &[String]) -> u64 {
    let mut requests = Vec::new();
    for extent in files.iter().flat_map(|name| mounted.extents(name)) {
        let end = extent.physical + extent.length;
        let starts = (extent.physical..end).step_by(REQUEST_BYTES as usize);
        requests.extend(starts.map(|start| ByteRange::new(start, REQUEST_BYTES.min(end - start))));
    }
    let drive = Medium::parse(DRIVE).expect("a model");
    let took = drive.delivery(mounted.bytes(), &requests).expect("it fits").expect("a model");
    took.0 / 1_000_000
}

/// Replaces some files by others of other lengths, as an upgrade of packages does: written anew, and renamed.
fn upgrade(mounted: &Mounted, cycle: u64) {
    let mut prng = Prng::new(1000 + cycle);
    for _ in 0..30 {
        let (number, bytes) = (prng.below(FILES), 1 + prng.below(60_000) as usize);
        mounted.write("new", &noise(bytes, prng.next_u64()));
        std::fs::rename(mounted.path("new"), mounted.path(&name(number))).expect("renamed");
    }
}

fn upgrades_and_layouts_do_not_wear_a_file_system_out() {
    let (with, without) = (Mounted::new(128, &[]), Mounted::new(128, &[]));
    let mut moved = 0;
    for mounted in [&with, &without] {
        mounted.scatter(FILES, 40);
        mounted.write("large", &noise(20 << 20, 41));
    }
    for cycle in 0..CYCLES {
        upgrade(&with, cycle);
        upgrade(&without, cycle);
        let mut wanted = with.start(FILES, 42);
        wanted.insert(FILES as usize / 2, with.run("large", 2000, 100));
        let report = with.relocate(&wanted).expect("relocated");
        assert!(report.after.seeks * 5 <= FILES, "cycle {cycle}: {report:?}");
        moved += u64::from(report.outcome == Outcome::Moved);
    }
    assert!(moved > CYCLES / 2, "each upgrade scatters it: {moved}");
    let ((fragments, free_bytes), (fragments_without, free_without)) = (measure(&with), measure(&without));
    assert!(fragments * 10 <= fragments_without * 11, "{fragments} fragments instead of {fragments_without}");
    assert!(free_bytes * 11 >= free_without * 10, "{free_bytes} bytes free instead of {free_without}");
    // Orders that neither the files nor the start have.
    let mut files: Vec<String> = (0..FILES).map(name).chain(["large".to_owned()]).collect();
    let mut prng = Prng::new(43);
    let (mut reading, mut reading_without) = (0, 0);
    for _ in 0..ORDERS {
        (1..files.len()).rev().for_each(|at| files.swap(at, prng.below(at as u64 + 1) as usize));
        reading += reading_ms(&with, &files);
        reading_without += reading_ms(&without, &files);
    }
    assert!(reading * 10 <= reading_without * 11, "{reading} ms instead of {reading_without}");
    with.check();
}
