//! What goes wrong while a guest goes on: its store, its server, its memory.

use std::fs;
use std::os::unix::fs::FileExt;

use hs_units::BLOCK_BYTES;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::boots::assert_nothing_is_in_tmp;
use crate::faulty_server::{FaultyServer, Identity};
use crate::mounts::umount;
use crate::resumes::{ASK, exported, resume, saved};
use crate::scene::{Running, Scene, headstart, machine_has, mount, run, wait_until};
use crate::service::server_of;
use crate::supervised::kill;

fn description(file: &fs::File, at: u64) -> Value {
    let mut block = vec![0; BLOCK_BYTES as usize];
    file.read_exact_at(&mut block, at).expect("read");
    let length = u32::from_le_bytes(block[8..12].try_into().expect("four")) as usize;
    serde_json::from_slice(&block[12..12 + length]).expect("JSON")
}

/// The last block of a snapshot.
fn described(json: &Value) -> Vec<u8> {
    let text = json.to_string();
    let mut block = [b"HSRESUME", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    block.resize(BLOCK_BYTES as usize, 0);
    block
}

/// An image of that disk whose bytes are stored as they are, each block by itself: a changed one harms no
/// other.
fn stored(scene: &Scene) -> Vec<u8> {
    let plain = scene.arg("plain.hsi");
    run(["build", "--raw", &scene.arg("saved.raw"), "-o", &plain, "--codec", "store", "--window", "4K"]).ok();
    fs::read(plain).expect("the image")
}

#[test]
fn a_damaged_page_ends_its_guest_and_harms_no_other() {
    let Some(scene) = saved() else { return };
    exported(&scene);
    let mut image = stored(&scene);
    // One byte of each block of the memory; what opens the image and what lies behind stay.
    let (from, to) = (image.len() / 20, image.len() / 2);
    image[from..to].iter_mut().step_by(BLOCK_BYTES as usize).for_each(|byte| *byte ^= 1);
    fs::write(scene.path("damaged.hsi"), image).expect("written");
    std::thread::scope(|scope| {
        let good = scope.spawn(|| resume(&scene, &scene.arg("plain.hsi"), &ASK));
        let damaged = resume(&scene, &scene.arg("damaged.hsi"), &ASK);
        damaged.fails(1, &["could not be answered"]);
        assert!(!damaged.stderr.contains("answer 42"), "{damaged:?}");
        good.join().expect("it ends").ok();
    });
    scene.wait_until_clean();
}

#[test]
fn a_changed_overlay_is_not_believed() {
    let Some(scene) = saved() else { return };
    exported(&scene);
    let mut image = stored(&scene);
    // The guest's memory has it too, in the cache of its file; the overlay lies behind that.
    let wanted = b"saved words\n";
    let place = image.windows(wanted.len()).rposition(|bytes| bytes == wanted).expect("it was written");
    image[place..place + 5].copy_from_slice(b"other");
    fs::write(scene.path("changed.hsi"), image).expect("written");
    let drop_caches = "busybox mount -t proc p /proc; echo 3 >/proc/sys/vm/drop_caches";
    let ask = ["--type", drop_caches, "--type", "cat /written; echo answer $((6*7))", "--ready", "answer 42"];
    let console = scene.arg("console");
    let read = |snapshot: &str| {
        let ran = resume(&scene, &scene.arg(snapshot), &[&ask[..], &["--console", &console]].concat());
        (ran, fs::read_to_string(&console).expect("the console"))
    };
    let (ran, said) = read("plain.hsi");
    assert!(ran.code == Some(0) && said.contains("saved words"), "{ran:?} {said}");
    let (ran, said) = read("changed.hsi");
    assert!(ran.stderr.contains("could not be answered"), "{ran:?} {said}");
    assert!(!said.contains("other words") && !said.contains("saved words\r"), "{said}");
    scene.wait_until_clean();
}

/// Snapshots that a stranger made, each refused before memory is asked for or QEMU starts.
#[test]
fn what_a_snapshot_claims_costs_nothing() {
    if !machine_has(&["/usr/bin/qemu-system-x86_64"]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("guest.hsi", 100, 5);
    let digest = run(["inspect", "--json", &scene.arg("guest.hsi")]).ok().json()["disk_digest"].clone();
    // A header of qcow2: version, clusters of 2^16 bytes, a disk of 2^20, features, where it ends.
    let mut overlay = [b"QFI\xfb\0\0\0\x03".to_vec(), vec![0; 8184]].concat();
    overlay[23] = 16;
    overlay[24..32].copy_from_slice(&(disk.len() as u64).to_be_bytes());
    overlay[103] = 104;
    let mut elsewhere = overlay.clone();
    elsewhere[79] = 4;
    let usual = (4096, disk.len() as u64, &overlay);
    for (state_bytes, disk_bytes, overlay, word) in [
        (1 << 40, usual.1, usual.2, "state of its devices has 1 TiB"),
        (4 << 30, usual.1, usual.2, "state of its devices has 4 GiB"),
        (usual.0, 1 << 63, usual.2, "its disk has"),
        (usual.0, 1 << 55, usual.2, "its disk has"),
        (usual.0, usual.1 + 4096, usual.2, "it names a disk of"),
        (usual.0, usual.1, &elsewhere, "incompatible features: expected 0, found 4"),
    ] {
        let (memory_bytes, overlay_at) = (1_u64 << 20, (1 << 20) + state_bytes);
        let json = serde_json::json!({
            "format": 3, "disk_digest": digest, "disk_bytes": disk_bytes, "disk_name": "guest.hsi",
            "qemu": "7.2.22", "machine": "pc-i440fx-7.2", "cpu": "qemu64", "accelerator": "tcg",
            "memory_bytes": memory_bytes, "state": { "offset": memory_bytes, "bytes": state_bytes },
            "overlay": { "offset": overlay_at, "bytes": overlay.len() },
        });
        let file = fs::File::create(scene.path("forged.raw")).expect("made");
        file.write_all_at(overlay, overlay_at).expect("written");
        file.write_all_at(&described(&json), overlay_at + overlay.len() as u64).expect("written");
        let flags = ["--disk", &scene.arg("guest.hsi"), "--ready", "never"];
        resume(&scene, &scene.arg("forged.raw"), &flags).fails(1, &["forged.raw", word]);
    }
    scene.wait_until_clean();
}

#[test]
fn too_little_memory_is_said_before_anything_runs() {
    let Some(scene) = saved() else { return };
    let (file, at) = exported(&scene);
    let mut json = description(&file, at);
    let total = fs::read_to_string("/proc/meminfo").expect("proc");
    let kib: u64 = total.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("KiB");
    // Twice of what this machine has, and all of it zeros.
    let memory = (kib << 11).next_multiple_of(1 << 20);
    json["memory_bytes"] = memory.into();
    json["state"] = serde_json::json!({ "offset": memory, "bytes": 4096 });
    json["overlay"] = serde_json::json!({ "offset": memory + 4096, "bytes": 4096 });
    let large = fs::File::create(scene.path("large.raw")).expect("made");
    large.write_all_at(&[1; 8192], memory).expect("written");
    large.write_all_at(&described(&json), memory + 8192).expect("written");
    run(["build", "--raw", &scene.arg("large.raw"), "-o", &scene.arg("large.hsi")]).ok();
    let ran = resume(&scene, &scene.arg("large.hsi"), &ASK);
    ran.fails(1, &["of memory, and this machine has", "to spare"]);
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}

#[test]
fn a_store_that_stalls_in_the_middle_ends_the_guest_with_a_message() {
    let Some(scene) = saved() else { return };
    let server = FaultyServer::start(fs::read(scene.path("saved.hsi")).expect("read"), Identity::Tag);
    let (url, disk) = (server.url(), scene.arg("guest.hsi"));
    // As long as it answers, the guest goes on.
    let words = ["--disk", &disk, "--read-timeout", "4", "--insecure", "--disk-cache=none"];
    let flags = [&words[..], &ASK[..]].concat();
    let summary = resume(&scene, &url, &[&flags[..], &["--json"]].concat()).ok().json();
    let bytes = summary["store_bytes"].as_u64().expect("counted");
    server.pause_after(bytes / 2);
    let ran = resume(&scene, &url, &flags);
    assert!(server.is_paused(), "{ran:?}");
    ran.fails(1, &["could not be answered"]);
    assert!(!ran.stderr.contains("answer 42"), "{ran:?}");
    server.go_on();
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}

#[test]
fn a_server_that_cannot_be_replaced_ends_its_guests() {
    let Some(scene) = saved() else { return };
    let (dir, disk, console) = (scene.folder("dir"), scene.arg("guest.hsi"), scene.arg("console"));
    mount(&scene, &[&scene.arg("saved.hsi"), &dir, "--mode", "0666", "--base", &disk]).ok();
    let memory = scene.arg("dir/disk.img");
    // It takes more and more memory, of which each page is a fault.
    let grow = "a=$(cat /fine); while :; do i=$i$a; echo grown; done";
    let words =
        ["resume", &memory, "--disk", &disk, "--type", grow, "--ready", "never", "--console", &console];
    let mut command = headstart(words);
    command.env("TMPDIR", scene.path("tmp"));
    let guest = Running::start_command(command);
    wait_until("the guest runs", || {
        fs::read_to_string(&console).is_ok_and(|said| said.replace('\r', "").contains("\ngrown"))
    });
    let status = server_of(&dir);
    let supervisor = Pid::from_raw(status["supervisor"].as_u64().expect("a process") as i32);
    kill_process(supervisor.expect("a process"), Signal::KILL).expect("killed");
    kill(&status);
    let (ended, _, said) = guest.end();
    assert_eq!(ended.code(), Some(1), "{said}");
    assert!(said.contains("ended before it was ready"), "{said}");
    umount(&dir);
    scene.wait_until_clean();
}

#[test]
fn several_recorded_resumes_become_one_profile() {
    let Some(scene) = saved() else { return };
    let (snapshot, disk) = (scene.arg("saved.hsi"), scene.arg("guest.hsi"));
    let asks = ["busybox sha256sum /fine", "busybox find / -xdev"];
    let profiles = asks.map(|ask| {
        let profile = scene.arg(&format!("{}.hsp", ask.len()));
        let words = ["--type", ask, "--type", "echo answer $((6*7))", "--ready", "answer 42"];
        resume(&scene, &snapshot, &[&words[..], &["--record", &profile]].concat()).ok();
        profile
    });
    let hot_bytes = |name: &str, profiles: &[&String]| {
        let output = scene.arg(name);
        let flags = profiles.iter().flat_map(|profile| ["-p", profile.as_str()]);
        let words = ["optimize", &snapshot, "-o", &output, "--codec", "zstd:1", "--base", &disk];
        run(words.into_iter().chain(flags)).ok();
        let image = run(["inspect", "--json", &output]).ok().json();
        let segments = image["hot_segments"].as_array().expect("segments");
        segments.iter().map(|segment| segment["hot_compressed_bytes"].as_u64().expect("counted")).sum::<u64>()
    };
    let one = hot_bytes("one.hsi", &[&profiles[0]]);
    let other = hot_bytes("other.hsi", &[&profiles[1]]);
    let both = hot_bytes("both.hsi", &[&profiles[0], &profiles[1]]);
    // What both touch is there once.
    assert!(both > one.max(other) && both < one + other, "{one} and {other} make {both}");
    // A guest that is asked for either finds its pages.
    let demanded = |snapshot: &str, ask: &str| {
        let words = ["--type", ask, "--type", "echo answer $((6*7))", "--ready", "answer 42", "--json"];
        let summary = resume(&scene, &scene.arg(snapshot), &words).ok().json();
        summary["demand_requests"].as_u64().expect("counted")
    };
    for ask in asks {
        let (merged, none) = (demanded("both.hsi", ask), demanded("saved.hsi", ask));
        assert!(merged * 2 < none, "{merged} pages asked for after '{ask}', {none} without a profile");
    }
    scene.wait_until_clean();
}
