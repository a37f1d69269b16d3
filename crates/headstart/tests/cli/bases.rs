//! Images that do not store what the disk of another image has.

use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use hs_format::WindowRef;
use hs_image::Image;
use hs_store::FileStore;
use rustix::process::Signal;

use crate::images::write_profile;
use crate::mounts::umount;
use crate::scene::{Running, START, Scene, has_tools, machine_has, mount, run, wait_until};

const BLOCK: usize = 4096;
const WINDOW: usize = 131_072;
const BLOCKS: usize = 1000;

/// A scene with `base.hsi`, and `child.hsi` of a disk that differs from that in each tenth block.
fn related() -> (Scene, Vec<u8>) {
    let scene = Scene::new();
    scene.image("base.hsi", BLOCKS, 61);
    let mut disk = fs::read(scene.path("disk.raw")).expect("the disk");
    for block in disk.chunks_mut(BLOCK).skip(5).step_by(10) {
        block[..8].fill(0xee);
    }
    fs::write(scene.path("child.raw"), &disk).expect("written");
    let (raw, child, base) = (scene.arg("child.raw"), scene.arg("child.hsi"), scene.arg("base.hsi"));
    let words = ["build", "--raw", &raw, "-o", &child, "--codec", "zstd:1", "--base", &base, "--json"];
    let built = run(words).ok().json();
    assert_eq!(built["composed_windows"], BLOCKS.div_ceil(WINDOW / BLOCK));
    (scene, disk)
}

#[test]
fn a_disk_that_was_changed_is_its_changes() {
    let (scene, disk) = related();
    let size = |name: &str| fs::metadata(scene.path(name)).expect("there").len();
    assert!(size("child.hsi") * 6 < size("base.hsi"), "{} of {}", size("child.hsi"), size("base.hsi"));
    let (child, base, raw) = (scene.arg("child.hsi"), scene.arg("base.hsi"), scene.arg("child.raw"));
    let digest = run(["inspect", "--json", &base]).ok().json()["disk_digest"].clone();
    assert_eq!(run(["inspect", "--json", &child]).ok().json()["base_digest"], digest);
    let digest = digest.as_str().expect("a digest");
    run(["verify", &child, "--against", &raw, "--base", &base]).ok();

    // Without it, and with another one.
    scene.image("other.hsi", BLOCKS, 62);
    let (other, out, profile) = (scene.arg("other.hsi"), scene.arg("out"), scene.arg("start.hsp"));
    write_profile(&scene, "start.hsp", "child.hsi", &disk, 0..60);
    let socket = format!("unix:{}", scene.arg("socket"));
    for words in [
        &["verify", &child][..],
        &["optimize", &child, "-p", &profile, "-o", &out],
        &["export", &child, "-o", &out, "--format", "raw"],
        &["serve", &child, "--nbd", &socket],
    ] {
        run(words).fails(1, &["child.hsi", "it needs the image with disk digest", digest, "--base"]);
        let with_other = [words, &["--base", &other]].concat();
        run(with_other).fails(1, &["child.hsi", "other.hsi", digest, "--base"]);
        let with_itself = [words, &["--base", &child]].concat();
        run(with_itself).fails(1, &["child.hsi", "cannot be the base"]);
    }
    let tree = scene.folder("tree");
    for (source, flag) in [(&raw, "--base"), (&tree, "--base"), (&tree, "--like")] {
        let refused = run(["build", source, "-o", &out, flag, &child]);
        refused.fails(1, &["child.hsi", flag, "stands alone"]);
    }
    assert!(!scene.path("out").exists());
    // What is only not there is not damaged.
    let verified = run(["verify", &child]);
    assert!(!verified.stderr.contains("damaged"), "{verified:?}");

    // A recorded start is copied, so what was optimized is as good as without a base.
    let hot = scene.arg("hot.hsi");
    run(["optimize", &child, "-p", &profile, "-o", &hot, "--base", &base]).ok();
    run(["verify", &hot, "--against", &raw, "--base", &base]).ok();
    let built = scene.arg("built.hsi");
    let words = ["build", "--raw", &raw, "-o", &built, "--codec", "zstd:1", "-p", &profile, "--base", &base];
    run(words).ok();
    assert!(fs::read(&hot).expect("read") == fs::read(&built).expect("read"));
    run(["export", &hot, "-o", &out, "--format", "raw", "--base", &base]).ok();
    assert!(fs::read(&out).expect("read") == disk);
}

