//! Starts of systems that are installed already: recorded, and read ahead.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::containerd_many::cached_bytes;
use crate::mounts::umount;
use crate::scene::{Ran, Running, Scene, has_tools, run, tool, wait_until};

/// A start: it reads the beginnings of many files, in an order that is not the one on the disk.
pub(crate) const START: &str =
    "for n in 7 31 3 19 36 11 28 2 23 15 39 5; do head -c 20000 \"$0/a/$n\"; done >/dev/null";
/// The same UUID for each file system, where a test wants that.
pub(crate) const UUID: &str = "6f2828d1-717e-4eb1-b35f-1d9eebe1dac8";

/// Makes a file system of 40 files in the file `disk`, with this seed for their contents.
pub(crate) fn disk(scene: &Scene, kind: &str, name: &str, uuid: &str) {
    let file = scene.arg(name);
    fs::File::create(&file).and_then(|disk| disk.set_len(400 << 20)).expect("a file");
    match kind {
        "xfs" => tool("mkfs.xfs", &["-q", "-m", &format!("uuid={uuid}"), &file]),
        "btrfs" => tool("mkfs.btrfs", &["-q", "-U", uuid, &file]),
        _ => tool("mkfs.ext4", &["-q", "-b", "4096", "-U", uuid, "-E", "lazy_itable_init=0", &file]),
    };
    let mounted = Mounted::new(scene, name);
    let folder = mounted.path.join("a");
    fs::create_dir(&folder).expect("made");
    for number in 0..40 {
        fs::write(folder.join(number.to_string()), hs_testing::noise(200_000, number)).expect("written");
    }
}

/// A mounted disk; nothing of its files is in the page cache.
pub(crate) struct Mounted {
    pub(crate) path: std::path::PathBuf,
    device: String,
}

impl Mounted {
    pub(crate) fn new(scene: &Scene, name: &str) -> Self {
        Self::by(scene, name, "noatime")
    }

    /// The same by these options.
    pub(crate) fn by(scene: &Scene, name: &str, options: &str) -> Self {
        let path = scene.path(&format!("{name}.mnt"));
        fs::create_dir_all(&path).expect("a folder");
        let target = path.display().to_string();
        tool("mount", &["-o", &format!("loop,{options}"), &scene.arg(name), &target]);
        let device = tool("findmnt", &["-n", "-v", "-o", "SOURCE", &target]).stdout.trim().to_owned();
        let mounted = Self { path, device: device.trim_start_matches("/dev/").to_owned() };
        mounted.forget();
        mounted
    }

    /// Takes everything out of the page cache. Unmounting is not enough: while another process has a mount
    /// namespace of its own, as those of other tests do, the file system lives on in it.
    pub(crate) fn forget(&self) {
        rustix::fs::sync();
        let files = fs::read_dir(self.path.join("a")).into_iter().flatten().flatten();
        // Damaged ones cannot be opened.
        let files: Vec<_> =
            files.map(|file| file.path()).filter(|path| fs::File::open(path).is_ok()).collect();
        // Btrfs keeps pages for a moment that were written just now.
        wait_until("nothing of the files is in the page cache", || {
            for file in &files {
                let file = fs::File::open(file).expect("open");
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
            }
            files.iter().all(|file| cached_bytes(file) == 0)
        });
        tool("blockdev", &["--flushbufs", &format!("/dev/{}", self.device)]);
    }

    pub(crate) fn arg(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }

    /// Requests and pages that the device was asked for so far.
    fn read(&self) -> (u64, u64) {
        let text = fs::read_to_string(format!("/sys/block/{}/stat", self.device)).expect("statistics");
        let numbers: Vec<u64> = text.split_whitespace().map(|number| number.parse().expect("one")).collect();
        (numbers[0], numbers[2] / 8)
    }

    /// What the start reads from the device.
    fn start(&self) -> (u64, u64) {
        let before = self.read();
        let status = Command::new("sh").args(["-c", START, self.arg()]).status().expect("sh starts");
        assert!(status.success());
        let after = self.read();
        (after.0 - before.0, after.1 - before.1)
    }

    pub(crate) fn accelerate(&self, action: &str, list: &str, more: &[&str]) -> Ran {
        run([&["accelerate", action, "--root", self.arg(), "--list", list][..], more].concat())
    }

    fn record(&self, list: &str) -> Ran {
        self.accelerate("record", list, &["--", "sh", "-c", START, self.arg()])
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Btrfs stays busy for a moment after its files were closed.
        let path = self.path.display().to_string();
        let unmount = || Command::new("umount").args(["-q", &path]).output().expect("umount starts");
        if !std::thread::panicking() {
            wait_until("the disk is unmounted", || unmount().status.success());
        } else {
            let _ = unmount();
        }
    }
}

