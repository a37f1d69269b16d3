//! The file while it is filled: every block is written once, and counts as filled only after that.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_format::DiskHasher;
use hs_units::{BLOCK_BYTES, BlockRange, Digest, to_usize};
use parking_lot::{Condvar, Mutex};
use rustix::fs::Advice;

use super::attachment::{Attachment, keep_mtime};
use super::blocks::FilledBlocks;
use super::error::FillError;
use super::group::Group;
use super::ledger::Ledger;
use super::marker::{self, Marker};
use super::sidecar::{PAGE_BLOCKS, Sidecar, sidecar_path};
use super::withheld;

/// Zeros in whole pieces of so many bytes stay holes.
const HOLE_BYTES: usize = 64 << 10;
/// One call writes at most so many pieces of [`HOLE_BYTES`]: 4 MiB. The larger it is, the larger are the
/// folios in which the kernel keeps the bytes, and the faster they are read from memory afterwards.
const MOST_PIECES: usize = 64;
/// A crash of the machine may lose what was filled in this time, or so many bytes; they are filled again.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
const CHECKPOINT_BYTES: u64 = 64 << 20;
/// The background fill waits when so many bytes have not been brought to the disk.
const MOST_UNSYNCED_BYTES: u64 = 256 << 20;

/// How far a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillProgress {
    /// Bytes of the disk that the file holds.
    pub filled_bytes: u64,
    /// Bytes of the disk.
    pub disk_bytes: u64,
}

struct FillState {
    blocks: FilledBlocks,
    /// Pages of the sidecar that are not written yet.
    dirty: BTreeSet<u64>,
    unsynced_bytes: u64,
    dirty_since: Option<Instant>,
    is_changed: bool,
    is_stopping: bool,
    is_finished: bool,
}

/// A self-filling file.
pub(super) struct FillFile {
    path: PathBuf,
    group: Option<Arc<Group>>,
    ledger: Arc<Ledger>,
    writer: File,
    sidecar: Sidecar,
    state: Mutex<FillState>,
    changed: Condvar,
}

impl FillFile {
    /// The file of `attachment`, with what its sidecar says is filled.
    pub(super) fn new(attachment: Attachment) -> Result<Self, FillError> {
        let Attachment { path, group, ledger, writer, sidecar, .. } = attachment;
        let (blocks, damaged) = sidecar.filled().map_err(FillError::io("read", sidecar_path(&path)))?;
        if damaged > 0 {
            log::warn!(
                "{}: {damaged} pages are damaged: their blocks are filled again",
                sidecar_path(&path).display()
            );
        }
        // A crash may have come between a write and the restoring of the time.
        keep_mtime(&writer, sidecar.header().mtime).map_err(FillError::io("set the time of", &path))?;
        let state = FillState {
            blocks,
            dirty: BTreeSet::new(),
            unsynced_bytes: 0,
            dirty_since: None,
            is_changed: false,
            is_stopping: false,
            is_finished: false,
        };
        Ok(Self { path, group, ledger, writer, sidecar, state: Mutex::new(state), changed: Condvar::new() })
    }

    pub(super) fn path(&self) -> &std::path::Path {
        &self.path
    }

    pub(super) const fn group(&self) -> Option<&Arc<Group>> {
        self.group.as_ref()
    }

    pub(super) const fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    pub(super) const fn sidecar(&self) -> &Sidecar {
        &self.sidecar
    }

    pub(super) fn metadata(&self) -> io::Result<fs::Metadata> {
        self.writer.metadata()
    }

    pub(super) fn disk_blocks(&self) -> u64 {
        self.disk_bytes().div_ceil(BLOCK_BYTES)
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        self.sidecar.header().disk_bytes
    }

    pub(super) fn progress(&self) -> FillProgress {
        let disk_bytes = self.disk_bytes();
        let filled_bytes = (self.state.lock().blocks.filled() * BLOCK_BYTES).min(disk_bytes);
        FillProgress { filled_bytes, disk_bytes }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state.lock().is_finished
    }

    pub(super) fn is_changed(&self) -> bool {
        self.state.lock().is_changed
    }

