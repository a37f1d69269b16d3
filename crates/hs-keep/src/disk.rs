//! A disk that keeps what is written to it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use hs_disk::Requester;
use hs_overlay::{Figures, Overlay, Source, Waiting};
use hs_units::{BLOCK_BYTES, ByteRange};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::below::Below;
use crate::change::{Change, Changes};
use crate::committer;
use crate::control::{self, Control};
use crate::error::KeepError;
use crate::file::KeepFile;
use crate::read::{self, FileRead};
use crate::snapshots::{PendingChange, SnapshotChange};
use crate::unflushed::Unflushed;

/// Threads that read what the kernel does not have in memory.
const READERS: usize = 4;

/// Called once: the writes are taken, or with an error number.
pub(crate) type Answer = Box<dyn FnOnce(Result<(), i32>) + Send>;

/// How blocks become zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroKind {
    /// They are written as zeros.
    Zeros,
    /// They read as zeros, and need not be there.
    Holes,
    /// They are not needed any more. Parts of blocks stay as they are.
    Discard,
}

/// What the threads of a kept disk share.
pub(crate) struct Shared {
    pub(crate) below: Arc<dyn Below>,
    pub(crate) file: KeepFile,
    pub(crate) state: Mutex<KeptState>,
    /// For the committer.
    pub(crate) work: Condvar,
    /// For a committer that waits for readers, and for the end.
    pub(crate) changed: Condvar,
    pub(crate) file_reads: Sender<FileRead>,
}

pub(crate) struct KeptState {
    pub(crate) overlay: Overlay,
    /// When the last append ended.
    pub(crate) appended: Instant,
    /// Flushes that wait for a batch.
    pub(crate) flushes: Vec<(u64, Answer)>,
    /// Changes that wait for room.
    pub(crate) delayed: Waiting<(Change, Answer)>,
    /// Changes of snapshots, which are made one after the other.
    pub(crate) snapshots: VecDeque<PendingChange>,
    /// Reads of the file under way, of this generation and the one before: see [`Shared::quiesce`].
    pub(crate) readers: [usize; 2],
    pub(crate) generation: usize,
    /// What the supervisor knows: whether writes are unflushed.
    pub(crate) is_told: bool,
    /// Writes and flushes that found no space.
    pub(crate) refused: u64,
    pub(crate) ends: bool,
    pub(crate) has_ended: bool,
}

/// The disk in an image with what was written to it. Dropping it ends its threads; [`KeptDisk::close`] makes
/// sure before that what was written lasts.
pub struct KeptDisk {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Where others ask for snapshots.
    control: Option<Control>,
}

impl KeptDisk {
    /// The disk `below` with the changes in this file, which may be empty.
    ///
    /// # Errors
    /// When the file is no overlay of this disk, cannot be read or begun, or a thread cannot be started.
    pub fn new(below: Arc<dyn Below>, mut file: KeepFile) -> Result<Self, KeepError> {
        let mut overlay = file.overlay(Some((below.digest(), below.bytes())), true)?;
        overlay.begin_paced();
        if file.unflushed.as_ref().is_some_and(Unflushed::is_set) {
            log::error!(
                "{}: writes that had not been flushed are gone with the server that died: nothing more is written, \
                 since who has written them would take them for done; unmount or end what uses the disk, and begin \
                 again",
                file.path().display()
            );
            overlay.refuse_writes();
        }
        let control = file.control.take();
        let (file_reads, reads) = crossbeam_channel::unbounded();
        let state = KeptState {
            overlay,
            appended: Instant::now(),
            flushes: Vec::new(),
            delayed: Waiting::default(),
            snapshots: VecDeque::new(),
            readers: [0; 2],
            generation: 0,
            is_told: false,
            refused: 0,
            ends: false,
            has_ended: false,
        };
        let shared = Arc::new(Shared {
            below,
            file,
            state: Mutex::new(state),
            work: Condvar::new(),
            changed: Condvar::new(),
            file_reads,
        });
        let disk = Self { shared: Arc::clone(&shared), threads: Mutex::default(), control };
        let own = Arc::clone(&shared);
        disk.spawn("hs-keep", move || committer::run(&own))?;
        for number in 0..READERS {
            let (own, reads) = (Arc::downgrade(&shared), reads.clone());
            disk.spawn(&format!("hs-keep-{number}"), move || read::run(&own, &reads))?;
        }
        if let Some(control) = &disk.control {
            let (own, listener) = (shared, control.listener());
            disk.spawn("hs-keep-asked", move || control::run(&own, &listener))?;
        }
        Ok(disk)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), KeepError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(KeepError::io("start a thread for", self.shared.file.path()))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Bytes of the disk, which may end within its last block.
    #[must_use]
    pub fn exact_bytes(&self) -> u64 {
        self.shared.below.exact_bytes()
    }

