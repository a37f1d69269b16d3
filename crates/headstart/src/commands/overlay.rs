//! `headstart overlay`

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use hs_keep::{KeepError, KeepFile, OpenedAs, SnapshotChange};
use hs_output::show;
use hs_service::run_folder::RunFolder;
use hs_service::status::unix_now;
use hs_units::{BLOCK_BYTES, ByteSize};
use serde::Serialize;

use crate::cli::overlay::{Overlay, OverlayAction};

/// What a file keeps.
#[derive(Serialize)]
struct Listed {
    file: PathBuf,
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
    file: PathBuf,
    whole_blocks: u64,
    damaged_blocks: u64,
    /// The first of them, by their numbers on the disk.
    damaged: Vec<u64>,
}

/// The space before and after.
#[derive(Serialize)]
struct Compacted {
    file: PathBuf,
    before_bytes: u64,
    after_bytes: u64,
}

/// Does what was asked for; gives the exit code.
pub(crate) fn run(args: &Overlay, quiet: bool) -> anyhow::Result<i32> {
    let json = args.json;
    match &args.action {
        OverlayAction::List { files } => {
            let listed = files.iter().map(|file| list(file)).collect::<anyhow::Result<Vec<_>>>()?;
            if json { show::json(&listed)? } else { listed.iter().for_each(say) }
        }
        OverlayAction::Check { file } => return check(file, json, quiet),
        OverlayAction::Compact { file } => compact(file, json, quiet)?,
        OverlayAction::Snapshot { file, name } => {
            let (name, now_s) = (name.clone(), unix_now() as u64);
            change_snapshots(file, &SnapshotChange::Take { name, now_s })?;
        }
        OverlayAction::Revert { file, name } => change(file, |overlay| overlay.revert(name))?,
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
        file: path.to_owned(),
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
        listed.file.display(),
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
            file: path.to_owned(),
            whole_blocks: checked.whole,
            damaged_blocks: checked.damaged,
            damaged: checked.named,
        })?;
    } else {
        refuse_damaged(path, &checked)?;
        if !quiet {
            show::line(format_args!("{}: {} blocks are what was written", path.display(), checked.whole));
        }
    }
    Ok(i32::from(is_damaged))
}

/// An error that names damaged blocks, if there are any.
pub(super) fn refuse_damaged(path: &Path, checked: &hs_overlay::Checked) -> anyhow::Result<()> {
    if checked.damaged == 0 {
        return Ok(());
    }
    let named: Vec<_> = checked.named.iter().take(16).map(ToString::to_string).collect();
    bail!(
        "{}: {} of {} blocks are not what was written (blocks {} of the disk): restore the file, or write these \
         blocks anew",
        path.display(),
        checked.damaged,
        checked.damaged + checked.whole,
        named.join(", ")
    )
}

fn compact(path: &Path, json: bool, quiet: bool) -> anyhow::Result<()> {
    let compacted = hs_keep::compact(path)?;
    let (before, after) = (compacted.before_bytes, compacted.after_bytes);
    if json {
        return show::json(&Compacted { file: path.to_owned(), before_bytes: before, after_bytes: after });
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
    change(path, |overlay| wanted.make(overlay))
}

fn change(
    path: &Path,
    change: impl FnOnce(&mut hs_overlay::Overlay) -> Result<(), hs_overlay::OverlayError>,
) -> anyhow::Result<()> {
    let file = KeepFile::open(path, OpenedAs::Existing, KeepFile::PATIENCE)?;
    let mut overlay = file.overlay(None, true)?;
    change(&mut overlay).map_err(|source| anyhow::anyhow!("{}: {source}", path.display()))?;
    file.run_alone(&mut overlay)?;
    Ok(())
}