#[test]
fn a_server_reads_both() {
    if !has_tools(&["nbdcopy"]) {
        return;
    }
    let (scene, disk) = related();
    let (child, base, socket) = (scene.arg("child.hsi"), scene.arg("base.hsi"), scene.arg("socket"));
    let server = Running::start(["serve", &child, "--nbd", &format!("unix:{socket}"), "--base", &base]);
    wait_until("the server listens", || UnixStream::connect(&socket).is_ok());
    let (uri, copy) = (format!("nbd+unix:///?socket={socket}"), scene.arg("copy.raw"));
    let ran = Command::new("nbdcopy").args([&uri, &copy]).output().expect("nbdcopy starts");
    assert!(ran.status.success(), "{ran:?}");
    assert!(fs::read(&copy).expect("read") == disk);
    server.signal(Signal::TERM);
    let (status, _, said) = server.end();
    assert!(status.success(), "{said}");
}

/// Where the chunk of a window lies in an image.
fn chunk_at(path: &Path, window: u64) -> u64 {
    let image = Image::open(Arc::new(FileStore::open(path).expect("the image"))).expect("an image");
    let Ok(WindowRef::Chunk(chunk)) = image.window(window) else { panic!("window {window} is stored") };
    image.cold_range(&chunk).offset
}

#[test]
fn a_mount_reads_both_and_a_damaged_base_is_an_error_of_its_blocks() {
    if !machine_has(&[]) {
        return;
    }
    let (scene, disk) = related();
    let (child, base, dir) = (scene.arg("child.hsi"), scene.arg("base.hsi"), scene.folder("dir"));
    mount(&scene, &[&child, &dir]).fails(1, &["child.hsi", "it needs the image", "--base"]);
    assert!(scene.mounts().is_empty(), "{:?}", scene.mounts());
    let check = |lost: Option<usize>| {
        let file = fs::File::open(scene.path("dir/disk.img")).expect("the disk");
        let mut found = vec![0; BLOCK];
        for (lba, expected) in disk.chunks(BLOCK).enumerate() {
            let is_lost = lost == Some(lba / (WINDOW / BLOCK));
            match file.read_exact_at(&mut found, (lba * BLOCK) as u64) {
                Ok(()) => assert!(!is_lost && found == expected, "block {lba}"),
                Err(error) => {
                    assert!(is_lost && error.raw_os_error() == Some(libc::EIO), "block {lba}: {error}");
                }
            }
        }
    };
    mount(&scene, &[&child, &dir, "--base", &base]).ok();
    check(None);
    umount(&dir);
    scene.wait_until_clean();

    // The base lies there with a byte changed.
    let spoiled = scene.arg("spoiled.hsi");
    fs::copy(&base, &spoiled).expect("copied");
    let file = fs::File::options().read(true).write(true).open(&spoiled).expect("opened");
    let (at, mut byte) = (chunk_at(&scene.path("base.hsi"), 7) + 100, [0]);
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 1], at).expect("written");
    let mut serving = Running::start(["mount", "--foreground", &child, &dir, "--base", &spoiled]);
    let mut said = String::new();
    while !said.contains("umount") {
        let line = serving.said();
        assert!(!line.is_empty(), "it did not mount: {said}");
        said += &line;
    }
    check(Some(7));
    serving.signal(Signal::TERM);
    let (status, _, said) = serving.end();
    assert!(status.success(), "{said}");
    for word in ["child.hsi", "spoiled.hsi", "cold window 7", "expected digest"] {
        assert!(said.contains(word), "no '{word}' in {said}");
    }
    scene.wait_until_clean();
}

#[test]
fn programs_start_from_an_image_with_a_base() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let (base, raw, child) = (scene.root("base.hsi"), scene.arg("disk.raw"), scene.arg("child.hsi"));
    run(["export", &base, "-o", &raw, "--format", "raw"]).ok();
    run(["build", "--raw", &raw, "-o", &child, "--base", &base, "--window", "16K"]).ok();
    let command = ["--", "cat", "/etc/motd"];
    run([&["run", &child][..], &command].concat()).fails(1, &["child.hsi", "it needs the image", "--base"]);
    let started = run([&["run", &child, "--base", &base][..], &command].concat()).ok();
    assert_eq!(started.stdout, "hello from the image\n");
    let (profile, hot) = (scene.arg("start.hsp"), scene.arg("hot.hsi"));
    run([&["profile", &child, "--base", &base, "-o", &profile][..], &command].concat()).ok();
    run(["optimize", &child, "-p", &profile, "-o", &hot, "--base", &base]).ok();
    run([&["run", &hot, "--base", &base][..], &command].concat()).ok();
    scene.wait_until_clean();
}