    /// Bytes of its blocks.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.shared.below.bytes()
    }

    /// Where its changes are kept.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        self.shared.file.path()
    }

    /// What its overlay consists of.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.shared.state.lock().overlay.figures()
    }

    /// Whether nothing is written any more, since its file could not be.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.state.lock().overlay.trouble().is_some()
    }

    /// Reads `len` bytes from `offset`, which lie in the disk; `answer` is called once, now or later, from
    /// any thread, with the bytes or an error number.
    pub fn submit(
        &self,
        requester: Requester,
        offset: u64,
        len: u32,
        answer: impl FnOnce(Result<&[&[u8]], i32>) + Send + 'static,
    ) {
        read::submit(&self.shared, requester, offset, len, Box::new(answer));
    }

    /// Writes these bytes from `offset` on; they lie in the disk. `answer` is called once, now or later:
    /// reads see them then. With `lasting` they are on the medium then.
    pub fn write(
        &self,
        requester: Requester,
        offset: u64,
        bytes: Vec<u8>,
        lasting: bool,
        answer: impl FnOnce(Result<(), i32>) + Send + 'static,
    ) {
        let answer = self.answer(lasting, answer);
        let mut changes = Changes::new(Arc::clone(&self.shared), requester, answer);
        changes.write(offset, bytes);
        changes.begin();
    }

    /// Makes a range of the disk zero, as [`KeptDisk::write`] does.
    pub fn zero(
        &self,
        requester: Requester,
        range: ByteRange,
        kind: ZeroKind,
        lasting: bool,
        answer: impl FnOnce(Result<(), i32>) + Send + 'static,
    ) {
        let answer = self.answer(lasting, answer);
        let mut changes = Changes::new(Arc::clone(&self.shared), requester, answer);
        changes.zero(range, kind);
        changes.begin();
    }

    /// `answer` is called once everything that was answered before is on the medium.
    pub fn flush(&self, answer: impl FnOnce(Result<(), i32>) + Send + 'static) {
        self.shared.flush(Box::new(answer));
    }

    /// The same from a thread that may wait for the medium: it makes the append itself, if none is under way.
    pub fn flush_here(&self, answer: impl FnOnce(Result<(), i32>) + Send + 'static) {
        if let Some(state) = self.shared.wait_for_flush(Box::new(answer)) {
            committer::lead(&self.shared, state);
        }
    }

    /// Changes the snapshots of the disk, between two flushes: everything that was answered before is in a
    /// new one. Waits until the change is on the medium.
    ///
    /// # Errors
    /// When it cannot be made, or the file not be written.
    pub fn change_snapshots(&self, change: SnapshotChange) -> Result<(), KeepError> {
        self.shared.change_snapshots(change)
    }

    fn answer(&self, lasting: bool, answer: impl FnOnce(Result<(), i32>) + Send + 'static) -> Answer {
        if !lasting {
            return Box::new(answer);
        }
        let shared = Arc::clone(&self.shared);
        Box::new(move |result| match result {
            Ok(()) => shared.flush(Box::new(answer)),
            Err(errno) => answer(Err(errno)),
        })
    }

    /// Which parts of `range` are zero, from its start on: `(bytes, zero)`, `most` of them at most.
    ///
    /// # Errors
    /// An error number.
    pub fn allocation(&self, range: ByteRange, most: usize) -> Result<Vec<(u64, bool)>, i32> {
        let (start, end) = (range.offset / BLOCK_BYTES, range.end().div_ceil(BLOCK_BYTES));
        let mut pieces = Vec::new();
        self.shared.state.lock().overlay.lookup(start, end, &mut |piece| pieces.push(piece));
        let mut runs: Vec<(u64, bool)> = Vec::new();
        let mut add = |bytes: u64, zero: bool| {
            let full = runs.len() == most.max(1);
            match runs.last_mut() {
                Some(last) if last.1 == zero => last.0 += bytes,
                _ if full => return false,
                _ => runs.push((bytes, zero)),
            }
            true
        };
        for piece in pieces {
            let from = (piece.start * BLOCK_BYTES).max(range.offset);
            let bytes = (piece.end * BLOCK_BYTES).min(range.end()) - from;
            if piece.source != Source::Below {
                if !add(bytes, matches!(piece.source, Source::Zero | Source::Discarded)) {
                    break;
                }
                continue;
            }
            let below = self.shared.below.allocation(ByteRange::new(from, bytes), most)?;
            let told: u64 = below.iter().map(|(bytes, _)| bytes).sum();
            if !below.into_iter().all(|(bytes, zero)| add(bytes, zero)) || told < bytes {
                break;
            }
        }
        Ok(runs)
    }

    /// Waits until everything that was written is on the medium and the map is stored, and ends.
    ///
    /// # Errors
    /// An error number: something that was written may not last.
    pub fn close(&self) -> Result<(), i32> {
        self.shared.file.stay();
        self.give_up()
    }

    /// The same of a disk whose start has failed: a file that was made for it, and has nothing, goes with it.
    ///
    /// # Errors
    /// As for [`Self::close`].
    pub fn give_up(&self) -> Result<(), i32> {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        self.flush(move |result| {
            let _ = sender.send(result);
        });
        let flushed = receiver.recv().unwrap_or(Err(libc::EIO));
        let mut state = self.shared.state.lock();
        state.ends = true;
        state.overlay.handle_close();
        self.shared.work.notify_all();
        self.shared.changed.wait_while(&mut state, |state| !state.has_ended);
        flushed.and(if state.overlay.is_flushed() { Ok(()) } else { Err(libc::EIO) })
    }

    /// Whether the file has no name any more: all of it goes with this process.
    pub fn is_removed(&self) -> bool {
        self.shared.file.is_removed()
    }

    /// Writes and flushes that found no space until now. Their clients know; the programs behind a file
    /// system that is mounted from this disk may not.
    pub fn refused(&self) -> u64 {
        self.shared.state.lock().refused
    }
}

