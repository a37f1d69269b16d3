//! Files that fill themselves, and the two processes behind them.

use std::fs::{self, File};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hs_format::{Superblock, Unverified};
use hs_units::{Digest, Prng};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::filling_folder::FillingFolder;
use crate::images::write_profile;
use crate::misbehaving::{Manners, Misbehaving};
use crate::scene::{Running, Scene, headstart, leaving, run, wait_until};

const BLOCK: usize = 4096;
const SLOW: [&str; 4] = ["--medium", "flat-5ms-40mbs-serial", "--no-hydrate", "--no-prefetch"];

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
    leaving(&scene, ["attach", &image, &file, "--no-hydrate"]).ok();
    let mut found = vec![0; 100_000];
    File::open(&file).and_then(|file| file.read_exact_at(&mut found, 1_000_001)).expect("read");
    assert!(found == disk[1_000_001..][..100_000]);
    let status = server(&file).expect("it says");
    let filled = status["fill"]["filled_bytes"].as_u64().expect("a number");
    assert!((100_000..1_000_000).contains(&filled), "{status}");
    assert!(run(["status", &file]).ok().stdout.contains("filled  "));
    let again = leaving(&scene, ["attach", &image, &file]).ok();
    assert!(again.stderr.contains("attached already"), "{again:?}");
    run(["detach", &file]).fails(1, &["not complete", "headstart fill"]);
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

/// The digest of the disk is that of whole blocks.
#[test]
fn a_file_that_fills_itself_ends_where_the_disk_does() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    let mut disk = scene.raw("disk.raw", 300, 17);
    disk.truncate(299 * 4096 + 1024);
    fs::write(scene.path("disk.raw"), &disk).expect("written");
    let (image, file) = (scene.arg("disk.hsi"), file_in(&folder, &scene));
    run(["build", "--raw", &scene.arg("disk.raw"), "-o", &image]).ok();
    leaving(&scene, ["attach", &image, &file, "--no-hydrate"]).ok();
    let mut end = vec![0; 1024];
    File::open(&file).and_then(|file| file.read_exact_at(&mut end, 299 * 4096)).expect("read");
    assert!(end == disk[299 * 4096..]);
    let hydrated = run(["hydrate", "--json", &file]).ok().json();
    assert_eq!(hydrated["disk_bytes"], disk.len());
    assert!(fs::read(&file).expect("read") == disk);
    scene.wait_until_clean();
    run(["detach", &file]).ok();
}

#[test]
fn what_was_attached_and_detached_is_told_as_json() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    let disk = scene.image("disk.hsi", 200, 99);
    let (image, file) = (scene.arg("disk.hsi"), file_in(&folder, &scene));
    let attach = ["attach", "--json", "--no-fill", &image, &file];
    let ran = leaving(&scene, attach).ok();
    let attached = ran.json();
    let status = server(&file).expect("it says");
    assert_eq!(attached["file"], status["dir"]);
    assert_eq!(attached["image"], status["image"]);
    assert_eq!((&attached["state"], &attached["was_attached"]), (&"filling".into(), &false.into()));
    assert_eq!((&attached["pid"], &attached["guard"]), (&status["pid"], &status["fill"]["guard"]));
    let socket = attached["control_socket"].as_str().expect("a path");
    assert!(fs::metadata(socket).expect("there").file_type().is_socket(), "{attached}");
    assert!(attached["log"].is_string() && ran.stderr.is_empty(), "{ran:?}");

    let again = leaving(&scene, attach).ok();
    let mut expected = attached.clone();
    expected["was_attached"] = true.into();
    assert_eq!((again.json(), again.stderr.as_str()), (expected, ""));
    scene.image("other.hsi", 200, 97);
    run(["attach", &scene.arg("other.hsi"), &file]).fails(1, &[&file, "another disk"]);

    let detached = run(["detach", "--json", "--incomplete", &file]).ok().json();
    let state = |state: &str, was_attached: bool| json!({"file": attached["file"], "state": state, "was_attached": was_attached});
    assert_eq!(detached, state("incomplete", true));
    scene.wait_until_clean();

    // In the foreground it is printed by the process that guards.
    let mut guard = Running::start(["attach", "--foreground", "--json", &image, &file]);
    let attached = guard.printed_json();
    assert_eq!((&attached["state"], &attached["guard"]), (&"filling".into(), &guard.id().into()));
    run(["fill", &file]).ok();
    let (ended, printed, _) = guard.end();
    assert!(ended.success() && printed.is_empty(), "{printed}");
    assert!(fs::read(&file).expect("read") == disk);
    let complete = leaving(&scene, attach).ok().json();
    assert_eq!((&complete["state"], &complete["guard"]), (&"complete".into(), &Value::Null));
    assert_eq!(run(["detach", "--json", &file]).ok().json(), state("complete", false));
    scene.wait_until_clean();
}

