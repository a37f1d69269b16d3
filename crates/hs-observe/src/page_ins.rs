//! Pages that came into the page cache of a mounted file system, and whether programs used them.
//!
//! The kernel says of each page when it comes (`mm_filemap_add_to_page_cache`) and where it is in memory, so
//! its marks can be looked at later (`/proc/kpageflags`, see the kernel's
//! Documentation/admin-guide/mm/pagemap.rst): a page that was read carries `referenced` or `active`, one that
//! is part of a program's memory `mmap`. Pages that read-ahead alone brought carry none of them.
//!
//! Unlike the [`Observer`](super::Observer), which says exactly which pages were used when, this needs no
//! event of Linux 6.12, nor an event for each read: it costs some 0.2 µs for a page that is read from the
//! disk, and nothing for others. Of a mapped file, up to 16 cached pages around a fault count as used.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use hs_units::Nanos;
use rustix::event::Timespec;
use rustix::fs::Advice;

use super::drain::Sink;
use super::events::{self, pages_filter};
use super::format::Field;
use super::tracefs::Instance;
use super::{NotObserved, Object, Running, drain};

/// Pages that are kept at most (8 GiB of files).
const MAX_PAGES: usize = 2 << 20;
/// Bytes of trace buffer for each CPU: some 20,000 events.
const BUFFER_BYTES: usize = 1 << 20;
/// A thread that empties buffers when it is asked to has done so by then, also on a busy machine.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
/// Threads of which it is remembered whether they are ours.
const MAX_THREADS: usize = 1 << 14;

// Entries of /proc/kpageflags, <linux/kernel-page-flags.h>.
const REFERENCED: u64 = 1 << 2;
const ACTIVE: u64 = 1 << 6;
const MMAP: u64 = 1 << 11;

/// Whose pages, by device numbers as `/proc/self/mountinfo` has them.
#[derive(Clone, Copy, Debug)]
pub struct PageInTargets {
    /// Major and minor number of the file system.
    pub file_system: (u32, u32),
    /// The device below, whose pages are its metadata.
    pub device: Option<(u32, u32)>,
}

/// A page that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageIn {
    /// Whose page.
    pub object: Object,
    /// Which one.
    pub page: u64,
    /// When, since the beginning.
    pub at: Nanos,
    /// A thread of this process brought it.
    pub is_own: bool,
    /// It carries the mark of a use, or has left the cache again.
    pub is_used: bool,
}

/// Watches pages come. Dropping it ends that.
#[derive(Debug)]
pub struct PageIns {
    // Order matters: the thread holds files of the instance, which goes last.
    drain: Running<Arrivals>,
    pages: Arc<Mutex<Pages>>,
    drained: Arc<Condvar>,
    flags: File,
    _instance: Instance,
}

impl PageIns {
    /// Begins to watch. When it returns, pages are seen.
    ///
    /// # Errors
    /// [`NotObserved`] where the kernel has not the events, or does not let us see them.
    pub fn start(targets: PageInTargets) -> Result<Self, NotObserved> {
        let instance = Instance::new()?;
        let kernel_dev = |(major, minor): (u32, u32)| u64::from(major) << 20 | u64::from(minor);
        let device = targets.device.map(kernel_dev);
        let filter = pages_filter(kernel_dev(targets.file_system), device);
        let came = events::enable(&instance, "filemap/mm_filemap_add_to_page_cache", &filter)?;
        let went = events::enable(&instance, "filemap/mm_filemap_delete_from_page_cache", &filter)?;
        let flags = File::open("/proc/kpageflags")
            .map_err(|error| NotObserved::new(format!("cannot open /proc/kpageflags: {error}")))?;
        let pages = Arc::new(Mutex::new(Pages {
            began: drain::now(),
            drained_until: Nanos::ZERO,
            kept: HashMap::new(),
            others: 0,
            lost: 0,
            leaves_out_others: false,
        }));
        let drained = Arc::new(Condvar::new());
        let sink = Arrivals {
            device,
            fields: Fields {
                kind: came.need("common_type")?,
                came: came.format.id,
                went: went.format.id,
                thread: came.need("common_pid")?,
                frame: came.need("pfn")?,
                inode: came.need("i_ino")?,
                page: came.need("index")?,
                order: came.format.field("order"),
            },
            own: HashMap::new(),
            pages: Arc::clone(&pages),
            drained: Arc::clone(&drained),
        };
        let drain = Running::start(&instance, BUFFER_BYTES, sink)?;
        instance.write("tracing_on", "1")?;
        Ok(Self { drain, pages, drained, flags, _instance: instance })
    }