/// Whether this machine shows which pages come.
pub(crate) fn records(ran: &Ran) -> bool {
    if ran.code != Some(0) && ran.stderr.contains("is not seen") {
        hs_testing::skip(ran.stderr.trim());
        return false;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    true
}

#[test]
fn a_start_is_recorded_and_finds_its_pages() {
    if !has_tools(&["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "findmnt"]) {
        return;
    }
    let scene = Scene::new();
    for (kind, last) in [("ext4", "1"), ("xfs", "2"), ("btrfs", "3")] {
        // mkfs.btrfs refuses a UUID that a device of this machine has: another test's disk.
        let uuid = format!("{}{last}", &UUID[..UUID.len() - 1]);
        disk(&scene, kind, kind, &uuid);
        let list = scene.arg(&format!("{kind}.pages"));
        if !records(&Mounted::new(&scene, kind).record(&list)) {
            return;
        }
        let cold = Mounted::new(&scene, kind).start();

        let mounted = Mounted::new(&scene, kind);
        let before = mounted.read();
        let warmed = mounted.accelerate("warm", &list, &["--json"]).ok().json();
        let pages = warmed["pages"].as_u64().expect("a number");
        assert!(pages >= 12 * 5 && warmed["missing_files"] == 0, "{kind}: {warmed}");
        assert!(warmed["stopped"].is_null(), "{kind}: {warmed}");
        // 12 beginnings of 20,000 bytes, and not what the kernel guesses.
        let asked = mounted.read().1 - before.1;
        assert!(asked < pages + 40, "{kind}: {asked} pages were read for {pages}");
        let after = mounted.start();
        assert!(after.0 * 5 <= cold.0, "{kind}: {after:?} requests and pages after warming, {cold:?} before");

        let status = mounted.accelerate("status", &list, &["--json"]).ok().json();
        assert_eq!((&status["starts"], &status["on"]), (&1.into(), &false.into()), "{status}");
        assert!(status["files"].as_u64() >= Some(12), "{status}");
        assert!(status["file_system"].as_str().is_some_and(|name| name.starts_with(&uuid)), "{status}");
        drop(mounted);
    }
    scene.wait_until_clean();
}

/// A start that steps over 17 of the 40 files each time.
const SCATTERED: &str = "for n in $(seq 40); do head -c 20000 \"$0/a/$((n * 17 % 40))\"; done >/dev/null";

#[test]
fn a_layout_anew_brings_its_places_into_the_list() {
    if !has_tools(&["mkfs.ext4", "findmnt"]) {
        return;
    }
    let scene = Scene::new();
    disk(&scene, "ext4", "disk", UUID);
    let small = scene.folder("small");
    tool("mount", &["-t", "tmpfs", "-o", "mode=700,size=256k", "tmpfs", &small]);
    let list = format!("{small}/list");
    let mounted = Mounted::new(&scene, "disk");
    // As in each boot, whose root is mounted anew for writing: the kernel forgets the names that were used.
    let remounted = format!("{SCATTERED}; mount -o remount \"$0\"");
    let recorded = mounted.accelerate("record", &list, &["--", "sh", "-c", &remounted, mounted.arg()]);
    if !records(&recorded) {
        drop(mounted);
        umount(&small);
        return;
    }
    let status = || mounted.accelerate("status", &list, &["--json"]).ok().json();
    let number = |object: &serde_json::Value, name: &str| object[name].as_u64().expect("a number");
    let before = status();
    assert!(number(&before, "seeks") >= 30 && before["scattered"] == true, "{before}");
    let old = fs::read(&list).expect("a list");
    assert!(!old.windows(3).any(|bytes| bytes == b"/a/"), "files are found without their names");

    // Where the new list does not fit, the old one stays, and the layout is done.
    let rest = fs::write(format!("{small}/rest"), vec![1; 1 << 20]);
    assert!(rest.is_err(), "it is full");
    let moved = mounted.accelerate("now", &list, &["--force", "--json"]).ok();
    assert_eq!(moved.json()["outcome"], "moved", "{moved:?}");
    assert!(moved.stderr.contains("the list has the old places"), "{moved:?}");
    assert!(fs::read(&list).expect("a list") == old);
    fs::remove_file(format!("{small}/rest")).expect("removed");

    // Killed at any moment, the list is the old one or the new one.
    let words = ["accelerate", "now", "--root", mounted.arg(), "--list", &list, "--force"];
    let killed = Running::start(words);
    killed.signal(Signal::KILL);
    killed.hang_up();
    assert!(status()["problem"].is_null());

    // Nothing has to move any more, and the places are still looked up.
    run(words).ok();
    let after = status();
    assert!(number(&after, "seeks") <= 4 && after["scattered"] == false, "{after}");
    for name in ["starts", "files", "pages"] {
        assert_eq!(after[name], before[name], "{name}");
    }
    // Another recording finds them too; the order of use is not quite the same in each start.
    mounted.forget();
    mounted.accelerate("record", &list, &["--", "sh", "-c", SCATTERED, mounted.arg()]).ok();
    let again = status();
    assert!(number(&again, "seeks") <= 8 && again["scattered"] == false, "{again}");
    drop(mounted);
    umount(&small);
    scene.wait_until_clean();
}

#[test]
fn places_are_known_where_blocks_are_smaller_than_pages() {
    if !has_tools(&["mkfs.ext4", "findmnt"]) {
        return;
    }
    let scene = Scene::new();
    let folder = std::path::PathBuf::from(scene.folder("made")).join("a");
    fs::create_dir(&folder).expect("made");
    // One behind the other, so that most of them begin inside of a page of the device.
    for number in 0..40 {
        let bytes = 200_000 + 1024 * (number as usize % 4);
        fs::write(folder.join(number.to_string()), hs_testing::noise(bytes, number)).expect("written");
    }
    let disk = scene.arg("disk");
    fs::File::create(&disk).and_then(|file| file.set_len(100 << 20)).expect("a file");
    tool("mkfs.ext4", &["-q", "-b", "1024", "-d", &scene.arg("made"), &disk]);
    let (mounted, list) = (Mounted::new(&scene, "disk"), scene.arg("list"));
    let scattered = ["--", "sh", "-c", SCATTERED, mounted.arg()];
    if !records(&mounted.accelerate("record", &list, &scattered)) {
        return;
    }
    let seeks = || mounted.accelerate("status", &list, &["--json"]).ok().json()["seeks"].as_u64();
    assert!(seeks() >= Some(30), "{:?}", seeks());
    let moved = mounted.accelerate("now", &list, &["--force", "--json"]).ok().json();
    assert_eq!(moved["outcome"], "moved", "{moved}");
    assert!(seeks() <= Some(4), "{:?}: {moved}", seeks());
    drop(mounted);
    scene.wait_until_clean();
}

#[test]
fn what_is_not_used_any_more_is_let_go() {
    if !has_tools(&["mkfs.ext4", "findmnt"]) {
        return;
    }
    let scene = Scene::new();
    disk(&scene, "ext4", "disk", UUID);
    let list = scene.arg("list");
    let record = |numbers: &str| {
        let mounted = Mounted::new(&scene, "disk");
        let start = format!("cd \"$0/a\" && cat {numbers} >/dev/null");
        let ran = mounted.accelerate("record", &list, &["--", "sh", "-c", &start, mounted.arg()]);
        records(&ran).then(|| mounted.accelerate("status", &list, &["--json"]).ok().json()["files"].clone())
    };
    let Some(files) = record("1 2 3") else { return };
    assert_eq!(files, 3);
    assert_eq!(record("3 4"), Some(4.into()));
    assert_eq!(record("3 4"), Some(4.into()));
    assert_eq!(record("3 4"), Some(2.into()));
    scene.wait_until_clean();
}

#[test]
fn lists_of_others_and_damaged_ones_are_refused() {
    if !has_tools(&["mkfs.ext4", "findmnt"]) {
        return;
    }
    let scene = Scene::new();
    disk(&scene, "ext4", "disk", UUID);
    let list = scene.arg("list");
    let mounted = Mounted::new(&scene, "disk");
    if !records(&mounted.accelerate("record", &list, &["--", "sh", "-c", "cat \"$0\"/a/*", mounted.arg()])) {
        return;
    }
    let refused = |words: &str| mounted.accelerate("warm", &list, &[]).fails(1, &[words]);
    assert_eq!(fs::metadata(&list).expect("a list").mode() & 0o777, 0o600);
    fs::set_permissions(&list, fs::Permissions::from_mode(0o666)).expect("changed");
    refused("others than root may write");
    fs::set_permissions(&list, fs::Permissions::from_mode(0o600)).expect("changed");
    chown(&list, Some(65534), None).expect("changed");
    refused("belongs to another user");
    chown(&list, Some(0), None).expect("changed");
    let whole = fs::read(&list).expect("read");
    fs::write(&list, &whole[..whole.len() / 2]).expect("written");
    refused("cut or damaged");
    fs::write(&list, &whole).expect("written");
    mounted.accelerate("warm", &scene.arg("none"), &[]).fails(1, &["record a start first"]);
    let folder = Path::new(&scene.arg("disk.mnt")).join("a").display().to_string();
    run(["accelerate", "status", "--root", &folder]).fails(1, &["not a mount point"]);
    run(["accelerate", "status", "--root", "/proc"]).fails(1, &["only ext4, XFS and btrfs"]);
    drop(mounted);

    // A disk with the same UUID and other files: those of the list are not there, and it ends soon.
    disk(&scene, "ext4", "copy", UUID);
    let copy = Mounted::new(&scene, "copy");
    fs::remove_dir_all(copy.path.join("a")).expect("removed");
    fs::create_dir(copy.path.join("a")).expect("made");
    for number in 0..40 {
        fs::write(copy.path.join("a").join(number.to_string()), [1; 9000]).expect("written");
    }
    drop(copy);
    let copy = Mounted::new(&scene, "copy");
    let warmed = copy.accelerate("warm", &list, &["--json"]).ok().json();
    assert!(warmed["stopped"].as_str().is_some_and(|why| why.contains("not there any more")), "{warmed}");
    drop(copy);
    disk(&scene, "ext4", "other", "11111111-2222-3333-4444-555555555555");
    let other = Mounted::new(&scene, "other");
    other.accelerate("warm", &list, &[]).fails(1, &["another file system"]);
    drop(other);
    scene.wait_until_clean();
}