#[test]
fn a_file_that_was_removed_while_it_was_attached_is_told_of() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    scene.image("disk.hsi", 200, 96);
    let file = file_in(&folder, &scene);
    let guard = guarded(&scene, &file, &["--no-fill"]);
    fs::remove_file(&file).expect("removed");
    let said = ["removed while it was attached", "headstart status"];
    run(["attach", &scene.arg("disk.hsi"), &file]).fails(1, &said);
    guard.signal(Signal::TERM);
    guard.end();
    fs::remove_file(sidecar(&file)).expect("removed");
    scene.wait_until_clean();
}

/// On a medium that takes a minute for every answer, a server takes long to become ready. An interrupt does
/// not wait for it.
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
    // This block is never read meanwhile: a complete file would have no server.
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
    // Reads that wait go on waiting. Only a read whose event was received and not yet noted gets an error: at
    // most all of them, at each kill.
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
    // Each server is killed soon after its start: the first is replaced at once, and the others after pauses.
    assert!(said.contains("the next server starts in"), "{said}");
    scene.wait_until_clean();
}

/// The process that stands by, by the name that it has beside its arguments.
fn standby(scene: &Scene, other_than: Option<i64>) -> i64 {
    let mut found = None;
    wait_until("a process stands by", || {
        let is_it = |pid: &u32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim_end() == "hs-standby" && Some(i64::from(*pid)) != other_than
        };
        found = scene.processes().into_iter().find(is_it);
        found.is_some()
    });
    found.map(i64::from).expect("found")
}

/// Both processes that know of the file die in one moment, again and again: a reader may get an error, and
/// never a zero.
#[test]
fn a_killed_server_and_guard_give_no_zeros_and_another_guard_goes_on() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    let disk = scene.image("disk.hsi", 3000, 99);
    let file = file_in(&folder, &scene);
    let first = guarded(&scene, &file, &[&SLOW[..], &["--mode", "444"]].concat());
    let opened = File::open(&file).expect("opened");
    let mut prng = Prng::new(99);
    let (mut right, mut errors, mut last) = (0, 0, Value::Null);
    for kills in 0..3 {
        let mut now = Value::Null;
        wait_until("another server fills", || {
            now = server(&file).unwrap_or_default();
            !now.is_null() && now["pid"] != last
        });
        let was = standby(&scene, None);
        if kills == 1 {
            // A standby that is killed alone is replaced by its guard.
            kill(&Value::from(was), Signal::KILL);
            standby(&scene, Some(was));
        }
        last = now["pid"].clone();
        kill(&now["fill"]["guard"], Signal::KILL);
        kill(&last, Signal::KILL);
        for _ in 0..500 {
            let offset = prng.below((disk.len() - BLOCK) as u64) as usize;
            let mut found = vec![0; BLOCK];
            match opened.read_exact_at(&mut found, offset as u64) {
                Ok(()) => {
                    assert!(found == disk[offset..][..BLOCK], "bytes from {offset} after {kills} kills");
                    right += 1;
                }
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO));
                    errors += 1;
                }
            }
        }
    }
    // A read that comes before there is another server waits for it.
    assert!(right > 1400, "{right} right, {errors} errors");
    run(["detach", &file, "--incomplete"]).ok();
    assert_eq!(mode(&file), 0);
    let (status, _, said) = first.end();
    assert!(!status.success() && said.matches("have died").count() == 3, "{said}");
    scene.wait_until_clean();
    run(["hydrate", &file]).ok();
    assert!(fs::read(&file).expect("read") == disk);
    assert_eq!(mode(&file), 0o444);
}

fn mode(file: &str) -> u32 {
    fs::metadata(file).expect("there").permissions().mode() & 0o777
}

/// An incomplete file cannot be read while it has no guard, however a guard failed to begin.
#[test]
fn a_file_without_a_guard_cannot_be_read_until_it_has_one() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    let disk = scene.image("disk.hsi", 1000, 101);
    let (image, file) = (scene.arg("disk.hsi"), file_in(&folder, &scene));
    leaving(&scene, ["attach", &image, &file, "--no-hydrate", "--mode", "440"]).ok();
    assert_eq!(mode(&file), 0o440);
    run(["detach", &file, "--incomplete"]).ok();
    assert_eq!(mode(&file), 0);
    // The guard can attach, and the server cannot fill.
    run(["attach", &image, &file, "--bad-sectors", "1T+4K"]).fails(1, &["no sectors"]);
    assert_eq!(mode(&file), 0);
    let bytes = Arc::new(fs::read(&image).expect("the image"));
    let store = Misbehaving::start(bytes, Manners::SilentAfter(4));
    let hydrating = Running::start(["hydrate", &file, "--image", &store.url(), "--disk-cache=none"]);
    wait_until("the store is silent", || store.seen() > 4);
    hydrating.signal(Signal::INT);
    assert!(!hydrating.end().0.success());
    assert_eq!(mode(&file), 0);
    // The file gets its mode back.
    leaving(&scene, ["attach", &image, &file, "--no-hydrate"]).ok();
    assert_eq!(mode(&file), 0o440);
    // Processes that are killed leave the mode as it is; the next attach sets it.
    standby(&scene, None);
    for process in scene.processes() {
        kill(&Value::from(process), Signal::KILL);
    }
    scene.wait_until_clean();
    run(["attach", &image, &file, "--bad-sectors", "1T+4K"]).fails(1, &["no sectors"]);
    assert_eq!(mode(&file), 0);
    run(["hydrate", &file]).ok();
    assert_eq!(mode(&file), 0o440);
    assert_eq!(attribute(&file, "mode"), None);
    assert!(fs::read(&file).expect("read") == disk);
    scene.wait_until_clean();
}

