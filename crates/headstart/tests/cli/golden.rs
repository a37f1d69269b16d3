//! Files of format version 1 that are always kept: what this program makes of them. Their tables are
//! looked at in `crates/hs-format/tests/format/golden.rs`.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use hs_trace::Profile;

use crate::scene::{Scene, run};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../hs-format/tests/vectors");
/// Disks: of a root, of a disk that does not end with a block, of the root with changes, with one block
/// changed, with another, and with the changes up to the snapshot; and of a root that was laid out like one.
const ROOT: &str = "3cf46a053dc271b0762ee1e5764c82761c48399cc57e3512fe9995d1eaecf615";
const ODD: &str = "a5c3fdc4e6dfcfe63f72a9843e664018f87cc931361b771ad2c0435f60c2c28d";
const CHANGED: &str = "78f68cfffc20cd299393f3820cb29b60dbd6d7778960d98d84a980cf3bc03fb3";
const ONE_BLOCK: &str = "84183ccef2c9b711fb100fa0d2fc1fe718906e8cd37bdc332c22546408f58d44";
const OTHER_BLOCK: &str = "71a6cd2dead50bb0e5b0f1d5ae97b7e1a7ceebe4f50616531181ac909149acec";
const LIKE: &str = "b4f3d6b6b1ffd55aef18262994427dd7052c65518a520e32d65512a26c2ca2a3";
const EARLY: &str = "b4ca09ff45e90182981213cf9bb982378e438b6f7d9a06de9761e6aaf92b134c";
/// Of the sampled pack it is a name of what is known of the file.
const SAMPLED: &str = "18fd2900ff62aefc958c59c976dbf94e0cf6c2ccf69b056b0d01bda527fa2f46";
/// When the disk of the packs was written, in seconds since 1970.
const WRITTEN: u64 = 1_795_824_000;

/// A scene with copies of these golden files; `.zst` is taken off.
pub(crate) fn kept(names: &[&str]) -> Scene {
    let scene = Scene::new();
    for name in names {
        let bytes = fs::read(format!("{FOLDER}/{name}")).expect("a golden file");
        let (name, bytes) = match name.strip_suffix(".zst") {
            Some(plain) => (plain, zstd::decode_all(&*bytes).expect("a frame")),
            None => (*name, bytes),
        };
        fs::write(scene.path(name), bytes).expect("written");
    }
    scene
}

/// Writes the disk that the packs are of.
pub(crate) fn unpack_disk(scene: &Scene) {
    let disk = scene.arg("disk.raw");
    run(["-q", "export", &scene.arg("hot.hsi"), "-o", &disk, "--format", "raw"]).ok();
    let written = SystemTime::UNIX_EPOCH + Duration::from_secs(WRITTEN);
    File::options().write(true).open(&disk).and_then(|file| file.set_modified(written)).expect("dated");
}

/// The image is whole, and its disk the one with this digest.
fn holds(scene: &Scene, name: &str, more: &[&str], disk: &str) {
    let verified = run([&["verify", &scene.arg(name)], more].concat()).ok();
    let inspected = run(["inspect", "--json", &scene.arg(name)]).ok().json();
    assert_eq!(inspected["disk_digest"], disk, "{name}");
    assert_eq!(verified.stdout.lines().last(), inspected["image_digest"].as_str(), "{name}");
}

#[test]
fn images_a_delta_and_packs_hold_their_disks() {
    let images = ["store.hsi", "zstd.hsi", "lz4.hsi", "zlib.hsi", "hot.hsi"];
    let others = ["delta.hsi", "borrowed.hsi", "stale.hsi", "like.hsi", "whole.hspk", "sampled.hspk"];
    let scene = kept(&[&images[..], &others].concat());
    for name in images {
        holds(&scene, name, &[], if name == "store.hsi" { ODD } else { ROOT });
    }
    let base = scene.arg("hot.hsi");
    holds(&scene, "delta.hsi", &["--base", &base], CHANGED);
    // Its base is a disk, and not a file.
    holds(&scene, "delta.hsi", &["--base", &scene.arg("lz4.hsi")], CHANGED);
    holds(&scene, "borrowed.hsi", &["--base", &base], ONE_BLOCK);
    holds(&scene, "stale.hsi", &["--base", &base], OTHER_BLOCK);
    holds(&scene, "like.hsi", &[], LIKE);
    unpack_disk(&scene);
    holds(&scene, "whole.hspk", &["--against", &scene.arg("disk.raw")], ROOT);
    holds(&scene, "sampled.hspk", &["--against", &scene.arg("disk.raw")], SAMPLED);
    let odd = scene.arg("odd.raw");
    run(["-q", "export", &scene.arg("store.hsi"), "-o", &odd, "--format", "raw"]).ok();
    assert_eq!(fs::metadata(&odd).expect("written").len(), 34_272);
}

