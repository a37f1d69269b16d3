//! Images shown as files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::images::write_profile;
use crate::scene::{Running, START, Scene, headstart, machine_has, mount, run, wait_until};
use crate::service::server_of;

/// Unmounts with this command. What another test of this process is about to start has, until it is started,
/// all open files of this process too, one of that mount perhaps: then it is busy for a moment.
pub(crate) fn unmount_by(program: &str, words: &[&str]) {
    wait_until("it is unmounted", || {
        Command::new(program).args(words).status().expect("it starts").success()
    });
}

pub(crate) fn umount(path: &str) {
    unmount_by("umount", &[path]);
}

#[test]
fn a_mounted_disk_is_the_raw_disk_and_umount_ends_its_server() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 700, 11);
    let dir = scene.folder("dir");
    mount(&scene, &[&scene.arg("cold.hsi"), &dir]).ok();
    assert!(!scene.processes().is_empty(), "a server runs in the background");
    assert!(fs::read(scene.path("dir/disk.img")).expect("read") == disk);

    mount(&scene, &[&scene.arg("cold.hsi"), &dir]).fails(1, &[&dir, "already a mount point", "umount"]);
    let same = format!("{dir}/");
    mount(&scene, &[&scene.arg("cold.hsi"), &dir, "--fs", &same]).fails(1, &[&dir, "give --fs another one"]);
    run(["mount", "-f", &scene.arg("cold.hsi"), &dir]).fails(1, &[&dir, "already a mount point"]);
    assert_eq!(scene.mounts().len(), 1);
    umount(&dir);
    scene.wait_until_clean();
    mount(&scene, &[&scene.arg("cold.hsi"), &scene.arg("gone")]).fails(1, &["gone"]);
    mount(&scene, &[&scene.arg("cold.hsi"), &scene.arg("cold.hsi")])
        .fails(1, &["cold.hsi", "not a directory"]);
    scene.wait_until_clean();
}

/// A disk that is read while its prefetch goes on: the profile's order scatters every read over all chunks.
/// `recorded` says which of its blocks the profile has.
fn read_while_prefetching(recorded: impl Fn(&u64) -> bool, flags: &[&str]) {
    const BLOCKS: usize = 5_000;
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", BLOCKS, 21);
    let scattered = (0..BLOCKS as u64).map(|number| number * 7 % BLOCKS as u64).filter(recorded);
    write_profile(&scene, "some.hsp", "cold.hsi", &disk, scattered);
    let profile = scene.arg("some.hsp");
    run(["optimize", &scene.arg("cold.hsi"), "--profile", &profile, "-o", &scene.arg("hot.hsi")]).ok();
    let dir = scene.folder("dir");
    for _ in 0..3 {
        let image = scene.arg("hot.hsi");
        mount(&scene, &[&[image.as_str(), &dir], flags].concat()).ok();
        let path = scene.path("dir/disk.img");
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(fs::read(path).expect("read")));
        let read = receiver.recv_timeout(std::time::Duration::from_secs(120)).expect("the reader goes on");
        assert!(read == disk);
        umount(&dir);
        scene.wait_until_clean();
    }
}

/// A pushed page may be locked by a reader that waits for a later chunk: the thread that pushes must not be
/// the thread that brings that chunk.
#[test]
fn a_disk_can_be_read_while_it_is_pushed() {
    if machine_has(&[]) {
        read_while_prefetching(|_| true, &["--prefetch", "push"]);
    }
}

/// Here the prefetch stalls again and again, because its budget is full and because many reads are not in the
/// profile. No read may wait for the stalled stream.
#[test]
fn a_disk_can_be_read_while_its_prefetch_stands_still() {
    if machine_has(&[]) {
        for mode in ["hold", "push"] {
            read_while_prefetching(|block| block % 64 < 40, &["--prefetch", mode, "--budget", "1M"]);
        }
    }
}

