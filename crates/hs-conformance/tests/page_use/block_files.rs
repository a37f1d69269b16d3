//! Blocks and the file pages they are; debugfs says where the files really lie.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use hs_observe::block_files;
use hs_testing::{machine_has, noise};
use hs_trace::{BlockSet, FileUse};
use hs_units::{BLOCK_BYTES, BlockRange, Lba};

use crate::scene::Scene;

const DISK_BLOCKS: u64 = (64 << 20) / BLOCK_BYTES;

fn fill(tree: &Path) {
    fs::create_dir_all(tree.join("usr/lib/deep/er")).unwrap();
    fs::write(tree.join("big"), noise(1_000_000, 1)).unwrap();
    fs::write(tree.join("usr/lib/odd"), noise(10_001, 2)).unwrap();
    fs::write(tree.join("usr/lib/deep/er/one"), "1").unwrap();
    fs::write(tree.join("empty"), "").unwrap();
    fs::hard_link(tree.join("big"), tree.join("usr/hard")).unwrap();
    symlink("big", tree.join("soft")).unwrap();
    // More extents than one call brings.
    let sparse = File::create(tree.join("sparse")).unwrap();
    for hole in 0..100 {
        sparse.write_all_at(&noise(4096, 3), hole * 3 * 4096).unwrap();
    }
    for number in 0..200 {
        fs::write(tree.join(format!("usr/small{number}")), format!("{number}")).unwrap();
    }
}

/// (inode, page, block) of everything found.
fn pages(files: &[FileUse]) -> BTreeSet<(u64, u64, u64)> {
    let mut pages = BTreeSet::new();
    for file in files {
        for run in &file.runs {
            for n in 0..run.blocks.count {
                assert!(
                    pages.insert((file.inode, run.page + n, run.blocks.start.0 + n)),
                    "{file:?} overlaps"
                );
            }
        }
    }
    pages
}

/// Every regular file of the scene once: inode and size.
fn regular_files(directory: &Path, found: &mut BTreeSet<(u64, u64)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let (path, stat) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
        if stat.is_dir() {
            regular_files(&path, found);
        } else if stat.is_file() {
            found.insert((stat.ino(), stat.size()));
        }
    }
}

#[test]
fn every_page_is_where_debugfs_says() {
    if !machine_has(&["/dev/fuse", "mkfs.ext4", "debugfs"]) {
        return;
    }
    let scene = Scene::new(4096, fill);
    let mut files = BTreeSet::new();
    regular_files(scene.root(), &mut files);
    let asked: Vec<_> = files.iter().map(|&(inode, bytes)| (inode, bytes.div_ceil(BLOCK_BYTES))).collect();
    let places: BTreeSet<_> =
        scene.places(&asked).into_iter().map(|((inode, page), block)| (inode, page, block)).collect();
    assert!(places.len() > 400, "{} pages", places.len());

    let whole = BlockSet::from_iter([BlockRange::new(Lba(0), DISK_BLOCKS)]);
    let found = block_files::map(scene.root(), &whole).unwrap();
    assert_eq!(pages(&found), places);
    assert!(found.is_sorted_by(|a, b| a.path < b.path));
    for file in &found {
        let inode = fs::symlink_metadata(format!("{}{}", scene.root().display(), file.path)).unwrap().ino();
        assert_eq!(inode, file.inode, "{}", file.path);
    }
    assert!(found.iter().all(|file| file.path != "/empty" && file.path != "/soft"));

    // Every third pair of blocks: files that have one of them come with all of theirs.
    let some: BlockSet = (0..DISK_BLOCKS / 6).map(|n| BlockRange::new(Lba(n * 6 + 1), 2)).collect();
    let used: BTreeSet<u64> =
        places.iter().filter(|(_, _, block)| some.contains(Lba(*block))).map(|(inode, ..)| *inode).collect();
    let expected: BTreeSet<_> = places.iter().copied().filter(|(inode, ..)| used.contains(inode)).collect();
    assert!(expected.len() < places.len(), "some files are left out");
    let found = block_files::map(scene.root(), &some).unwrap();
    assert_eq!(pages(&found), expected);
    assert!(found.iter().all(|file| !file.runs.is_empty()));
    assert_eq!(block_files::map(scene.root(), &BlockSet::new()).unwrap(), []);
}

#[test]
fn blocks_smaller_than_a_page_give_only_whole_pages() {
    if !machine_has(&["/dev/fuse", "mkfs.ext4", "debugfs"]) {
        return;
    }
    let scene = Scene::new(1024, fill);
    let whole = BlockSet::from_iter([BlockRange::new(Lba(0), DISK_BLOCKS)]);
    let found = pages(&block_files::map(scene.root(), &whole).unwrap());
    let big = scene.inode("big");
    let places = scene.places(&[(big, 1_000_000_u64.div_ceil(1024))]);
    // A page is a block of the device when its quarters lie there in order; the last page may end early.
    let expected: BTreeSet<_> = (0..1_000_000_u64.div_ceil(BLOCK_BYTES))
        .filter_map(|page| {
            let first = *places.get(&(big, page * 4))?;
            let there = (0..4).all(|n| places.get(&(big, page * 4 + n)).is_none_or(|at| *at == first + n));
            (there && first % 4 == 0).then_some((big, page, first / 4))
        })
        .collect();
    let found: BTreeSet<_> = found.into_iter().filter(|(inode, _, _)| *inode == big).collect();
    assert_eq!(found, expected);
}

#[test]
fn what_is_mounted_on_top_is_left_out() {
    if !machine_has(&["/dev/fuse", "mkfs.ext4", "mount", "umount"]) {
        return;
    }
    let scene = Scene::new(4096, fill);
    let other = Scene::new(4096, |tree| fs::write(tree.join("foreign"), noise(100_000, 4)).unwrap());
    let mount = |from: &Path, to: &Path| {
        assert!(Command::new("mount").arg("--bind").args([from, to]).status().unwrap().success());
    };
    let (directory, file) = (scene.path("usr/lib"), scene.path("big"));
    mount(other.root(), &directory);
    mount(&other.path("foreign"), &file);
    let whole = BlockSet::from_iter([BlockRange::new(Lba(0), DISK_BLOCKS)]);
    let found = block_files::map(scene.root(), &whole);
    for target in [directory, file] {
        assert!(Command::new("umount").arg(target).status().unwrap().success());
    }
    let found = found.unwrap();
    let paths: Vec<&str> = found.iter().map(|file| file.path.as_str()).collect();
    assert!(paths.contains(&"/sparse") && paths.contains(&"/usr/small7"));
    assert!(!paths.iter().any(|path| path.starts_with("/usr/lib/")));
    let foreign = other.inode("foreign");
    assert!(found.iter().all(|file| file.inode != foreign || file.path != "/big"), "{paths:?}");
}

#[test]
fn a_file_system_without_addresses_has_no_files() {
    let whole = BlockSet::from_iter([BlockRange::new(Lba(0), DISK_BLOCKS)]);
    assert_eq!(block_files::map(Path::new("/proc/self/task"), &whole).unwrap(), []);
    assert!(block_files::map(Path::new("/nonexistent"), &whole).is_err());
}
