//! `run --keep`, `mount --keep` and `overlay`: what programs write to the file system of an image lasts.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::process::Command;

use rustix::process::Signal;

use crate::mounts::umount;
use crate::nbd::{end, holed, serve};
use crate::nbd_writer::NbdWriter;
use crate::scene::{Ran, Running, START, Scene, has_tools, headstart, machine_has, mount, run, tool};
use crate::service::server_of;
use crate::starts::with_empty_mnt;
use crate::supervised::{kill, served_again};

const KILLS: usize = 3;
const TOOLS: &[&str] = &["/usr/sbin/e2fsck", "/usr/sbin/tune2fs"];

pub(crate) fn machine() -> bool {
    machine_has(&[START, TOOLS].concat())
}

/// An image of a root with space for more.
pub(crate) fn roomy(scene: &Scene) -> String {
    for name in ["bin", "dev", "proc", "sys", "tmp", "etc", "var"] {
        fs::create_dir_all(scene.path("root").join(name)).expect("a folder");
    }
    fs::copy("/bin/busybox", scene.path("root/bin/busybox")).expect("busybox");
    std::os::unix::fs::symlink("busybox", scene.path("root/bin/sh")).expect("a link");
    let (root, image) = (scene.arg("root"), scene.arg("root.hsi"));
    run(["build", &root, "-o", &image, "--free", "64M", "--codec", "zstd:1"]).ok();
    image
}

pub(crate) fn run_in(scene: &Scene, flags: &[&str], script: &str) -> Ran {
    let (image, keep) = (scene.arg("root.hsi"), scene.arg("changes"));
    let words = ["-q", "run", &image, "--keep", &keep].into_iter().chain(flags.iter().copied());
    run(words.chain(["--", "/bin/busybox", "sh", "-c", script]))
}

/// What e2fsck says of the disk with its changes.
pub(crate) fn check(scene: &Scene) {
    let dir = scene.arg("dir");
    let _ = fs::create_dir(&dir);
    run(["-q", "mount", &scene.arg("root.hsi"), &dir, "--keep", &scene.arg("changes")]).ok();
    let disk = scene.arg("dir/disk.img");
    let checked = Command::new("e2fsck").args(["-fn", &disk]).output().expect("e2fsck starts");
    tool("umount", &[&dir]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    run(["overlay", "check", &scene.arg("changes")]).ok();
}

#[test]
fn what_a_program_writes_is_there_at_the_next_run() {
    if !machine() {
        return;
    }
    let scene = Scene::new();
    roomy(&scene);
    run_in(&scene, &[], "echo kept >/etc/new; busybox rm /bin/sh; echo gone >/tmp/new").ok();
    let ran = run_in(&scene, &[], "busybox cat /etc/new; busybox ls /bin /tmp; exit 7");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(7), "kept\n/bin:\nbusybox\n\n/tmp:\n"), "{ran:?}");
    check(&scene);
    // Without the file it is what was built.
    let other = run(["-q", "run", &scene.arg("root.hsi"), "--", "/bin/sh", "-c", "busybox cat /etc/new"]);
    assert_eq!(other.code, Some(1), "{other:?}");
    // A journal was added, so nothing has to be repaired after a crash.
    let dir = scene.arg("dir");
    run(["-q", "mount", &scene.arg("root.hsi"), &dir, "--keep", &scene.arg("changes")]).ok();
    let about = tool("dumpe2fs", &["-h", &scene.arg("dir/disk.img")]).stdout;
    tool("umount", &[&dir]);
    assert!(about.contains("has_journal"), "{about}");
    scene.wait_until_clean();
}

