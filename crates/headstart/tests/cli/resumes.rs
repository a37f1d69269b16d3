//! Guests that are saved when they are ready, and go on from there.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use hs_units::BLOCK_BYTES;
use rustix::process::Signal;

use crate::boots::{assert_nothing_is_in_tmp, assert_nothing_is_left_after, boot, little_guest};
use crate::mounts::umount;
use crate::qemu_boots::{GUEST, QEMU, install_kernel};
use crate::qemu_kernels::linux;
use crate::scene::{
    Ran, Running, Scene, has_tools, headstart, machine_has, made_once, mount, run, tool, wait_until,
};
use crate::service::server_of;
use crate::supervised::{kill, served_again};

/// Writes to its disk, and then does what is typed.
const INIT: &str = "#!/bin/sh
echo saved words >/written
sync
echo up
while :; do
    printf '# '
    read line || sleep 1
    eval \"$line\"
done
";

/// What is typed, and the right answer, which the echo of what is typed is not.
pub(crate) const ASK: [&str; 6] =
    ["--type", "cat /written /fine", "--type", "echo answer $((6*7))", "--ready", "answer 42"];

/// A scene with `guest.hsi` and `saved.hsi`, a snapshot of its guest, which was booted and saved once.
pub(crate) fn saved() -> Option<Scene> {
    if !machine_has(GUEST) {
        return None;
    }
    let kernel = linux()?.join("vmlinuz").display().to_string();
    let made = made_once("saved-guest", |folder| {
        let scene = with_guest(&kernel);
        save(&scene, &scene.arg("saved.hsi"));
        fs::create_dir(folder).expect("a folder");
        FILES.iter().for_each(|name| copy(&scene.path(name), &folder.join(name)));
    });
    let scene = Scene::new();
    scene.folder("tmp");
    FILES.iter().for_each(|name| copy(&made.join(name), &scene.path(name)));
    Some(scene)
}

fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).expect("copied");
}

const FILES: [&str; 2] = ["guest.hsi", "saved.hsi"];

/// A scene with `guest.hsi`, the disk of a guest.
fn with_guest(kernel: &str) -> Scene {
    let (scene, _) = little_guest();
    install_kernel(&scene, kernel);
    fs::write(scene.path("root/sbin/init"), INIT).expect("written");
    fs::write(scene.path("root/fine"), "fine words\n".repeat(50_000)).expect("written");
    let image = scene.arg("guest.hsi");
    run(["build", &scene.arg("root"), "-o", &image, "--free", "64M", "--codec", "zstd:1"]).ok();
    scene
}

/// Only its owner reads the guest's memory.
fn assert_is_private(file: &str) {
    assert_eq!(fs::metadata(file).expect("there").permissions().mode() & 0o777, 0o600, "{file}");
}

/// Boots that guest, and saves it when it is ready.
fn save(scene: &Scene, snapshot: &str) {
    let flags = [&QEMU[..], &["--ready", "^up$", "--snapshot-out", snapshot, "--json"]].concat();
    let ran = boot(scene, &scene.arg("guest.hsi"), &flags).ok();
    assert_eq!(ran.json()["snapshot"], snapshot);
    assert_is_private(snapshot);
    assert_nothing_is_in_tmp(scene);
}

/// A resume with these flags.
pub(crate) fn resume(scene: &Scene, snapshot: &str, flags: &[&str]) -> Ran {
    let words = ["resume", snapshot].into_iter().chain(flags.iter().copied());
    let patience = ["--ready-timeout", "100"];
    let ran = headstart(words.chain(patience)).env("TMPDIR", scene.path("tmp")).output();
    Ran::from(ran.expect("the program starts"))
}

