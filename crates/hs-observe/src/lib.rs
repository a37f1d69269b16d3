//! What programs really did with pages of a mounted file system.
//!
//! Pages that prefetching put into the page cache of the upper file system are read there, and our server
//! gets no request for them. The [`Observer`] therefore asks the kernel: trace events of a tracefs instance
//! of its own, and, for metadata, the accessed marks of cached pages. [`account()`] then says what was used,
//! late and unused; an [`Observation`] does so for a served image, and [`block_files`] says which file pages
//! the blocks of a recording are.
//!
//! # What is seen (tried on Linux 6.18, ext4 on a loop device)
//!
//! - `read(2)` and its kin, `sendfile`, `splice`, the head of a program in `execve`: [`AccessKind::Read`],
//!   all pages asked for, from the moment the system call began.
//! - A fault on a page that is not cached, or is written to in a private mapping: [`AccessKind::Fault`].
//! - A fault on a cached page: [`AccessKind::MappedAround`]. The kernel maps up to 16 cached neighbours with
//!   it (`fault_around_bytes`), and does not say which one was meant.
//! - A fault on a cached page, where the mapping has just one: [`AccessKind::Fault`].
//! - A metadata block looked up again shortly after (directory, inode table, extent tree):
//!   [`AccessKind::Metadata`].
//! - Any metadata block looked up at all: [`AccessKind::Referenced`], at the end, without its time.
//! - Reading the block device itself: [`AccessKind::Read`] of [`Object::Device`].
//! - `posix_fadvise(WILLNEED)`, `readahead(2)`, the kernel's own read-ahead: not at all, as it should be.
//!
//! # What cannot be seen
//!
//! - Which page of a group that is mapped together was meant. These are counted apart
//!   ([`Usage::mapped_only_bytes`]): neither used nor unused. The group is a range, and those pages of it
//!   that were not cached at that moment were not mapped.
//! - Whether a page that is mapped already is looked at again: the processor does that alone.
//! - When a metadata block was first looked up; so metadata is hardly ever found to be late. On a first
//!   look-up the kernel emits no event (`block_touch_buffer` comes only for a block among the 16 that a
//!   CPU has looked up last).
//! - ext4's read-ahead of inode tables, where it is on (`inode_readahead_blks`), touches and marks
//!   neighbours as if a program needed them: mount with it off when the figures should be exact.
//! - A metadata page looked up a second time, on another CPU than brought it, while it is still among the
//!   last 31 that this CPU brought, can lose its mark (`folio_mark_accessed` in mm/swap.c): seldom, and for
//!   the tail of a prefetch only.
//! - Metadata pages that were dropped from the cache before the end count as unused, and so do pages whose
//!   mark was taken back when memory was short. Metadata of file systems that do not use the page cache of
//!   their device (squashfs, xfs) is not seen.
//! - The read of a 32-bit program, or by a thread of the kernel, counts from its end (the data are there)
//!   and so is never late. A read that ends early (end of file, error, signal) still counts all that was
//!   asked for.
//! - Direct I/O, which does not use the page cache.
//! - On Btrfs `st_dev` is not the number that the events carry: nothing is seen.
//!
//! Watching adds some 0.3 µs to every system call of any process, and an event for each that may read.

mod account;
pub mod block_files;
mod block_trace;
mod device_pages;
mod drain;
mod events;
mod format;
mod page_ins;
mod recorder;
mod ring;
mod runs;
mod tracefs;
mod usage;

use std::fmt;
use std::io::{self, PipeWriter, Write};
use std::path::PathBuf;
use std::thread::JoinHandle;

use hs_trace::BlockSet;
use hs_units::Nanos;
use rustix::event::Timespec;

pub use account::{Prefetched, Usage, account};
pub use block_trace::BlockTrace;
pub use page_ins::{PageIn, PageInTargets, PageIns};
pub use usage::{Observation, ObservedUsage};

use device_pages::DevicePages;
use drain::{Drain, Sink};
use events::{Decoder, Event};
use format::PageFormat;
use recorder::Recorder;
use tracefs::Instance;

