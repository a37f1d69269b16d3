//! Reads of a real file or device, around the page cache or through it, and nothing but reads.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context, bail};
use crossbeam_channel::{Receiver, Sender, bounded};
use hs_lab::Histogram;
use hs_units::{ByteRange, Nanos};
use parking_lot::Mutex;

use super::residency::Residency;

/// Direct I/O wants places and sizes in multiples of what the device reads at once.
const ALIGN: u64 = 4096;
/// No read at once is longer.
const MAX_READ_BYTES: u64 = 64 << 20;

/// A file or a device, opened for reading only.
pub(super) struct RealFile {
    file: File,
    bytes: u64,
    name: String,
    through_cache: bool,
}

impl RealFile {
    /// Opens `path` around the page cache.
    pub(super) fn direct(path: &Path) -> anyhow::Result<Self> {
        let wanted = "around the page cache (direct I/O, for reading only)";
        Self::open(path, libc::O_DIRECT, wanted)
    }

    /// Opens `path` as a guest's disk is: what lies in the page cache is read there.
    pub(super) fn cached(path: &Path) -> anyhow::Result<Self> {
        let file = Self { through_cache: true, ..Self::open(path, 0, "for reading")? };
        // What is replayed are the requests of a kernel that has read ahead, or was told not to.
        if let Err(error) = rustix::fs::fadvise(&file.file, 0, None, rustix::fs::Advice::Random) {
            log::debug!("{}: the kernel reads ahead: {error}", file.name);
        }
        Ok(file)
    }

    fn open(path: &Path, flags: i32, wanted: &str) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let kind = std::fs::metadata(path).with_context(|| format!("open {name}"))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            bail!("{name} is neither a file nor a block device: there is nothing to read at an address");
        }
        let opened = File::options().read(true).custom_flags(flags | libc::O_CLOEXEC).open(path);
        let file = opened.with_context(|| format!("open {name} {wanted}"))?;
        let bytes = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
            .with_context(|| format!("find the size of {name}"))?;
        if bytes < ALIGN {
            bail!("{name} has {bytes} bytes, too few to be read around the page cache");
        }
        Ok(Self { file, bytes, name, through_cache: false })
    }

    /// Bytes that can be read.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Has the kernel forget what it has of the file, as far as it may: what lies below may not read around
    /// its caches.
    pub(super) fn drop_caches(&self) {
        if let Err(error) = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed) {
            log::debug!("{}: its cached pages stay: {error}", self.name);
        }
    }

    /// Reads the blocks that hold `range`, which lies in the file.
    pub(super) fn read(&self, range: ByteRange, buffer: &mut Aligned) -> anyhow::Result<()> {
        let first = range.offset / ALIGN * ALIGN;
        let len = (range.end().next_multiple_of(ALIGN) - first).min(MAX_READ_BYTES);
        let buffer = buffer.of(len as usize);
        let mut done = 0;
        while first + done < range.end() && done < len {
            let left = &mut buffer[done as usize..];
            match rustix::io::pread(self.file.as_fd(), left, first + done) {
                Ok(0) => bail!("{} ends at {} and not at {}", self.name, first + done, self.bytes),
                Ok(read) => done += read as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("read {len} bytes from {first} of {}", self.name));
                }
            }
        }
        Ok(())
    }
}

/// A buffer whose place in memory suits direct I/O.
#[derive(Default)]
pub(super) struct Aligned(Vec<u8>);

impl Aligned {
    fn of(&mut self, len: usize) -> &mut [u8] {
        // It only grows: filling it with zeros anew would take a good part of what a fast device takes to
        // read.
        if self.0.len() < len + ALIGN as usize {
            self.0.resize(len + ALIGN as usize, 0);
        }
        let skip = self.0.as_ptr().align_offset(ALIGN as usize);
        &mut self.0[skip..skip + len]
    }
}

/// What was read.
#[derive(Default)]
pub(super) struct ReadOutcome {
    /// From asking to having it.
    pub(super) latencies: Histogram,
    pub(super) bytes: u64,
    /// When the last had come, since the first was asked for.
    pub(super) ended: Nanos,
}

impl ReadOutcome {
    /// Makes one more read, which was due at `at`, or is now.
    pub(super) fn read(
        &mut self,
        file: &RealFile,
        range: ByteRange,
        at: Option<Nanos>,
        buffer: &mut Aligned,
        began: Instant,
    ) -> anyhow::Result<()> {
        // One that had to wait for a thread is late: that counts.
        let asked = at.unwrap_or_else(|| began.elapsed().into());
        file.read(range, buffer)?;
        let now: Nanos = began.elapsed().into();
        self.latencies.note(now.saturating_sub(asked));
        self.bytes += range.len;
        self.ended = now;
        Ok(())
    }