    /// The first blocks among these that are missing, at most so many.
    pub(super) fn missing(&self, blocks: Range<u64>, most: u64) -> Option<BlockRange> {
        self.state.lock().blocks.missing(blocks, most)
    }

    /// The bytes of the disk in these blocks; the last block of a disk may be short.
    pub(super) fn bytes_of(&self, blocks: BlockRange) -> (u64, u32) {
        let start = blocks.start.byte_offset();
        let end = (blocks.end().byte_offset()).min(self.disk_bytes());
        (start, (end - start) as u32)
    }

    /// Writes what is missing of `blocks`, whose verified bytes `pieces` hold one after the other. Gives the
    /// number of the error when it cannot.
    pub(super) fn put(&self, blocks: BlockRange, pieces: &[&[u8]]) -> Result<(), i32> {
        // Under the lock: filled blocks belong to the programs that use the file, which may even write to
        // them, and are never written again here.
        let mut state = self.state.lock();
        if state.is_changed {
            return Err(libc::EIO);
        }
        let (from, _) = self.bytes_of(blocks);
        let mut wrote = false;
        while let Some(run) = state.blocks.missing(blocks.start.0..blocks.end().0, u64::MAX) {
            let (start, len) = self.bytes_of(run);
            self.write(start, Part { pieces, skip: start - from, len: len.into() }, &mut state)?;
            state.blocks.fill(run.start.0..run.end().0);
            state.dirty.extend(run.start.0 / PAGE_BLOCKS..=(run.end().0 - 1) / PAGE_BLOCKS);
            state.unsynced_bytes += u64::from(len);
            wrote = true;
        }
        if !wrote {
            return Ok(());
        }
        let is_first = state.dirty_since.is_none();
        state.dirty_since.get_or_insert_with(Instant::now);
        if let Err(errno) = keep_mtime(&self.writer, self.sidecar.header().mtime) {
            log::warn!("{}: its modification time cannot be kept: {errno}", self.path.display());
        }
        if is_first || state.blocks.is_complete() || state.unsynced_bytes >= CHECKPOINT_BYTES {
            drop(state);
            self.changed.notify_all();
        }
        Ok(())
    }

    fn write(&self, mut offset: u64, part: Part<'_>, state: &mut FillState) -> Result<(), i32> {
        // Writing beyond the end would make a truncated file long again.
        if self.writer.metadata().map_or(0, |found| found.len()) != self.disk_bytes() {
            self.note_change(state, "its length was changed");
            return Err(libc::EIO);
        }
        let mut run: Vec<IoSlice<'_>> = Vec::new();
        let mut run_bytes = 0;
        for bytes in part.bytes().flat_map(|piece| piece.chunks(HOLE_BYTES)) {
            let is_hole = bytes.iter().all(|&byte| byte == 0);
            if is_hole || run.len() == MOST_PIECES {
                self.write_run(&mut run, offset - run_bytes)?;
                run_bytes = 0;
            }
            if !is_hole {
                run.push(IoSlice::new(bytes));
                run_bytes += bytes.len() as u64;
            }
            offset += bytes.len() as u64;
        }
        self.write_run(&mut run, offset - run_bytes)
    }

    /// Writes these bytes from `offset` on with one call, if the file system takes them all, and empties the
    /// list.
    fn write_run(&self, run: &mut Vec<IoSlice<'_>>, mut offset: u64) -> Result<(), i32> {
        let mut rest = run.as_mut_slice();
        while !rest.is_empty() {
            match rustix::io::pwritev(&self.writer, rest, offset) {
                Ok(0) => return Err(libc::EIO),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => {
                    log::error!("{}: cannot fill from {offset} on: {errno}", self.path.display());
                    let errno = errno.raw_os_error();
                    return Err(if FULL.contains(&errno) { errno } else { libc::EIO });
                }
            }
        }
        run.clear();
        Ok(())
    }

