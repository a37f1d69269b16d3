//! Layouts of recorded starts on mounted file systems, by the program; power cuts in their middle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use hs_testing::noise;
use hs_units::Prng;
use rustix::process::Signal;

use crate::mounts::umount;
use crate::recorded_ext4::{Event, Medium};
use crate::scene::{Running, START, Scene, has_tools, machine_has, run, tool, wait_until};

/// So many times the power is cut; or as often as this variable says.
const CUTS: u64 = 20;
const CUTS_VARIABLE: &str = "POWER_CUTS";
/// What a disk writes whole, or not at all.
const SECTOR_BYTES: usize = 512;
const FILES: u64 = 120;

fn machine() -> bool {
    machine_has(&[START, &["/dev/loop-control"]].concat())
        && has_tools(&["mkfs.ext4", "e2fsck", "mount", "sync"])
}

/// Makes `disk.raw`, an ext4 with busybox and files that lie scattered, its image, and the profile of a
/// program that reads them in another order.
fn recorded(scene: &Scene) {
    let (raw, root) = (scene.arg("disk.raw"), scene.folder("root"));
    File::create(&raw).and_then(|file| file.set_len(64 << 20)).expect("a disk");
    // Profiles know blocks of 4096 bytes.
    tool("mkfs.ext4", &["-q", "-F", "-b", "4096", &raw]);
    tool("mount", &["-o", "loop", &raw, &root]);
    let root = Path::new(&root);
    for name in ["bin", "dev", "proc", "sys", "tmp", "etc", "files", "between"] {
        fs::create_dir(root.join(name)).expect("a folder");
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox");
    let mut prng = Prng::new(50);
    for number in 0..FILES {
        let bytes = |most| 1 + Prng::new(number).below(most) as usize;
        fs::write(root.join(format!("files/{number}")), noise(bytes(60_000), number)).expect("written");
        fs::write(root.join(format!("between/{number}")), noise(bytes(40_000), 1)).expect("written");
    }
    tool("sync", &["-f", &root.display().to_string()]);
    fs::remove_dir_all(root.join("between")).expect("deleted");
    umount(&root.display().to_string());
    let mut order: Vec<u64> = (0..FILES).collect();
    (1..order.len()).rev().for_each(|at| order.swap(at, prng.below(at as u64 + 1) as usize));
    let names: Vec<_> = order.iter().map(|number| format!("/files/{number} ")).collect();
    let (image, profile) = (scene.arg("disk.hsi"), scene.arg("start.hsp"));
    run(["build", &raw, "-o", &image, "--codec", "zstd:1"]).ok();
    let script = format!("/bin/busybox cat {}>/dev/null", names.concat());
    run(["-q", "profile", &image, "-o", &profile, "--", "/bin/busybox", "sh", "-c", &script]).ok();
}

fn relocate(scene: &Scene, words: &[&str]) -> crate::scene::Ran {
    let (root, profile) = (scene.arg("root"), scene.arg("start.hsp"));
    run(["accelerate", "now", "--root", &root, "-p", &profile].iter().chain(words))
}

/// What is read from the files below a folder.
fn contents(root: &Path) -> BTreeMap<u64, Vec<u8>> {
    let read = |number| (number, fs::read(root.join(format!("files/{number}"))).unwrap_or_default());
    (0..FILES).map(read).collect()
}

#[test]
fn a_recorded_start_is_laid_anew_while_it_is_mounted() {
    if !machine() {
        return;
    }
    let scene = Scene::new();
    recorded(&scene);
    let (raw, root) = (scene.arg("disk.raw"), scene.arg("root"));
    tool("mount", &["-o", "loop", &raw, &root]);
    let before = contents(Path::new(&root));
    let would = relocate(&scene, &["-n"]).ok();
    assert!(would.stdout.starts_with("a new layout pays: the start reads"), "{would:?}");
    let report = relocate(&scene, &["--json", "--force"]).ok().json();
    assert_eq!((&report["outcome"], &report["left"]), (&"moved".into(), &serde_json::json!({})), "{report}");
    let seeks = |when: &str| report[when]["seeks"].as_u64().expect("a number");
    assert!(seeks("before") > 90 && seeks("after") * 10 <= seeks("before"), "{report}");
    let again = relocate(&scene, &["--force"]).ok();
    assert!(again.stdout.starts_with("nothing to do: "), "{again:?}");
    assert!(contents(Path::new(&root)) == before);
    relocate(&scene, &["--root", "/proc"]).fails(2, &["--root"]);
    fs::write(scene.path("start.hsp"), b"no profile").expect("written");
    relocate(&scene, &[]).fails(1, &["start.hsp", "not a profile"]);
    umount(&root);
    tool("e2fsck", &["-fn", &raw]);
    scene.wait_until_clean();
}

fn cuts() -> u64 {
    std::env::var(CUTS_VARIABLE).map_or(CUTS, |word| word.parse().expect("a number"))
}

/// The recorded start is laid anew while a program syncs, whose syncs bring the moves to the medium. Does
/// `beside` meanwhile, with the number of syncs and whether it is over.
fn lay_anew_in_use(scene: &Scene, beside: impl FnOnce(&AtomicU64, &AtomicBool)) {
    let (root, profile) = (scene.arg("root"), scene.arg("start.hsp"));
    let moving = Running::start(["accelerate", "now", "--root", &root, "-p", &profile, "--force"]);
    let (is_over, syncs) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                fs::write(Path::new(&root).join("log"), b"line").expect("written");
                File::open(Path::new(&root).join("log")).and_then(|log| log.sync_all()).expect("synced");
                syncs.fetch_add(1, Relaxed);
            }
        });
        scope.spawn(|| {
            let (status, said, errors) = moving.end();
            is_over.store(true, Relaxed);
            assert!(status.success(), "{said}{errors}");
        });
        beside(&syncs, &is_over);
    });
}

