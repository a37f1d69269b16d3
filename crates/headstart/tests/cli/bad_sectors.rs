//! Media with sectors that cannot be read.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use hs_format::WindowRef;
use hs_image::Image;
use hs_store::FileStore;
use hs_units::{ByteRange, Lba};
use rustix::process::Signal;

use crate::images::write_profile;
use crate::scene::{Running, START, Scene, machine_has, run};

const BLOCKS: usize = 2_000;
const BLOCK: usize = 4096;
const WINDOW: usize = 131_072;

fn image(path: &Path) -> Image {
    Image::open(Arc::new(FileStore::open(path).expect("the image"))).expect("an image")
}

fn cold_chunk(image: &Image, window: u64) -> ByteRange {
    let Ok(WindowRef::Chunk(chunk)) = image.window(window) else { panic!("window {window} is stored") };
    image.cold_range(&chunk)
}

/// A scene with an image `hot.hsi` whose disk is hot from window 20 on, and that disk.
fn optimized() -> (Scene, Vec<u8>) {
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", BLOCKS, 51);
    let hot = (20 * WINDOW / BLOCK) as u64..BLOCKS as u64;
    write_profile(&scene, "some.hsp", "cold.hsi", &disk, hot);
    let arguments =
        ["optimize", &scene.arg("cold.hsi"), "-p", &scene.arg("some.hsp"), "-o", &scene.arg("hot.hsi")];
    run(arguments.iter().chain(&["--max-chunk", "64K", "--codec", "zstd:1"])).ok();
    (scene, disk)
}

/// Reads a file block by block: those of `is_lost` fail with EIO, the others are right.
fn check_blocks(file: &Path, disk: &[u8], is_lost: impl Fn(usize) -> bool) {
    let file = fs::File::open(file).expect("opened");
    let mut found = vec![0; BLOCK];
    for (lba, expected) in disk.chunks(BLOCK).enumerate() {
        match file.read_exact_at(&mut found, (lba * BLOCK) as u64) {
            Ok(()) => assert!(!is_lost(lba) && found == expected, "block {lba}"),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EIO), "block {lba}");
                assert!(is_lost(lba), "block {lba}: {error}");
            }
        }
    }
}

/// The program's output until it has mounted.
fn until_mounted(serving: &mut Running) -> String {
    let mut said = String::new();
    while !said.contains("umount") {
        let line = serving.said();
        assert!(!line.is_empty(), "it did not mount: {said}");
        said += &line;
    }
    said
}

/// Serves with these arguments while `look` runs; returns the server's output.
fn serving(scene: &Scene, arguments: &[&str], look: impl FnOnce()) -> String {
    let mut serving = Running::start(arguments);
    let before = until_mounted(&mut serving);
    look();
    serving.signal(Signal::TERM);
    let (status, _, said) = serving.end();
    assert!(status.success(), "{said}");
    scene.wait_until_clean();
    before + &said
}

#[test]
fn unreadable_hot_chunks_are_read_from_their_cold_copies() {
    if !machine_has(&[]) {
        return;
    }
    let (scene, disk) = optimized();
    let hot = image(&scene.path("hot.hsi"));
    let places: Vec<String> = (1..hot.hot_chunk_count())
        .step_by(5)
        .map(|chunk| format!("--bad-sectors={}", ByteRange::new(hot.hot_chunk(chunk).1.offset + 7, 1)))
        .collect();
    let tables = hot.superblock().hot[0].index;
    let index = [format!("--bad-sectors={tables}")];
    let dir = scene.folder("dir");
    for prefetch in ["push", "hold", "off"] {
        for (bad, words) in [(&places[..], "are read elsewhere"), (&index, "without its hot region")] {
            let hot = scene.arg("hot.hsi");
            let mut arguments = vec!["mount", "-f", &hot, &dir, "--prefetch", prefetch];
            arguments.extend(bad.iter().map(String::as_str));
            let said = serving(&scene, &arguments, || {
                assert!(fs::read(scene.path("dir/disk.img")).expect("read") == disk);
                let status = run(["status", "--json", &dir]).ok().json().to_string();
                assert!(
                    status.contains("\"store_retries\":") && !status.contains("\"store_errors\":0"),
                    "{status}"
                );
            });
            let lines = said.lines().filter(|line| line.contains(words)).count();
            assert_eq!(lines, bad.len(), "{prefetch}: {said}");
        }
    }
}

#[test]
fn an_unreadable_cold_chunk_is_an_error_to_who_reads_its_window_and_to_nobody_else() {
    if !machine_has(&[]) {
        return;
    }
    let (scene, disk) = optimized();
    // One window that is only cold, and one that is hot as well.
    let hot = image(&scene.path("hot.hsi"));
    assert!(hot.hot_place(Lba((5 * WINDOW / BLOCK) as u64)).is_none());
    let bad = [5, 30]
        .map(|window| format!("--bad-sectors={}", ByteRange::new(cold_chunk(&hot, window).offset, 2_048)));
    let (dir, path) = (scene.folder("dir"), scene.arg("hot.hsi"));
    let in_window = |lba: usize| lba * BLOCK / WINDOW == 5;
    for _ in 0..2 {
        let said = serving(&scene, &["mount", "-f", &path, &dir, &bad[0], &bad[1]], || {
            check_blocks(&scene.path("dir/disk.img"), &disk, in_window);
        });
        let lines: Vec<&str> =
            said.lines().filter(|line| line.contains("blocks 160+32 of the disk")).collect();
        let [line] = lines[..] else { panic!("one line: {said}") };
        assert!(line.contains("hot.hsi") && line.contains("Input/output error"), "{line}");
    }
}

