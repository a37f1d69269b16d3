//! Puts hot blocks into the page caches where their readers will look (DESIGN decision 13).
//!
//! A start reads through a file system, so what it needs must lie in the caches of that file system: pages of
//! files, and pages of the block device for metadata. The image's residency hints say which page of which
//! file a hot block is. For each hint, in the order of the stream, the warmer asks the kernel to read exactly
//! these pages (`posix_fadvise(POSIX_FADV_WILLNEED)` reads what it is asked for and no neighbour). The
//! request comes back to our own server, which answers it from the stream. Because the warmer runs a little
//! ahead of the stream, a page that is still on its way is already locked in the cache, and a program that
//! needs it waits for just that page. A miss would make kernel read-ahead ask for 128 KiB of neighbours that
//! are not in the profile. Read-ahead itself stays as it is, for everything that comes after.
//!
//! Pages in holes of a file are read without a request, so no profile has them. But a page of a hole misses
//! the cache like any other, and the kernel reads its neighbours too. So the holes of a hinted file are
//! requested as well, up to a limit.
//!
//! The server does not see the use of a page that lies in a cache. So the warmer leaves a page of some chunks
//! out, a *tripwire*: a program that uses the chunk makes a request for it, which is answered from memory.
//! The warmer chooses pages that the kernel then reads alone, because everything around them was already
//! requested. Files that were read whole have such pages, and so have long stretches of others. Metadata has
//! none, since the warmer itself reads inodes.
//!
//! Hints are not trusted: a wrong one makes the kernel read a page that is not needed, by the same verified
//! way as every other.

mod asked_pages;
mod page_caches;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use hs_disk::{ServedDisk, WarmerPlace};
use hs_engine::{EndReason, Prefetch};
use hs_image::Hint;
use hs_linux::LinuxError;
use hs_units::Lba;
use parking_lot::{Condvar, Mutex};

use self::asked_pages::AskedPages;
use self::page_caches::PageCaches;

/// How many requests may be on their way ahead of the stream. A loop device has 128 places; the rest is left
/// for demand reads.
const HINTS_AHEAD: usize = 64;
/// Where programs touch files page by page, [`HINTS_AHEAD`] requests are less than a chunk. There may be more
/// then, as long as they do not reach further ahead than [`CHUNKS_AHEAD`].
const MAX_HINTS_AHEAD: usize = 112;
/// See [`MAX_HINTS_AHEAD`].
const CHUNKS_AHEAD: u32 = 3;

/// Chunks that are held behind the warmer for requests that are still on their way.
const HELD_CHUNKS: u32 = 16;

/// Pages of a hint that are tried for a tripwire, at most.
const MAX_TRIED_PAGES: usize = 128;

/// A hint, and the hot chunk that holds its first block.
struct Step {
    hint: Hint,
    chunk: Option<u32>,
}

/// The warming thread. Dropping it stops it.
pub struct Warmer {
    progress: Arc<Progress>,
    disk: Arc<ServedDisk>,
    thread: Option<JoinHandle<()>>,
}

/// The shared state of the warming thread and its owner.
#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    leads: Mutex<bool>,
    changed: Condvar,
}

impl Progress {
    /// The first hints have been given, or there are no more: readers cannot overtake any longer.
    fn set_leads(&self) {
        *self.leads.lock() = true;
        self.changed.notify_all();
    }
}

impl Warmer {
    /// Starts to warm the caches of the file system mounted at `mount_point` from `device`, as the
    /// image's hints say. The kernel reads `read_ahead_kib` ahead there. See
    /// [`MountFsOptions::calls_apart`](crate::MountFsOptions).
    ///
    /// # Errors
    /// When the mount or the device cannot be opened, or a thread cannot be started.
    pub fn start(
        disk: &Arc<ServedDisk>,
        mount_point: &Path,
        device: &Path,
        read_ahead_kib: u32,
        calls_apart: bool,
    ) -> Result<Self, LinuxError> {
        let caches = Caches {
            pages: PageCaches::open(mount_point, device, calls_apart)?,
            asked: AskedPages::new(read_ahead_kib),
        };
        let image = disk.image();
        let steps: Vec<Step> = image
            .hints()
            .map(|hint| Step { chunk: image.hot_place(hint.lba).map(|place| place.chunk), hint })
            .collect();
        let progress = Arc::new(Progress::default());
        let (warmed, progress_too) = (Arc::clone(disk), Arc::clone(&progress));
        let thread = std::thread::Builder::new()
            .name("hs-warm".to_owned())
            .spawn(move || warm(&steps, caches, &warmed, &progress_too))
            .map_err(LinuxError::io("start a thread for", "warming"))?;
        Ok(Self { progress, disk: Arc::clone(disk), thread: Some(thread) })
    }