/// What is unmounted here may go on elsewhere: a mount namespace has it that was made meanwhile.
#[test]
fn a_file_system_is_kept_until_its_last_user_is_gone() {
    if !machine() || !has_tools(&["unshare", "nsenter"]) {
        return;
    }
    let scene = Scene::new();
    let image = roomy(&scene);
    let (dir, place, changes) = (scene.folder("dir"), scene.folder("fs"), scene.arg("changes"));
    for ends_by in ["umount", "server"] {
        mount(&scene, &[&image, &dir, "--fs", &place, "--keep", &changes]).ok();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", "echo made; exec sleep 1000"]);
        let mut elsewhere = Running::start_command(command);
        assert_eq!(elsewhere.printed().trim(), "made");
        fs::write(scene.path("fs/etc").join(ends_by), "before").expect("written");
        if ends_by == "server" {
            // It is told to end: what was written until then is there.
            let server = server_of(&dir)["pid"].as_i64().expect("a number");
            tool("kill", &["-TERM", &server.to_string()]);
            scene.wait_until_clean();
            elsewhere.signal(Signal::KILL);
            continue;
        }
        umount(&place);
        run(["commit", &image, &changes, "-o", &scene.arg("new.hsi")])
            .fails(1, &["in use by another process"]);
        let (user, write) = (elsewhere.id().to_string(), format!("echo later >{place}/etc/later"));
        tool("nsenter", &["--mount", "--target", &user, "sh", "-c", &write]);
        // Another server goes on with it, and mounts nothing.
        kill(&server_of(&dir));
        served_again(&dir, 1);
        assert_eq!(scene.mounts().len(), 1, "only the disk");
        tool(
            "nsenter",
            &["--mount", "--target", &user, "sh", "-c", &format!("echo too >>{place}/etc/later")],
        );
        elsewhere.signal(Signal::KILL);
        elsewhere.end();
        scene.wait_until_clean();
    }
    // Or a program has a file open when it is unmounted lazily.
    mount(&scene, &[&image, &dir, "--fs", &place, "--keep", &changes]).ok();
    let mut file = File::create(scene.path("fs/etc/open")).expect("created");
    tool("umount", &["--lazy", &place]);
    file.write_all(b"lazily").expect("written");
    drop(file);
    scene.wait_until_clean();
    let ran = run_in(&scene, &[], "cd /etc; busybox cat umount later server open");
    assert_eq!(ran.stdout, "beforelater\ntoo\nbeforelazily", "{ran:?}");
    check(&scene);
}

/// A start covers a folder in which nothing lies that it needs.
#[test]
fn changes_may_lie_wherever_one_mounts() {
    if !machine_has(&[START, TOOLS, &["/usr/bin/unshare"]].concat()) {
        return;
    }
    let scene = Scene::new();
    let image = roomy(&scene);
    let script = "$0 -q run $1 --keep /mnt/changes -- /bin/busybox sh -c 'echo kept >/etc/new'
        $0 -q run $1 --keep /mnt/changes -- /bin/busybox cat /etc/new; ls -A /mnt";
    assert_eq!(with_empty_mnt(script, &[&image]).ok().stdout, "kept\nchanges\n");
    scene.wait_until_clean();
}

#[test]
fn files_that_were_synced_survive_a_run_that_is_killed() {
    if !machine() {
        return;
    }
    let scene = Scene::new();
    roomy(&scene);
    run_in(&scene, &[], ":").ok();
    let mut written = Vec::new();
    for round in 0..KILLS {
        let script = format!(
            "i=0; while :; do echo {round} $i >/var/{round}-$i; echo x >>/var/log; busybox sync /var/{round}-$i; \
             echo {round}-$i; i=$((i + 1)); done"
        );
        let (image, keep) = (scene.arg("root.hsi"), scene.arg("changes"));
        let words = ["-q", "run", &image, "--keep", &keep, "--", "/bin/busybox", "sh", "-c", &script];
        let mut running = Running::start(words);
        for _ in 0..20 + 7 * round {
            written.push(running.printed().trim().to_owned());
        }
        running.signal(Signal::KILL);
        drop(running.end());
        scene.wait_until_clean();
        // The kernel replays the journal when it is mounted, and then all is well.
        let there = run_in(&scene, &[], "busybox ls /var").ok().stdout;
        let names: Vec<_> = there.lines().collect();
        let lost: Vec<_> = written.iter().filter(|name| !names.contains(&name.as_str())).collect();
        assert!(lost.is_empty(), "round {round}: {lost:?} of {names:?}");
        check(&scene);
    }
}

/// A mounted disk with a supervisor, written to through its file.
#[test]
fn a_server_that_dies_with_unflushed_writes_takes_no_more() {
    if !machine() {
        return;
    }
    let scene = Scene::new();
    let disk = holed(&scene, "disk.hsi");
    let dir = scene.folder("dir");
    mount(&scene, &[&scene.arg("disk.hsi"), &dir, "--keep", &scene.arg("changes")]).ok();
    let file = File::options().read(true).write(true).open(scene.path("dir/disk.img")).expect("opened");
    file.write_all_at(&[7; 9000], 5000).expect("written");
    file.sync_data().expect("synced");
    // Nothing is unflushed: no program sees that the server died.
    kill(&server_of(&dir));
    let status = served_again(&dir, 1);
    file.write_all_at(&[8; 100], 5000).expect("written");
    file.sync_data().expect("synced");
    file.write_all_at(&[9; 100], 5000).expect("written");
    kill(&status);
    served_again(&dir, 2);
    file.sync_data().expect_err("a write is lost");
    file.write_all_at(&[1; 100], 5000).expect_err("nothing more is written");
    let mut found = vec![0; 9000];
    file.read_exact_at(&mut found[..200], 60_000).expect("read");
    assert!(found[..200] == disk[60_000..60_200]);
    drop(file);
    umount(&dir);
    scene.wait_until_clean();
    // What was flushed is there.
    let server = serve(&scene, &["--unsupervised", "--keep", &scene.arg("changes"), &scene.arg("disk.hsi")]);
    let mut client = NbdWriter::connect(&scene.path("socket")).expect("connected");
    let found = client.read(5000, 9000).expect("read");
    assert!(found[..100] == [8; 100] && found[100..] == [7; 8900]);
    end(server);
}