    /// Pages that came for others than this process, so far.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.lock().others
    }

    /// Whether pages that come for others from now on are left out.
    pub fn leave_out_others(&self, leaves_out: bool) {
        self.lock().leaves_out_others = leaves_out;
    }

    /// Every page that came, with whether it was used up to now, by the time of its coming; and how many were
    /// lost because there was no room.
    ///
    /// # Errors
    /// Those of reading `/proc/kpageflags`; also where the trace is not read any more.
    pub fn pages(&self) -> io::Result<(Vec<PageIn>, u64)> {
        settle_marks();
        let (mut kept, lost) = {
            // What came until now may still be in the kernel's buffers.
            let now = drain::now();
            // A thread that has ended does not drain, which is said below.
            let _ = self.drain.look();
            let waited = self
                .drained
                .wait_timeout_while(self.lock(), DRAIN_PATIENCE, |pages| pages.drained_until < now);
            let (pages, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                let what = format!("the kernel's trace of pages was not read for {DRAIN_PATIENCE:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            (pages.kept.iter().map(|(key, kept)| (*key, *kept)).collect::<Vec<_>>(), pages.lost)
        };
        kept.sort_unstable_by_key(|(key, page)| (page.at, *key));
        let mut found = Vec::with_capacity(kept.len());
        for ((object, page), kept) in kept {
            let is_used = !kept.is_cached || self.is_marked(kept)?;
            found.push(PageIn { object, page, at: kept.at, is_own: kept.is_own, is_used });
        }
        Ok((found, lost))
    }

    /// How many of these pages came, and how many of those were used up to now.
    ///
    /// # Errors
    /// Those of reading `/proc/kpageflags`.
    pub fn usage(&self, pages: impl Iterator<Item = (Object, u64)>) -> io::Result<(u64, u64)> {
        settle_marks();
        let kept: Vec<Arrived> = {
            let known = self.lock();
            pages.filter_map(|key| known.kept.get(&key).copied()).collect()
        };
        let mut used = 0;
        for page in &kept {
            used += u64::from(!page.is_cached || self.is_marked(*page)?);
        }
        Ok((kept.len() as u64, used))
    }

    fn is_marked(&self, page: Arrived) -> io::Result<bool> {
        // Marks of several pages in one piece are at its head, where old kernels show them.
        let mut marks = self.flags_of(page.frame)? & (REFERENCED | ACTIVE | MMAP);
        if marks == 0 && page.offset > 0 {
            marks = self.flags_of(page.frame + u64::from(page.offset))? & MMAP;
        }
        Ok(marks != 0)
    }

    fn flags_of(&self, frame: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.flags.read_exact_at(&mut bytes, frame.saturating_mul(8))?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has all CPUs finish marking (`lru_add_drain_all`): the kernel does when `POSIX_FADV_DONTNEED` meets a page
/// that it cannot drop, as the one that this program's own code is mapped from.
fn settle_marks() {
    let settled = File::open("/proc/self/exe")
        .and_then(|own| Ok(rustix::fs::fadvise(&own, 0, std::num::NonZeroU64::new(4096), Advice::DontNeed)?));
    if let Err(error) = settled {
        log::debug!("marks of pages are not settled: {error}");
    }
}

/// The pages that came.
#[derive(Debug)]
struct Pages {
    began: Nanos,
    /// Events up to here are taken in.
    drained_until: Nanos,
    kept: HashMap<(Object, u64), Arrived>,
    others: u64,
    lost: u64,
    leaves_out_others: bool,
}

#[derive(Clone, Copy, Debug)]
struct Arrived {
    at: Nanos,
    /// The page frame of the first page of the piece that it came with.
    frame: u64,
    /// Pages from there.
    offset: u32,
    is_own: bool,
    is_cached: bool,
}

/// Fields of both events, which have the same.
struct Fields {
    kind: Field,
    came: u64,
    went: u64,
    thread: Field,
    frame: Field,
    inode: Field,
    page: Field,
    /// Since Linux 5.18 or so.
    order: Option<Field>,
}

/// Takes the events in.
struct Arrivals {
    /// The number of the inode whose pages are those of the block device.
    device: Option<u64>,
    fields: Fields,
    /// Which threads are ours. One that has ended counts as it did before.
    own: HashMap<i32, bool>,
    pages: Arc<Mutex<Pages>>,
    drained: Arc<Condvar>,
}

/// Pages come or go.
struct Arrival {
    at: Nanos,
    thread: i32,
    came: bool,
    frame: u64,
    inode: u64,
    page: u64,
    count: u32,
}

impl Sink for Arrivals {
    type Event = Arrival;
    const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    const LULL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

    fn decode(&self, at: Nanos, record: &[u8]) -> Option<Arrival> {
        let fields = &self.fields;
        let kind = fields.kind.read(record)?;
        if kind != fields.came && kind != fields.went {
            return None;
        }
        let order = fields.order.and_then(|order| order.read(record)).unwrap_or(0);
        Some(Arrival {
            at,
            thread: fields.thread.read(record)? as i32,
            came: kind == fields.came,
            frame: fields.frame.read(record)?,
            inode: fields.inode.read(record)?,
            page: fields.page.read(record)?,
            // A piece has 512 pages at most.
            count: 1 << order.min(9),
        })
    }

    fn at(event: &Arrival) -> Nanos {
        event.at
    }

    fn drained(&mut self, until: Nanos) {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).drained_until = until;
        self.drained.notify_all();
    }

    fn take(&mut self, event: Arrival) {
        let is_own = event.came && self.is_own(event.thread);
        let object =
            if self.device == Some(event.inode) { Object::Device } else { Object::Inode(event.inode) };
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if event.came && !is_own {
            pages.others += u64::from(event.count);
            if pages.leaves_out_others {
                return;
            }
        }
        let at = event.at.saturating_sub(pages.began);
        for offset in 0..event.count {
            let key = (object, event.page.saturating_add(u64::from(offset)));
            if !event.came {
                pages.kept.entry(key).and_modify(|page| page.is_cached = false);
            } else if pages.kept.len() < MAX_PAGES || pages.kept.contains_key(&key) {
                let new = Arrived { at, frame: event.frame, offset, is_own, is_cached: true };
                // The first coming counts, and the last place.
                let page = pages.kept.entry(key).or_insert(new);
                (page.frame, page.offset, page.is_cached) = (event.frame, offset, true);
            } else {
                pages.lost += 1;
            }
        }
    }
}

impl Arrivals {
    fn is_own(&mut self, thread: i32) -> bool {
        if self.own.len() >= MAX_THREADS {
            self.own.clear();
        }
        let ask = || PathBuf::from(format!("/proc/self/task/{thread}")).exists();
        *self.own.entry(thread).or_insert_with(ask)
    }
}