/// At whatever request a store stops answering: a command that is told to end does not wait for it.
#[test]
fn a_silent_store_keeps_no_filling_from_its_end() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    // Many times the largest request: the file is not complete after the most that are answered.
    scene.image("disk.hsi", 16_000, 102);
    let (image, file) = (scene.arg("disk.hsi"), file_in(&folder, &scene));
    let bytes = Arc::new(fs::read(&image).expect("the image"));
    for well in [0, 2, 4, 6, 8] {
        for command in ["attach", "hydrate"] {
            let store = Misbehaving::start(Arc::clone(&bytes), Manners::SilentAfter(well));
            let (url, cache) = (store.url(), "--disk-cache=none");
            let arguments = match command {
                "attach" => vec!["attach", "--foreground", &url, &file, cache],
                _ => vec!["hydrate", &file, "--image", &url, cache],
            };
            if command == "hydrate" {
                leaving(&scene, ["attach", &image, &file, "--no-hydrate"]).ok();
                run(["detach", &file, "--incomplete"]).ok();
            }
            let running = Running::start(arguments);
            wait_until("the store is silent", || store.seen() > well);
            let told = Instant::now();
            running.signal(Signal::TERM);
            let (_, _, said) = running.end();
            scene.wait_until_clean();
            let took = told.elapsed();
            // 5 s, on a machine with time to spare; a read waits for 60 s.
            assert!(took < Duration::from_secs(30), "{command} after {well} requests: {took:?}: {said}");
            eprintln!("{command} after {well} requests: {took:?}");
        }
        let _ = fs::remove_file(&file).and_then(|()| fs::remove_file(sidecar(&file)));
    }
}

/// The messages to a service manager, each with its descriptor.
pub(crate) fn manager_hears(manager: &UnixDatagram) -> (String, Option<OwnedFd>) {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let (mut text, mut space) = ([0; 512], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut text)];
    let got = recvmsg(manager, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC).expect("a message");
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    (String::from_utf8_lossy(&text[..got.bytes]).into_owned(), descriptor)
}

