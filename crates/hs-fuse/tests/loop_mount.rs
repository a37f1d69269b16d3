//! A disk served by FUSE, attached to a loop device, its file system mounted.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hs_fuse::{Session, SessionOptions};
use hs_linux::LinuxError;
use hs_linux::fsmount::{FileSystem, FsMount, FsMountOptions};
use hs_linux::loopdev::{LoopDevice, LoopOptions};
use hs_testing::{machine_has, noise};
use support::MemoryDisk;

const BIG_FILE_BYTES: usize = 3 << 20;

/// An ext4 image with `big` (noise), `small`, and `link` in it.
fn ext4_image() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("big"), noise(BIG_FILE_BYTES, 1)).unwrap();
    fs::write(tree.join("small"), "hello").unwrap();
    std::os::unix::fs::symlink("small", tree.join("link")).unwrap();
    let image = directory.path().join("image");
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-b", "4096", "-d"])
        .args([&tree, &image])
        .arg("16M")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success());
    fs::read(image).unwrap()
}

fn loops_of(file: &Path) -> Vec<PathBuf> {
    let backing = file.to_str().unwrap();
    let devices = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path());
    devices
        .filter(|device| {
            fs::read_to_string(device.join("loop/backing_file")).is_ok_and(|shown| shown.trim() == backing)
        })
        .collect()
}

/// Waits for what the kernel, or a process that another test is just starting and that has all our files
/// until then, delays.
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < end, "not in two minutes: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_file_system_is_read_through_loop_and_fuse() {
    if !machine_has(&["/dev/fuse", "mkfs.ext4"]) {
        return;
    }
    let image = ext4_image();
    for (sector_bytes, direct_io) in [(512, true), (4096, true), (512, false)] {
        let disk = MemoryDisk::new(image.clone());
        let (shown, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let session = Session::mount(shown.path(), disk.clone(), SessionOptions::default()).unwrap();
        let file = fs::canonicalize(shown.path()).unwrap().join("disk.img");
        assert_eq!(FileSystem::detect(&file).unwrap(), FileSystem::Ext4);
        let options = LoopOptions { sector_bytes, direct_io, ..Default::default() };
        let device = LoopDevice::attach(&file, options).unwrap();
        assert_eq!(device.direct_io(), direct_io);
        device.set_read_ahead(64).unwrap();
        let name = device.path().file_name().unwrap().to_str().unwrap();
        let shown_kib = fs::read_to_string(format!("/sys/block/{name}/queue/read_ahead_kb")).unwrap();
        assert_eq!(shown_kib.trim(), "64");
        let options = FsMountOptions { inode_readahead_blocks: Some(0), ..Default::default() };
        let mounted = FsMount::mount(device.path(), FileSystem::Ext4, root.path(), options).unwrap();
        assert!(fs::read(root.path().join("big")).unwrap() == noise(BIG_FILE_BYTES, 1));
        assert_eq!(fs::read_to_string(root.path().join("link")).unwrap(), "hello");
        let refused = fs::write(root.path().join("small"), "x").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = mounts.lines().find(|line| line.contains(root.path().to_str().unwrap())).unwrap();
        for option in ["ro,", "nosuid", "nodev", "inode_readahead_blks=0"] {
            assert!(line.contains(option), "{option} in {line}");
        }
        assert!(disk.reads.load(Ordering::SeqCst) > 0);
        assert_eq!(loops_of(&file).len(), 1);
        mounted.unmount().unwrap();
        drop(device);
        session.unmount().unwrap();
        wait_until("the loop device is free again", || loops_of(&file).is_empty());
    }
}

#[test]
fn a_pushed_file_system_is_read_without_asking() {
    if !machine_has(&["/dev/fuse", "mkfs.ext4"]) {
        return;
    }
    // Another process of the machine may drop its caches just then; not five times in a row.
    assert!((0..5).any(|_| reads_after_pushing_everything() == 0), "a disk pushed as a whole was asked");
}

/// Pushes a whole disk, mounts and reads what is in it; returns how often the disk was asked.
fn reads_after_pushing_everything() -> usize {
    let disk = MemoryDisk::new(ext4_image());
    let (shown, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let session = Session::mount(shown.path(), disk.clone(), SessionOptions::default()).unwrap();
    let file = shown.path().join("disk.img");
    fs::metadata(&file).unwrap();
    let pusher = session.pusher();
    for (index, piece) in disk.content.chunks(1 << 20).enumerate() {
        pusher.push((index as u64) << 20, &[piece]).unwrap();
    }
    let options = LoopOptions { direct_io: false, ..Default::default() };
    let device = LoopDevice::attach(&file, options).unwrap();
    let mounted =
        FsMount::mount(device.path(), FileSystem::Ext4, root.path(), FsMountOptions::default()).unwrap();
    assert!(fs::read(root.path().join("big")).unwrap() == noise(BIG_FILE_BYTES, 1));
    drop(mounted);
    drop(device);
    disk.reads.load(Ordering::SeqCst)
}

#[test]
fn what_cannot_be_attached_or_mounted_is_refused() {
    if !machine_has(&["/dev/fuse"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let missing = LoopDevice::attach(&directory.path().join("missing"), LoopOptions::default());
    assert!(missing.unwrap_err().to_string().starts_with("cannot open "));
    let odd = LoopOptions { sector_bytes: 1000, ..Default::default() };
    assert!(matches!(LoopDevice::attach(directory.path(), odd), Err(LinuxError::Option { .. })));
    let noise_file = directory.path().join("noise");
    fs::write(&noise_file, noise(1 << 20, 2)).unwrap();
    let device = LoopDevice::attach(&noise_file, LoopOptions::default()).unwrap();
    let target = directory.path().join("root");
    fs::create_dir(&target).unwrap();
    let refused = FsMount::mount(device.path(), FileSystem::Ext4, &target, FsMountOptions::default());
    assert!(matches!(refused, Err(LinuxError::Mount { .. })));
}

#[test]
fn a_device_does_not_keep_the_elevator_of_its_last_file() {
    if !machine_has(&["/dev/fuse"]) {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let options = LoopOptions { direct_io: false, ..LoopOptions::default() };
    let attach = || LoopDevice::attach(file.path(), options).unwrap();
    let first = attach();
    let name = first.path().file_name().unwrap().to_str().unwrap().to_owned();
    let setting = format!("/sys/block/{name}/queue/scheduler");
    if fs::write(&setting, "mq-deadline").is_err() {
        hs_testing::skip(format!("this kernel has no mq-deadline, or {setting} cannot be written"));
        return;
    }
    let shown = || fs::read_to_string(&setting).unwrap();
    assert!(shown().contains("[mq-deadline]"), "{}", shown());
    drop(first);
    // Other tests attach devices too; one of us gets this one, as soon as it is free.
    let mut held = Vec::new();
    wait_until("another process has the device", || {
        if is_free(&name) && held.len() < 32 {
            held.push(attach());
        }
        shown().contains("[none]")
    });
}

fn is_free(name: &str) -> bool {
    !Path::new("/sys/block").join(name).join("loop/backing_file").exists()
}
