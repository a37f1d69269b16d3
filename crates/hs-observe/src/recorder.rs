//! From events to first accesses.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use hs_units::{BLOCK_BYTES, Nanos};

use super::events::{Body, Event};
use super::runs::PageTimes;
use super::{Access, AccessKind, Object};

/// Runs of pages that are kept at most, some 50 bytes each. A start has some 10⁴.
const MAX_RUNS: usize = 1 << 19;
/// Threads whose last reading call is remembered, and whose process is known.
const MAX_THREADS: usize = 1 << 16;

/// Keeps, for each page, the first access of each kind (the last, for mappings).
pub(super) struct Recorder {
    device_inode: Option<u64>,
    ignore_own_process: bool,
    pages: HashMap<(Object, AccessKind), PageTimes>,
    runs: usize,
    /// Accesses there was no room for.
    pub(super) lost: u64,
    /// When each thread began its last reading call.
    calls: HashMap<i32, Nanos>,
    /// Which threads are ours.
    own: HashMap<i32, bool>,
}

impl Recorder {
    /// `device_inode`: the number of the inode whose pages are those of the block device.
    pub(super) fn new(device_inode: Option<u64>, ignore_own_process: bool) -> Self {
        Self {
            device_inode,
            ignore_own_process,
            pages: HashMap::new(),
            runs: 0,
            lost: 0,
            calls: HashMap::new(),
            own: HashMap::new(),
        }
    }

    /// Takes the next event in the order of time.
    pub(super) fn event(&mut self, event: &Event) {
        if self.ignore_own_process && self.is_own(event.thread) {
            return;
        }
        let at = event.at;
        match event.body {
            Body::Call => {
                if self.calls.len() >= MAX_THREADS {
                    self.calls.clear();
                }
                self.calls.insert(event.thread, at);
            }
            Body::Read { inode, first, last } => {
                let since = self.calls.get(&event.thread).copied().unwrap_or(at);
                self.access(self.object(inode), first..last.saturating_add(1), AccessKind::Read, since);
            }
            Body::Fault { inode, page } => {
                self.access(self.object(inode), page..page.saturating_add(1), AccessKind::Fault, at);
            }
            Body::Mapped { inode, first, last } => {
                // Where there is room for one page only, it is the one that was needed.
                let kind = if first == last { AccessKind::Fault } else { AccessKind::MappedAround };
                self.access(self.object(inode), first..last.saturating_add(1), kind, at);
            }
            Body::Touched { block, bytes } => {
                let start = block.saturating_mul(bytes);
                let pages = start / BLOCK_BYTES..start.saturating_add(bytes).div_ceil(BLOCK_BYTES);
                self.access(Object::Device, pages, AccessKind::Metadata, at);
            }
        }
    }

    fn object(&self, inode: u64) -> Object {
        if self.device_inode == Some(inode) { Object::Device } else { Object::Inode(inode) }
    }

    fn access(&mut self, object: Object, pages: Range<u64>, kind: AccessKind, at: Nanos) {
        if self.runs >= MAX_RUNS {
            self.lost += 1;
            return;
        }
        let times = self.pages.entry((object, kind)).or_default();
        let before = times.len();
        if kind == AccessKind::MappedAround {
            times.keep_latest(pages, at);
        } else {
            times.keep_earliest(pages, at);
        }
        self.runs = self.runs + times.len() - before;
    }

    /// Whether the thread belongs to this process. Threads that have ended count as they did before.
    fn is_own(&mut self, thread: i32) -> bool {
        if self.own.len() >= MAX_THREADS {
            self.own.clear();
        }
        let ask = || PathBuf::from(format!("/proc/self/task/{thread}")).exists();
        *self.own.entry(thread).or_insert_with(ask)
    }

