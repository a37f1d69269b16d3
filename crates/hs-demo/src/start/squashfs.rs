//! The squashfs that is compared with: in its default order, and sorted by first access.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use hs_trace::Profile;
use hs_units::Lba;

use crate::cache::Cache;
use crate::disks::LEVEL;
use crate::root;
use crate::tools::{self, MKSQUASHFS};

/// In the order in which mksquashfs finds the files.
pub(super) const PLAIN: &str = "root.sqfs";
/// Sorted by first access.
pub(super) const SORTED: &str = "root-sorted.sqfs";

/// Its default size of blocks.
const BLOCK: &str = "128K";
/// The highest priority that a sort list can give; files that it does not name have 0.
const TOP_PRIORITY: usize = 32_767;

/// The stamp of a squashfs of the root with `root_stamp`.
pub(super) fn stamp(root_stamp: &str) -> String {
    format!("squashfs zstd:{LEVEL} {BLOCK}\n{root_stamp}")
}

/// As [`stamp`], for the sorted one. One start of a command is like the next to a file system that
/// sorts whole files, so the list of a new recording is no reason to make it again.
pub(super) fn sorted_stamp(root_stamp: &str) -> String {
    format!("sorted by first access of: {}\n{}", root::command_line(), stamp(root_stamp))
}

/// Makes `name` from the root, sorted by the list of `profile` if there is one.
pub(super) fn make(cache: &Cache, name: &str, stamp: &str, profile: Option<&Profile>) -> anyhow::Result<()> {
    let tree = cache.path(root::NAME);
    let mut command = MKSQUASHFS.command();
    command.arg(&tree).arg(cache.draft(name)).args(["-comp", "zstd", "-b", BLOCK]);
    command.args(["-Xcompression-level", &LEVEL.to_string()]);
    command.args(["-noappend", "-no-recovery", "-no-progress", "-quiet"]);
    if let Some(profile) = profile {
        let list = cache.draft("sort-list");
        let text = sort_list(&first_access(profile), |path| is_file(&tree, path));
        std::fs::write(&list, text).with_context(|| format!("write {}", list.display()))?;
        command.arg("-sort").arg(list);
    }
    tools::run(MKSQUASHFS.program, command, &mut |line| log::debug!("mksquashfs: {line}"))
        .context("make a squashfs")?;
    cache.keep(name, stamp)
}

/// Paths in the root, each file where the first of its blocks was read.
fn first_access(profile: &Profile) -> Vec<&str> {
    let order: HashMap<Lba, usize> =
        profile.first_access().into_iter().enumerate().map(|(index, lba)| (lba, index)).collect();
    let mut files: Vec<(usize, &str)> = profile
        .files
        .iter()
        .filter_map(|file| {
            let blocks = file.runs.iter().flat_map(|run| run.blocks.blocks());
            let first = blocks.filter_map(|lba| order.get(&lba).copied()).min()?;
            Some((first, file.path.as_str()))
        })
        .collect();
    files.sort_unstable();
    files.into_iter().map(|(_, path)| path).collect()
}

/// A list for `mksquashfs -sort`: a path relative to the source folder, a blank, and a priority, the
/// highest first. A backslash protects blanks. A folder's priority would go to every file in it, and
/// a line break cannot be written, so both are left out.
fn sort_list(paths: &[&str], is_file: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    let listed = paths.iter().filter(|path| !path.contains('\n') && is_file(path));
    for (index, path) in listed.enumerate() {
        for letter in path.trim_start_matches('/').chars() {
            if letter.is_whitespace() || matches!(letter, '\\' | '"') {
                text.push('\\');
            }
            text.push(letter);
        }
        let priority = TOP_PRIORITY.saturating_sub(index).max(1);
        text.push_str(&format!(" {priority}\n"));
    }
    text
}

fn is_file(tree: &Path, path: &str) -> bool {
    tree.join(path.trim_start_matches('/')).symlink_metadata().is_ok_and(|metadata| metadata.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hs_trace::{FileRun, FileUse, Read};
    use hs_units::{BlockRange, Nanos};

    fn file(path: &str, runs: &[(u64, u64)]) -> FileUse {
        let run = |&(start, count)| FileRun { page: 0, blocks: BlockRange::new(Lba(start), count) };
        FileUse { path: path.to_owned(), inode: 12, runs: runs.iter().map(run).collect() }
    }

    fn read(start: u64, count: u64) -> Read {
        Read { at: Nanos::ZERO, blocks: BlockRange::new(Lba(start), count), cost: Nanos::ZERO }
    }

    #[test]
    fn files_come_in_the_order_of_their_first_blocks() {
        let profile = Profile {
            reads: vec![read(50, 2), read(10, 4), read(30, 1), read(50, 1)],
            files: vec![
                file("/late", &[(30, 1)]),
                file("/never", &[(90, 4)]),
                file("/second", &[(0, 12)]),
                file("/first", &[(80, 1), (51, 1)]),
            ],
            ..Profile::default()
        };
        assert_eq!(first_access(&profile), ["/first", "/second", "/late"]);
    }

    #[test]
    fn a_sort_list_has_falling_priorities_and_plain_files_only() {
        let text = sort_list(&["/usr/a", "/usr", "/b c\\d", "/e\nf", "/g"], |path| path != "/usr");
        assert_eq!(text, "usr/a 32767\nb\\ c\\\\d 32766\ng 32765\n");
    }

    #[test]
    fn more_files_than_priorities_still_come_before_the_others() {
        let paths = vec!["/x"; TOP_PRIORITY + 5];
        let text = sort_list(&paths, |_| true);
        assert!(text.ends_with("x 2\nx 1\nx 1\nx 1\nx 1\nx 1\nx 1\n"), "{}", &text[text.len() - 40..]);
    }
}
