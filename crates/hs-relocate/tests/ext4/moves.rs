//! What moves, how, and that nothing else changes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use hs_relocate::choose::PAGES_PER_FRAGMENT;
use hs_relocate::{LeftBecause, Options, Outcome, relocate};
use hs_testing::{Test, noise};
use rustix::fs::FallocateFlags;

use crate::mounted::{Mounted, name, tell, tool};

pub(crate) const TESTS: &[Test] = &[
    ("a_start_comes_to_lie_in_its_order", a_start_comes_to_lie_in_its_order),
    ("small_blocks_keep_their_place_in_a_page", small_blocks_keep_their_place_in_a_page),
    ("large_files_keep_few_fragments", large_files_keep_few_fragments),
    ("what_cannot_move_is_counted", what_cannot_move_is_counted),
    ("files_in_use_move", files_in_use_move),
];

fn a_start_comes_to_lie_in_its_order() {
    let mounted = Mounted::new(128, &[]);
    mounted.scatter(400, 1);
    tell(&mounted.path(&name(3)), b"something");
    fs::hard_link(mounted.path(&name(5)), mounted.path("another name")).unwrap();
    let mut wanted = mounted.start(400, 2);
    // Another name of a file that is in the list: it moves once.
    wanted.insert(100, mounted.run("another name", 0, 15));
    let (before, free_bytes) = (mounted.facts(), mounted.free_bytes());
    let options = Options { dry_run: true, ..Options::default() };
    let go_on = &mut |_| std::ops::ControlFlow::Continue(());
    let would = relocate(&mounted.root, &wanted, options, go_on).unwrap();
    assert_eq!((would.outcome, would.moved_bytes), (Outcome::WouldPay, 0));
    let report = mounted.moved(&wanted);
    assert!(report.before.seeks > 300, "{report:?}");
    assert!(report.after.seeks * 20 <= report.before.seeks, "{report:?}");
    assert_eq!((would.before, would.after.bytes), (report.before, report.after.bytes));
    assert_eq!((report.files, report.moved_files, report.left.len()), (400, 400, 0), "{report:?}");
    assert!(report.fragments_after <= report.fragments_before, "{report:?}");
    // At the fast end: in the first half of what is nearly empty.
    assert!(report.space_first_byte < 64 << 20, "{report:?}");
    assert!(mounted.facts() == before, "contents, times, attributes, inodes");
    mounted.check();
    assert!(mounted.facts() == before, "from the medium");
    assert_eq!(mounted.free_bytes(), free_bytes);
    // It lies in order now.
    let again = mounted.relocate(&wanted).unwrap();
    assert_eq!((again.outcome, again.moved_bytes), (Outcome::InOrder, 0), "{again:?}");
    assert_eq!(again.before, report.after);
}

fn small_blocks_keep_their_place_in_a_page() {
    for block_bytes in ["1024", "2048"] {
        let mounted = Mounted::new(96, &["-b", block_bytes]);
        mounted.scatter(200, 3);
        let wanted = mounted.start(200, 4);
        let before = mounted.facts();
        let report = mounted.moved(&wanted);
        assert!(report.after.seeks * 20 <= report.before.seeks, "{report:?}");
        assert_eq!((report.moved_files, report.left.len()), (200, 0), "{report:?}");
        mounted.check();
        assert!(mounted.facts() == before, "blocks of {block_bytes}");
    }
}

fn large_files_keep_few_fragments() {
    let mounted = Mounted::new(256, &[]);
    mounted.scatter(60, 5);
    mounted.fragmented("fragmented", 4);
    mounted.write("large", &noise(40 << 20, 6));
    mounted.write("middle", &noise(4 << 20, 7));
    let mut wanted = mounted.start(60, 8);
    for number in 0..40 {
        // At two places of the large file every other run of five pages.
        let first_page = if number % 2 == 0 { 1000 } else { 9000 } + 10 * number;
        wanted.insert(number as usize, mounted.run("large", first_page, 5));
    }
    // Of the middle one too little.
    wanted.push(mounted.run("middle", 700, 3));
    wanted.push(mounted.run("fragmented", 0, 1024));
    wanted.extend((0..200).map(|number| mounted.run("fragmented", number * 5, 2)));
    let before = mounted.facts();
    let names = ["large", "middle", "fragmented"];
    let fragments = names.map(|name| mounted.fragments(name));
    assert!(fragments[2] > 2, "made so: {fragments:?}");
    let report = mounted.moved(&wanted);
    let after = names.map(|name| mounted.fragments(name));
    let most = (40 << 20) / 4096 / PAGES_PER_FRAGMENT;
    assert!(after[0] > fragments[0] && after[0] <= fragments[0] + most, "{fragments:?} {after:?}");
    assert_eq!(after[1], fragments[1], "left where it is");
    assert_eq!(after[2], 1, "moved whole");
    assert_eq!(report.left[&LeftBecause::WouldFragment].files, 1, "{report:?}");
    assert!(report.after.seeks < report.before.seeks / 2, "{report:?}");
    mounted.check();
    assert!(mounted.facts() == before);
}