/// Bytes of trace buffer for each CPU, and for all together. An event takes 40 to 70 bytes, so that a CPU may
/// record a hundred thousand before its buffer is emptied.
const BUFFER_BYTES: usize = 8 << 20;
const ALL_BUFFERS_BYTES: usize = 64 << 20;

/// Why nothing, or something, is not observed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("what becomes of prefetched data is not observed: {reason}")]
pub struct NotObserved {
    /// What is missing, and what would help.
    pub reason: String,
}

impl NotObserved {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// Whose pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Object {
    /// Those of the file with this inode number.
    Inode(u64),
    /// Those of the block device, which hold the metadata of the file system.
    Device,
}

/// How pages were accessed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AccessKind {
    /// By a buffered read. The time is the first one's.
    Read,
    /// Through a mapping: exactly this page. The time is the first one's.
    Fault,
    /// Mapped because a page nearby was needed, if it was cached then. The time is the last one's.
    MappedAround,
    /// A metadata block, looked up again shortly after. The time is the first one's.
    Metadata,
    /// The cached page carries the mark of an access. The time is that of the end of the observation.
    Referenced,
}

/// An access to consecutive pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// When, on `CLOCK_MONOTONIC`; see [`AccessKind`] for which time it is.
    pub at: Nanos,
    /// Whose pages.
    pub object: Object,
    /// The first page.
    pub page: u64,
    /// How many.
    pub pages: u32,
    /// How.
    pub kind: AccessKind,
}

/// The block device below the file system.
#[derive(Clone, Debug)]
pub struct TargetDevice {
    /// Its path, as in `/dev/loop3`.
    pub path: PathBuf,
    /// The pages that are checked at the end: the prefetched ones.
    pub pages: BlockSet,
}

/// What is observed.
#[derive(Clone, Debug)]
pub struct Targets {
    /// `st_dev` of the mounted file system.
    pub fs_dev: u64,
    /// Its device, to see metadata as well.
    pub device: Option<TargetDevice>,
    /// Leave out what threads of this process do: the prefetcher opens files, too, and its accesses are no
    /// use.
    pub ignore_own_process: bool,
}

/// What was seen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// The accesses, by time; of each page one of each kind.
    pub accesses: Vec<Access>,
    /// How many events were lost. When it is not zero, something used may seem unused: not fully observed.
    pub lost_events: u64,
    /// Reads count from the beginning of their system call. Otherwise from its end, and none can be late.
    pub sees_late_reads: bool,
    /// The accessed marks of the device's pages were seen. Otherwise most metadata seems unused.
    pub sees_metadata: bool,
}

/// A running observation. Dropping it ends it and leaves nothing behind.
#[derive(Debug)]
pub struct Observer {
    // Order matters: the thread holds files of the instance, which goes last.
    drain: Running<Accesses>,
    device: Option<TargetDevice>,
    sees_late_reads: bool,
    instance: Instance,
}

impl Observer {
    /// Begins to observe. When it returns, accesses are seen.
    ///
    /// # Errors
    /// [`NotObserved`] where the kernel has not the events, or does not let us see them.
    pub fn start(targets: Targets) -> Result<Self, NotObserved> {
        if targets.ignore_own_process && !in_first_pid_namespace() {
            let reason = "in a container (a PID namespace) a thread cannot tell which events are its own";
            return Err(NotObserved::new(reason));
        }
        let device_number = targets.device.as_ref().map(device_number).transpose()?;
        let instance = Instance::new()?;
        let decoder = Decoder::enable(&instance, targets.fs_dev, device_number)?;
        let sees_late_reads = decoder.calls;
        let recorder = Recorder::new(device_number.map(events::kernel_dev), targets.ignore_own_process);
        let drain = Running::start(&instance, BUFFER_BYTES, Accesses { decoder, recorder })?;
        let observer = Self { drain, device: targets.device, sees_late_reads, instance };
        observer.instance.write("tracing_on", "1")?;
        Ok(observer)
    }