    /// Everything kept, in the order of time.
    pub(super) fn into_accesses(self) -> Vec<Access> {
        let mut accesses = Vec::with_capacity(self.runs);
        for ((object, kind), times) in self.pages {
            for (run, at) in times.iter() {
                push_run(&mut accesses, object, kind, run, at);
            }
        }
        accesses.sort_unstable_by_key(|access| (access.at, access.object, access.page, access.kind));
        accesses
    }
}

/// Adds a run of any length as accesses, whose page count has 32 bits.
pub(super) fn push_run(
    accesses: &mut Vec<Access>,
    object: Object,
    kind: AccessKind,
    mut run: Range<u64>,
    at: Nanos,
) {
    while !run.is_empty() {
        let pages = u32::try_from(run.end - run.start).unwrap_or(u32::MAX);
        accesses.push(Access { at, object, page: run.start, pages, kind });
        run.start += u64::from(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64, thread: i32, body: Body) -> Event {
        Event { at: Nanos(at), thread, body }
    }

    fn record(ignore_own_process: bool, events: &[Event]) -> Vec<Access> {
        let mut recorder = Recorder::new(Some(1000), ignore_own_process);
        events.iter().for_each(|event| recorder.event(event));
        assert_eq!(recorder.lost, 0);
        recorder.into_accesses()
    }

    fn access(at: u64, object: Object, page: u64, pages: u32, kind: AccessKind) -> Access {
        Access { at: Nanos(at), object, page, pages, kind }
    }

    #[test]
    fn a_read_counts_from_its_call_and_only_once() {
        let read = Body::Read { inode: 5, first: 0, last: 3 };
        let events = [
            event(10, 1, Body::Call),
            event(15, 2, Body::Call),
            event(20, 1, read),
            event(25, 1, read),
            event(30, 2, Body::Read { inode: 5, first: 2, last: 5 }),
            event(31, 3, Body::Read { inode: 5, first: 9, last: 9 }),
        ];
        let file = Object::Inode(5);
        let expected = [
            access(10, file, 0, 4, AccessKind::Read),
            access(15, file, 4, 2, AccessKind::Read),
            access(31, file, 9, 1, AccessKind::Read),
        ];
        assert_eq!(record(false, &events), expected);
    }

    #[test]
    fn mappings_keep_their_last_time_and_one_page_is_a_fault() {
        let events = [
            event(10, 1, Body::Mapped { inode: 5, first: 0, last: 15 }),
            event(20, 1, Body::Mapped { inode: 5, first: 8, last: 23 }),
            event(30, 1, Body::Mapped { inode: 5, first: 3, last: 3 }),
            event(40, 1, Body::Fault { inode: 5, page: 3 }),
        ];
        let file = Object::Inode(5);
        let expected = [
            access(10, file, 0, 8, AccessKind::MappedAround),
            access(20, file, 8, 16, AccessKind::MappedAround),
            access(30, file, 3, 1, AccessKind::Fault),
        ];
        assert_eq!(record(false, &events), expected);
    }

    #[test]
    fn the_device_has_pages_and_blocks_of_any_size() {
        let events = [
            event(1, 1, Body::Read { inode: 1000, first: 7, last: 7 }),
            event(2, 1, Body::Touched { block: 9, bytes: 1024 }),
            event(3, 1, Body::Touched { block: 9, bytes: 4096 }),
        ];
        let expected = [
            access(1, Object::Device, 7, 1, AccessKind::Read),
            access(2, Object::Device, 2, 1, AccessKind::Metadata),
            access(3, Object::Device, 9, 1, AccessKind::Metadata),
        ];
        assert_eq!(record(false, &events), expected);
    }

    #[test]
    fn our_own_accesses_are_nobodys_need() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let fault = Body::Fault { inode: 5, page: 3 };
        assert_eq!(record(true, &[event(1, own, fault)]), []);
        assert_eq!(record(true, &[event(1, i32::MAX, fault)]).len(), 1);
        assert_eq!(record(false, &[event(1, own, fault)]).len(), 1);
    }
}