/// The program, started with what a service manager has kept. What systemd does: the descriptors from 3 on,
/// and their names.
pub(crate) fn with_kept<S: AsRef<std::ffi::OsStr>>(
    kept: &[(String, OwnedFd)],
    arguments: &[S],
) -> WithDescriptors {
    let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
    // Copies for the started program, with numbers above those that they will have there.
    let copies: Vec<OwnedFd> = kept
        .iter()
        .map(|(_, descriptor)| rustix::io::fcntl_dupfd_cloexec(descriptor, 300).expect("a copy"))
        .collect();
    for copy in &copies {
        rustix::io::fcntl_setfd(copy, rustix::io::FdFlags::empty()).expect("handed on");
    }
    let moved = |(copy, to): (&OwnedFd, i32)| format!("{to}<&{0} {0}<&-", copy.as_raw_fd());
    let moves: Vec<String> = copies.iter().zip(3..).map(moved).collect();
    let script = format!("export LISTEN_PID=$$; exec \"$0\" \"$@\" {}", moves.join(" "));
    let mut command = Command::new("bash");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_headstart")]).args(arguments);
    command.env("LISTEN_FDS", kept.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
    command.stdin(Stdio::null());
    WithDescriptors { command, _copies: copies }
}

/// A command, and what it inherits.
pub(crate) struct WithDescriptors {
    pub(crate) command: Command,
    _copies: Vec<OwnedFd>,
}

/// All of a unit dies at once, and a service manager that keeps descriptors starts it again.
#[test]
fn readers_wait_where_a_service_manager_keeps_the_group() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    let disk = scene.image("disk.hsi", 1000, 100);
    let (image, file) = (scene.arg("disk.hsi"), file_in(&folder, &scene));
    let manager = UnixDatagram::bind(scene.path("notify")).expect("a socket");
    let attach = [&["attach", "--foreground", &image, &file][..], &SLOW].concat();
    let mut first = headstart(&attach);
    first.env("NOTIFY_SOCKET", scene.path("notify"));
    let mut first = first.stderr(Stdio::null()).spawn().expect("it starts");
    let mut kept = Vec::new();
    while kept.len() < 4 {
        if let (text, Some(descriptor)) = manager_hears(&manager) {
            let name = text.split_once("FDNAME=").expect("a name").1.to_owned();
            assert!(text.starts_with("FDSTORE=1\n"), "{text}");
            kept.push((name, descriptor));
        }
    }
    let opened = File::open(&file).expect("opened");
    standby(&scene, None);
    for process in scene.processes() {
        kill(&Value::from(process), Signal::KILL);
    }
    first.wait().expect("killed");
    scene.wait_until_clean();
    let (over, asked) = (AtomicU64::new(0), 20);
    std::thread::scope(|scope| {
        for number in 0..asked {
            let (opened, disk, over) = (&opened, &disk, &over);
            scope.spawn(move || {
                let (mut found, at) = (vec![0; BLOCK], 50 * number as usize * BLOCK);
                opened.read_exact_at(&mut found, at as u64).expect("the next guard has it filled");
                assert!(found == disk[at..][..BLOCK], "block {number}");
                over.fetch_add(1, Relaxed);
            });
        }
        assert_eq!(over.load(Relaxed), 0, "nothing answers yet");
        let second = with_kept(&kept, &attach).command.stderr(Stdio::null()).spawn();
        wait_until("every reader is answered", || over.load(Relaxed) == asked);
        drop(second);
    });
    drop(kept);
    run(["hydrate", &file]).ok();
    scene.wait_until_clean();
    assert!(fs::read(&file).expect("read") == disk);
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
    // Filled blocks fail too: without a server the guard answers every event with an error.
    for block in [7, 8, 400] {
        assert_eq!(read(block), Err(Some(libc::EIO)));
    }
    fs::rename(scene.path("away.hsi"), &image).expect("moved back");
    leaving(&scene, ["attach", &image, &file]).ok();
    for block in [7, 8, 400] {
        assert!(read(block).expect("read") == disk[block * BLOCK..][..BLOCK]);
    }
    run(["detach", &file, "--incomplete"]).ok();
    let (status, _, said) = guard.end();
    assert!(status.success() && said.contains("is not complete"), "{said}");
    scene.wait_until_clean();
    // The filled blocks are still known.
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

/// The value of a file's attribute.
fn attribute(file: &str, name: &str) -> Option<String> {
    let mut value = [0; 256];
    let length = rustix::fs::getxattr(file, format!("user.headstart.{name}"), &mut value).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).into_owned())
}

/// A superblock may claim any digest of the disk, also where all other digests are right.
#[test]
fn a_file_is_marked_with_the_digest_of_what_it_holds_and_no_other() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    let disk = scene.image("disk.hsi", 300, 96);
    let (image, file) = (scene.arg("disk.hsi"), file_in(&folder, &scene));
    let shown = |image: &str, key: &str| run(["inspect", "--json", image]).ok().json()[key].clone();
    let digest = shown(&image, "disk_digest");

    let mut bytes = fs::read(&image).expect("the image");
    let mut superblock = Superblock::decode(Unverified::new(&bytes[..BLOCK])).expect("whole");
    superblock.disk_digest = Digest([0x11; 32]);
    let mirror = bytes.len() - BLOCK;
    bytes[..BLOCK].copy_from_slice(&superblock.encode());
    bytes[mirror..].copy_from_slice(&superblock.encode());
    let forged = scene.arg("forged.hsi");
    fs::write(&forged, bytes).expect("written");
    leaving(&scene, ["attach", &forged, &file, "--no-hydrate"]).ok();
    assert_eq!(attribute(&file, "incomplete"), Some("11".repeat(32)));
    run(["hydrate", &file])
        .fails(1, &[digest.as_str().expect("a digest"), "not the one that the image claims"]);
    scene.wait_until_clean();
    assert_eq!(attribute(&file, "complete"), None);
    assert_eq!(attribute(&file, "contradicted"), digest.as_str().map(str::to_owned));
    run(["attach", &forged, &file]).fails(1, &["not the one that the image claims"]);
    fs::remove_file(&file).expect("removed");

    // The image itself gives the same bytes, and their digest is theirs.
    leaving(&scene, ["attach", &image, &file]).ok();
    run(["hydrate", &file]).ok();
    scene.wait_until_clean();
    assert_eq!(attribute(&file, "complete"), digest.as_str().map(str::to_owned));
    assert_eq!(attribute(&file, "image"), shown(&image, "image_digest").as_str().map(str::to_owned));
    assert!(fs::read(&file).expect("read") == disk);
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