#[test]
fn a_saved_guest_goes_on_is_recorded_and_prefetched() {
    let Some(scene) = saved() else { return };
    let (snapshot, console) = (scene.arg("saved.hsi"), scene.arg("console"));
    let before = fs::read(&snapshot).expect("the snapshot");
    let said = || fs::read_to_string(scene.path("console")).expect("the console");
    let flags = [&ASK[..], &["--json", "--console", &console]].concat();

    // It has what it had written, and reads the rest of its disk, which is found beside the snapshot. It does
    // not boot.
    let (profile, of_disk) = (scene.arg("resume.hsp"), scene.arg("disk.hsp"));
    let recording = ["--record", &profile, "--record-disk", &of_disk];
    let ran = resume(&scene, &snapshot, &[&flags[..], &recording].concat()).ok();
    let recorded = ran.json();
    assert!(said().contains("saved words") && said().contains("fine words"), "{}", said());
    assert!(!said().contains("Linux version") && !said().contains("\nup"), "{}", said());
    let all = recorded["logical_bytes"].as_u64().expect("counted");
    let touched = recorded["demand_bytes"].as_u64().expect("counted");
    assert!(touched > 1 << 20 && touched < all / 4, "{touched} of {all}: {recorded}");
    assert_eq!(fs::read(&snapshot).expect("the snapshot"), before);

    // Laid out by that, the pages come before they are touched.
    let fast = scene.arg("fast.hsi");
    let disk = scene.arg("guest.hsi");
    let words = ["optimize", &snapshot, "-p", &profile, "-o", &fast, "--codec", "zstd:1"];
    run(words).fails(1, &["saved.hsi", "it needs the image with disk digest", "--base"]);
    run([&words[..], &["--base", &disk]].concat()).ok();
    assert_is_private(&fast);
    run(["verify", &fast, "--base", &disk]).ok();
    let medium = [&flags[..], &["--emulate", "flat-10ms-25mbs"]].concat();
    let asked = |snapshot: &str| {
        let summary = resume(&scene, snapshot, &medium).ok().json();
        assert!(said().contains("saved words"), "{}", said());
        summary["store_requests"].as_u64().expect("counted")
    };
    let (plain, fast) = (asked(&snapshot), asked(&fast));
    assert!(fast * 2 < plain, "{fast} requests with a profile, {plain} without");
    resume(&scene, &snapshot, &[&flags[..], &["--warm"]].concat()).ok();
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}

#[test]
fn a_snapshot_in_an_encrypted_folder_is_resumed_from_there() {
    if !has_tools(&["gocryptfs"]) {
        return;
    }
    let Some(scene) = saved() else { return };
    let (stored, shown, disk) = (scene.folder("stored"), scene.folder("shown"), scene.arg("guest.hsi"));
    let password = ["-q", "-extpass", "echo pw123"];
    tool("gocryptfs", &[&password[..], &["-init", "-scryptn", "10", &stored]].concat());
    tool("gocryptfs", &[&password[..], &[&stored, &shown]].concat());
    let snapshot = scene.arg("shown/saved.hsi");
    fs::remove_file(scene.path("saved.hsi")).expect("removed");
    save(&scene, &snapshot);
    resume(&scene, &snapshot, &[&ASK[..], &["--disk", &disk]].concat()).ok();
    // Nothing of what the image consists of is in the files that are stored.
    let image = fs::read(&snapshot).expect("the snapshot");
    let contents = fs::read_dir(&stored).expect("a folder").map(|entry| entry.expect("an entry").path());
    let contents: Vec<Vec<u8>> = contents.map(|path| fs::read(path).expect("a file")).collect();
    assert!(contents.iter().any(|content| content.len() > image.len()), "it is stored there");
    for place in (0..image.len() - 16).step_by(image.len() / 50) {
        let sample = &image[place..place + 16];
        if sample.iter().any(|byte| *byte != 0) {
            let holds = |content: &Vec<u8>| hs_testing::place(content, sample).is_some();
            assert!(!contents.iter().any(holds), "{place}");
        }
    }
    umount(&shown);
    resume(&scene, &snapshot, &ASK).fails(1, &["saved.hsi", "No such file"]);
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}

/// The raw disk of the snapshot, and where its description begins.
pub(crate) fn exported(scene: &Scene) -> (fs::File, u64) {
    let (snapshot, disk, raw) = (scene.arg("saved.hsi"), scene.arg("guest.hsi"), scene.arg("saved.raw"));
    run(["export", &snapshot, "-o", &raw, "--format", "raw", "--force", "--base", &disk]).ok();
    let file = fs::File::options().read(true).write(true).open(&raw).expect("the disk");
    let at = file.metadata().expect("there").len() - BLOCK_BYTES;
    (file, at)
}

