//! File systems that lie about themselves: what reads them says so, and goes on living.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::boots::boot;
use crate::images::write_profile;
use crate::scene::{Scene, machine_has, run};

const SUPERBLOCK: u64 = 1024;

/// An image of a file system that claims 2^32 - 1 groups of one block each.
fn forged(scene: &Scene) -> String {
    let raw = scene.arg("forged.raw");
    File::create(&raw).and_then(|file| file.set_len(16 << 20)).expect("a file");
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-O", "^metadata_csum", &raw]).status();
    assert!(made.expect("mkfs.ext4 starts").success());
    let file = File::options().write(true).open(&raw).expect("opened");
    file.write_all_at(&u32::MAX.to_le_bytes(), SUPERBLOCK + 0x4).expect("its blocks");
    file.write_all_at(&1_u32.to_le_bytes(), SUPERBLOCK + 0x20).expect("blocks of a group");
    let image = scene.arg("forged.hsi");
    run(["build", &raw, "-o", &image, "--codec", "zstd:1"]).ok();
    image
}

#[test]
fn a_boot_from_a_forged_file_system_fails_and_says_why() {
    if !machine_has(&["/usr/bin/qemu-system-x86_64", "/usr/sbin/mkfs.ext4"]) {
        return;
    }
    let scene = Scene::new();
    let image = forged(&scene);
    scene.folder("tmp");
    boot(&scene, &image, &["--vmm", "qemu", "--accel", "tcg"]).fails(1, &["ext4", "superblock"]);
}

#[test]
fn an_optimized_image_of_a_forged_file_system_has_no_files_and_is_made() {
    if !machine_has(&["/usr/sbin/mkfs.ext4"]) {
        return;
    }
    let scene = Scene::new();
    let image = forged(&scene);
    // A profile of another disk that has some of the same blocks.
    let mut disk = fs::read(scene.arg("forged.raw")).expect("read");
    disk[8 << 20] ^= 1;
    fs::write(scene.path("other.raw"), &disk).expect("written");
    run(["build", &scene.arg("other.raw"), "-o", &scene.arg("other.hsi"), "--codec", "zstd:1"]).ok();
    write_profile(&scene, "start.hsp", "other.hsi", &disk, 0..8);
    let (profile, fast) = (scene.arg("start.hsp"), scene.arg("fast.hsi"));
    let ran = run(["optimize", &image, "--profile", &profile, "-o", &fast, "--codec", "zstd:1"]).ok();
    assert!(ran.stdout.contains("0 of its 0 files"), "{ran:?}");
    run(["verify", &fast]).ok();
}