/// Names are bytes, and all programs share the table of mounts: a reader that cannot parse one line must not
/// end.
#[test]
fn a_mount_under_a_name_that_is_no_text_is_served_and_harms_nobody() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 100, 14);
    let (dir, image) = (scene.folder("dir"), scene.arg("cold.hsi"));
    let other = scene.path("").join(OsStr::from_bytes(b"o\xfft\ther"));
    fs::create_dir(&other).expect("a folder");
    mount(&scene, &[&image, &dir]).ok();
    let words = [OsStr::new("mount"), image.as_ref(), other.as_os_str()];
    let status = headstart(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.expect("the program starts").success());
    assert!(fs::read(other.join("disk.img")).expect("read") == disk);
    wait_until("its server says how it is", || {
        headstart([OsStr::new("status"), other.as_os_str()]).output().expect("it starts").status.success()
    });
    wait_until("it is unmounted", || {
        Command::new("umount").arg(&other).status().expect("it starts").success()
    });
    assert!(fs::read(scene.path("dir/disk.img")).expect("read") == disk);
    assert_eq!(server_of(&dir)["restarts"], 0);
    umount(&dir);
    scene.wait_until_clean();
}

#[test]
fn signals_unmount() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 100, 12);
    let dir = scene.folder("dir");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut serving = Running::start(["mount", "-f", &scene.arg("cold.hsi"), &dir]);
        assert!(serving.said().contains("umount"));
        assert!(fs::read(scene.path("dir/disk.img")).expect("read") == disk);
        serving.signal(signal);
        let (status, ..) = serving.end();
        assert!(status.success(), "{signal:?}: {status}");
        scene.wait_until_clean();
    }
}

#[test]
fn a_damaged_window_is_an_error_to_who_reads_it_and_to_nobody_else() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 320, 13);
    let mut damaged = fs::read(scene.path("cold.hsi")).expect("read");
    // In the first of the ten windows of 128 KiB.
    damaged[4096 + 2000] ^= 1;
    fs::write(scene.path("cold.hsi"), damaged).expect("written");
    let dir = scene.folder("dir");
    let mut serving = Running::start(["mount", "-f", &scene.arg("cold.hsi"), &dir]);
    serving.said();
    let file = fs::File::open(scene.path("dir/disk.img")).expect("opened");
    let mut found = vec![0; 131_072];
    for window in 0..10 {
        let read = std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, window * 131_072);
        if window == 0 {
            assert_eq!(read.expect_err("damaged").raw_os_error(), Some(libc::EIO));
        } else {
            read.expect("whole");
            assert!(found == disk[window as usize * 131_072..][..131_072], "window {window}");
        }
    }
    drop(file);
    serving.signal(Signal::TERM);
    let (status, _, said) = serving.end();
    assert!(status.success());
    for word in ["error", "cold.hsi", "cold window 0", "expected digest", "found"] {
        assert!(said.contains(word), "no {word} in: {said}");
    }
    scene.wait_until_clean();
}

#[test]
fn the_file_system_in_it_is_mounted_and_taken_down_with_it() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (dir, tree) = (scene.folder("dir"), scene.folder("tree"));
    // Another user's file is warned of.
    std::os::unix::fs::chown(&image, Some(1), None).expect("given away");
    let mut serving = Running::start(["mount", "-f", &image, &dir, "--fs", &tree]);
    assert!(serving.said().contains("images that you trust"), "it is not --trusted");
    assert!(serving.said().contains("mounted"));
    assert_eq!(fs::read_to_string(scene.path("tree/etc/motd")).expect("read"), "hello from the image\n");
    let busybox = fs::read(scene.path("tree/bin/busybox")).expect("read");
    assert!(busybox == fs::read("/bin/busybox").expect("read"));
    assert!(fs::write(scene.path("tree/new"), "").is_err(), "read-only");
    let mounts = scene.mounts();
    assert_eq!(mounts.len(), 2, "{mounts:?}");
    let of_tree = mounts.iter().find(|line| line.contains("/tree ")).expect("the file system");
    assert!(of_tree.contains("nosuid") && of_tree.contains("nodev"), "{of_tree}");
    serving.signal(Signal::TERM);
    let (status, _, said) = serving.end();
    assert!(status.success(), "{said}");
    scene.wait_until_clean();

    // Unmounting the file system ends all of it as well, as the one line says. An own file is trusted.
    std::os::unix::fs::chown(&image, Some(0), None).expect("taken back");
    let said = mount(&scene, &[&image, &dir, "--fs", &tree]).ok().stderr;
    assert_eq!(said, format!("the file system is at {tree}; `umount {tree}` ends it\n"));
    umount(&tree);
    scene.wait_until_clean();
    wait_until("the loop device is free", || !loop_devices_show(&dir));
}

