//! Files that fill themselves, and the two processes behind them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use hs_units::Prng;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::filling_folder::FillingFolder;
use crate::images::write_profile;
use crate::scene::{Ran, Running, Scene, headstart, run, wait_until};

const BLOCK: usize = 4096;
const SLOW: [&str; 4] = ["--medium", "flat-5ms-40mbs-serial", "--no-hydrate", "--no-prefetch"];

/// Runs a command that leaves processes behind: what they inherit must not be a pipe that is read to its end.
fn leaving(scene: &Scene, arguments: &[&str]) -> Ran {
    let said = scene.path("said");
    let stderr = File::create(&said).expect("a file");
    let status = headstart(arguments).stdout(Stdio::null()).stderr(stderr).status().expect("it starts");
    let stderr = fs::read_to_string(&said).expect("read");
    Ran { code: status.code(), stdout: String::new(), stderr }
}

/// The server of a file, as it says itself, if there is one.
fn server(file: &str) -> Option<Value> {
    let ran = run(["status", "--json", file]);
    (ran.code == Some(0)).then(|| ran.json()["mounts"][0].clone())
}

fn kill(pid: &Value, signal: Signal) {
    let pid = Pid::from_raw(pid.as_i64().expect("a number") as i32).expect("a process");
    kill_process(pid, signal).expect("signalled");
}

fn file_in(folder: &FillingFolder, scene: &Scene) -> String {
    // The scene's own name is in it, so that the scene knows the processes.
    let name = scene.path("").file_name().expect("a name").to_string_lossy().into_owned();
    folder.path().join(format!("{name}.img")).display().to_string()
}

fn sidecar(file: &str) -> PathBuf {
    format!("{file}.headstart").into()
}

fn guarded(scene: &Scene, file: &str, more: &[&str]) -> Running {
    let image = scene.arg("disk.hsi");
    let mut running = Running::start(["attach", "--foreground", &image, file].iter().chain(more));
    let said = running.said();
    assert!(said.contains("fills itself"), "{said}");
    running
}

#[test]
fn attached_read_hydrated_and_then_a_plain_file() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    let disk = scene.image("disk.hsi", 2000, 91);
    let (image, file) = (scene.arg("disk.hsi"), file_in(&folder, &scene));
    leaving(&scene, &["attach", &image, &file, "--no-hydrate"]).ok();
    let mut found = vec![0; 100_000];
    File::open(&file).and_then(|file| file.read_exact_at(&mut found, 1_000_001)).expect("read");
    assert!(found == disk[1_000_001..][..100_000]);
    let status = server(&file).expect("it says");
    let filled = status["fill"]["filled_bytes"].as_u64().expect("a number");
    assert!((100_000..1_000_000).contains(&filled), "{status}");
    assert!(run(["status", &file]).ok().stdout.contains("filled  "));
    let again = leaving(&scene, &["attach", &image, &file]).ok();
    assert!(again.stderr.contains("attached already"), "{again:?}");
    run(["detach", &file]).fails(1, &["not complete", "headstart hydrate"]);
    let hydrated = run(["hydrate", "--json", &file]).ok().json();
    assert_eq!(hydrated["disk_bytes"], disk.len());
    assert!(fs::read(&file).expect("read") == disk);
    scene.wait_until_clean();
    assert!(!sidecar(&file).exists());
    for command in [&["attach", &image, &file][..], &["hydrate", &file]] {
        let ran = leaving(&scene, command).ok();
        assert!(ran.stderr.contains("is complete"), "{ran:?}");
    }
    run(["detach", &file]).ok();
}

