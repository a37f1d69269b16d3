//! Starts that bring what the last one read: `run --learn`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::boots::{GUEST, boot, little_guest};
use crate::scene::{Ran, START, Scene, machine_has, run};

/// A medium on which each request takes long, and its bytes do not.
const SLOW: &[&str] = &["--emulate", "flat-20ms-125mbs"];
const READS: &[&str] = &["/bin/cat", "/etc/motd"];

/// A start that learns in the scene's folder, and its summary.
fn learn(scene: &Scene, image: &str, flags: &[&str], command: &[&str]) -> (Ran, Value) {
    let (folder, json) = (scene.arg("learned"), scene.arg("summary.json"));
    let of_test = ["run", image, "--learn", "--learned", &folder, &format!("--json={json}")];
    let ran = run(of_test.iter().chain(flags).chain(&["--"]).chain(command));
    let summary = fs::read_to_string(json).expect("a summary");
    (ran, serde_json::from_str(&summary).expect("JSON"))
}

fn kept(scene: &Scene) -> Vec<PathBuf> {
    let entries = fs::read_dir(scene.path("learned")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[test]
fn the_second_start_brings_what_the_first_read_before_it_is_asked_for() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let before = fs::read(scene.path("root.hsi")).expect("the image");
    let (ran, first) = learn(&scene, &image, SLOW, READS);
    assert_eq!(ran.ok().stdout, "hello from the image\n");
    assert_eq!((&first["learned_windows"], &first["background_bytes"]), (&0.into(), &0.into()));
    let [profile] = &kept(&scene)[..] else { panic!("{:?}", kept(&scene)) };
    let mode = |path: &std::path::Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(profile), mode(&scene.path("learned"))), (0o600, 0o700));
    run(["inspect", &profile.display().to_string()]).ok();

    let (ran, second) = learn(&scene, &image, SLOW, READS);
    assert_eq!(ran.ok().stdout, "hello from the image\n");
    let figure = |summary: &Value, name: &str| summary[name].as_f64().expect("a figure");
    assert!(figure(&second, "learned_windows") > 0.0 && figure(&second, "background_used_bytes") > 0.0);
    assert!(figure(&second, "cache_hit_ratio") > figure(&first, "cache_hit_ratio"), "{first} {second}");
    assert_eq!(kept(&scene).len(), 1, "it replaces the first");
    assert!(fs::read(scene.path("root.hsi")).expect("the image") == before, "the image is not touched");
    scene.wait_until_clean();
}

#[test]
fn a_learned_profile_is_of_one_image_and_one_command() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let windows = |image: &str, command: &[&str]| {
        let (ran, summary) = learn(&scene, image, SLOW, command);
        ran.ok();
        summary["learned_windows"].as_u64().expect("a figure")
    };
    assert_eq!(windows(&image, READS), 0);
    assert_eq!(windows(&image, &["/bin/cat", "/etc/motd", "/etc/motd"]), 0);
    assert!(windows(&image, READS) > 0);
    // The same disk in another image.
    let fast = scene.arg("fast.hsi");
    let profile = kept(&scene).pop().expect("a profile").display().to_string();
    run(["optimize", &image, "--profile", &profile, "-o", &fast]).ok();
    assert_eq!(windows(&fast, READS), 0);
    // What the hot region has is not learned.
    let in_hot_region = windows(&fast, READS);
    assert!(in_hot_region < windows(&image, READS), "{in_hot_region}");
}

#[test]
fn a_damaged_profile_is_told_of_and_replaced() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    learn(&scene, &image, &[], READS).0.ok();
    let profile = kept(&scene).pop().expect("a profile");
    let good = fs::read(&profile).expect("a profile");
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    for bad in [&b"no profile"[..], &good[..good.len() / 2], &flipped] {
        fs::write(&profile, bad).expect("written");
        let (ran, summary) = learn(&scene, &image, &[], READS);
        let ran = ran.ok();
        assert_eq!((ran.stdout.as_str(), &summary["learned_windows"]), ("hello from the image\n", &0.into()));
        assert!(ran.stderr.contains(".hsp") && ran.stderr.contains("without it"), "{ran:?}");
        assert!(learn(&scene, &image, &[], READS).1["learned_windows"].as_u64() > Some(0), "it was replaced");
    }
}

#[test]
fn only_a_start_that_ends_well_is_learned() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (ran, _) = learn(&scene, &image, &[], &["/bin/sh", "-c", "exit 3"]);
    assert_eq!((ran.code, kept(&scene).len()), (Some(3), 0));
    // One that was ready did, however it ends.
    let ready = ["--ready", "up"];
    let (ran, _) = learn(&scene, &image, &ready, &["/bin/sh", "-c", "echo up; exit 3"]);
    assert_eq!((ran.code, kept(&scene).len()), (Some(3), 1));
    run(["run", "x.raw", "--raw", "--learn", "--", "true"]).fails(2, &["--learn", "--raw"]);
    run(["run", &image, "--learned", "x", "--", "true"]).fails(2, &["--learn"]);
}

#[test]
fn a_boot_learns_of_the_one_before() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = little_guest();
    let folder = scene.arg("learned");
    let of_guest = ["--memory", "64M", "--vmm", "uml", "--ready", "^up$", "--json"];
    let learns = ["--learn", "--learned", &folder];
    let learned = |medium: &[&str]| {
        let summary = boot(&scene, &image, &[&of_guest[..], &learns, medium].concat()).ok().json();
        summary["learned_windows"].as_u64().expect("a number")
    };
    assert_eq!(learned(&[]), 0);
    assert!(learned(&["--emulate", "flat-10ms-25mbs"]) > 0);
    assert_eq!(kept(&scene).len(), 1, "it replaces the first");
    scene.wait_until_clean();
}
