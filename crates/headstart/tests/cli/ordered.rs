//! `headstart build --order`: a tree that was updated since its start was recorded.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use hs_units::Prng;

use crate::mounts::umount;
use crate::scene::{START, Scene, machine_has, mount, run};
use crate::sources::root;

const BLOCK: usize = 4096;
/// Files of the tree beside busybox.
const FILES: u64 = 90;
/// Of these, the ones that the start reads, in this order.
const READ: [u64; 8] = [77, 12, 50, 3, 66, 31, 80, 8];

fn name(number: u64) -> String {
    format!("data/folder{}/{number}", number % 7)
}

/// What a file of the tree begins with.
fn noise(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Prng::new(number + 1).fill(&mut bytes);
    bytes
}

fn tree(scene: &Scene) -> PathBuf {
    let root = PathBuf::from(root(scene));
    for number in 0..FILES {
        let path = root.join(name(number));
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, noise(number, 2 * BLOCK + 100)).expect("written");
    }
    root
}

/// Files come, go and grow; others get another owner, mode or target.
fn update(root: &Path) {
    fs::remove_file(root.join(name(READ[2]))).expect("removed");
    fs::remove_file(root.join(name(4))).expect("removed");
    fs::create_dir(root.join("data/new")).expect("made");
    (FILES..FILES + 9).for_each(|number| {
        fs::write(root.join(format!("data/new/{number}")), noise(number, 5 * BLOCK)).expect("written");
    });
    let longer = File::options().write(true).open(root.join(name(READ[4]))).expect("opened");
    longer.write_all_at(&noise(1000, 40 * BLOCK), 2 * BLOCK as u64 + 100).expect("written");
    let mode = fs::Permissions::from_mode(0o4711);
    fs::set_permissions(root.join(name(READ[5])), mode).expect("changed");
    std::os::unix::fs::chown(root.join(name(5)), Some(7), Some(8)).expect("changed");
    symlink("../etc/motd", root.join("data/link")).expect("a link");
    fs::hard_link(root.join(name(READ[0])), root.join("data/other-name")).expect("a link");
}

/// Mode, owners, links, size, time and content.
type Entry = (u32, [u64; 4], [i64; 2], Vec<u8>);

/// Everything below a folder.
fn entries(root: &Path) -> BTreeMap<PathBuf, Entry> {
    let (mut found, mut pending) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder).expect("listed") {
            let path = entry.expect("an entry").path();
            let status = path.symlink_metadata().expect("there");
            let kind = status.file_type();
            let mut content = Vec::new();
            // The size of a folder is the file system's own.
            let mut size = status.len();
            if kind.is_dir() {
                pending.push(path.clone());
                size = 0;
            } else if kind.is_symlink() {
                content = fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes();
            } else {
                content = fs::read(&path).expect("read");
            }
            let numbers = [status.uid().into(), status.gid().into(), status.nlink(), size];
            let times = [status.mtime(), status.mtime_nsec()];
            let below = path.strip_prefix(root).expect("below").to_owned();
            found.insert(below, (status.mode(), numbers, times, content));
        }
    }
    found.remove(Path::new("lost+found"));
    found
}

#[test]
fn a_start_that_was_recorded_before_an_update_orders_the_tree() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let root = tree(&scene);
    let (source, before, profile) = (scene.arg("root"), scene.arg("before.hsi"), scene.arg("start.hsp"));
    run(["build", &source, "-o", &before, "--codec", "zstd:1"]).ok();
    let read = READ.map(|number| format!("/{}", name(number))).join(" ");
    let script = format!("cat {read} > /dev/null");
    let record = ["profile", &before, "-o", &profile, "--grace", "0", "--", "/bin/sh", "-c", &script];
    run(record).ok();

    update(&root);
    let (plain, ordered) = (scene.arg("plain.hsi"), scene.arg("ordered.hsi"));
    run(["build", &source, "-o", &plain, "--codec", "zstd:1"]).ok();
    let words = ["build", &source, "-o", &ordered, "--codec", "zstd:1", "--order", &profile, "-p", &profile];
    run(words).ok();
    run(["verify", &ordered]).ok();

    // The files that are still there, in the order in which they were read, before all others.
    let places = |image: &str| {
        let raw = scene.arg("raw");
        run(["-q", "export", image, "-o", &raw, "--format", "raw", "--force"]).ok();
        let disk = fs::read(&raw).expect("exported");
        let place = |number: u64| {
            let first = noise(number, BLOCK);
            disk.chunks(BLOCK).position(|block| block == first).expect("it is on the disk")
        };
        let is_gone = |number: &u64| [READ[2], 4].contains(number);
        let read: Vec<usize> = READ.into_iter().filter(|number| !is_gone(number)).map(place).collect();
        let others = (0..FILES + 9).filter(|number| !READ.contains(number) && !is_gone(number)).map(place);
        let first_other = others.min().expect("others");
        (read.is_sorted(), read.iter().all(|place| *place < first_other), read)
    };
    let (in_order, are_first, found) = places(&ordered);
    assert!(in_order && are_first, "{found:?}");
    let (in_order, are_first, found) = places(&plain);
    assert!(!in_order && !are_first, "{found:?}");

    let (folder, fs) = (scene.folder("disk"), scene.folder("fs"));
    mount(&scene, &[&ordered, &folder, "--fs", &fs]).ok();
    let (found, expected) = (entries(Path::new(&fs)), entries(&root));
    umount(&fs);
    let differ = expected.keys().chain(found.keys()).filter(|name| found.get(*name) != expected.get(*name));
    assert_eq!(differ.collect::<Vec<_>>(), Vec::<&PathBuf>::new());
    scene.wait_until_clean();
}
