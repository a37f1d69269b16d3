//! Building, optimizing, verifying and inspecting images.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

use hs_trace::{BlockDigest, Profile, Read};
use hs_units::{BlockRange, Digest, Lba, Nanos};
use rustix::process::Signal;

use crate::scene::{Running, Scene, headstart, run, wait_until};

/// Writes a profile that read these blocks of the disk, one by one.
pub(crate) fn write_profile(
    scene: &Scene,
    name: &str,
    image: &str,
    disk: &[u8],
    blocks: impl Iterator<Item = u64>,
) {
    let timed = blocks.enumerate().map(|(number, lba)| (Nanos(number as u64), lba));
    write_timed_profile(scene, name, image, disk, timed);
}

/// Writes a profile that read these blocks of the disk at these times, one by one.
pub(crate) fn write_timed_profile(
    scene: &Scene,
    name: &str,
    image: &str,
    disk: &[u8],
    blocks: impl Iterator<Item = (Nanos, u64)>,
) {
    let inspected = run(["inspect", "--json", &scene.arg(image)]).ok().json();
    let digest: Digest =
        inspected["disk_digest"].as_str().and_then(|text| text.parse().ok()).expect("a digest");
    let read = |(at, lba)| Read { at, blocks: BlockRange::new(Lba(lba), 1), cost: Nanos(1) };
    let reads: Vec<Read> = blocks.map(read).collect();
    let mut profile = Profile {
        disk_digest: digest,
        disk_bytes: disk.len() as u64,
        ended: reads.last().map_or(Nanos::ZERO, |read| read.at + read.cost),
        reads,
        ..Profile::default()
    };
    let of_block = |lba: Lba| BlockDigest::of(&disk[lba.byte_offset() as usize..][..4096]);
    profile.digests = profile.first_access().into_iter().map(of_block).collect();
    fs::write(scene.path(name), profile.encode().expect("a good profile")).expect("written");
}

#[test]
fn an_image_goes_through_its_whole_life() {
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 500, 1);
    write_profile(&scene, "start.hsp", "cold.hsi", &disk, (0..50).map(|i| i * 7 % 500));
    let (cold, hot, built) = (scene.arg("cold.hsi"), scene.arg("hot.hsi"), scene.arg("built.hsi"));
    let (raw, profile) = (scene.arg("disk.raw"), scene.arg("start.hsp"));
    let optimized = run(["optimize", &cold, "-p", &profile, "-o", &hot, "--json"]).ok().json();
    assert_eq!(optimized["hot_bytes"], 50 * 4096);
    run(["build", "--raw", &raw, "-o", &built, "--codec", "zstd:1", "-p", &profile]).ok();
    assert!(
        fs::read(&hot).expect("read") == fs::read(&built).expect("read"),
        "build --profile is build and optimize"
    );

    let verified = run(["verify", &hot, "--against", &raw, "--json"]).ok().json();
    assert_eq!(verified["compared_bytes"], disk.len());
    assert_eq!(verified["image_digest"], optimized["image_digest"]);
    let mut other = disk.clone();
    other[123 * 4096] ^= 1;
    fs::write(scene.path("other.raw"), other).expect("written");
    run(["verify", &hot, "--against", &scene.arg("other.raw")]).fails(1, &["hot.hsi", "other.raw", "123+1"]);
    fs::write(scene.path("other.raw"), &disk[..300 * 4096]).expect("written");
    let lengths = [disk.len(), 300 * 4096].map(|bytes| format!("{bytes}"));
    run(["verify", &hot, "--against", &scene.arg("other.raw")]).fails(1, &[&lengths[0], &lengths[1]]);

    let mut damaged = fs::read(&hot).expect("read");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(scene.path("damaged.hsi"), damaged).expect("written");
    run(["verify", &scene.arg("damaged.hsi")])
        .fails(1, &["damaged.hsi", "cold window", "expected digest", "found"]);
    assert_eq!(run(["inspect", &hot, "--json"]).ok().json()["logical_bytes"], disk.len());
    run(["inspect", &hot, "--csv"]).fails(1, &["--csv", "hot.hsi"]);
    let names = ["built.hsi", "cold.hsi", "damaged.hsi", "disk.raw", "hot.hsi", "other.raw", "start.hsp"];
    assert_eq!(scene.names(), names);
}