/// On a medium that takes a minute for every answer, a server that starts has nothing to say for long; nobody waits for it.
#[test]
fn an_attach_that_is_interrupted_leaves_nothing() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    scene.image("disk.hsi", 100, 98);
    let file = file_in(&folder, &scene);
    for more in [&[][..], &["--foreground"]] {
        let arguments = ["attach", &scene.arg("disk.hsi"), &file, "--medium", "flat-60000ms-25mbs"];
        let attaching = Running::start(arguments.iter().chain(more));
        wait_until("there is a server", || {
            let is_server = |pid: &u32| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains("--descriptors")
            };
            scene.processes().iter().any(is_server)
        });
        attaching.signal(Signal::INT);
        let (ended, _, said) = attaching.end();
        assert!(!ended.success() && !said.contains("fills itself"), "{said}");
        scene.wait_until_clean();
        assert!(!Path::new(&file).exists() && !sidecar(&file).exists());
    }
}

#[test]
fn a_killed_server_gives_no_zeros_and_another_answers_those_who_wait() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    // No block of it is zero.
    let disk = scene.image("disk.hsi", 3000, 92);
    // What is never read meanwhile: a file that were complete would have no server.
    const LEFT_OUT: usize = 100 * BLOCK;
    const READERS: u64 = 4;
    let file = file_in(&folder, &scene);
    let guard = guarded(&scene, &file, &SLOW);
    let (over, reads, errors) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let reader = |seed| {
        let mut prng = Prng::new(seed);
        let file = File::open(&file).expect("opened");
        while !over.load(Relaxed) {
            let offset = prng.below((disk.len() - LEFT_OUT - 9000) as u64) as usize;
            let mut found = vec![0; 1 + prng.below(9000) as usize];
            match file.read_exact_at(&mut found, offset as u64) {
                Ok(()) => assert!(found == disk[offset..][..found.len()], "bytes {offset}+{}", found.len()),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO));
                    errors.fetch_add(1, Relaxed);
                }
            }
            reads.fetch_add(1, Relaxed);
        }
    };
    let kills = 8;
    std::thread::scope(|scope| {
        for seed in 0..READERS {
            scope.spawn(move || reader(seed));
        }
        let mut pid = Value::Null;
        let next = |last: &Value| {
            let mut next = Value::Null;
            wait_until("another server fills", || {
                next = server(&file).map_or(Value::Null, |now| now["pid"].clone());
                !next.is_null() && next != *last
            });
            next
        };
        for _ in 0..kills {
            pid = next(&pid);
            let before = reads.load(Relaxed);
            wait_until("readers go on", || reads.load(Relaxed) > before + 10);
            kill(&pid, Signal::KILL);
        }
        next(&pid);
        over.store(true, Relaxed);
    });
    // Who waits goes on waiting. Only who was heard, and not noted yet, gets an error: at most all of them, each time.
    assert!(errors.load(Relaxed) <= kills * READERS, "{errors:?}");
    for (block, expected) in disk.chunks(BLOCK).enumerate() {
        let mut found = vec![0; BLOCK];
        let file = File::open(&file).expect("opened");
        file.read_exact_at(&mut found, (block * BLOCK) as u64).expect("a server fills");
        assert!(found == expected, "block {block}");
    }
    let (status, _, said) = guard.end();
    assert!(status.success(), "{said}");
    assert_eq!(said.matches("by signal 9").count(), kills as usize, "{said}");
    scene.wait_until_clean();
}