/// The medium is so slow that the caches are still being warmed: that must not keep the file system busy.
#[test]
fn a_file_system_is_unmounted_while_it_is_warmed() {
    if !machine_has(START) {
        return;
    }
    const FILES: usize = 400;
    let scene = Scene::new();
    scene.folder("root");
    for name in ["bin", "dev", "proc", "sys", "tmp", "files"] {
        scene.folder(&format!("root/{name}"));
    }
    fs::copy("/bin/busybox", scene.path("root/bin/busybox")).expect("busybox");
    let mut content = [0; 4096];
    for number in 0..FILES {
        hs_units::Prng::new(number as u64).fill(&mut content);
        fs::write(scene.path(&format!("root/files/{number}")), content).expect("written");
    }
    let (cold, hot) = (scene.arg("cold.hsi"), scene.arg("hot.hsi"));
    let profile = scene.arg("start.hsp");
    run(["build", &scene.arg("root"), "-o", &cold, "--codec", "zstd:1"]).ok();
    let read_all = ["--", "/bin/busybox", "sh", "-c", "cat /files/* >/dev/null"];
    run([&["profile", &cold, "-o", &profile][..], &read_all].concat()).ok();
    run(["optimize", &cold, "--profile", &profile, "-o", &hot]).ok();
    let (dir, tree) = (scene.folder("dir"), scene.folder("tree"));
    for _ in 0..4 {
        mount(&scene, &[&hot, &dir, "--fs", &tree, "--emulate", "flat-50ms-1mbs"]).ok();
        assert!(server_of(&dir)["prefetch"]["end_reason"].is_null(), "it was warmed when it was unmounted");
        let unmounted = Command::new("umount").arg(&tree).status().expect("it starts");
        assert!(unmounted.success());
        scene.wait_until_clean();
        assert!(!loop_devices_show(&dir), "the loop device is free before the disk is");
    }
}

/// Whether a loop device reads a file in this folder.
fn loop_devices_show(dir: &str) -> bool {
    let loops = fs::read_dir("/sys/block").expect("devices").flatten();
    let mut backing =
        loops.filter_map(|entry| fs::read_to_string(entry.path().join("loop/backing_file")).ok());
    backing.any(|file| file.contains(dir))
}