/// The snapshot with another description.
fn with_description(scene: &Scene, change: impl Fn(&str) -> String) -> String {
    let (file, at) = exported(scene);
    let mut block = vec![0; BLOCK_BYTES as usize];
    file.read_exact_at(&mut block, at).expect("read");
    let length = u32::from_le_bytes(block[8..12].try_into().expect("four")) as usize;
    let json = change(std::str::from_utf8(&block[12..12 + length]).expect("text"));
    block[8..12].copy_from_slice(&(json.len() as u32).to_le_bytes());
    block[12..].fill(0);
    block[12..12 + json.len()].copy_from_slice(json.as_bytes());
    file.write_all_at(&block, at).expect("written");
    let output = scene.arg("changed.hsi");
    run(["build", "--raw", &scene.arg("saved.raw"), "-o", &output, "--codec", "lz4:0"]).ok();
    output
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let Some(scene) = saved() else { return };
    let snapshot = scene.arg("saved.hsi");
    let refused = |snapshot: &str, flags: &[&str], words: &[&str]| {
        resume(&scene, snapshot, &[&["--ready", "^answer"], flags].concat()).fails(1, words);
    };
    // Another disk, no disk, no snapshot.
    scene.folder("other");
    scene.image("other.hsi", 3000, 7);
    refused(&snapshot, &["--disk", &scene.arg("other.hsi")], &["saved with the disk", "guest.hsi", "--disk"]);
    fs::copy(&snapshot, scene.path("other/saved.hsi")).expect("copied");
    refused(&scene.arg("other/saved.hsi"), &[], &["guest.hsi", "beside it", "--disk"]);
    refused(&scene.arg("guest.hsi"), &[], &["no snapshot of a guest", "--snapshot-out"]);
    // It was saved without a network.
    refused(&snapshot, &["--network"], &["saved.hsi", "no network card", "headstart boot"]);
    refused(&scene.arg("gone.hsi"), &[], &["gone.hsi", "No such file"]);

    // Another machine, memory or executor than it was saved with.
    let machine = with_description(&scene, |json| json.replace("pc-i440fx-", "pc-i440fx-9"));
    refused(&machine, &[], &["machine pc-i440fx-9", "QEMU", "or later"]);
    assert_nothing_is_in_tmp(&scene);
    let of_memory = ["\"memory_bytes\":167772160", "\"memory_bytes\":134217728"];
    let memory = with_description(&scene, |json| json.replace(of_memory[0], of_memory[1]));
    refused(&memory, &[], &["its memory does not end where"]);
    let executor = with_description(&scene, |json| json.replace("\"tcg\"", "\"abacus\""));
    refused(&executor, &[], &["executed by abacus"]);
    let format = with_description(&scene, |json| json.replace("\"format\":4", "\"format\":5"));
    refused(&format, &[], &["format 5"]);

    // A page of its memory that cannot be had ends the guest; it never gets zeros.
    let bytes = fs::metadata(&snapshot).expect("there").len();
    let bad = format!("{}+{}", bytes / 8 / 4096 * 4096, bytes / 2 / 4096 * 4096);
    let ran = resume(&scene, &snapshot, &[&ASK[..], &["--bad-sectors", &bad]].concat());
    ran.fails(1, &["could not be answered"]);
    assert!(!ran.stderr.contains("answer 42"), "{ran:?}");
    scene.wait_until_clean();

    // What cannot be saved.
    let out = scene.arg("x.hsi");
    let flags = ["--ready", "^up$", "--snapshot-out", &out];
    let nvme = [&QEMU[..], &["--bus", "nvme"], &flags].concat();
    boot(&scene, &scene.arg("guest.hsi"), &nvme).fails(1, &["--bus nvme", "cannot save"]);
    let uml = [&["--vmm", "uml"], &flags[..]].concat();
    boot(&scene, &scene.arg("guest.hsi"), &uml).fails(1, &["--snapshot-out", "qemu"]);
    assert!(!scene.path("x.hsi").exists());
}

#[test]
fn a_changed_snapshot_is_refused() {
    let Some(scene) = saved() else { return };
    let (snapshot, disk) = (scene.arg("saved.hsi"), scene.arg("guest.hsi"));
    let whole = fs::read(&snapshot).expect("the snapshot");
    let name = run(["inspect", "--json", &snapshot]).ok().json()["image_digest"].clone();
    let name = name.as_str().expect("a digest").to_owned();
    let named = format!("{snapshot}#{name}");
    resume(&scene, &named, &ASK).ok();
    // Each part: what opens it, the memory, and what is behind it.
    for place in [40, whole.len() / 3, whole.len() - 5000] {
        let mut changed = whole.clone();
        changed[place..place + 64].iter_mut().for_each(|byte| *byte ^= 0x55);
        fs::write(&snapshot, &changed).expect("written");
        let ran = resume(&scene, &named, &ASK);
        // A page that is never touched harms nothing.
        assert!(
            ran.code == Some(1) || run(["verify", &snapshot, "--base", &disk]).code == Some(1),
            "{place}: {ran:?}"
        );
        assert!(!ran.stderr.contains("panicked"), "{ran:?}");
    }
}