    /// A program has written to the file, or truncated it: from now on nothing is filled.
    pub(super) fn note_written(&self, process: i32) {
        let mut state = self.state.lock();
        if !state.is_changed && !state.is_finished {
            self.note_change(&mut state, &format!("process {process} has written to it"));
        }
        drop(state);
        self.changed.notify_all();
    }

    fn note_change(&self, state: &mut FillState, how: &str) {
        state.is_changed = true;
        log::error!(
            "{}: {how}: it is not the disk of the image any more; what is not filled cannot be read from now on; remove \
             the file and attach again",
            self.path.display()
        );
        if let Err(errno) = marker::write(&self.writer, Marker::Changed) {
            log::error!("{}: this cannot be noted: {errno}", self.path.display());
        }
    }

    /// Syncs the filled blocks to the disk, and then notes them in the sidecar.
    pub(super) fn checkpoint(&self) -> Result<(), FillError> {
        let mut state = self.state.lock();
        let pages: Vec<_> = std::mem::take(&mut state.dirty)
            .into_iter()
            .map(|page| Sidecar::page_of(&state.blocks, page))
            .collect();
        state.unsynced_bytes = 0;
        state.dirty_since = None;
        drop(state);
        if pages.is_empty() {
            return Ok(());
        }
        let place = sidecar_path(&self.path);
        let written = self
            .writer
            .sync_data()
            .map_err(FillError::io("write", &self.path))
            .and_then(|()| self.sidecar.write(&pages).map_err(FillError::io("write", place)));
        if written.is_err() {
            let mut state = self.state.lock();
            state.dirty.extend(pages.iter().map(|(number, _)| number));
            state.dirty_since.get_or_insert_with(Instant::now);
        }
        self.changed.notify_all();
        written
    }

    /// Makes checkpoints until the file is finished or the server stops.
    pub(super) fn keep(&self) {
        loop {
            let mut state = self.state.lock();
            let is_due = |state: &FillState| {
                state.is_stopping
                    || state.unsynced_bytes >= CHECKPOINT_BYTES
                    || (state.blocks.is_complete() && !state.is_changed)
            };
            match state.dirty_since {
                _ if is_due(&state) => {}
                None => self.changed.wait(&mut state),
                Some(since) => {
                    let pause = CHECKPOINT_EVERY.saturating_sub(since.elapsed());
                    let _ = self.changed.wait_for(&mut state, pause);
                }
            }
            let is_due =
                is_due(&state) || state.dirty_since.is_some_and(|since| since.elapsed() >= CHECKPOINT_EVERY);
            let (is_stopping, is_complete) =
                (state.is_stopping, state.blocks.is_complete() && !state.is_changed);
            drop(state);
            if is_due && let Err(error) = self.checkpoint() {
                log::error!("{error}: the blocks filled last are filled again after the next start");
            }
            if is_complete && let Err(error) = self.finish() {
                log::error!("{error}: the file is complete, and stays marked as if it were not");
            }
            if is_stopping || is_complete {
                return;
            }
        }
    }

    /// The file holds everything: no event is needed any more. The disk digest is computed, because an image
    /// only claims one.
    fn finish(&self) -> Result<(), FillError> {
        let io = |action| FillError::io(action, &self.path);
        self.writer.sync_all().map_err(io("write"))?;
        let Some(found) = self.computed_digest().map_err(io("read"))? else { return Ok(()) };
        keep_mtime(&self.writer, self.sidecar.header().mtime).map_err(io("set the time of"))?;
        let claimed = self.sidecar.header().disk_digest;
        let is_it = found == claimed;
        let marker = if is_it { Marker::Complete(found) } else { Marker::Contradicted(found) };
        // Nothing is missing, so the mode that was withheld while the file had no guard is given back.
        withheld::give_back(&self.writer).map_err(io("set the mode of"))?;
        marker::write(&self.writer, marker).map_err(io("mark"))?;
        self.writer.sync_all().map_err(io("write"))?;
        if let Some(group) = &self.group {
            use std::os::fd::AsFd;
            group.unmark(self.writer.as_fd()).map_err(io("unmark"))?;
        }
        self.leave_memory();
        let place = sidecar_path(&self.path);
        fs::remove_file(&place).map_err(FillError::io("remove", place))?;
        self.state.lock().is_finished = true;
        self.changed.notify_all();
        if is_it {
            log::info!("{} is complete", self.path.display());
        } else {
            log::error!(
                "{} holds all that its image has, and that is the disk {found}; the image claims to be {claimed}: \
                 it is not to be trusted (`headstart verify` says the same of it)",
                self.path.display()
            );
        }
        Ok(())
    }

