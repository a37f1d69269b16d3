//! What is not laid anew, and what is said.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use hs_relocate::{FileRun, LeftBecause, Options, Outcome, relocate};
use hs_testing::{Test, noise};

use crate::mounted::{Mounted, name, tool};

pub(crate) const TESTS: &[Test] = &[
    ("other_file_systems_are_refused", other_file_systems_are_refused),
    ("flash_is_refused_without_force", flash_is_refused_without_force),
    ("a_full_disk_stays_as_it_is", a_full_disk_stays_as_it_is),
    ("free_space_in_pieces_is_no_place", free_space_in_pieces_is_no_place),
    ("a_hostile_list_moves_nothing_else", a_hostile_list_moves_nothing_else),
];

/// What is said of this mount point.
fn said(root: &Path, wanted: &[FileRun]) -> String {
    let go_on = &mut |_| std::ops::ControlFlow::Continue(());
    relocate(root, wanted, Options::default(), go_on).expect_err("refused").to_string()
}

fn other_file_systems_are_refused() {
    let mounted = Mounted::new(64, &[]);
    let root = mounted.root.clone();
    let inside = mounted.path("folder");
    fs::create_dir(&inside).unwrap();
    assert!(said(&inside, &[]).contains("is not a mount point"));
    assert!(said(Path::new("/dev/shm"), &[]).contains("a tmpfs"));
    assert!(said(&mounted.path("missing"), &[]).contains("cannot open"));
    let overlay = mounted.path("merged");
    for folder in ["lower", "upper", "work", "merged"] {
        fs::create_dir(mounted.path(folder)).unwrap();
    }
    let parts = |name: &str| mounted.path(name).display().to_string();
    let options =
        format!("lowerdir={},upperdir={},workdir={}", parts("lower"), parts("upper"), parts("work"));
    tool("mount", &["-t", "overlay", "none", "-o", &options, &parts("merged")]);
    let refused = said(&overlay, &[]);
    tool("umount", &[&parts("merged")]);
    assert!(refused.contains("an overlay") && refused.contains("findmnt"), "{refused}");
    mounted.unmount();
    for (words, expected) in [
        (&["-O", "^has_journal"][..], "no journal"),
        (&["-O", "bigalloc", "-C", "65536"], "bigalloc"),
        (&["-t", "ext3", "-O", "^extent"], "no extents"),
    ] {
        let other = Mounted::new(64, words);
        let refused = said(&other.root, &[]);
        assert!(refused.contains(expected), "{words:?}: {refused}");
    }
    mounted.mount(&["data=journal"]);
    assert!(said(&root, &[]).contains("journals data"));
    mounted.unmount();
    mounted.mount(&["ro"]);
    assert!(said(&root, &[]).contains("mounted read-only"));
    mounted.unmount();
    tool("debugfs", &["-w", "-R", "set_super_value state 3", &mounted.image()]);
    mounted.mount(&[]);
    let refused = said(&root, &[]);
    assert!(refused.contains("has errors") && refused.contains("e2fsck -f /dev/loop"), "{refused}");
}

fn flash_is_refused_without_force() {
    let mounted = Mounted::new(64, &[]);
    mounted.scatter(60, 30);
    let wanted = mounted.start(60, 31);
    mounted.turns(false);
    let refused = said(&mounted.root, &wanted);
    assert!(refused.contains("rotational is 0") && refused.contains("--force"), "{refused}");
    let options = Options { force: true, ..Options::default() };
    let go_on = &mut |_| std::ops::ControlFlow::Continue(());
    let report = relocate(&mounted.root, &wanted, options, go_on).unwrap();
    assert_eq!(report.outcome, Outcome::Moved);
}

fn a_full_disk_stays_as_it_is() {
    let mounted = Mounted::new(64, &["-m", "0"]);
    mounted.scatter(100, 32);
    let wanted = mounted.start(100, 33);
    let free_bytes = mounted.free_bytes();
    mounted.write("filler", &noise((free_bytes - (4 << 20)) as usize, 34));
    let (facts, free_bytes) = (mounted.facts(), mounted.free_bytes());
    let refused = said(&mounted.root, &wanted);
    assert!(refused.contains("too little free space"), "{refused}");
    assert_eq!(mounted.free_bytes(), free_bytes);
    mounted.check();
    assert!(mounted.facts() == facts);
}

