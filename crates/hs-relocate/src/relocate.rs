//! The work: looking, reserving, moving run by run, looking again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use hs_accelerate::{FileRun, Scatter};
use hs_linux::move_extents;
use hs_units::BLOCK_BYTES;
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;
use serde::Serialize;

use crate::RelocateError;
use crate::layout::PageRun;
use crate::listed::{LeftBecause, List};
use crate::plan::{self, Placed, Plan, PlannedFile, Wanted};
use crate::space::Space;
use crate::volume::Volume;

/// What is moved at once: a stop waits for no more.
const PIECE_PAGES: u64 = (4 << 20) / BLOCK_BYTES;
/// The page cache has pages of up to so many bytes, and drops none of which only a part is named.
const LARGE_PAGE_BYTES: u64 = 2 << 20;
/// Moved pages are dirty until they are written, and nothing else bounds them.
const DIRTY_BYTES: u64 = 64 << 20;
/// Files that are named for each reason.
const NAMED: usize = 5;

/// How blocks are laid anew.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Also on flash, and on a volume with snapshots.
    pub force: bool,
    /// Only tell whether it pays.
    pub dry_run: bool,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What has moved.
    pub moved_bytes: u64,
    /// What will have.
    pub total_bytes: u64,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The blocks lie anew.
    Moved,
    /// They lie well enough: nothing was done.
    InOrder,
    /// A layout would pay, and was not asked for.
    WouldPay,
    /// The free space is in pieces so small that nothing would be gained: nothing was done.
    NoPlace,
    /// It was told to stop. What has moved is whole, and so is what has not.
    Stopped,
}

/// Files that stay where they are, for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Left {
    /// How many.
    pub files: u64,
    /// The first of them.
    pub named: Vec<String>,
}

/// What was done and found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// Files in the list.
    pub files: u64,
    /// Files of which blocks have moved.
    pub moved_files: u64,
    /// Bytes that have moved.
    pub moved_bytes: u64,
    /// How scattered the list was.
    pub before: Scatter,
    /// How scattered it is now; in a dry run, how scattered it would be at best.
    pub after: Scatter,
    /// Fragments of the listed files, all together.
    pub fragments_before: u64,
    /// The same, now.
    pub fragments_after: u64,
    /// Pieces of the reserved space, and its first byte on the device; 0 where none was reserved.
    pub space_pieces: u64,
    /// See `space_pieces`.
    pub space_first_byte: u64,
    /// Files that stayed where they were, by reason.
    pub left: BTreeMap<LeftBecause, Left>,
}

