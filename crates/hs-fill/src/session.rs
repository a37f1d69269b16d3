//! The threads that fill a file.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use hs_disk::{Deliver, ServedDisk, UseVisibility};
use hs_serve::{Prefetching, ServeConfig};
use hs_store::Store;
use hs_units::{BLOCK_BYTES, BlockRange, Nanos};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::attachment::Attachment;
use super::demand::{Demand, Filler, Waiting, blocks_of};
use super::error::FillError;
use super::event::{MODIFY, OVERFLOW};
use super::fill_file::{FillFile, FillProgress};
use super::group::{EventMessage, Group, Question};
use super::hydrate::Hydrator;
use super::uses::Uses;

/// All of a file is filled in the end, so an endless reader of blocks outside the profile must not keep the
/// rest waiting without a limit: the stream may make one request in this time although reads wait.
const AGEING: Nanos = Nanos::from_millis(5_000);

/// How a file is filled.
#[derive(Clone, Copy, Debug)]
pub struct FillOptions {
    /// Fill in the background the blocks that no reader has asked for.
    pub hydrate: bool,
}

/// What has been done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillStats {
    /// Readers that had to wait for blocks.
    pub waited: u64,
    /// Of these, those that got an error.
    pub denied: u64,
    /// Hot chunks of which any block was read, however it came.
    pub hot_chunks_used: u32,
}

/// A file that fills itself. When it is dropped before the file is complete, and no other process holds the
/// group, readers see zeros where blocks are missing.
pub struct SelfFilling {
    disk: Arc<ServedDisk>,
    file: Arc<FillFile>,
    waiting: Arc<Waiting>,
    uses: Arc<Uses>,
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    ended: Arc<OwnedFd>,
    again: Sender<Option<Demand>>,
    threads: Vec<JoinHandle<()>>,
    hydrator: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl SelfFilling {
    /// Opens the image in `store` and fills the file from it: blocks that are read, then the hot region, then
    /// the rest.
    ///
    /// # Errors
    /// When the image is not one or is of another disk than the file, or a thread cannot be started.
    pub fn start(
        store: Arc<dyn Store>,
        config: &ServeConfig,
        attachment: Attachment,
        options: FillOptions,
    ) -> Result<Self, FillError> {
        let file = Arc::new(FillFile::new(attachment)?);
        let mut config = config.clone();
        config.prefetch.ageing = Some(AGEING);
        let disk = ServedDisk::open(Arc::clone(&store), &config.disk_options(), None)?;
        let image = disk.image();
        let header = file.sidecar().header();
        if (image.disk_digest(), image.image_digest()) != (header.disk_digest, header.image_name) {
            let path = file.path().to_owned();
            return Err(FillError::ImageChanged { image: image.name().to_owned(), path });
        }
        let is_hot_filled = (0..image.hot_chunk_count()).all(|chunk| {
            let extents = image.hot_extents(chunk).iter();
            extents.into_iter().all(|run| file.missing(run.start.0..run.end().0, 1).is_none())
        });
        let disk = if is_hot_filled && config.prefetching != Prefetching::Off {
            config.prefetching = Prefetching::Off;
            drop(disk);
            ServedDisk::open(store, &config.disk_options(), None)?
        } else {
            disk
        };
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new);
        let path = file.path().to_owned();
        let (wake, ended) =
            event().and_then(|wake| Ok((wake, event()?))).map_err(FillError::io("watch", path))?;
        let (again, queue) = unbounded();
        let uses = Arc::new(Uses::new(&disk, &file));
        let mut filling = Self {
            disk,
            uses,
            file,
            waiting: Arc::default(),
            stop: Arc::default(),
            wake,
            ended,
            again,
            threads: Vec::new(),
            hydrator: None,
            keeper: None,
        };
        filling.start_threads(queue, options)?;
        Ok(filling)
    }

    fn start_threads(
        &mut self,
        queue: Receiver<Option<Demand>>,
        options: FillOptions,
    ) -> Result<(), FillError> {
        if let Some(group) = self.file.group().cloned() {
            let events = Events {
                group,
                filler: self.filler(),
                waiting: Arc::clone(&self.waiting),
                uses: Arc::clone(&self.uses),
                wake: Arc::clone(&self.wake),
                stop: Arc::clone(&self.stop),
            };
            self.threads.push(self.spawn("hs-fill-events", move || events.run())?);
        }
        let filler = self.filler();
        self.threads.push(self.spawn("hs-fill", move || filler.work(&queue))?);
        let (file, ended) = (Arc::clone(&self.file), Arc::clone(&self.ended));
        let keep = move || {
            file.keep();
            signal(&ended);
        };
        self.keeper = Some(self.spawn("hs-fill-keep", keep)?);
        let deliver: Arc<dyn Deliver> = Arc::new(IntoFile(Arc::clone(&self.file)));
        self.disk.begin_prefetch(Some(deliver))?;
        if options.hydrate {
            self.start_hydrator()?;
        }
        Ok(())
    }

    fn filler(&self) -> Filler {
        let (file, disk) = (Arc::clone(&self.file), Arc::clone(&self.disk));
        Filler { file, disk, again: self.again.clone() }
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, FillError> {
        let path = self.file.path().to_owned();
        let builder = std::thread::Builder::new().name(name.to_owned());
        builder.spawn(run).map_err(FillError::io("start a thread for", path))
    }

    /// From now on fills in the background the blocks that no reader has asked for. The whole disk is wanted
    /// then, so unused chunks and misses do not count against the prefetch any more.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn hydrate(&mut self) -> Result<(), FillError> {
        self.disk.hide_use();
        self.start_hydrator()
    }