    /// Ends the observation.
    ///
    /// # Errors
    /// [`NotObserved`] when the kernel's trace could not be read.
    pub fn finish(mut self) -> Result<Observed, NotObserved> {
        self.instance.write("tracing_on", "0")?;
        let recorder = self.drain.stop()?.recorder;
        let lost_events = self.instance.lost_events()?.saturating_add(recorder.lost);
        let mut accesses = recorder.into_accesses();
        let marks =
            self.device.as_ref().map(|device| DevicePages::open(&device.path)?.referenced(&device.pages));
        let sees_metadata = match marks {
            Some(Ok(marks)) => {
                let now = drain::now();
                for run in marks {
                    recorder::push_run(&mut accesses, Object::Device, AccessKind::Referenced, run, now);
                }
                true
            }
            Some(Err(error)) => {
                log::warn!("whether metadata was used is not observed: {error}");
                false
            }
            None => false,
        };
        Ok(Observed { accesses, lost_events, sees_late_reads: self.sees_late_reads, sees_metadata })
    }
}

fn device_number(device: &TargetDevice) -> Result<u64, NotObserved> {
    let stat = rustix::fs::stat(&device.path)
        .map_err(|errno| NotObserved::new(format!("cannot look at {}: {errno}", device.path.display())))?;
    Ok(stat.st_rdev)
}

/// Thread numbers in events are those of the first PID namespace, whose inode number is fixed
/// (`PROC_PID_INIT_INO` of include/linux/proc_ns.h).
fn in_first_pid_namespace() -> bool {
    rustix::fs::stat("/proc/self/ns/pid").is_ok_and(|stat| stat.st_ino == 0xeffffffc)
}

/// What programs did with pages.
struct Accesses {
    decoder: Decoder,
    recorder: Recorder,
}

impl Sink for Accesses {
    type Event = Event;
    const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    const LULL: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    fn decode(&self, at: Nanos, record: &[u8]) -> Option<Event> {
        self.decoder.decode(at, record)
    }

    fn at(event: &Event) -> Nanos {
        event.at
    }

    fn take(&mut self, event: Event) {
        self.recorder.event(&event);
    }
}

/// The draining thread. Dropping it ends it.
struct Running<S> {
    /// A byte has the thread look at once. Closing it stops the thread.
    wake: Option<PipeWriter>,
    thread: Option<JoinHandle<io::Result<S>>>,
}

impl<S: Sink> Running<S> {
    /// Starts to hand the events of `instance` to `sink`; each CPU gets a buffer of so many bytes.
    fn start(instance: &Instance, buffer_bytes: usize, sink: S) -> Result<Self, NotObserved> {
        instance.write("trace_clock", "mono")?;
        let streams = instance.streams()?;
        let buffer_bytes = buffer_bytes.min(ALL_BUFFERS_BYTES / streams.len().max(1));
        instance.write("buffer_size_kb", &(buffer_bytes >> 10).to_string())?;
        let page_format = PageFormat::parse(&instance.read("events/header_page")?)
            .ok_or_else(|| NotObserved::new("the format of trace pages is not understood"))?;
        let drain = Drain { page_format, sink, streams };
        let failed = |error: io::Error| NotObserved::new(format!("cannot start a thread: {error}"));
        let (wakes, wake) = io::pipe().map_err(failed)?;
        let thread = std::thread::Builder::new()
            .name("hs-observe".to_owned())
            .spawn(move || drain.run(&wakes))
            .map_err(failed)?;
        Ok(Self { wake: Some(wake), thread: Some(thread) })
    }

    /// Has the thread look at the buffers now.
    fn look(&self) -> io::Result<()> {
        self.wake.as_ref().map_or(Ok(()), |mut wake| wake.write_all(&[0]))
    }

    fn stop(&mut self) -> Result<S, NotObserved> {
        drop(self.wake.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(sink)) => {
                sink.map_err(|error| NotObserved::new(format!("the trace cannot be read: {error}")))
            }
            Some(Err(_)) | None => Err(NotObserved::new("the thread that reads the trace died")),
        }
    }
}

impl<S> fmt::Debug for Running<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl<S> Drop for Running<S> {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
