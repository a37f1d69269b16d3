//! `headstart accelerate now`

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use hs_early::{OnlyOne, Root, SinceOn};
use hs_linux::LockHolder;
use hs_linux::ends::Ends;
use hs_output::printable::Printable;
use hs_output::show::{self, Bar};
use hs_relocate::{FileRun, LeftBecause, Options, Outcome, Report, recorded_runs};
use hs_start::open::read_profile;
use hs_units::ByteSize;

use super::accelerate::{list_of, recorded};
use crate::cli::relocate::Relocate;

/// Lays the blocks of a recorded start one behind the other; gives the exit code.
pub(crate) fn run(args: &Relocate, json: bool, quiet: bool) -> anyhow::Result<i32> {
    let wanted = match &args.profile {
        Some(profile) => of_profile(profile)?,
        None => of_list(args)?,
    };
    let mut power = Power::new(args.anyway || args.dry_run);
    if power.is_battery() {
        bail!(
            "this machine runs on its battery, and moving blocks keeps the disk at work: connect it to the mains; \
             --force moves them nevertheless"
        );
    }
    let at_work = if args.dry_run { None } else { Some(AtWork::begin(&args.root)?) };
    let signals = Ends::block()?;
    let bar = Bar::new(quiet || json);
    let options = Options { force: args.anyway, dry_run: args.dry_run };
    let report = hs_relocate::relocate(&args.root, &wanted, options, &mut |progress| {
        bar.update("laying anew", progress.moved_bytes, progress.total_bytes);
        let is_off = at_work.as_ref().is_some_and(AtWork::is_switched_off);
        let ends = is_off || power.is_lost() || signals.take().is_some();
        if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    drop(bar);
    if power.was_lost {
        log::warn!("the machine runs on its battery now, so nothing more is moved");
    }
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

/// Whether the machine has come to run on its battery, looked at from time to time.
struct Power {
    is_no_matter: bool,
    looked: Instant,
    was_lost: bool,
}

impl Power {
    const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

    fn new(is_no_matter: bool) -> Self {
        Self { is_no_matter, looked: Instant::now(), was_lost: false }
    }

    fn is_battery(&self) -> bool {
        !self.is_no_matter && hs_early::is_on_battery() == Some(true)
    }

    fn is_lost(&mut self) -> bool {
        if self.looked.elapsed() >= Self::BETWEEN_LOOKS {
            self.looked = Instant::now();
            self.was_lost |= self.is_battery();
        }
        self.was_lost
    }
}

/// A layout of the file system of this system's starts keeps boots from being recorded meanwhile, and ends
/// when they are switched off. Other file systems have neither.
struct AtWork {
    since_on: SinceOn,
    _only_one: Option<OnlyOne>,
}

impl AtWork {
    fn begin(root: &Path) -> anyhow::Result<Self> {
        let is_of_boots = root.canonicalize().is_ok_and(|path| path == Path::new("/"));
        let only_one = if is_of_boots {
            let taken = OnlyOne::take().context("take the lock of this system's starts")?;
            Some(taken.ok_or_else(|| already(hs_early::at_work().as_ref()))?)
        } else {
            None
        };
        Ok(Self { since_on: SinceOn::of(root), _only_one: only_one })
    }

    fn is_switched_off(&self) -> bool {
        self.since_on.is_switched_off()
    }
}

/// Why it is not the time to lay the files of this system anew.
fn already(holder: Option<&LockHolder>) -> anyhow::Error {
    match holder {
        Some(holder) if holder.is_program("headstart-accelerate") => anyhow!(
            "this boot is recorded just now by {holder}, and what moves would count as a part of it: wait until \
             `headstart accelerate status` says no more that it is at work"
        ),
        Some(holder) => anyhow!("the files of / are laid anew already by {holder}: wait until it is done"),
        None => anyhow!("another process works on the starts of this system just now: try it again"),
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
    Ok(recorded(&root, args.list.as_deref())?.file_runs())
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
        LeftBecause::Missing => "not found in this file system (names must be UTF-8)",
        LeftBecause::Changed => "replaced since the recording",
        LeftBecause::NotAFile => "no regular file",
        LeftBecause::Running => "running programs or swap space",
        LeftBecause::Immutable => "immutable, append-only or sealed",
        LeftBecause::Encrypted => "encrypted",
        LeftBecause::InInode => "so small that the inode holds it",
        LeftBecause::Empty => "without data in the recorded pages",
        LeftBecause::WouldFragment => "large, and would be in too many fragments",
        LeftBecause::NoRoom => "larger than the pieces of free space",
        LeftBecause::Refused => "refused by the kernel: journalled data, no extents or a bad sector",
    }
}