/// Forgets what the guest has of its disk in memory.
const FORGET: &str = "busybox mount -t proc p /proc; echo 3 >/proc/sys/vm/drop_caches";

#[test]
fn what_a_resumed_guest_writes_is_kept_and_its_memory_knows_no_other_disk() {
    let Some(scene) = saved() else { return };
    let [snapshot, disk, keep, console] =
        ["saved.hsi", "guest.hsi", "changes", "console"].map(|name| scene.arg(name));
    let before = fs::read(&disk).expect("the disk");
    let said = || fs::read_to_string(&console).unwrap_or_default();
    let flags = ["--keep", &keep, "--console", &console];
    let recording = ["resume", &snapshot, "--keep", &keep, "--record", "x"];
    run(recording).fails(2, &["--keep", "--record"]);

    // What it has synced is there after the program was killed. Its ext4 has no journal: the first sync
    // writes blocks of the ext4 itself behind its flush.
    let typed = "echo kept words >/kept; sync; sync; echo synced $((6*7))";
    let words = ["resume", &snapshot, "--type", typed, "--ready", "never"].into_iter().chain(flags);
    let mut command = headstart(words);
    command.env("TMPDIR", scene.path("tmp"));
    let running = Running::start_command(command);
    wait_until("the guest has synced its file", || said().contains("synced 42"));
    running.signal(Signal::KILL);
    drop(running.end());
    scene.wait_until_clean();
    run(["overlay", "check", &keep]).ok();
    let listed = run(["overlay", "list", "--json", &keep]).ok().json();
    let name = listed[0]["snapshots"][0]["name"].as_str().expect("it has a snapshot").to_owned();
    assert!(name.starts_with("resumed-") && name.len() == 24, "{name}");

    // The saved memory must not have that disk, which other commands have.
    let boots = format!("`headstart boot {disk} --keep {keep}`");
    let reverts = format!("`headstart overlay revert {keep} {name}`");
    let go_on = |ask: &[&str]| resume(&scene, &snapshot, &[&flags[..], ask].concat());
    go_on(&ASK).fails(1, &["was written to since", "saved.hsi", &boots, &reverts]);
    let on_disk = |name: &str| {
        let dir = scene.folder(name);
        mount(&scene, &[&disk, &dir, "--keep", &keep]).ok();
        let found = ["/written", "/kept"].map(|path| {
            let request = format!("cat {path}");
            tool("debugfs", &["-R", &request, &scene.arg(&format!("{name}/disk.img"))]).stdout
        });
        umount(&dir);
        scene.wait_until_clean();
        found
    };
    assert_eq!(on_disk("first"), ["saved words\n", "kept words\n"]);

    // It goes on with the disk that it was saved with, and what it writes then lasts too.
    run(["overlay", "revert", &keep, &name]).ok();
    let typed = "cat /written; cat /kept || echo is not there; echo more words >/kept; sync";
    let ask = ["--type", FORGET, "--type", typed, "--type", "echo answer $((6*7))", "--ready", "answer 42"];
    go_on(&ask).ok();
    // What is typed is echoed between the lines of what is said.
    let said = said();
    assert!(said.contains("saved words") && said.contains("can't open '/kept'"), "{said}");
    assert_eq!(on_disk("second"), ["saved words\n", "more words\n"]);
    go_on(&ASK).fails(1, &[&reverts]);

    // Without that snapshot it is a disk like any other.
    run(["overlay", "delete", &keep, &name]).ok();
    go_on(&ASK)
        .fails(1, &["changes does not have the disk of the guest", "a file that is not there", &boots]);
    assert!(fs::read(&disk).expect("the disk") == before);
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}

/// And not its end: it goes on, and can make room.
#[test]
fn a_medium_of_changes_that_is_full_is_an_error_of_the_guest() {
    let Some(scene) = saved() else { return };
    let (small, snapshot, console) = (scene.folder("small"), scene.arg("saved.hsi"), scene.arg("console"));
    tool("mount", &["-t", "tmpfs", "-o", "size=24m", "small", &small]);
    let keep = scene.arg("small/changes");
    let typed = "while cat /fine; do :; done | busybox head -c 40000000 | dd of=/filled bs=65536 conv=fsync || \
                 echo it is f''ull";
    let ask = ["--type", typed, "--type", "echo answer $((6*7))", "--ready", "answer 42"];
    let flags = ["--keep", &keep, "--console", &console];
    let ran = resume(&scene, &snapshot, &[&ask[..], &flags].concat()).ok();
    let said = fs::read_to_string(&console).expect("the console");
    assert!(said.contains("it is full") && ran.stderr.contains("No space left"), "{ran:?} {said}");
    run(["overlay", "check", &keep]).ok();
    tool("umount", &[&small]);
    scene.wait_until_clean();
}

