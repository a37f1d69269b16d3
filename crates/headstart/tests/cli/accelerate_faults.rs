//! Disks that are full, damaged or of flash, and lists that others than root could have written.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;

use hs_units::ByteRange;
use rustix::process::Signal;

use crate::accelerate::{Mounted, START, UUID, disk, records};
use crate::accelerate_switch::System;
use crate::mounts::umount;
use crate::scene::{Ran, Running, Scene, has_tools, machine_has, run, tool, wait_until};

/// A mounted disk with a recorded start, whose list lies in its usual place.
struct Recorded {
    mounted: Mounted,
    list: PathBuf,
}

impl Recorded {
    fn new(scene: &Scene) -> Option<Self> {
        if !has_tools(&["mkfs.ext4", "findmnt"]) {
            return None;
        }
        disk(scene, "ext4", "disk", UUID);
        let mounted = Mounted::new(scene, "disk");
        let list = mounted.path.join(format!("var/lib/headstart/accelerate/{UUID}.pages"));
        let this = Self { mounted, list };
        records(&this.record(START)).then_some(this)
    }

    fn asked(&self, action: &str, more: &[&str]) -> Ran {
        run([&["accelerate", action, "--root", self.mounted.arg()][..], more].concat())
    }

    fn record(&self, start: &str) -> Ran {
        self.asked("record", &["--", "sh", "-c", start, self.mounted.arg()])
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.list).expect("a list")
    }
}

/// Writes a file until nothing more fits.
fn fill(path: PathBuf) {
    let mut file = fs::File::create(path).expect("made");
    for piece in [1 << 20, 4096] {
        while file.write_all(&vec![1; piece]).is_ok() {}
    }
}

#[test]
fn a_full_and_a_read_only_disk_keep_the_list_of_before() {
    let scene = Scene::new();
    let Some(recorded) = Recorded::new(&scene) else { return };
    let list = recorded.bytes();
    let folder = recorded.list.parent().expect("a folder");
    let other = "cat \"$0\"/a/1 \"$0\"/a/4 >/dev/null";
    let keeps = |fault: &str| {
        recorded.record(other).fails(1, &[fault, ".pages"]);
        assert!(recorded.bytes() == list, "{fault}");
        assert_eq!(fs::read_dir(folder).expect("read").count(), 1, "{fault}: no draft is left");
        recorded.asked("warm", &[]).ok();
    };
    fill(recorded.mounted.path.join("rest"));
    keeps("No space left on device");
    fs::remove_file(recorded.mounted.path.join("rest")).expect("removed");
    tool("mount", &["-o", "remount,ro", recorded.mounted.arg()]);
    keeps("Read-only file system");
    tool("mount", &["-o", "remount,rw", recorded.mounted.arg()]);
    recorded.record(other).ok();
    assert!(recorded.bytes() != list);
    drop(recorded);
    scene.wait_until_clean();
}

#[test]
fn a_list_that_others_could_have_written_is_not_read() {
    let scene = Scene::new();
    let Some(recorded) = Recorded::new(&scene) else { return };
    let list = recorded.bytes();
    let folder = recorded.list.parent().expect("a folder").to_owned();
    // Nothing is asked for, and nothing is written to what is there; nothing waits either.
    let refused = |fault: &str| {
        recorded.asked("warm", &[]).fails(1, &[fault]);
        recorded.asked("now", &["--force"]).fails(1, &[fault]);
        recorded.record("exit 9").fails(1, &[fault]);
        let status = recorded.asked("status", &["--json"]).ok().json();
        assert!(status["problem"].as_str().is_some_and(|said| said.contains(fault)), "{status}");
    };
    chown(&folder, Some(65534), None).expect("changed");
    refused("belongs to another user than root");
    chown(&folder, Some(0), None).expect("changed");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("changed");
    refused("others than root may write");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("changed");
    assert!(recorded.bytes() == list);
    // A list of root's under another name, a pipe that nothing writes to, and a folder.
    let other = folder.join("other");
    fs::rename(&recorded.list, &other).expect("renamed");
    symlink("other", &recorded.list).expect("a link");
    refused("symbolic link");
    assert!(fs::read(&other).expect("read") == list);
    fs::remove_file(&recorded.list).expect("removed");
    tool("mkfifo", &[recorded.list.to_str().expect("UTF-8")]);
    refused("is not a file");
    fs::remove_file(&recorded.list).expect("removed");
    fs::create_dir(&recorded.list).expect("made");
    refused("is not a file");
    fs::remove_dir(&recorded.list).expect("removed");
    fs::rename(&other, &recorded.list).expect("renamed");
    recorded.asked("warm", &[]).ok();
    drop(recorded);
    scene.wait_until_clean();
}