#[test]
fn an_overlay_holds_its_changes_and_its_snapshot() {
    let scene = kept(&["hot.hsi", "changes.hsk.zst"]);
    let (image, changes, new) = (scene.arg("hot.hsi"), scene.arg("changes.hsk"), scene.arg("new.hsi"));
    let before = fs::read(&changes).expect("read");
    run(["overlay", "check", &changes]).ok();
    let listed = run(["overlay", "list", "--json", &changes]).ok().json();
    assert_eq!((&listed[0]["disk_digest"], &listed[0]["records"]), (&ROOT.into(), &6.into()));
    assert_eq!((&listed[0]["extents"], &listed[0]["snapshots"][0]["name"]), (&6.into(), &"early".into()));
    let committed = |more: &[&str]| {
        run([&["commit", &image, &changes, "-o", &new, "--json"], more].concat()).ok().json()["disk_digest"]
            .clone()
    };
    // Its last two records are behind the map.
    assert_eq!(committed(&[]), CHANGED);
    assert_eq!(committed(&["--snapshot", "early"]), EARLY);
    assert!(fs::read(&changes).expect("read") == before, "who reads it does not change it");
    run(["overlay", "revert", &changes, "early"]).ok();
    assert_eq!(committed(&[]), EARLY);
    run(["overlay", "delete", &changes, "early"]).ok();
    run(["overlay", "compact", &changes]).ok();
    assert_eq!(committed(&[]), EARLY);
}

#[test]
fn golden_files_are_small() {
    let files = fs::read_dir(FOLDER).expect("the folder").map(|entry| entry.expect("an entry").path());
    let sizes: Vec<u64> = files.map(|path| fs::metadata(path).expect("a file").len()).collect();
    assert!(sizes.iter().all(|bytes| *bytes <= 64 << 10) && sizes.iter().sum::<u64>() <= 400 << 10);
}

#[test]
fn a_profile_is_read_written_and_used() {
    let scene = kept(&["zstd.hsi", "start.hsp"]);
    let (profile, fast) = (scene.arg("start.hsp"), scene.arg("fast.hsi"));
    let said = run(["inspect", "--json", &profile]).ok().json();
    assert_eq!((&said["disk_digest"], &said["reads"], &said["files"]), (&ROOT.into(), &19.into(), &3.into()));
    assert_eq!(said["command"], "/bin/reader /etc/words /etc/noise");
    let decode = |bytes: &[u8]| Profile::decode(bytes).expect("a profile");
    let read = decode(&fs::read(&profile).expect("read"));
    // Its sections are compressed, so only what it says is the same.
    assert!(decode(&read.encode().expect("a good profile")) == read);
    let made = run(["optimize", &scene.arg("zstd.hsi"), "-p", &profile, "-o", &fast, "--json"]).ok().json();
    assert_eq!(made["hot_bytes"], 13 * 4096);
    holds(&scene, "fast.hsi", &[], ROOT);
}

#[test]
fn a_channel_leads_to_its_image() {
    let scene = kept(&["hot.hsi", "stable.minisig", "publisher.pub"]);
    let (image, public) = (scene.arg("hot.hsi"), scene.arg("publisher.pub"));
    let words = ["verify", &image, "--key", &public, "--signature", &scene.arg("stable.minisig")];
    let said = run(words).ok().stdout;
    assert!(said.contains("signed as stable by RW") && said.contains("2026-11-28T00:00:00Z"), "{said}");
    let text = fs::read_to_string(&public).expect("a key");
    let key = text.lines().nth(1).expect("a key");
    let address = format!("{}#key={key}", scene.arg("stable.minisig"));
    let found = run(["verify", &address, "--channel-state", "none"]).ok().stdout;
    assert_eq!(found.lines().last(), run(["verify", &image]).ok().stdout.lines().last());
}
