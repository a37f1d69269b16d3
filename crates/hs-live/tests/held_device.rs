//! A device that another program holds for itself, as udev's cdrom_id does with a drive.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::time::Duration;

use hs_linux::loopdev::{LoopDevice, LoopOptions};
use hs_live::device::{FoundDevice, mount};
use rustix::fs::OFlags;
use rustix::mount::{UnmountFlags, unmount};

#[test]
fn it_is_mounted_when_it_is_free_again() {
    if !hs_testing::machine_has(&["/dev/loop-control", "mkfs.ext4"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (file, target) = (folder.path().join("disk"), folder.path().join("target"));
    File::create(&file).and_then(|disk| disk.set_len(4 << 20)).expect("a disk");
    assert!(Command::new("mkfs.ext4").arg("-q").arg(&file).status().expect("it starts").success());
    let device = LoopDevice::attach(&file, LoopOptions::default()).expect("attached");
    let exclusive = OFlags::EXCL.bits().cast_signed();
    let held = File::options().read(true).custom_flags(exclusive).open(device.path()).expect("held");
    let found = FoundDevice {
        path: device.path().to_owned(),
        file_system: "ext4",
        label: String::new(),
        uuid: String::new(),
        is_divided: false,
        disk: None,
    };
    let other = found.clone();
    let place = target.clone();
    let mounting = std::thread::spawn(move || mount(&other, &place, false));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!mounting.is_finished(), "the kernel refuses it meanwhile");
    drop(held);
    mounting.join().expect("no panic").expect("mounted");
    assert!(target.join("lost+found").is_dir());
    unmount(&target, UnmountFlags::empty()).expect("unmounted");
}
