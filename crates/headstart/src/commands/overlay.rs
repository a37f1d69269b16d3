//! `headstart overlay`

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use hs_keep::{KeepError, KeepFile, OpenedAs, SnapshotChange};
use hs_linux::ends::Ends;
use hs_output::show;
use hs_service::run_folder::RunFolder;
use hs_service::status::unix_now;
use hs_units::{BLOCK_BYTES, ByteSize};
use serde::Serialize;

use crate::cli::overlay::{Overlay, OverlayAction};

/// What a file keeps.
#[derive(Serialize)]
struct Listed {
    file: String,
    disk_digest: String,
    disk_bytes: u64,
    /// Bytes of the disk that were written.
    data_bytes: u64,
    /// Bytes on the medium.
    file_bytes: u64,
    extents: u64,
    records: u64,
    snapshots: Vec<ListedSnapshot>,
}

#[derive(Serialize)]
struct ListedSnapshot {
    name: String,
    /// Seconds since 1970.
    taken: u64,
    data_bytes: u64,
}

/// What a check found.
#[derive(Serialize)]
struct CheckReport {
    file: String,
    whole_blocks: u64,
    damaged_blocks: u64,
    /// The first of them, by their numbers on the disk.
    damaged: Vec<u64>,
}

/// The space before and after.
#[derive(Serialize)]
struct Compacted {
    file: String,
    before_bytes: u64,
    after_bytes: u64,
}

/// Does what was asked for; gives the exit code.
pub(crate) fn run(args: &Overlay, quiet: bool) -> anyhow::Result<i32> {
    let json = args.json;
    match &args.action {
        OverlayAction::List { files } => {
            let mut failed = None;
            let mut listed = Vec::new();
            for file in files {
                match list(file) {
                    Ok(found) => listed.push(found),
                    Err(error) => failed = Some(say_before(failed, error)),
                }
            }
            // What can be read is shown whatever is wrong with others.
            if json {
                show::json(&listed)?
            } else {
                listed.iter().for_each(say)
            }
            failed.map_or(Ok(()), Err)?;
        }
        OverlayAction::Check { file } => return check(file, json, quiet),
        OverlayAction::Compact { file } => compact(file, json, quiet)?,
        OverlayAction::Snapshot { file, name } => {
            let (name, now_s) = (name.clone(), unix_now() as u64);
            change_snapshots(file, &SnapshotChange::Take { name, now_s })?;
        }
        OverlayAction::Revert { file, name } => {
            let failed = |source| KeepError::Overlay { path: file.clone(), source };
            change(file, |_, overlay| overlay.revert(name).map_err(failed))?;
        }
        OverlayAction::Delete { file, name } => {
            change_snapshots(file, &SnapshotChange::Delete { name: name.clone() })?;
        }
    }
    if let OverlayAction::Snapshot { file, .. }
    | OverlayAction::Revert { file, .. }
    | OverlayAction::Delete { file, .. } = &args.action
    {
        let listed = list(file)?;
        if json {
            show::json(&listed)?;
        } else if !quiet {
            say(&listed);
        }
    }
    Ok(0)
}

/// Says the error that came before this one.
fn say_before(before: Option<anyhow::Error>, error: anyhow::Error) -> anyhow::Error {
    if let Some(before) = before {
        log::error!("{before:#}");
    }
    error
}

/// A path as JSON and text have it.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn list(path: &Path) -> anyhow::Result<Listed> {
    let (file, overlay) = match KeepFile::open(path, OpenedAs::ReadOnly, Duration::ZERO) {
        Err(KeepError::InUse { .. }) => KeepFile::glance(path)?,
        file => {
            let file = file?;
            let overlay = file.overlay(None, false)?;
            (file, overlay)
        }
    };
    let (identity, figures) = (overlay.identity(), overlay.figures());
    let snapshot = |snapshot: &hs_overlay::Snapshot| ListedSnapshot {
        name: snapshot.name.clone(),
        taken: snapshot.taken_s,
        data_bytes: snapshot.data_blocks() * BLOCK_BYTES,
    };
    Ok(Listed {
        file: shown(path),
        disk_digest: identity.disk_digest.to_string(),
        disk_bytes: identity.disk_bytes,
        data_bytes: figures.data_blocks * BLOCK_BYTES,
        file_bytes: file.space_bytes()?,
        extents: figures.extents,
        records: figures.records,
        snapshots: overlay.snapshots().iter().map(snapshot).collect(),
    })
}

fn say(listed: &Listed) {
    show::line(format_args!(
        "{}: {} of a disk of {} in {} extents; {} on the medium; disk {}",
        listed.file,
        ByteSize(listed.data_bytes),
        ByteSize(listed.disk_bytes),
        listed.extents,
        ByteSize(listed.file_bytes),
        &listed.disk_digest[..16],
    ));
    for snapshot in &listed.snapshots {
        show::line(format_args!("  snapshot '{}': {}", snapshot.name, ByteSize(snapshot.data_bytes)));
    }
}

fn check(path: &Path, json: bool, quiet: bool) -> anyhow::Result<i32> {
    let file = KeepFile::open(path, OpenedAs::ReadOnly, KeepFile::PATIENCE)?;
    let checked = file.check(&file.overlay(None, false)?)?;
    let is_damaged = checked.damaged > 0;
    if json {
        show::json(&CheckReport {
            file: shown(path),
            whole_blocks: checked.whole,
            damaged_blocks: checked.damaged,
            damaged: checked.named,
        })?;
    } else {
        let whole = checked.whole;
        refuse_damaged(path, checked)?;
        if !quiet {
            show::line(format_args!("{}: {whole} blocks are what was written", path.display()));
        }
    }
    Ok(i32::from(is_damaged))
}

/// An error that names damaged blocks, if there are any.
pub(super) fn refuse_damaged(path: &Path, checked: hs_overlay::Checked) -> Result<(), KeepError> {
    let path = path.to_owned();
    if checked.damaged > 0 { Err(KeepError::DamagedBlocks { path, checked }) } else { Ok(()) }
}

fn compact(path: &Path, json: bool, quiet: bool) -> anyhow::Result<()> {
    let ends = Ends::block().context("wait for signals")?;
    let compacted = hs_keep::compact(path, &|| ends.take().is_some())?;
    let (before, after) = (compacted.before_bytes, compacted.after_bytes);
    if json {
        return show::json(&Compacted { file: shown(path), before_bytes: before, after_bytes: after });
    }
    if !quiet {
        show::line(format_args!("{}: {} became {}", path.display(), ByteSize(before), ByteSize(after)));
    }
    Ok(())
}

/// Has the server that uses the file change its snapshots, or does it where none does.
fn change_snapshots(path: &Path, wanted: &SnapshotChange) -> anyhow::Result<()> {
    let folders = RunFolder::all_existing().unwrap_or_default();
    if hs_keep::ask(folders.iter().map(RunFolder::path), path, wanted)? {
        return Ok(());
    }
    change(path, |file, overlay| wanted.make(file, overlay))
}

fn change(
    path: &Path,
    change: impl FnOnce(&KeepFile, &mut hs_overlay::Overlay) -> Result<(), KeepError>,
) -> anyhow::Result<()> {
    let file = KeepFile::open(path, OpenedAs::Existing, KeepFile::PATIENCE)?;
    let mut overlay = file.overlay(None, true)?;
    change(&file, &mut overlay)?;
    file.run_alone(&mut overlay)?;
    Ok(())
}