/// The disk is an image with an overlay, whose file has what was flushed and nothing else: a copy of it,
/// made while its server is stopped, is the disk after a power cut.
#[test]
fn power_cuts_leave_files_as_they_were() {
    if !machine() {
        return;
    }
    let cuts = cuts();
    let scene = Scene::new();
    recorded(&scene);
    let (image, overlay, root) = (scene.arg("disk.hsi"), scene.arg("changes"), scene.arg("root"));
    let mut expected = None;
    let (mut copied, mut scattered) = (0, BTreeSet::new());
    let mut prng = Prng::new(51);
    while copied < cuts {
        let _ = fs::remove_file(&overlay);
        let words =
            ["mount", "-f", "--unsupervised", &image, &scene.arg("dir"), "--fs", &root, "--keep", &overlay];
        fs::create_dir_all(scene.path("dir")).expect("a folder");
        let server = Running::start(words.iter().chain(&["--medium", "flat-10ms-25mbs"]));
        wait_until("it is mounted", || Path::new(&root).join("files/0").exists());
        let expected = expected.get_or_insert_with(|| contents(Path::new(&root)));
        let free_blocks = || rustix::fs::statvfs(&root).map_or(0, |space| space.f_bfree);
        let free_before = free_blocks();
        lay_anew_in_use(&scene, |syncs, is_over| {
            // What the moved files take is reserved before the first one moves.
            let is_moving = || free_blocks() + 700 < free_before || is_over.load(Relaxed);
            wait_until("space is reserved", is_moving);
            let mut next = syncs.load(Relaxed);
            while copied < cuts && !is_over.load(Relaxed) {
                next += 1 + prng.below(30);
                wait_until("something was synced", || syncs.load(Relaxed) >= next || is_over.load(Relaxed));
                server.signal(Signal::STOP);
                fs::copy(&overlay, scene.path(&format!("cut-{copied}"))).expect("copied");
                server.signal(Signal::CONT);
                copied += 1;
            }
        });
        umount(&root);
        server.signal(Signal::TERM);
        drop(server.end());
        for cut in scene.names().into_iter().filter(|name| name.starts_with("cut-")) {
            scattered.insert(after_a_cut(&scene, &scene.arg(&cut), expected));
            fs::remove_file(scene.path(&cut)).expect("removed");
        }
    }
    assert!(scattered.len() > 3, "in the middle of the moves: {scattered:?}");
    scene.wait_until_clean();
}