#[test]
fn several_recordings_of_a_start_become_one_order_and_say_what_each_adds() {
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 500, 8);
    write_profile(&scene, "a.hsp", "cold.hsi", &disk, 0..100);
    write_profile(&scene, "b.hsp", "cold.hsi", &disk, (0..60).chain(300..310).chain(60..100));
    let (cold, a, b) = (scene.arg("cold.hsi"), scene.arg("a.hsp"), scene.arg("b.hsp"));
    let optimize = |first: &str, second: &str, more: &[&str]| {
        let image = scene.arg("hot.hsi");
        let flags = ["optimize", &cold, "-p", first, "-p", second, "-o", &image, "--json"];
        let found = run([&flags, more].concat()).ok().json();
        run(["verify", &image, "--against", &scene.arg("disk.raw")]).ok();
        found
    };
    let merged = optimize(&a, &b, &[]);
    assert_eq!(
        (&merged["profiles"]["common_blocks"], &merged["profiles"]["all_blocks"]),
        (&100.into(), &110.into())
    );
    assert_eq!(merged["profiles"]["each"][0]["in_others"], 100);
    let other = &merged["profiles"]["each"][1];
    assert_eq!((&other["blocks"], &other["in_others"]), (&110.into(), &100.into()));
    assert_eq!(
        optimize(&b, &a, &[])["image_digest"],
        merged["image_digest"],
        "in whatever order they are given"
    );
    assert_ne!(optimize(&a, &b, &["--variants"])["image_digest"], merged["image_digest"]);
    let said = run(["optimize", &cold, "-p", &a, "-p", &b, "-o", &scene.arg("hot.hsi")]).ok().stdout;
    assert!(said.contains("10 of them (9.1%) would be missed"), "{said}");
}

#[test]
fn a_profile_of_another_disk_is_refused_naming_both() {
    let (ours, other) = (Scene::new(), Scene::new());
    ours.image("cold.hsi", 40, 2);
    let disk = other.image("cold.hsi", 40, 3);
    write_profile(&other, "start.hsp", "cold.hsi", &disk, 0..9);
    let digest = |scene: &Scene| {
        let inspected = run(["inspect", "--json", &scene.arg("cold.hsi")]).ok().json();
        inspected["disk_digest"].as_str().expect("a digest").to_owned()
    };
    let (expected, found) = (digest(&ours), digest(&other));
    let profile = other.arg("start.hsp");
    let said = [expected.as_str(), found.as_str()];
    run(["optimize", &ours.arg("cold.hsi"), "-p", &profile, "-o", &ours.arg("hot.hsi")]).fails(1, &said);
    run(["build", "--raw", &ours.arg("disk.raw"), "-o", &ours.arg("hot.hsi"), "-p", &profile])
        .fails(1, &said);
    assert_eq!(ours.names(), ["cold.hsi", "disk.raw"]);
}

/// Another build of the same root: some blocks have moved, some are gone.
#[test]
fn a_profile_of_a_similar_disk_is_used_for_what_the_disk_has_of_it() {
    let (old, new) = (Scene::new(), Scene::new());
    let disk = old.image("cold.hsi", 500, 9);
    write_profile(&old, "start.hsp", "cold.hsi", &disk, 100..200);
    let mut changed = disk.clone();
    changed[150 * 4096..].rotate_right(3 * 4096);
    changed[110 * 4096..120 * 4096].fill(0x77);
    fs::write(new.path("disk.raw"), &changed).expect("written");
    let (cold, hot, profile) = (new.arg("cold.hsi"), new.arg("hot.hsi"), old.arg("start.hsp"));
    run(["build", "--raw", &new.arg("disk.raw"), "-o", &cold]).ok();
    let made = run(["optimize", &cold, "-p", &profile, "-o", &hot, "--json"]).ok().json();
    let fitted = &made["fitted"][0];
    let zeroes = |disk: &[u8], blocks: std::ops::Range<usize>| {
        blocks.filter(|lba| disk[lba * 4096..][..4096].iter().all(|byte| *byte == 0)).count() as u64
    };
    let matched = fitted["matched_blocks"].as_u64().expect("a number");
    assert_eq!(fitted["blocks"], 100);
    // Blocks of zeros are found only where they lay; the random disk has few or none.
    assert!(matched <= 90 && matched + zeroes(&disk, 100..200) >= 90, "{made}");
    assert!(fitted["moved_blocks"].as_u64().is_some_and(|moved| (1..=50).contains(&moved)), "{made}");
    run(["verify", &hot, "--against", &new.arg("disk.raw")]).ok();
    let strict = ["optimize", &cold, "-p", &profile, "-o", &hot, "--min-match", "95"];
    run(strict).fails(1, &["start.hsp", "less than the 95%", "--min-match"]);
    let built = new.arg("built.hsi");
    let said = run(["build", "--raw", &new.arg("disk.raw"), "-o", &built, "-p", &profile]).ok().stdout;
    assert!(said.contains("was recorded on another disk"), "{said}");
    let strict = ["build", "--raw", &new.arg("disk.raw"), "-o", &built, "-p", &profile, "--min-match", "95"];
    run(strict).fails(1, &[&format!("; {built} is disk "), "less than the 95%"]);
}