#[test]
fn what_can_be_read_at_the_third_try_is_read() {
    if !machine_has(&[]) {
        return;
    }
    let (scene, disk) = optimized();
    let hot = image(&scene.path("hot.hsi"));
    let bad = [0, 9, 25].map(|window| format!("--bad-sectors={}x2", cold_chunk(&hot, window)));
    let (dir, path) = (scene.folder("dir"), scene.arg("hot.hsi"));
    let arguments = ["mount", "-f", &path, &dir, "--prefetch", "off", "--medium", "flat-1ms-100mbs"];
    let arguments =
        [&arguments[..], &bad.each_ref().map(String::as_str), &["--bad-sectors=0+4096x2"]].concat();
    let said = serving(&scene, &arguments, || {
        check_blocks(&scene.path("dir/disk.img"), &disk, |_| false);
        let status = run(["status", "--json", &dir]).ok().json().to_string();
        assert!(status.contains("\"store_errors\":0"), "{status}");
    });
    assert!(said.contains("could be read at try 3"), "{said}");
}

/// Errors of the kernel's own: the image lies in a file whose reads fail.
#[test]
fn a_real_medium_with_unreadable_sectors_is_no_different() {
    if !machine_has(&[]) {
        return;
    }
    let (scene, disk) = optimized();
    let hot = image(&scene.path("hot.hsi"));
    // One hot chunk, one cold window, and the superblock. The kernel reads whole pages, so what shares one
    // with a bad place is lost with it.
    let inside = cold_chunk(&hot, 7).offset.next_multiple_of(4096);
    let bad = [ByteRange::new(0, 4096), hot.hot_chunk(3).1, ByteRange::new(inside, 1)]
        .map(|range| format!("--bad-sectors={range}"));
    let (medium, dir, path) = (scene.folder("medium"), scene.folder("dir"), scene.arg("hot.hsi"));
    let disk_arguments = ["lab", "disk", &path, &medium, "--medium", "none", "--json"];
    let mut lab = Running::start([&disk_arguments[..], &bad.each_ref().map(String::as_str)].concat());
    assert!(lab.said().contains("umount"));
    let shown = scene.arg("medium/hot.hsi");
    run(["verify", &shown]).fails(1, &["hot.hsi", "Input/output error"]);
    let said = {
        let mut serving = Running::start(["mount", "-f", &shown, &dir]);
        let before = until_mounted(&mut serving);
        assert!(before.contains("mirror"), "{before}");
        check_blocks(&scene.path("dir/disk.img"), &disk, |lba| lba * BLOCK / WINDOW == 7);
        serving.signal(Signal::TERM);
        before + &serving.end().2
    };
    assert!(said.contains("blocks 224+32 of the disk"), "{said}");
    lab.signal(Signal::TERM);
    let (status, printed, _) = lab.end();
    assert!(status.success());
    let counted: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    assert!(counted["store_errors"].as_u64().is_some_and(|errors| errors > 2), "{counted}");
    scene.wait_until_clean();
}

#[test]
fn a_command_runs_from_an_image_whose_hot_region_cannot_be_read() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let (root, profile, fast) = (scene.root("root.hsi"), scene.arg("start.hsp"), scene.arg("fast.hsi"));
    let command = ["--", "/bin/md5sum", "/etc/motd"];
    run([&["profile", &root, "-o", &profile], &command[..]].concat()).ok();
    run(["optimize", &root, "-p", &profile, "-o", &fast]).ok();
    let summary = scene.arg("summary.json");
    let right = run([&["run", &fast], &command[..]].concat()).ok().stdout;
    let hot = image(&scene.path("fast.hsi")).superblock().hot[0].chunks;
    let bad = format!("{hot}");
    let ran =
        run([&["run", &fast, "--bad-sectors", &bad, &format!("--json={summary}")], &command[..]].concat())
            .ok();
    assert_eq!(ran.stdout, right);
    let text = fs::read_to_string(&summary).expect("the summary");
    let summary: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(summary["store_errors"].as_u64().is_some_and(|errors| errors > 0), "{summary}");
    assert!(summary["store_retries"].as_u64().is_some_and(|retries| retries > 0), "{summary}");
    assert_eq!(summary["failed_requests"], 0, "{summary}");
    scene.wait_until_clean();
}

#[test]
fn places_that_are_none_are_refused() {
    let scene = Scene::new();
    scene.raw("disk.raw", 10, 1);
    let (file, folder) = (scene.arg("disk.raw"), scene.folder("folder"));
    for wrong in ["10M", "1+0", "1+1x0", "one+two"] {
        run(["mount", &file, &folder, "--bad-sectors", wrong]).fails(2, &[wrong, "--bad-sectors"]);
    }
    run(["boot", &file, "--warm", "--bad-sectors", "0+1"]).fails(2, &["--warm", "--bad-sectors"]);
    let arguments = ["lab", "disk", &file, &folder, "--medium", "none", "--bad-sectors", "40K+1"];
    run(arguments).fails(1, &["disk.raw", "40960", "no sectors"]);
}
