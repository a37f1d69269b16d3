//! It is killed at any moment, and each file is as it was.

use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};

use hs_relocate::{FileRun, Options, relocate};
use hs_testing::Test;
use hs_units::Prng;

use crate::mounted::Mounted;

pub(crate) const TESTS: &[Test] =
    &[("kills_leave_files_as_they_were", kills_leave_files_as_they_were), ("a_stop_is_kept", a_stop_is_kept)];

/// The argument that makes this program what is killed.
pub(crate) const WORD: &str = "relocates";
/// So many times it is killed; or as often as this variable says.
const KILLS: u64 = 20;
const KILLS_VARIABLE: &str = "KILLS";
const FILES: u64 = 90;

/// Relocates, and says each move. The words are the mount point and runs: inode, pages, path.
pub(crate) fn relocate_and_tell(mut words: impl Iterator<Item = String>) {
    let root = words.next().expect("a mount point");
    let mut wanted = Vec::new();
    while let (Some(inode), Some(pages), Some(path)) = (words.next(), words.next(), words.next()) {
        let number = |word: String| word.parse().expect("a number");
        wanted.push(FileRun {
            path,
            identity: None,
            inode: number(inode),
            first_page: 0,
            pages: number(pages),
        });
    }
    let report = relocate(Path::new(&root), &wanted, Options::default(), &mut |progress| {
        tell(&progress.moved_bytes);
        ControlFlow::Continue(())
    });
    tell(&report);
}

/// Writes a line to the test that started this process.
fn tell(what: &dyn std::fmt::Debug) {
    writeln!(std::io::stdout(), "{what:?}").expect("written");
}

fn kills_leave_files_as_they_were() {
    let kills = std::env::var(KILLS_VARIABLE).ok().and_then(|word| word.parse().ok()).unwrap_or(KILLS);
    let mounted = Mounted::new(64, &[]);
    mounted.scatter(FILES, 20);
    let (facts, free_bytes) = (mounted.facts(), mounted.free_bytes());
    let mut prng = Prng::new(21);
    let mut in_the_middle = 0;
    for round in 0..kills {
        let mut words = vec![WORD.to_owned(), mounted.root.display().to_string()];
        for run in mounted.start(FILES, 100 + round) {
            words.extend([run.inode.to_string(), run.pages.to_string(), run.path]);
        }
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(words)
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let moves = prng.below(FILES) as usize;
        let seen = said.by_ref().take(moves).map_while(Result::ok).count();
        child.kill().expect("killed");
        child.wait().expect("ended");
        let is_whole = said.map_while(Result::ok).any(|line| line.contains("outcome"));
        in_the_middle += u64::from(seen == moves && !is_whole);
        mounted.check();
        assert!(mounted.facts() == facts, "round {round}, after {moves} moves");
        assert_eq!(mounted.free_bytes(), free_bytes, "round {round}: nothing is left behind");
    }
    assert!(in_the_middle * 10 >= kills * 8, "{in_the_middle} of {kills} kills were in the middle");
}

fn a_stop_is_kept() {
    let mounted = Mounted::new(64, &[]);
    mounted.scatter(FILES, 22);
    let wanted = mounted.start(FILES, 23);
    let facts = mounted.facts();
    let mut moves = 0;
    let report = relocate(&mounted.root, &wanted, Options::default(), &mut |_| {
        moves += 1;
        if moves == 20 {
            let other = mounted.relocate(&wanted).expect_err("one at a time").to_string();
            assert!(other.contains("another headstart"), "{other}");
        }
        if moves == 40 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .expect("relocated");
    assert_eq!(report.outcome, hs_relocate::Outcome::Stopped);
    assert_eq!((moves, report.moved_files), (40, 40));
    assert!(report.after.seeks < report.before.seeks, "what has moved stays: {report:?}");
    mounted.check();
    assert!(mounted.facts() == facts);
    // The next one goes on.
    let report = mounted.moved(&wanted);
    assert!(report.after.seeks * 20 <= report.before.seeks + 100, "{report:?}");
}