    fn start_hydrator(&mut self) -> Result<(), FillError> {
        if self.hydrator.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        let hydrator = Hydrator {
            file: Arc::clone(&self.file),
            disk: Arc::clone(&self.disk),
            waiting: Arc::clone(&self.waiting),
            stop: Arc::clone(&self.stop),
        };
        self.hydrator = Some(self.spawn("hs-fill-rest", move || hydrator.run())?);
        Ok(())
    }

    /// Waits until hydration has done what it can: the file is complete, or the image has bad places.
    pub fn wait_hydrated(&mut self) {
        if let Some(thread) = self.hydrator.take() {
            let _ = thread.join();
        }
    }

    /// Whether hydration goes on.
    #[must_use]
    pub fn is_hydrating(&self) -> bool {
        self.hydrator.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// The image that fills the file.
    #[must_use]
    pub const fn disk(&self) -> &Arc<ServedDisk> {
        &self.disk
    }

    /// How far the file is.
    #[must_use]
    pub fn progress(&self) -> FillProgress {
        self.file.progress()
    }

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> FillStats {
        let (waited, denied) = self.waiting.counted();
        FillStats { waited, denied, hot_chunks_used: self.uses.count() }
    }

    /// Whether the file is complete, its mark and its sidecar gone.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.file.is_finished()
    }

    /// Becomes readable when the file is complete.
    #[must_use]
    pub fn ended(&self) -> impl AsFd + '_ {
        &*self.ended
    }

    /// What reads the file without events, if anything does: a loop device or a mount.
    #[must_use]
    pub fn uncovered_use(&self) -> Option<String> {
        self.file.metadata().ok().and_then(|metadata| super::uncovered::user(&metadata))
    }
}

impl Drop for SelfFilling {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // What waits for the medium fails: it may never answer.
        self.disk.close();
        let _ = self.again.send(None);
        signal(&self.wake);
        // A thread that waits there has looked at `stop` under the lock that this takes.
        let _ = self.disk.is(|_| true);
        self.disk.wake();
        self.waiting.wake();
        for thread in self.threads.drain(..).chain(self.hydrator.take()) {
            let _ = thread.join();
        }
        self.file.stop();
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

fn signal(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// The thread that receives the events.
struct Events {
    group: Arc<Group>,
    filler: Filler,
    waiting: Arc<Waiting>,
    uses: Arc<Uses>,
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
}

impl Events {
    fn run(&self) {
        self.answer_those_left();
        while !self.stop.load(Relaxed) {
            let mut ready = [
                PollFd::from_borrowed_fd(self.group.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
            ];
            if let Err(errno) = poll(&mut ready, None)
                && errno != rustix::io::Errno::INTR
            {
                log::error!(
                    "{}: no read can be answered any more: {errno}",
                    self.filler.file.path().display()
                );
                return;
            }
            match self.group.read() {
                Ok(messages) => {
                    // All events are noted before the first is answered, because answering may take a while.
                    let asked: Vec<_> =
                        messages.into_iter().filter_map(|message| self.hear(message)).collect();
                    asked.into_iter().for_each(|(question, blocks)| self.answer(question, blocks));
                }
                // The kernel has denied that event itself.
                Err(error) => {
                    log::warn!("{}: a reader got an error: {error}", self.filler.file.path().display())
                }
            }
        }
    }

    /// Answers the readers that a dead server has left, before new events are read: a new event could get the
    /// number of one of theirs.
    fn answer_those_left(&self) {
        let file = &self.filler.file;
        let left = file.ledger().waiting(file.disk_blocks());
        if left.is_empty() {
            return;
        }
        log::info!("{}: {} readers have waited for this process", file.path().display(), left.len());
        for (number, blocks) in left {
            let question = Question::left(&self.group, number, file.ledger());
            self.filler.go_on(Demand::new(question, blocks, &self.waiting));
        }
        self.waiting.until_nobody(|| !self.stop.load(Relaxed));
    }

    /// The blocks of an event, noted in the ledger in case this process dies.
    fn hear(&self, message: EventMessage) -> Option<(Question, BlockRange)> {
        let (event, file) = (message.event, &self.filler.file);
        if event.mask & OVERFLOW != 0 {
            log::error!("{}: the kernel has lost events", file.path().display());
        }
        let Some(question) = message.question(&self.group) else {
            if event.mask & MODIFY != 0 {
                file.note_written(event.pid);
            }
            return None;
        };
        let blocks = blocks_of(&event, file.disk_bytes());
        Some((question.noted(blocks, file.ledger()), blocks))
    }

    fn answer(&self, question: Question, blocks: BlockRange) {
        if self.filler.file.missing(blocks.start.0..blocks.end().0, 1).is_none() {
            question.allow();
            return self.uses.note(blocks);
        }
        self.uses.note(blocks);
        log::debug!("a read waits for blocks {blocks}");
        self.filler.go_on(Demand::new(question, blocks, &self.waiting));
    }
}

/// Puts prefetched blocks into the file.
struct IntoFile(Arc<FillFile>);

impl Deliver for IntoFile {
    /// The kernel sends an event before each read, and [`Uses`] reports it.
    fn visibility(&self) -> UseVisibility {
        if self.0.group().is_some() { UseVisibility::Asked } else { UseVisibility::Hidden }
    }

    /// Writing may wait for the disk. The thread that answers a read fills the blocks of that read itself.
    fn comes_before_answers(&self) -> bool {
        false
    }

    fn deliver(&self, extents: &[BlockRange], raw: &[u8], _left_out: &[Range<u32>]) -> bool {
        let mut rest = raw;
        extents.iter().all(|extent| {
            let (bytes, after) = rest.split_at((extent.count * BLOCK_BYTES) as usize);
            rest = after;
            self.0.put(*extent, &[bytes]).is_ok()
        })
    }
}