#[test]
fn what_is_mounted_is_told_as_json_when_it_is_ready() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let digest = run(["inspect", "--json", &image]).ok().json()["image_digest"].clone();
    let (dir, tree, socket) = (scene.folder("dir"), scene.folder("tree"), scene.arg("metrics"));
    let metrics = format!("unix:{socket}");
    let flags = ["--json", "--fs", &tree, "--metrics", &metrics];
    for (more, supervised) in [(&[][..], true), (&["--unsupervised"], false)] {
        let ran = mount(&scene, &[&[&*image, &dir][..], &flags, more].concat()).ok();
        let mounted = ran.json();
        // It is ready: the disk, the file system and the metrics are there.
        assert!(fs::metadata(mounted["disk"].as_str().expect("a path")).expect("the disk").len() > 0);
        assert!(scene.path("tree/etc/motd").exists() && fs::exists(&socket).expect("looked"));
        let status = server_of(&dir);
        for key in ["image", "dir", "fs", "pid", "supervisor", "medium", "log"] {
            assert_eq!(mounted[key], status[key], "{key}: {mounted}");
        }
        assert_eq!(mounted["prefetch"], status["prefetch"]["mode"]);
        assert_eq!(mounted["supervisor"].is_u64(), supervised, "{mounted}");
        assert_eq!((&mounted["image_digest"], &mounted["file_system"]), (&digest, &"ext4".into()));
        let device = mounted["device"].as_str().expect("a loop device");
        let table = scene.mounts();
        assert!(table.iter().any(|line| line.contains(device) && line.contains("/tree ")), "{table:?}");
        let status_socket = mounted["status_socket"].as_str().expect("a path");
        assert!(fs::exists(status_socket).expect("looked"), "{mounted}");
        assert!(mounted["metrics"].as_str().expect("an address").contains(&socket), "{mounted}");
        umount(&tree);
        scene.wait_until_clean();
    }

    // In the foreground the server prints it, once, in place of the line.
    for more in [&[][..], &["--unsupervised"]] {
        let words = [&["mount", "-f", "--json", "--trusted", &image, &dir], more].concat();
        let mut serving = Running::start(words);
        let mounted = serving.printed_json();
        assert_eq!(
            (&mounted["dir"], &mounted["fs"], &mounted["device"]),
            (&dir.as_str().into(), &Value::Null, &Value::Null)
        );
        let status = server_of(&dir);
        if more.is_empty() {
            assert_eq!(status["supervisor"], serving.id());
            // The next server says nothing more.
            let pid = rustix::process::Pid::from_raw(status["pid"].as_i64().expect("a number") as i32);
            rustix::process::kill_process(pid.expect("a process"), Signal::KILL).expect("killed");
            wait_until("another server serves", || server_of(&dir)["restarts"] == 1);
        }
        serving.signal(Signal::TERM);
        let (status, printed, said) = serving.end();
        assert!(status.success() && printed.is_empty(), "{printed}{said}");
        assert!(!said.contains("mounted;"), "{said}");
        scene.wait_until_clean();
    }
    // A server whose standard output has no reader serves all the same.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = headstart(["mount", "-f", "--json", "--unsupervised", "--trusted", &image, &dir]);
    let mut serving = command.stdout(writer).spawn().expect("the program starts");
    assert_eq!(server_of(&dir)["pid"], serving.id());
    umount(&dir);
    assert!(serving.wait().expect("ended").success());
    // What fails prints nothing.
    let failed = mount(&scene, &["--json", &image, &scene.arg("gone")]);
    assert_eq!((failed.code, failed.stdout.as_str()), (Some(1), ""));
}

#[test]
fn a_disk_without_a_file_system_is_said_to_have_none() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    scene.image("cold.hsi", 100, 14);
    let (dir, tree) = (scene.folder("dir"), scene.folder("tree"));
    mount(&scene, &[&scene.arg("cold.hsi"), &dir, "--fs", &tree]).fails(1, &["file system"]);
    scene.wait_until_clean();
}

#[test]
fn a_lab_disk_counts_what_others_read_from_it() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.raw("foreign.raw", 256, 15);
    let dir = scene.folder("dir");
    let arguments = ["lab", "disk", &scene.arg("foreign.raw"), &dir, "--medium", "flat-10ms-25mbs", "--json"];
    let mut serving = Running::start(arguments);
    assert!(serving.said().contains("flat-10ms-25mbs"));
    assert!(fs::read(scene.path("dir/foreign.raw")).expect("read") == disk);
    serving.signal(Signal::TERM);
    let (status, printed, _) = serving.end();
    assert!(status.success());
    let counted: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    assert!(counted["store_requests"].as_u64().is_some_and(|requests| requests > 0), "{counted}");
    // Each byte once; a kernel that drops pages before they were read, as another test has it do, asks for
    // those again.
    let bytes = counted["store_bytes"].as_u64().expect("a number");
    assert!((disk.len() as u64..2 * disk.len() as u64).contains(&bytes), "{counted}");
    // 1 MiB at 25 MB/s, and at least one request of 10 ms.
    assert!(counted["medium_busy_s"].as_f64().is_some_and(|busy| busy >= 0.05), "{counted}");
    scene.wait_until_clean();
}
