//! `headstart accelerate now`

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, bail};
use hs_early::{OnlyOne, Root, Switch};
use hs_linux::ends::Ends;
use hs_output::printable::Printable;
use hs_output::show::{self, Bar};
use hs_relocate::{FileRun, LeftBecause, Options, Outcome, Report, recorded_runs};
use hs_start::open::read_profile;
use hs_units::ByteSize;

use super::accelerate::list_of;
use crate::cli::relocate::Relocate;

/// Lays the blocks of a recorded start one behind the other; gives the exit code.
pub(crate) fn run(args: &Relocate, json: bool, quiet: bool) -> anyhow::Result<i32> {
    let wanted = match &args.profile {
        Some(profile) => of_profile(profile)?,
        None => of_list(args)?,
    };
    let at_work = if args.dry_run { None } else { Some(AtWork::begin(&args.root)?) };
    let signals = Ends::block()?;
    let bar = Bar::new(quiet || json);
    let options = Options { force: args.flash, dry_run: args.dry_run };
    let report = hs_relocate::relocate(&args.root, &wanted, options, &mut |progress| {
        bar.update("laying anew", progress.moved_bytes, progress.total_bytes);
        let is_off = at_work.as_ref().is_some_and(AtWork::is_switched_off);
        if is_off || signals.take().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    drop(bar);
    if at_work.is_some_and(|at_work| !at_work.is_switched_off()) {
        update_lists(args);
    }
    if json {
        show::json(&report)?;
    } else if !quiet {
        say(&report);
    }
    Ok(i32::from(report.outcome == Outcome::Stopped))
}

/// A layout of the file system of this system's starts keeps boots from being recorded meanwhile, and ends
/// when they are switched off. Other file systems have neither.
struct AtWork {
    switch: Switch,
    was_on: bool,
    _only_one: Option<OnlyOne>,
}

impl AtWork {
    fn begin(root: &Path) -> anyhow::Result<Self> {
        let is_of_boots = root.canonicalize().is_ok_and(|path| path == Path::new("/"));
        let only_one = if is_of_boots {
            OnlyOne::take().context("take the lock of this system's starts")?
        } else {
            None
        };
        if is_of_boots && only_one.is_none() {
            bail!(
                "this boot is recorded just now, and what moves would count as a part of it: wait until \
                 `headstart accelerate status` says no more that it is at work"
            );
        }
        let switch = Switch::of(root);
        Ok(Self { was_on: switch.is_on(), switch, _only_one: only_one })
    }

    fn is_switched_off(&self) -> bool {
        self.was_on && !self.switch.is_on()
    }
}

/// Takes the new places into the list that was given, and into the one of boots. Without that they are still
/// found, and asked for in the order of the old places.
fn update_lists(args: &Relocate) {
    let Ok(root) = Root::open(&args.root) else { return };
    let named = args.list.as_deref().map(|path| list_of(&root, Some(path)));
    for kept in named.into_iter().chain([list_of(&root, None)]) {
        if let Err(error) = kept.update_places(&root) {
            log::warn!("the list has the old places until the next recording: {error}");
        }
    }
}

fn of_profile(path: &Path) -> anyhow::Result<Vec<FileRun>> {
    let profile = read_profile(path)?;
    if profile.files.is_empty() {
        bail!(
            "{} names no files: record it with another version of headstart (headstart profile)",
            path.display()
        );
    }
    Ok(recorded_runs(&profile))
}

fn of_list(args: &Relocate) -> anyhow::Result<Vec<FileRun>> {
    let root = Root::open(&args.root)?;
    let kept = list_of(&root, args.list.as_deref());
    let Some(list) = kept.read(&root)? else {
        bail!("{} is not there: record a start first (headstart accelerate record)", kept.path.display());
    };
    Ok(list.file_runs())
}

fn say(report: &Report) {
    let (before, after) = (report.before.seeks, report.after.seeks);
    let bytes = ByteSize(report.before.bytes);
    let moved = format!("{} of {} files moved", ByteSize(report.moved_bytes), report.moved_files);
    show::line(match report.outcome {
        Outcome::Moved => format!("{moved}: the start reads {bytes} with {after} seeks instead of {before}"),
        Outcome::InOrder => format!("nothing to do: the start reads {bytes} with {before} seeks"),
        Outcome::WouldPay => {
            format!("a new layout pays: the start reads {bytes} with {before} seeks, and could with {after}")
        }
        Outcome::NoPlace => format!(
            "nothing was done: the free space is in pieces so small that nothing is gained; the start reads {bytes} \
             with {before} seeks"
        ),
        Outcome::Stopped => {
            format!(
                "stopped, {moved}: the start reads {bytes} with {after} seeks instead of {before}; go on with the \
                     same command"
            )
        }
    });
    for (because, left) in &report.left {
        let mut named: Vec<_> = left.named.iter().map(|path| Printable(path).to_string()).collect();
        if left.files > named.len() as u64 {
            named.push("…".to_owned());
        }
        show::line(format_args!("  stays: {} {}: {}", left.files, reason(*because), named.join(", ")));
    }
}

/// What is said of files that stay where they are.
fn reason(because: LeftBecause) -> &'static str {
    match because {
        LeftBecause::Missing => "not found in this file system",
        LeftBecause::Changed => "replaced since the recording",
        LeftBecause::NotAFile => "no regular file",
        LeftBecause::Running => "running programs or swap space",
        LeftBecause::Immutable => "immutable, append-only or sealed",
        LeftBecause::Encrypted => "encrypted",
        LeftBecause::InInode => "so small that the inode holds it",
        LeftBecause::Empty => "without data in the recorded pages",
        LeftBecause::WouldFragment => "large, and would be in too many fragments",
        LeftBecause::NoRoom => "larger than the pieces of free space",
        LeftBecause::Refused => "refused by the kernel",
    }
}