fn what_cannot_move_is_counted() {
    let mounted = Mounted::new(128, &["-I", "256", "-O", "inline_data"]);
    mounted.scatter(80, 9);
    let mut wanted = mounted.start(80, 10);
    mounted.write("immutable", &noise(9000, 1));
    mounted.write("tiny", b"in the inode");
    mounted.write("journalled", &noise(9000, 2));
    mounted.write("mapped", b"");
    mounted.write("runs", &fs::read("/bin/sleep").unwrap());
    mounted.write("swap", &vec![0; 1 << 20]);
    File::create(mounted.path("hole")).unwrap().set_len(1 << 20).unwrap();
    let unwritten = File::create(mounted.path("unwritten")).unwrap();
    rustix::fs::fallocate(&unwritten, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    drop(unwritten);
    mounted.write("short", &noise(4000, 3));
    for name in ["immutable", "tiny", "journalled", "runs", "hole", "unwritten"] {
        wanted.push(mounted.run(name, 0, 2));
    }
    wanted.push(mounted.run("short", 7, 1));
    wanted.push(mounted.run("swap", 0, 256));
    tool("chattr", &["+i", mounted.path("immutable").to_str().unwrap()]);
    // Extents, and data that is journalled, without delayed allocation. (chattr +j needs a capability that
    // containers lack.)
    mounted.unmount();
    tool("debugfs", &["-w", "-R", "set_inode_field /journalled flags 0x84000", &mounted.image()]);
    mounted.mount(&["nodelalloc"]);
    tool("chmod", &["700", mounted.path("runs").to_str().unwrap()]);
    tool("mkswap", &["-q", mounted.path("swap").to_str().unwrap()]);
    let swaps = Command::new("swapon").arg(mounted.path("swap")).status().unwrap().success();
    let mut running = Command::new(mounted.path("runs")).arg("1000").spawn().unwrap();
    let before = mounted.facts();
    let report = mounted.moved(&wanted);
    running.kill().unwrap();
    running.wait().unwrap();
    if swaps {
        tool("swapoff", &[mounted.path("swap").to_str().unwrap()]);
    } else {
        hs_testing::skip_part("swap files");
    }
    let left: Vec<_> = report.left.iter().map(|(because, left)| (*because, left.files)).collect();
    let expected = [
        (LeftBecause::Running, 1 + u64::from(swaps)),
        (LeftBecause::Immutable, 1),
        (LeftBecause::InInode, 1),
        (LeftBecause::Empty, 3),
        (LeftBecause::Refused, 1),
    ];
    assert_eq!(left, expected, "{report:?}");
    assert_eq!(report.moved_files, 80 + u64::from(!swaps));
    tool("chattr", &["-i", mounted.path("immutable").to_str().unwrap()]);
    // The attribute has changed its time.
    let after = mounted.facts();
    let differ = before.iter().filter(|(path, facts)| after.get(*path) != Some(facts)).count();
    assert_eq!(differ, 1, "the immutable one");
    mounted.check();
    assert!(mounted.facts() == after);
}

fn files_in_use_move() {
    let mounted = Mounted::new(128, &[]);
    mounted.scatter(60, 11);
    let wanted = mounted.start(60, 12);
    // One is written to without the cache and one through it while they move, and one is unlinked.
    let open = File::options().read(true).write(true).open(mounted.path(&name(7))).unwrap();
    let gone = File::open(mounted.path(&name(9))).unwrap();
    let gone_bytes = fs::read(mounted.path(&name(9))).unwrap();
    let mut number = 0_u8;
    let report = relocate(&mounted.root, &wanted, Options::default(), &mut |_| {
        number = number.wrapping_add(1);
        open.write_all_at(&[number; 100], 50).unwrap();
        if number == 10 {
            fs::remove_file(mounted.path(&name(9))).unwrap();
        }
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(report.outcome, Outcome::Moved);
    let mut read = vec![0; gone_bytes.len()];
    gone.read_exact_at(&mut read, 0).unwrap();
    assert!(read == gone_bytes);
    drop((open, gone));
    mounted.check();
    let written = fs::read(mounted.path(&name(7))).unwrap();
    assert_eq!(written[50..150], [number; 100]);
    assert!(fs::metadata(mounted.path(&name(7))).unwrap().len() == written.len() as u64);
}