impl Drop for KeptDisk {
    fn drop(&mut self) {
        self.shared.end();
        self.control.take();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

impl KeptState {
    /// How much longer the next append waits for writers that were just answered.
    pub(crate) fn waits_for_writers(&self) -> Option<Duration> {
        let since_append = self.appended.elapsed().into();
        self.overlay.waits_for_writers(since_append).filter(|_| !self.ends).map(Duration::from)
    }
}

impl Shared {
    /// The threads end, without anything more being written.
    fn end(&self) {
        self.state.lock().ends = true;
        self.work.notify_all();
        // The readers end when they are told so, each once.
        for _ in 0..READERS {
            let _ = self.file_reads.send(FileRead::End);
        }
    }

    /// Tells the supervisor whether writes are unflushed, before they are answered.
    pub(crate) fn tell(&self, state: &mut KeptState) {
        let Some(unflushed) = &self.file.unflushed else { return };
        let is_unflushed = !state.overlay.is_flushed();
        if state.overlay.trouble().is_none()
            && std::mem::replace(&mut state.is_told, is_unflushed) != is_unflushed
        {
            unflushed.set(is_unflushed);
        }
    }

    pub(crate) fn flush(&self, answer: Answer) {
        if self.wait_for_flush(answer).is_some() {
            self.work.notify_one();
        }
    }

    /// Puts a flush among those that wait; none where it is answered already.
    fn wait_for_flush(&self, answer: Answer) -> Option<MutexGuard<'_, KeptState>> {
        let mut state = self.state.lock();
        if state.overlay.trouble().is_some() || state.has_ended {
            drop(state);
            answer(Err(libc::EIO));
            return None;
        }
        let batch = state.overlay.handle_flush();
        if state.overlay.is_durable(batch) {
            drop(state);
            answer(Ok(()));
            return None;
        }
        state.flushes.push((batch, answer));
        Some(state)
    }

    /// Waits for reads of the file that have begun before.
    pub(crate) fn quiesce(&self) {
        let mut state = self.state.lock();
        let before = state.generation;
        state.generation ^= 1;
        self.changed.wait_while(&mut state, |state| state.readers[before] > 0);
    }

    /// A read of the file, begun in this generation, has ended.
    pub(crate) fn has_read(&self, generation: usize) {
        let mut state = self.state.lock();
        state.readers[generation] -= 1;
        if state.readers[generation] == 0 && state.generation != generation {
            self.changed.notify_all();
        }
    }
}