    /// Adds the outcome of another thread.
    pub(super) fn merge(&mut self, other: &Self) {
        self.latencies.merge(&other.latencies);
        self.bytes += other.bytes;
        self.ended = self.ended.max(other.ended);
    }
}

/// Reads that are handed over at once, where they are made as soon as a thread is free. A fast device takes
/// less for a read than a thread takes to wake another, so threads help themselves instead of being given one
/// at a time.
const BATCH: usize = 256;
/// Batches that wait.
const BATCHES: usize = 4;

/// A read, and when it is due.
struct Due {
    range: ByteRange,
    at: Option<Nanos>,
}

/// Threads that read. A read that the page cache can answer is made by the calling thread unless the threads
/// are behind: it takes less time than waking a thread, and a guest that finds a page wakes no thread either.
pub(super) struct Readers {
    file: Arc<RealFile>,
    residency: Option<Residency>,
    own: (ReadOutcome, Aligned),
    queue: Sender<Vec<Due>>,
    gathered: Vec<Due>,
    /// Reads that were handed over and have not come.
    under_way: Arc<AtomicUsize>,
    began: Instant,
    threads: Vec<JoinHandle<anyhow::Result<ReadOutcome>>>,
}

impl Readers {
    /// Starts so many.
    pub(super) fn start(file: RealFile, threads: usize) -> anyhow::Result<Self> {
        let file = Arc::new(file);
        let (queue, due) = bounded(BATCHES);
        let source = Arc::new(Mutex::new(Source { due, batch: Vec::new().into_iter() }));
        let under_way = Arc::<AtomicUsize>::default();
        let began = Instant::now();
        let start = |number| {
            let (file, source, under_way) = (Arc::clone(&file), Arc::clone(&source), Arc::clone(&under_way));
            let read = move || work(&file, &source, &under_way, began);
            std::thread::Builder::new()
                .name(format!("hs-read-{number}"))
                .spawn(read)
                .context("start a thread")
        };
        let threads = (0..threads.max(1)).map(start).collect::<anyhow::Result<_>>()?;
        let residency = file.through_cache.then(|| Residency::of(&file.file, file.bytes)).flatten();
        let (own, gathered) = (Default::default(), Vec::new());
        Ok(Self { file, residency, own, queue, gathered, under_way, began, threads })
    }

    /// Makes a read, at the earliest at `at` since the beginning, for which it waits, or as soon as a thread
    /// is free.
    pub(super) fn ask(&mut self, range: ByteRange, at: Option<Nanos>) -> anyhow::Result<()> {
        let pause = at.map_or(Nanos::ZERO, |at| at.saturating_sub(self.began.elapsed().into()));
        if pause > Nanos::ZERO {
            // Those that are due are not kept waiting. While there are more of them, they go together.
            self.hand_over()?;
            std::thread::sleep(pause.into());
        }
        let keeps_up = self.under_way.load(Relaxed) < self.threads.len();
        if keeps_up && self.residency.as_ref().is_some_and(|residency| residency.holds(range)) {
            // Those that are not in memory need not wait for this one.
            self.hand_over()?;
            let (outcome, buffer) = &mut self.own;
            return outcome.read(&self.file, range, at, buffer, self.began);
        }
        self.gathered.push(Due { range, at });
        if self.gathered.len() >= BATCH { self.hand_over() } else { Ok(()) }
    }

    fn hand_over(&mut self) -> anyhow::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.under_way.fetch_add(self.gathered.len(), Relaxed);
        self.queue.send(std::mem::take(&mut self.gathered)).ok().context("all reading threads have ended")
    }

    /// Waits until everything has been read.
    pub(super) fn finish(mut self) -> anyhow::Result<ReadOutcome> {
        // If all reading threads have ended, joining them says why.
        let _ = self.hand_over();
        drop(self.queue);
        let mut all = self.own.0;
        for thread in self.threads {
            all.merge(&thread.join().ok().context("a reading thread died")??);
        }
        Ok(all)
    }
}

/// What threads take their reads from.
struct Source {
    due: Receiver<Vec<Due>>,
    batch: std::vec::IntoIter<Due>,
}

impl Source {
    /// The next read; nothing when there will be none.
    fn next(&mut self) -> Option<Due> {
        loop {
            if let Some(due) = self.batch.next() {
                return Some(due);
            }
            self.batch = self.due.recv().ok()?.into_iter();
        }
    }
}

fn work(
    file: &RealFile,
    source: &Mutex<Source>,
    under_way: &AtomicUsize,
    began: Instant,
) -> anyhow::Result<ReadOutcome> {
    let mut outcome = ReadOutcome::default();
    let mut buffer = Aligned::default();
    loop {
        let Some(due) = source.lock().next() else { return Ok(outcome) };
        outcome.read(file, due.range, due.at, &mut buffer, began)?;
        under_way.fetch_sub(1, Relaxed);
    }
}