/// Lays the runs of `wanted`, given in the order of first access, one behind the other on the ext4 that is
/// mounted at `mount`, where that pays. Calls `progress` after each move, and stops when it says so. Contents
/// and times of files do not change; whatever ends this process, each file is as it was.
///
/// # Errors
/// When the file system cannot be laid anew; nothing has moved then.
pub fn relocate(
    mount: &Path,
    wanted: &[FileRun],
    options: Options,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Report, RelocateError> {
    let most = hs_trace::limits::MAX_RUNS as usize;
    if wanted.len() > most {
        return Err(RelocateError::ListTooLong { count: wanted.len(), most });
    }
    let volume = Volume::open(mount)?;
    if !options.force && !options.dry_run {
        volume.refuse_device()?;
    }
    let _only_one = volume.lock()?;
    // What is not written yet has no place.
    volume.sync()?;
    let mut list = List::new(wanted);
    let files = list.look(&volume);
    let read = plan::with_read_ahead(&files, &list.wanted);
    let plan = Plan::new(&files, &read);
    let before = scatter(&files, &read);
    let at_best = plan.at_best(&files, &read);
    list.leave(&plan.would_fragment, LeftBecause::WouldFragment);
    let mut report = Report::new(&list, &files, before);
    if !before.pays(&at_best) {
        report.left = list.left();
        return Ok(report);
    }
    if options.dry_run {
        (report.outcome, report.after, report.left) = (Outcome::WouldPay, at_best, list.left());
        return Ok(report);
    }
    let after = |space: &_| {
        let placed = plan.place(&files, space).0;
        plan::scatter(&plan::layouts_after(&files, &placed), &read)
    };
    let space = Space::reserve(&volume, plan.pages(&files), |space| after(space).seeks)?;
    report.describe(&space);
    if !before.pays(&after(&space.layout)) {
        (report.outcome, report.left) = (Outcome::NoPlace, list.left());
        return Ok(report);
    }
    let (placed, no_room) = plan.place(&files, &space.layout);
    report.outcome = move_all(&volume, &mut list, &space, &placed, &mut report, progress)?;
    list.leave(&no_room, LeftBecause::NoRoom);
    drop(space);
    volume.sync()?;
    report.left = list.left();
    let files = list.look(&volume);
    (report.after, report.fragments_after) = (scatter(&files, &read), fragments(&files));
    Ok(report)
}

/// Moves run by run, in the order of first access.
fn move_all(
    volume: &Volume,
    list: &mut List,
    space: &Space,
    placed: &[Placed],
    report: &mut Report,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome, RelocateError> {
    let total_bytes = placed.iter().map(|run| run.pages.pages * BLOCK_BYTES).sum();
    let mut moved_files = BTreeSet::new();
    let mut open: Option<(usize, File)> = None;
    let (mut buffer, mut dirty_bytes) = (Vec::new(), 0);
    for run in placed.iter().flat_map(cut) {
        let listed = &mut list.files[run.file];
        if listed.left.is_some() {
            continue;
        }
        let file = match open.take_if(|(number, _)| *number == run.file) {
            Some((_, file)) => Ok(file),
            None => listed.open(volume),
        };
        let moved = file.and_then(|file| {
            let moved = move_run(volume, &file, space, &run, &mut buffer);
            open = Some((run.file, file));
            moved
        });
        match moved {
            Ok(bytes) => {
                moved_files.insert(run.file);
                (report.moved_bytes, dirty_bytes) = (report.moved_bytes + bytes, dirty_bytes + bytes);
            }
            Err(because) => listed.left = Some(because),
        }
        report.moved_files = moved_files.len() as u64;
        if dirty_bytes >= DIRTY_BYTES {
            volume.sync()?;
            dirty_bytes = 0;
        }
        if progress(Progress { moved_bytes: report.moved_bytes, total_bytes }).is_break() {
            return Ok(Outcome::Stopped);
        }
    }
    Ok(Outcome::Moved)
}

/// Pieces of a run that are moved at once. They end at multiples of their size in the file.
fn cut(run: &Placed) -> impl Iterator<Item = Placed> + use<> {
    let run = *run;
    let next = |first: u64| (first / PIECE_PAGES + 1) * PIECE_PAGES;
    let firsts = std::iter::successors(Some(run.pages.first), move |first| {
        Some(next(*first)).filter(|first| *first < run.pages.end())
    });
    firsts.map(move |first| {
        let pages = PageRun::between(first, next(first).min(run.pages.end()));
        let ahead = first - run.pages.first;
        Placed { pages, donor_page: run.donor_page + ahead, place: run.place + ahead * BLOCK_BYTES, ..run }
    })
}

/// Moves the pages of one run; gives how many bytes.
fn move_run(
    volume: &Volume,
    file: &File,
    space: &Space,
    run: &Placed,
    buffer: &mut Vec<u8>,
) -> Result<u64, LeftBecause> {
    let size = file.metadata().map_err(|_| LeftBecause::Refused)?.len();
    let in_page = BLOCK_BYTES / volume.block_bytes;
    let start = run.pages.first * in_page;
    // The kernel refuses blocks behind the end of the file.
    let end = (run.pages.end() * in_page).min(size.div_ceil(volume.block_bytes));
    let count = end.checked_sub(start).filter(|count| *count > 0).ok_or(LeftBecause::Empty)?;
    read_afresh(file, run.pages, buffer).map_err(|_| LeftBecause::Refused)?;
    let donor_start = run.donor_page * in_page;
    let mut done = 0;
    let mut was_busy = false;
    while done < count {
        match move_extents(file, &space.file, start + done, donor_start + done, count - done) {
            (0, Ok(())) => break,
            (moved, Ok(())) => done += moved,
            (moved, Err(Errno::BUSY)) if !was_busy => {
                (was_busy, done) = (true, done + moved);
                volume.sync().map_err(|_| LeftBecause::Refused)?;
            }
            (_, Err(Errno::TXTBSY)) => return Err(LeftBecause::Running),
            (_, Err(errno)) => {
                log::debug!("pages {:?} do not move: {errno}", run.pages);
                return Err(LeftBecause::Refused);
            }
        }
    }
    Ok(done * volume.block_bytes)
}

/// Reads pages that the kernel has not kept from their writing: for those it commits its journal before each
/// move, which takes a hundred times as long (docs/decisions/069-layout-anew.md).
fn read_afresh(file: &File, pages: PageRun, buffer: &mut Vec<u8>) -> std::io::Result<()> {
    let (offset, bytes) = (pages.first * BLOCK_BYTES, pages.pages * BLOCK_BYTES);
    let from = offset / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
    let dropped = (offset + bytes).next_multiple_of(LARGE_PAGE_BYTES) - from;
    fadvise(file, from, NonZeroU64::new(dropped), Advice::DontNeed)?;
    buffer.resize(bytes as usize, 0);
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], offset + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(())
}

fn scatter(files: &[PlannedFile], read: &[Wanted]) -> Scatter {
    plan::scatter(files.iter().map(|file| &file.layout), read)
}

fn fragments(files: &[PlannedFile]) -> u64 {
    files.iter().map(|file| file.layout.fragments()).sum()
}

impl Report {
    fn new(list: &List, files: &[PlannedFile], before: Scatter) -> Self {
        let fragments = fragments(files);
        Self {
            outcome: Outcome::InOrder,
            files: list.files.len() as u64,
            moved_files: 0,
            moved_bytes: 0,
            before,
            after: before,
            fragments_before: fragments,
            fragments_after: fragments,
            space_pieces: 0,
            space_first_byte: 0,
            left: BTreeMap::new(),
        }
    }

    fn describe(&mut self, space: &Space) {
        let pieces = space.layout.pieces();
        self.space_pieces = pieces.len() as u64;
        self.space_first_byte = pieces.first().map_or(0, |piece| piece.place);
    }
}

impl List {
    fn leave(&mut self, numbers: &[usize], because: LeftBecause) {
        for number in numbers {
            self.files[*number].left = Some(because);
        }
    }

    fn left(&self) -> BTreeMap<LeftBecause, Left> {
        let mut left = BTreeMap::<_, Left>::new();
        for file in &self.files {
            let Some(because) = file.left else { continue };
            let of_reason = left.entry(because).or_default();
            of_reason.files += 1;
            if of_reason.named.len() < NAMED {
                of_reason.named.push(file.name());
            }
        }
        left
    }
}
