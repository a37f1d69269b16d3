//! The demo, as far as it goes without making a Debian first.

use std::fs;

use crate::scene::{Ran, Scene, headstart, machine_has};

/// `headstart demo` with a cache of its own, on a machine without any tool on PATH.
fn bare_demo(scene: &Scene, flags: &[&str]) -> Ran {
    let cache = scene.arg("cache");
    let mut command = headstart(["demo", "--cache", &cache].iter().chain(flags));
    command.env("PATH", scene.path("nothing")).env_remove("XDG_CACHE_HOME");
    command.output().expect("the program starts").into()
}

#[test]
fn what_is_missing_is_named_before_anything_slow_begins() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let out = scene.arg("out");
    for flags in [&["--story", "boot"][..], &["--story", "both"], &[]] {
        let ran = bare_demo(&scene, &[flags, &["--out", &out]].concat());
        ran.fails(1, &["linux.uml", "user-mode-linux", "mmdebstrap", "apt install"]);
    }
    // The first story alone needs no guest.
    let ran = bare_demo(&scene, &["--story", "start"]);
    ran.fails(1, &["mksquashfs", "squashfs-tools"]);
    assert!(!ran.stderr.contains("linux.uml"), "{ran:?}");
    let ran = bare_demo(&scene, &["--story", "boot"]);
    assert!(!ran.stderr.contains("mksquashfs"), "{ran:?}");
    // Where User-mode Linux is not installed, QEMU tells the second story.
    let tools = scene.folder("nothing");
    fs::write(scene.path("nothing/qemu-system-x86_64"), "").expect("written");
    let ran = bare_demo(&scene, &["--story", "boot"]);
    ran.fails(1, &["mmdebstrap", "apt install"]);
    assert!(!ran.stderr.contains("linux.uml") && !ran.stderr.contains("qemu"), "{ran:?}");
    fs::remove_dir_all(tools).expect("removed");
    // Nothing was made, and nothing is left but the lock.
    assert_eq!(scene.names(), ["cache"]);
    let left: Vec<_> = fs::read_dir(scene.path("cache")).expect("listed").flatten().collect();
    assert!(left.len() == 1 && left[0].file_name() == "lock", "{left:?}");
    scene.wait_until_clean();
}

#[test]
fn a_cache_is_used_by_one_demo_at_a_time() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    scene.folder("cache");
    let lock = fs::File::create(scene.path("cache/lock")).expect("a file");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    bare_demo(&scene, &[]).fails(1, &["another demo is using", "--cache"]);
}