    /// Waits until the warmer is as far ahead of the stream as it may be, or has asked for that much. A
    /// program that starts earlier touches pages that are not requested yet, and the kernel fetches their
    /// neighbours with them.
    pub fn wait_until_it_leads(&self) {
        let mut leads = self.progress.leads.lock();
        while !*leads {
            self.progress.changed.wait(&mut leads);
        }
    }

    /// Whether every hint has been given.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Warmer {
    fn drop(&mut self) {
        self.progress.stop.store(true, Relaxed);
        self.disk.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn warm(steps: &[Step], mut caches: Caches, disk: &ServedDisk, progress: &Progress) {
    let (mut released, mut marked) = (0, None);
    let stops = || progress.stop.load(Relaxed) || disk.warming_is_over();
    for (number, step) in steps.iter().enumerate() {
        // Pages that a doubted profile promises may come late, as those of a throttled stream: no program
        // should find them locked.
        let due = |engine: &Prefetch| {
            let waits = engine.is_doubted() || engine.is_throttled();
            let after = if waits { step.chunk } else { due_after(steps, number) };
            after.is_none_or(|chunk| engine.has_arrived(chunk))
        };
        if !disk.is(due) {
            disk.set_warmer(WarmerPlace::Idle);
            progress.set_leads();
            disk.wait_until(|engine| stops() || due(engine));
        }
        if stops() || matches!(disk.ended(), Some(EndReason::Memory | EndReason::NoHelp)) {
            break;
        }
        if let Some(chunk) = step.chunk {
            // Blocks of an old chunk that are left by now are in no file, or were in a cache already.
            let old = chunk.saturating_sub(HELD_CHUNKS);
            (released..old).for_each(|chunk| disk.release(chunk));
            released = released.max(old);
            disk.set_warmer(WarmerPlace::Before(chunk));
            disk.expect(chunk);
        }
        log::trace!("{:?}: hint {number}, chunk {:?}: {:?}", disk.began().elapsed(), step.chunk, step.hint);
        caches.asked.note(&step.hint);
        let tripwire = match step.chunk {
            Some(chunk) if marked != Some(chunk) => caches.keep_back(&step.hint, chunk, disk),
            _ => None,
        };
        marked = tripwire.and(step.chunk).or(marked);
        caches.ask(&step.hint, tripwire);
        if number + 1 == MAX_HINTS_AHEAD {
            progress.set_leads();
        }
    }
    disk.set_warmer(WarmerPlace::Idle);
    progress.set_leads();
}

/// The chunk that must arrive before the step with this number is due.
fn due_after(steps: &[Step], number: usize) -> Option<u32> {
    let chunk_of = |hints: usize| steps[number.checked_sub(hints)?].chunk;
    let by_chunks = steps[number].chunk.and_then(|chunk| chunk.checked_sub(CHUNKS_AHEAD));
    let dense = chunk_of(MAX_HINTS_AHEAD).max(by_chunks);
    chunk_of(HINTS_AHEAD).min(dense)
}

/// The page caches, and what was asked of them.
struct Caches {
    pages: PageCaches,
    asked: AskedPages,
}

impl Caches {
    /// Leaves out a page of a hint whose first block is in `chunk`, if one should be and can be: returns
    /// which.
    fn keep_back(&mut self, hint: &Hint, chunk: u32, disk: &ServedDisk) -> Option<u32> {
        if !disk.wants_tripwire(chunk) || hint.inode == 0 {
            return None;
        }
        let file_bytes = self.pages.file_bytes(hint.inode).ok()?;
        let mut pages = (hint.page..hint.page.saturating_add(hint.blocks)).take(MAX_TRIED_PAGES);
        let page = pages.find(|page| self.asked.is_read_alone(hint.inode, *page, file_bytes))?;
        let place = disk.image().hot_place(Lba(hint.lba.0 + u64::from(page - hint.page)))?;
        if place.chunk != chunk {
            return None;
        }
        disk.leave_out(chunk, place.block_in_chunk).then_some(page)
    }

    /// Requests the pages of a hint, but for the one that is left out.
    fn ask(&mut self, hint: &Hint, kept_back: Option<u32>) {
        let end = hint.page.saturating_add(hint.blocks);
        let middle = kept_back.unwrap_or(end);
        self.pages.ask(hint.inode, hint.page..middle);
        self.pages.ask(hint.inode, middle.saturating_add(1)..end);
    }
}