#[test]
fn a_guard_without_a_server_says_no_until_it_is_attached_again() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    let disk = scene.image("disk.hsi", 500, 93);
    let (image, file) = (scene.arg("disk.hsi"), file_in(&folder, &scene));
    let mut guard = guarded(&scene, &file, &SLOW);
    let read = |block: usize| {
        let mut found = vec![0; BLOCK];
        let file = File::open(&file).expect("opened");
        file.read_exact_at(&mut found, (block * BLOCK) as u64)
            .map(|()| found)
            .map_err(|error| error.raw_os_error())
    };
    assert!(read(7).expect("read") == disk[7 * BLOCK..][..BLOCK]);
    fs::rename(&image, scene.path("away.hsi")).expect("moved");
    let mut pid = Value::Null;
    wait_until("the server says how it is", || {
        pid = server(&file).map_or(Value::Null, |now| now["pid"].clone());
        !pid.is_null()
    });
    kill(&pid, Signal::KILL);
    let mut said = String::new();
    while !said.contains("fail until it is attached again") {
        let line = guard.said();
        assert!(!line.is_empty(), "{said}");
        said += &line;
    }
    // Also what is filled: who nobody fills for is not asked what he has.
    for block in [7, 8, 400] {
        assert_eq!(read(block), Err(Some(libc::EIO)));
    }
    fs::rename(scene.path("away.hsi"), &image).expect("moved back");
    leaving(&scene, &["attach", &image, &file]).ok();
    for block in [7, 8, 400] {
        assert!(read(block).expect("read") == disk[block * BLOCK..][..BLOCK]);
    }
    run(["detach", &file, "--incomplete"]).ok();
    let (status, _, said) = guard.end();
    assert!(status.success() && said.contains("is not complete"), "{said}");
    scene.wait_until_clean();
    // What was filled is still known.
    let hydrated = run(["hydrate", &file]).ok();
    assert!(hydrated.stderr.contains("is complete"), "{hydrated:?}");
    assert!(fs::read(&file).expect("read") == disk);
    assert!(!sidecar(&file).exists());
}

#[test]
fn a_prefetched_file_needs_nobody_to_wait() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 1200, 94);
    write_profile(&scene, "some.hsp", "cold.hsi", &disk, (0..600).map(|number| number * 7 % 1200));
    let arguments =
        ["optimize", &scene.arg("cold.hsi"), "-p", &scene.arg("some.hsp"), "-o", &scene.arg("disk.hsi")];
    run(arguments.iter().chain(&["--codec", "zstd:1"])).ok();
    let file = file_in(&folder, &scene);
    let guard = guarded(&scene, &file, &["--no-hydrate"]);
    wait_until("the hot blocks are filled", || {
        server(&file).is_some_and(|now| now["fill"]["filled_bytes"] == 600 * BLOCK)
    });
    let opened = File::open(&file).expect("opened");
    for block in (0..600).map(|number| number * 7 % 1200) {
        let mut found = vec![0; BLOCK];
        opened.read_exact_at(&mut found, (block * BLOCK) as u64).expect("read");
        assert!(found == disk[block * BLOCK..][..BLOCK], "block {block}");
    }
    assert_eq!(server(&file).expect("it says")["fill"]["waited_readers"], 0);
    guard.signal(Signal::TERM);
    assert!(guard.end().0.success());
    scene.wait_until_clean();
}

#[test]
fn what_cannot_be_attached_is_said_and_leaves_nothing() {
    let scene = Scene::new();
    scene.image("disk.hsi", 50, 95);
    let (image, raw, gone) = (scene.arg("disk.hsi"), scene.arg("disk.raw"), scene.arg("gone"));
    run(["attach", &image]).fails(2, &["FILE"]);
    run(["hydrate", &gone]).fails(1, &["gone"]);
    run(["hydrate", &raw]).fails(1, &["disk.raw", "not a self-filling file"]);
    run(["detach", &raw]).fails(1, &["disk.raw", "not a self-filling file"]);
    let Some(folder) = FillingFolder::new() else { return };
    let file = file_in(&folder, &scene);
    run(["attach", &raw, &file]).fails(1, &["disk.raw"]);
    run(["attach", &gone, &file]).fails(1, &["gone", "No such file"]);
    // The guard can attach, and the server cannot fill.
    run(["attach", &image, &file, "--bad-sectors", "1T+4K"]).fails(1, &["no sectors"]);
    fs::write(&file, "precious").expect("written");
    run(["attach", &image, &file]).fails(1, &[&file, "not a self-filling file"]);
    fs::remove_file(&file).expect("removed");
    assert_eq!(
        fs::read_dir(folder.path())
            .expect("listed")
            .filter(|entry| {
                entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().contains(".img"))
            })
            .count(),
        0
    );
    if Path::new("/dev/shm").is_dir() {
        run(["attach", &image, "/dev/shm/headstart-test.img"]).fails(1, &["ext4, XFS and btrfs"]);
    }
    scene.wait_until_clean();
}