/// What a profile of a few KiB claims is refused by its header, before its reads take memory.
#[test]
fn a_profile_of_a_much_larger_disk_is_refused_by_its_header() {
    let scene = Scene::new();
    scene.image("cold.hsi", 100, 11);
    let read = Read { at: Nanos(0), blocks: BlockRange::new(Lba(0), 201), cost: Nanos(0) };
    let digests = vec![BlockDigest::default(); 201];
    let profile = Profile { disk_bytes: 201 * 4096, reads: vec![read], digests, ..Profile::default() };
    let mut bytes = profile.encode().expect("a good profile");
    // The body is not what its digest says, which only reading it shows.
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(scene.path("large.hsp"), bytes).expect("written");
    let (cold, hot, raw, large) =
        (scene.arg("cold.hsi"), scene.arg("hot.hsi"), scene.arg("disk.raw"), scene.arg("large.hsp"));
    let words = ["another disk", "it has 201 blocks, and this disk has 100", "50%", "--min-match"];
    run(["optimize", &cold, "-p", &large, "-o", &hot]).fails(1, &words);
    run(["build", "--raw", &raw, "-p", &large, "-o", &hot]).fails(1, &words);
    run(["inspect", &large, "--layers", &cold]).fails(1, &["recorded on disk"]);
    run(["optimize", &cold, "-p", &large, "-o", &hot, "--min-match", "49"])
        .fails(1, &["not a usable profile"]);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 100, 4);
    // More than a pipe holds.
    write_profile(&scene, "start.hsp", "cold.hsi", &disk, (0..20_000).map(|i| i % 100));
    let mut inspecting = Running::start(["inspect", "--csv", &scene.arg("start.hsp")]);
    assert!(inspecting.printed().contains(','));
    assert!(inspecting.hang_up().success());
    let whole = run(["inspect", "--csv", &scene.arg("start.hsp")]).ok();
    assert_eq!(whole.stdout.lines().count(), 20_001);
}

/// Whether the process has a file without a name open in the folder: the image that it is writing.
fn is_writing(process: u32, folder: &Path) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    let mut targets = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    targets.any(|target| target.starts_with(folder) && target.to_string_lossy().ends_with("(deleted)"))
}

#[test]
fn a_build_that_is_ended_leaves_nothing() {
    let scene = Scene::new();
    scene.raw("disk.raw", 16_384, 5);
    for signal in [Signal::KILL, Signal::TERM, Signal::INT] {
        // Compression that takes so long that it still runs when a late test looks.
        let flags = ["-o", &scene.arg("out.hsi"), "--threads", "1", "--codec", "zstd:22"];
        let mut building = headstart(["build", "--raw", &scene.arg("disk.raw")].iter().chain(&flags))
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        wait_until("the image is being written", || is_writing(building.id(), &scene.path("")));
        let pid = rustix::process::Pid::from_child(&building);
        rustix::process::kill_process(pid, signal).expect("signalled");
        let status = building.wait().expect("ended");
        assert!(!status.success());
        let mut said = String::new();
        building.stderr.take().expect("piped").read_to_string(&mut said).expect("standard error");
        assert!(!said.contains("panicked"), "{said}");
        assert_eq!(scene.names(), ["disk.raw"], "after {signal:?}");
    }
}
