//! A mount namespace for a server.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;

use hs_linux::OwnMounts;
use hs_testing::Test;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub(crate) const TESTS: &[Test] = &[(
    "its_mounts_are_seen_outside_and_outlive_what_is_done_there",
    its_mounts_outlive_what_is_done_outside,
)];

fn mount_new(kind: &str, target: &Path) {
    mount(kind, target, kind, MountFlags::empty(), None).unwrap();
}

fn is_mounted(target: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == target.to_str())
}

fn enter(namespace: &File) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount)).unwrap();
}

fn its_mounts_outlive_what_is_done_outside() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    // As an initramfs has it: a folder in memory in `/run`, which is in memory too.
    let base = place.join("base");
    mount_new("tmpfs", &place);
    fs::create_dir(&base).unwrap();
    mount_new("tmpfs", &base);
    for name in ["proc", "disk", "later"] {
        fs::create_dir(base.join(name)).unwrap();
    }
    mount_new("proc", &base.join("proc"));
    let outside = File::open("/proc/self/ns/mnt").unwrap();
    let own = OwnMounts::enter(&base).unwrap();
    mount_new("tmpfs", Path::new("/disk"));
    fs::write("/disk/content", "x").unwrap();
    let inside = File::open("/proc/self/ns/mnt").unwrap();
    own.leave().unwrap();
    assert!(is_mounted(&base.join("disk")) && base.join("disk/content").exists());
    enter(&inside);
    mount_new("tmpfs", Path::new("/later"));
    enter(&outside);
    assert!(is_mounted(&base.join("later")), "also what is mounted when the process that began it is gone");
    // What systemd does when it leaves an initramfs.
    unmount(&base, UnmountFlags::DETACH).unwrap();
    fs::remove_dir(&base).unwrap();
    unmount(&place, UnmountFlags::DETACH).unwrap();
    fs::remove_dir(&place).unwrap();
    enter(&inside);
    let is_there = ["/disk", "/later", "/proc"].map(|target| is_mounted(Path::new(target)));
    let content = fs::read_to_string("/disk/content");
    enter(&outside);
    assert_eq!((is_there, content.unwrap().as_str()), ([true; 3], "x"));
    fs::create_dir(&place).unwrap();
}