/// The kernel writes behind the programs, the last of it when all of them have ended.
#[test]
fn what_a_full_medium_has_lost_is_an_error_of_run_and_of_mount() {
    if !machine() {
        return;
    }
    let scene = Scene::new();
    let image = roomy(&scene);
    let small = scene.folder("small");
    tool("mount", &["-t", "tmpfs", "-o", "size=9m", "small", &small]);
    let keep = scene.arg("small/changes");
    let lost = ["small/changes: ", "writes found no space", "No space left"];
    let write = "head -c 20000000 /dev/urandom >/lost; true";
    run(["run", &image, "--keep", &keep, "--", "/bin/busybox", "sh", "-c", write]).fails(1, &lost);
    run(["overlay", "check", &keep]).ok();
    fs::remove_file(&keep).expect("removed");
    let (dir, tree) = (scene.folder("dir"), scene.folder("tree"));
    let mounted_while = |keep: &str, change: &dyn Fn()| {
        let mut mounted = Running::start(["mount", "-f", &image, &dir, "--fs", &tree, "--keep", keep]);
        while !mounted.said().contains("mounted") {}
        change();
        umount(&tree);
        let (status, _, said) = mounted.end();
        (status.code(), said)
    };
    let (code, said) = mounted_while(&keep, &|| {
        let _ = fs::write(scene.path("tree/lost"), hs_testing::noise(20_000_000, 7));
    });
    assert!(code == Some(1) && lost.iter().all(|words| said.contains(words)), "{said}");
    let gone = scene.arg("gone");
    let (code, said) = mounted_while(&gone, &|| fs::remove_file(&gone).expect("removed"));
    assert!(code == Some(1) && said.contains("gone: the file was removed while it was used"), "{said}");
    let (code, said) = mounted_while(&gone, &|| fs::rename(&gone, scene.path("moved")).expect("moved"));
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_full_disk_is_told_to_the_writer_and_all_before_stays() {
    if !machine() {
        return;
    }
    let scene = Scene::new();
    holed(&scene, "disk.hsi");
    let small = scene.folder("small");
    tool("mount", &["-t", "tmpfs", "-o", "size=7m", "small", &small]);
    let keep = scene.arg("small/changes");
    let server = serve(&scene, &["--unsupervised", "--keep", &keep, &scene.arg("disk.hsi")]);
    let mut client = NbdWriter::connect(&scene.path("socket")).expect("connected");
    let mut written = 0;
    let refused = loop {
        let bytes = vec![written as u8 + 1; 128 << 10];
        match client.write(0, written % 20 * (128 << 10), &bytes).expect("answered") {
            0 => assert_eq!(client.flush().expect("answered"), 0),
            errno => break errno,
        }
        written += 1;
        assert!(written < 1000, "it never becomes full");
    };
    assert_eq!(refused, 28, "ENOSPC");
    // A snapshot that could not be deleted for want of space is refused.
    for name in ["one", "two", "three"] {
        let ran = run(["overlay", "snapshot", &keep, name]);
        if ran.code != Some(0) {
            ran.fails(1, &["take space for", "No space left"]);
        }
    }
    let listed = run(["overlay", "list", "--json", &keep]).ok().json();
    for snapshot in listed[0]["snapshots"].as_array().expect("a list") {
        run(["overlay", "delete", &keep, snapshot["name"].as_str().expect("a name")]).ok();
    }
    for at in written.saturating_sub(20)..written {
        let found = client.read(at % 20 * (128 << 10), 128 << 10).expect("read");
        assert!(found.iter().all(|byte| *byte == at as u8 + 1), "write {at}");
    }
    // A discard needs none.
    assert_eq!(client.trim(0, 128 << 10).expect("answered"), 0);
    assert_eq!(client.flush().expect("answered"), 0);
    assert!(client.read(0, 128 << 10).expect("read").iter().all(|byte| *byte == 0));
    tool("mount", &["-o", "remount,size=64m", &small]);
    assert_eq!(client.write(1, 0, &[200; 4096]).expect("answered"), 0);
    run(["overlay", "snapshot", &keep, "one"]).ok();
    run(["overlay", "delete", &keep, "one"]).ok();
    end(server);
    run(["overlay", "check", &keep]).ok();
    tool("umount", &[&small]);
}

#[test]
fn files_of_changes_are_listed_compacted_and_reverted() {
    let scene = Scene::new();
    let disk = holed(&scene, "disk.hsi");
    let keep = scene.arg("changes");
    let write = |byte: u8| {
        let server = serve(&scene, &["--unsupervised", "--keep", &keep, &scene.arg("disk.hsi")]);
        let mut client = NbdWriter::connect(&scene.path("socket")).expect("connected");
        let before = client.read(0, 1 << 20).expect("read");
        assert_eq!(client.write(1, 0, &vec![byte; 1 << 20]).expect("answered"), 0);
        end(server);
        before
    };
    assert!(write(1) == disk[..1 << 20]);
    let listed = run(["overlay", "list", "--json", &keep]).ok().json();
    assert_eq!(listed[0]["data_bytes"], 1 << 20);
    assert_eq!(listed[0]["disk_bytes"], disk.len());
    run(["overlay", "snapshot", &keep, "first"]).ok();
    run(["overlay", "snapshot", &keep, "first"]).fails(1, &["'first'", "there is one of this name"]);
    write(2);
    run(["overlay", "compact", &keep]).fails(1, &["has snapshots", "'first'"]);
    run(["overlay", "revert", &keep, "first"]).ok();
    assert!(write(3) == [1; 1 << 20]);
    run(["overlay", "revert", &keep, "second"]).fails(1, &["no snapshot 'second'"]);
    run(["overlay", "delete", &keep, "first"]).ok();
    // Of what lies where the new file is written only an earlier attempt's is removed.
    let beside = scene.arg("changes.unfinished");
    fs::write(&beside, "mine").expect("written");
    run(["overlay", "compact", &keep]).fails(1, &[&beside, "another file is there"]);
    assert_eq!(fs::read(&beside).expect("it stays"), b"mine");
    fs::copy(&keep, &beside).expect("copied");
    let compacted = run(["overlay", "compact", &keep, "--json"]).ok().json();
    assert!(!fs::exists(&beside).expect("looked"));
    assert!(compacted["after_bytes"].as_u64() <= compacted["before_bytes"].as_u64(), "{compacted}");
    assert!(write(4) == [3; 1 << 20]);
    run(["overlay", "check", &keep]).ok();
    // Half a block of what was written.
    let file = File::options().write(true).open(&keep).expect("opened");
    let bytes = fs::read(&keep).expect("read");
    let place = (16..bytes.len() / 4096).find(|block| bytes[block * 4096..(block + 1) * 4096] == [4; 4096]);
    file.write_all_at(&[9; 100], place.expect("it is there") as u64 * 4096).expect("written");
    run(["overlay", "check", &keep]).fails(1, &["1 of 256 blocks are not what was written"]);
    run(["overlay", "compact", &keep]).fails(1, &["1 of 256 blocks are not what was written"]);
    run(["overlay", "check", &keep]).fails(1, &["1 of 256 blocks are not what was written"]);
    let listed = run(["overlay", "list", &scene.arg("none"), &keep]);
    listed.fails(1, &["none", "No such file"]);
    assert!(listed.stdout.contains("of a disk of"), "{listed:?}");
    let unnamed = scene.path("").join(std::ffi::OsStr::from_bytes(b"\xff.hsk"));
    fs::copy(&keep, &unnamed).expect("copied");
    let words = ["overlay", "--json", "list"].map(std::ffi::OsStr::new);
    run(words.into_iter().chain([unnamed.as_os_str()])).ok().json();
    file.set_len(5 << 20).expect("cut off");
    run(["overlay", "check", &keep]).fails(1, &["it is damaged", "restore the file"]);
    fs::write(scene.path("other"), vec![5; 100_000]).expect("written");
    run(["overlay", "check", &scene.arg("other")]).fails(1, &["it is no overlay"]);
    let refused = headstart(["overlay", "list", "/dev/null"]).output().expect("run");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no regular file"));
}

/// A start that fails leaves no file of changes.
#[test]
fn of_a_start_that_fails_nothing_is_kept() {
    if !machine() || !has_tools(&["mksquashfs"]) {
        return;
    }
    let scene = Scene::new();
    let image = roomy(&scene);
    let (squashed, keep, dir) = (scene.arg("squashed.hsi"), scene.arg("changes"), scene.folder("dir"));
    tool("mksquashfs", &[&scene.arg("root"), &scene.arg("squashed"), "-quiet"]);
    run(["build", &scene.arg("squashed"), "-o", &squashed]).ok();
    let refused = ["run", &squashed, "--keep", &keep, "--", "/bin/sh"];
    run(refused).fails(1, &["squashfs is a file system that cannot be written to"]);
    mount(&scene, &[&image, &dir, "--fs", &scene.arg("none"), "--keep", &keep]).fails(1, &["does not exist"]);
    assert!(!scene.path("changes").exists());
    scene.wait_until_clean();
}