#[test]
fn however_a_resume_ends_nothing_of_it_is_left() {
    let Some(scene) = saved() else { return };
    for signal in [Signal::TERM, Signal::KILL] {
        let (snapshot, console) = (scene.arg("saved.hsi"), scene.arg("console"));
        let words =
            ["resume", &snapshot, "--ready", "never", "--type", "echo; echo up", "--console", &console];
        assert_nothing_is_left_after(&scene, headstart(words), signal, 2);
    }
}

#[test]
fn guests_of_a_mounted_snapshot_go_on_however_often_its_server_is_killed() {
    let Some(scene) = saved() else { return };
    let (dir, disk) = (scene.folder("dir"), scene.arg("guest.hsi"));
    mount(&scene, &[&scene.arg("saved.hsi"), &dir, "--mode", "0666", "--base", &disk]).ok();
    let memory = scene.arg("dir/disk.img");
    let resume = || {
        let words = ["resume", &memory, "--disk", &disk, "--json"].into_iter().chain(ASK);
        let mut command = headstart(words);
        command.env("TMPDIR", scene.path("tmp"));
        Running::start_command(command)
    };
    // Two at once, of one copy of their memory.
    for restarts in 1..4 {
        let clones = [resume(), resume()];
        kill(&server_of(&dir));
        served_again(&dir, restarts);
        for clone in clones {
            let (status, summary, said) = clone.end();
            assert!(status.success(), "{said}");
            assert!(summary.contains("ready_s"), "{summary}");
        }
    }
    let profile = scene.arg("x.hsp");
    let words = ["resume", &memory, "--disk", &disk, "--record", &profile];
    Ran::from(headstart(words).output().expect("starts")).fails(1, &["is shown already", "recorded from"]);
    umount(&dir);
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}

/// The word that the guest says of all its files but those that it makes.
const SUMS: [&str; 6] = [
    "--type",
    "busybox find / -xdev -type f -exec busybox md5sum {} + | busybox sort",
    "--type",
    "echo answer $((6*7))",
    "--ready",
    "answer 42",
];

#[test]
fn pages_that_the_disk_has_are_stored_once() {
    let Some(scene) = saved() else { return };
    let (disk, console) = (scene.arg("guest.hsi"), scene.arg("console"));
    let size = |name: &str| fs::metadata(scene.path(name)).expect("there").len();
    let inspect = |name: &str| run(["inspect", "--json", &scene.arg(name)]).ok().json();
    assert_eq!(inspect("saved.hsi")["base_digest"], inspect("guest.hsi")["disk_digest"]);
    // The same guest, whole.
    let raw = scene.arg("saved.raw");
    run(["export", &scene.arg("saved.hsi"), "-o", &raw, "--format", "raw", "--force", "--base", &disk]).ok();
    run(["build", "--raw", &raw, "-o", &scene.arg("whole.hsi"), "--window", "16K"]).ok();
    assert!(inspect("whole.hsi")["base_digest"].is_null());
    assert!(size("saved.hsi") < size("whole.hsi"), "{} of {}", size("saved.hsi"), size("whole.hsi"));
    run(["verify", &scene.arg("saved.hsi"), "--base", &disk, "--against", &raw]).ok();
    // The guest's files are the same through both, from its caches and from its disk.
    let sums = |snapshot: &str| {
        resume(&scene, &scene.arg(snapshot), &[&SUMS[..], &["--console", &console]].concat()).ok();
        let said = fs::read_to_string(&console).expect("the console");
        let sums = said.lines().filter(|line| line.contains("  /")).map(str::trim_end);
        sums.map(str::to_owned).collect::<Vec<_>>()
    };
    let (saved, whole) = (sums("saved.hsi"), sums("whole.hsi"));
    assert!(saved.iter().any(|line| line.ends_with("/fine")) && saved == whole, "{saved:?}");
    // One that was saved whole names no base, and goes on as well.
    let flags = ["--ready", "^up$", "--snapshot-out", &scene.arg("none.hsi"), "--no-base"];
    boot(&scene, &disk, &[&QEMU[..], &flags].concat()).ok();
    assert!(inspect("none.hsi")["base_digest"].is_null());
    run(["verify", &scene.arg("none.hsi")]).ok();
    resume(&scene, &scene.arg("none.hsi"), &ASK).ok();
    scene.wait_until_clean();
}