/// The kernel's writes and flushes are recorded. Of what it had written and not flushed when the power is
/// cut, a disk has any sectors, in no order; as many as a seed draws.
#[test]
fn power_cuts_that_tear_and_reorder_leave_files_as_they_were() {
    if !machine() || !has_tools(&["nbdfuse", "fusermount3"]) {
        return;
    }
    let scene = Scene::new();
    recorded(&scene);
    let mut disk = fs::read(scene.path("disk.raw")).expect("read");
    let root = scene.arg("root");
    let medium = Medium::show(&scene, disk.clone());
    medium.mount(&root);
    let expected = contents(Path::new(&root));
    lay_anew_in_use(&scene, |_, _| ());
    umount(&root);
    let events = medium.end();

    let (mut prng, cuts) = (Prng::new(52), cuts());
    // At each something was written and not flushed.
    let writes: Vec<usize> =
        (1..events.len()).filter(|at| matches!(events[at - 1], Event::Write(..))).collect();
    let mut moments: Vec<usize> =
        (0..cuts).map(|_| writes[prng.below(writes.len() as u64) as usize]).collect();
    moments.sort_unstable();
    let (mut unflushed, mut torn, mut scattered) = (Vec::new(), 0, BTreeSet::new());
    let mut done = 0;
    for (cut, moment) in moments.into_iter().enumerate() {
        for event in &events[done..moment] {
            match event {
                Event::Write(offset, bytes) => unflushed.push((*offset as usize, bytes)),
                Event::Flush => unflushed.drain(..).for_each(|(offset, bytes)| {
                    disk[offset..offset + bytes.len()].copy_from_slice(bytes);
                }),
                Event::Synced(_) => unreachable!("nothing here says so"),
            }
        }
        done = moment;
        let (mut left, written_of_8) = (disk.clone(), 1 + prng.below(7));
        for (offset, bytes) in &unflushed {
            let mut written = 0;
            for (sector, bytes) in bytes.chunks(SECTOR_BYTES).enumerate() {
                if prng.below(8) < written_of_8 {
                    let at = offset + sector * SECTOR_BYTES;
                    left[at..at + bytes.len()].copy_from_slice(bytes);
                    written += bytes.len();
                }
            }
            torn += u64::from(written > 0 && written < bytes.len());
        }
        let raw = scene.arg(&format!("cut-{cut}"));
        fs::write(&raw, left).expect("written");
        // The journal is replayed by e2fsck, as when a system starts, or by the kernel.
        if cut % 2 == 0 {
            let ran = Command::new("e2fsck").args(["-p", &raw]).output().expect("e2fsck starts");
            assert!(matches!(ran.status.code(), Some(0 | 1)), "at event {moment}: {ran:?}");
        }
        scattered.insert(files_are_there(&scene, &raw, &expected, &format!("at event {moment}")));
        fs::remove_file(raw).expect("removed");
    }
    // Before the moves, behind them, and in their middle.
    assert!(2 * torn > cuts && scattered.len() > 2, "{torn} writes torn; {scattered:?}");
    scene.wait_until_clean();
}

/// The journal is replayed, all is well, and the files have their contents; gives how scattered the start
/// lies.
fn after_a_cut(scene: &Scene, overlay: &str, expected: &BTreeMap<u64, Vec<u8>>) -> u64 {
    // Each has a path of its own: mount(8) takes the loop device again that it finds for a path, also where
    // that is about to go with the server of the cut before.
    let dir = format!("{overlay}.mnt");
    fs::create_dir(&dir).expect("a folder");
    run(["-q", "mount", &scene.arg("disk.hsi"), &dir, "--keep", overlay]).ok();
    let seeks = files_are_there(scene, &format!("{dir}/disk.img"), expected, overlay);
    umount(&dir);
    fs::remove_dir(&dir).expect("removed");
    seeks
}

/// The same for a disk, at a moment that is called `when`.
fn files_are_there(scene: &Scene, disk: &str, expected: &BTreeMap<u64, Vec<u8>>, when: &str) -> u64 {
    let root = scene.arg("root");
    tool("mount", &["-o", "loop", disk, &root]);
    let found = contents(Path::new(&root));
    let wrong: Vec<_> = found.iter().filter(|(number, bytes)| expected[number] != **bytes).collect();
    let described = wrong.iter().map(|(number, bytes)| {
        let at = bytes.iter().zip(&expected[number]).position(|(one, other)| one != other);
        format!("file {number}: {} bytes of {}, from {at:?} on", bytes.len(), expected[number].len())
    });
    assert!(wrong.is_empty(), "{when}: {:?}", described.collect::<Vec<_>>());
    let report = relocate(scene, &["-n", "--json"]).ok().json();
    umount(&root);
    tool("e2fsck", &["-fn", disk]);
    report["before"]["seeks"].as_u64().expect("a number")
}