#[test]
fn a_boot_does_not_ask_for_what_another_user_has_listed() {
    let Some(system) = System::new() else { return };
    let ran = system.script(
        "headstart accelerate on --no-initramfs >/dev/null
        headstart accelerate record -- cat /note/update-initramfs >/dev/null
        chown 65534 $folder/*.pages; sum=$(md5sum $folder/*.pages)
        headstart-accelerate & boot=$!
        until test $(said running true) = 1; do :; done
        kill $boot; wait $boot; echo ended $?
        test \"$sum\" = \"$(md5sum $folder/*.pages)\" && echo as it was
        headstart accelerate off >/dev/null; test ! -e $folder; echo is off",
    );
    if !crate::accelerate_switch::records(&ran) {
        return;
    }
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "ended 0\nas it was\nis off\n"), "{ran:?}");
    assert!(ran.stderr.contains("belongs to another user than root"), "{ran:?}");
    system.scene.wait_until_clean();
}

#[test]
fn a_file_system_with_errors_is_read_as_far_as_it_can_be_and_not_laid_anew() {
    let scene = Scene::new();
    let Some(recorded) = Recorded::new(&scene) else { return };
    if !has_tools(&["debugfs", "dumpe2fs"]) {
        return;
    }
    // It may live on for a moment in other tests' namespaces.
    tool("sync", &["-f", recorded.mounted.arg()]);
    drop(recorded);
    let copy = scene.arg("copy");
    tool("cp", &["--sparse=always", &scene.arg("disk"), &copy]);
    tool("sh", &["-c", "e2fsck -fy \"$0\" || test $? = 1", &copy]);
    // An inode that is gone, one with a wrong checksum, and one whose extents begin with nonsense.
    for damage in ["clri a/7", "sif a/36 checksum 0x12345678", "sif a/31 block[0] 0"] {
        tool("debugfs", &["-w", "-R", damage, &copy]);
    }
    let copy = Mounted::by(&scene, "copy", "noatime,errors=continue");
    let asked =
        |action: &str, more: &[&str]| run([&["accelerate", action, "--root", copy.arg()][..], more].concat());
    let warmed = asked("warm", &["--json"]).ok().json();
    assert_eq!((&warmed["missing_files"], &warmed["stopped"]), (&3.into(), &serde_json::Value::Null));
    assert!(warmed["pages"].as_u64() >= Some(9 * 5), "{warmed}");
    let device = tool("findmnt", &["-n", "-v", "-o", "SOURCE", copy.arg()]).stdout.trim().to_owned();
    wait_until("the kernel has noted the errors", || {
        tool("dumpe2fs", &["-h", &device]).stdout.contains("with errors")
    });
    asked("now", &["--force"]).fails(1, &["has errors: check it first", &device]);
    // What can be read of a start is recorded.
    asked("record", &["--", "sh", "-c", START, copy.arg()]);
    let status = asked("status", &["--json"]).ok().json();
    assert_eq!((&status["starts"], &status["problem"]), (&2.into(), &serde_json::Value::Null), "{status}");
    drop(copy);
    scene.wait_until_clean();
}

#[test]
fn asking_ends_where_the_device_cannot_be_read() {
    let scene = Scene::new();
    let Some(recorded) = Recorded::new(&scene) else { return };
    if !machine_has(&[]) {
        return;
    }
    recorded.record("cat \"$0\"/a/* >/dev/null").ok();
    tool("sync", &["-f", recorded.mounted.arg()]);
    drop(recorded);
    let (image, dir) = (scene.arg("disk.hsi"), scene.folder("dir"));
    run(["build", &scene.arg("disk"), "-o", &image, "--codec", "zstd:1"]).ok();
    // Most of the image is the content of files, which does not compress.
    let bytes = fs::metadata(&image).expect("an image").len();
    let bad = format!("--bad-sectors={}", ByteRange::new(bytes / 4, bytes / 2));
    let server = Running::start(["mount", "-f", "--unsupervised", &image, &dir, &bad]);
    wait_until("the disk is served", || scene.path("dir/disk.img").exists());
    symlink("dir/disk.img", scene.path("served")).expect("a link");
    let served = Mounted::by(&scene, "served", "ro,noload");
    let warmed = run(["accelerate", "warm", "--root", served.arg(), "--json"]).ok().json();
    assert_eq!(warmed["stopped"], "the device cannot be read", "{warmed}");
    drop(served);
    umount(&dir);
    server.signal(Signal::TERM);
    drop(server.end());
    scene.wait_until_clean();
}

#[test]
fn flash_is_not_laid_anew_without_force() {
    let scene = Scene::new();
    let Some(recorded) = Recorded::new(&scene) else { return };
    let scattered = "for n in $(seq 40); do head -c 20000 \"$0/a/$((n * 17 % 40))\"; done >/dev/null";
    recorded.mounted.forget();
    recorded.record(scattered).ok();
    let number = fs::metadata(&recorded.mounted.path).expect("mounted").dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let queue = format!("/sys/dev/block/{major}:{minor}/queue/rotational");
    fs::write(&queue, "0").expect("written");
    let list = recorded.bytes();
    recorded.asked("now", &[]).fails(1, &["does not turn", "wear", "--force"]);
    assert!(recorded.bytes() == list);
    fs::write(&queue, "1").expect("written");
    recorded.asked("now", &[]).ok();
    assert!(recorded.bytes() != list);
    drop(recorded);
    scene.wait_until_clean();
}