fn free_space_in_pieces_is_no_place() {
    let mounted = Mounted::new(64, &["-m", "0"]);
    mounted.scatter(100, 35);
    let wanted = mounted.start(100, 36);
    // Everything else becomes files of one block, of which every other on the disk is deleted: in which order
    // they come there depends on when they are written back.
    fs::create_dir(mounted.path("ones")).unwrap();
    let path = |number| mounted.path(&format!("ones/{number}"));
    let count = (0..1 << 20).take_while(|number| fs::write(path(*number), [1; 4096]).is_ok()).count();
    mounted.free_bytes();
    let mut placed: Vec<_> =
        (0..count as u64).map(|number| (mounted.first_block(&path(number)), number)).collect();
    assert!(placed.len() > 1000);
    placed.sort_unstable();
    placed.iter().step_by(2).for_each(|(_, number)| fs::remove_file(path(*number)).unwrap());
    let (facts, free_bytes) = (mounted.facts(), mounted.free_bytes());
    let report = mounted.relocate(&wanted).unwrap();
    assert_eq!((report.outcome, report.moved_bytes), (Outcome::NoPlace, 0), "{report:?}");
    assert!(report.space_pieces > 30, "{report:?}");
    assert_eq!(mounted.free_bytes(), free_bytes);
    assert!(mounted.facts() == facts);
}

fn a_hostile_list_moves_nothing_else() {
    let mounted = Mounted::new(64, &[]);
    mounted.scatter(60, 37);
    let mut wanted = mounted.start(60, 38);
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), noise(9000, 1)).unwrap();
    let inode_outside = outside.as_file().metadata().unwrap().ino();
    symlink(outside.path(), mounted.path("link")).unwrap();
    symlink("files", mounted.path("folder-link")).unwrap();
    fs::create_dir(mounted.path("over")).unwrap();
    tool("mount", &["-t", "tmpfs", "none", mounted.path("over").to_str().unwrap()]);
    fs::write(mounted.path("over/there"), noise(9000, 2)).unwrap();
    tool("mkfifo", &[mounted.path("fifo").to_str().unwrap()]);
    tool("mknod", &[mounted.path("device").to_str().unwrap(), "c", "1", "3"]);
    let fifo = fs::symlink_metadata(mounted.path("fifo")).unwrap().ino();
    let device = fs::symlink_metadata(mounted.path("device")).unwrap().ino();
    let mut hostile = |path: String, inode, first_page, pages| {
        wanted.push(FileRun { path, identity: None, inode, first_page, pages });
    };
    hostile("/link".into(), inode_outside, 0, 3);
    hostile("/folder-link/0/0".into(), 1_000_001, 0, 3);
    hostile(format!("/../../../../{}", outside.path().display()), inode_outside + 1, 0, 3);
    hostile("/over/there".into(), 1_000_002, 0, 3);
    hostile("/fifo".into(), fifo, 0, 3);
    hostile("/device".into(), device, 0, 3);
    hostile("relative".into(), 1_000_003, 0, 3);
    hostile("".into(), 1_000_004, 0, 3);
    hostile("/".into(), 2, 0, 3);
    hostile("/a\nb/\u{1b}[2J".into(), 1_000_005, 0, 3);
    hostile(format!("/{}", name(1)), 1_000_006, 0, 3);
    hostile(format!("/{}", name(2)), 0, u64::MAX, u64::MAX);
    let there = mounted.run(&name(4), u64::MAX - 1, u64::MAX);
    wanted.push(there);
    let facts = mounted.facts();
    let report = mounted.moved(&wanted);
    tool("umount", &[mounted.path("over").to_str().unwrap()]);
    assert_eq!(report.moved_files, 60, "{report:?}");
    let left: Vec<_> = report.left.iter().map(|(because, left)| (*because, left.files)).collect();
    let expected = [(LeftBecause::Missing, 7), (LeftBecause::Changed, 2), (LeftBecause::NotAFile, 3)];
    assert_eq!(left, expected, "{report:?}");
    fs::write(mounted.path("over/there"), noise(9000, 2)).unwrap_or_default();
    mounted.check();
    let after = mounted.facts();
    assert!(facts.iter().filter(|(path, _)| !path.ends_with("there")).all(|(path, of)| after[path] == *of));
}