    /// The digest of the disk in the file; nothing when this process is to end before it is computed.
    fn computed_digest(&self) -> io::Result<Option<Digest>> {
        // The digest is that of whole blocks.
        let mut hasher = DiskHasher::new(self.disk_blocks() * BLOCK_BYTES);
        let mut window = vec![0; hasher.next_window_bytes()];
        let mut at = 0;
        while hasher.next_window_bytes() > 0 {
            if self.state.lock().is_stopping {
                return Ok(None);
            }
            window.truncate(hasher.next_window_bytes());
            let end = at + window.len() as u64;
            let is_hole = match rustix::fs::seek(&self.writer, rustix::fs::SeekFrom::Data(at)) {
                Ok(data) => data >= end,
                Err(rustix::io::Errno::NXIO) => true,
                // A file system that cannot report holes has none.
                Err(_) => false,
            };
            if is_hole {
                hasher.zero_windows(1);
            } else {
                let (stored, padding) = window.split_at_mut(to_usize(end.min(self.disk_bytes()) - at));
                padding.fill(0);
                self.writer.read_exact_at(stored, at)?;
                hasher.update_window(&window);
            }
            at = end;
        }
        Ok(Some(hasher.finish()))
    }

    /// Gives up the pages that came in piece by piece: the kernel keeps them in small folios, which are
    /// copied more slowly than those that it reads ahead in large pieces, as it does from now on. Everything
    /// is on the disk, and there are no events any more (while the file is marked each read would bring back
    /// one page). Pages that a program has mapped stay.
    fn leave_memory(&self) {
        if let Err(errno) = rustix::fs::fadvise(&self.writer, 0, None, Advice::DontNeed) {
            log::warn!("{}: reads from memory stay slower than they could be: {errno}", self.path.display());
        }
    }

    /// Lets [`FillFile::keep`], and threads that wait for the disk, end.
    pub(super) fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.changed.notify_all();
    }

    /// Waits while too many bytes are not synced. False when there is nothing more to do.
    pub(super) fn wait_for_the_disk(&self) -> bool {
        let mut state = self.state.lock();
        let ended = |state: &FillState| state.is_stopping || state.is_changed || state.is_finished;
        self.changed
            .wait_while(&mut state, |state| state.unsynced_bytes >= MOST_UNSYNCED_BYTES && !ended(state));
        !ended(&state)
    }
}

/// Errors of a full disk, which a reader may be told as they are.
const FULL: [i32; 2] = [libc::ENOSPC, libc::EDQUOT];

/// A range of the bytes of all `pieces` together: `len` bytes after the first `skip`.
#[derive(Clone, Copy)]
struct Part<'a> {
    pieces: &'a [&'a [u8]],
    skip: u64,
    len: u64,
}

impl<'a> Part<'a> {
    fn bytes(self) -> impl Iterator<Item = &'a [u8]> {
        let (mut skip, mut left) = (self.skip as usize, self.len as usize);
        self.pieces.iter().filter_map(move |piece| {
            let from = skip.min(piece.len());
            skip -= from;
            let to = piece.len().min(from + left);
            left -= to - from;
            (to > from).then(|| &piece[from..to])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_go_over_the_ends_of_pieces() {
        let pieces: [&[u8]; 4] = [b"abc", b"", b"defg", b"hi"];
        let part = |skip, len| Part { pieces: &pieces, skip, len }.bytes().collect::<Vec<_>>().concat();
        for skip in 0..9 {
            for len in 0..=9 - skip {
                assert_eq!(part(skip, len), b"abcdefghi"[skip as usize..][..len as usize], "{skip}+{len}");
            }
        }
    }
}
