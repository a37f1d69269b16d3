//! Asks for the pages of a list.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use hs_accelerate::{DeviceKind, PageList, PageRequest, Restraint, StopReason, requests};
use hs_observe::Object;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{Root, machine, probe};

/// Requests between two looks at the memory that is free.
const REQUESTS_A_LOOK: usize = 64;
/// Memory where the kernel does not say how much there is.
const LITTLE_MEMORY: u64 = 256 << 20;

/// What was asked for.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Warmed {
    /// What the device was found to be.
    pub device: String,
    /// Pages that were asked for, and requests for them.
    pub pages: u64,
    /// See `pages`.
    pub requests: u64,
    /// Files of the list that are not there any more.
    pub missing_files: u64,
    /// Why it ended early, in words.
    pub stopped: Option<String>,
    /// From the first request to the end of the last one.
    pub seconds: f64,
}

/// Asks for the pages of one list.
pub struct Warming {
    root: Arc<Root>,
    list: Arc<PageList>,
    stop: AtomicBool,
    is_over: AtomicBool,
    reason: Mutex<Option<StopReason>>,
    asked: Mutex<Vec<PageRequest>>,
}

impl Warming {
    /// Prepares to ask for the pages of `list`.
    #[must_use]
    pub fn new(root: Arc<Root>, list: Arc<PageList>) -> Self {
        let (stop, is_over) = (AtomicBool::new(false), AtomicBool::new(list.runs.is_empty()));
        Self { root, list, stop, is_over, reason: Mutex::new(None), asked: Mutex::new(Vec::new()) }
    }

    /// Ends it soon; why is in what [`run`](Self::run) gives.
    pub fn stop(&self, reason: Option<StopReason>) {
        let mut kept = self.reason.lock();
        *kept = kept.or(reason);
        self.stop.store(true, Relaxed);
    }

    /// Whether requests are left: also before the first one.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.is_over.load(Relaxed)
    }

    /// Asks for everything, and returns when it is there. `kind` is measured when it is not given.
    pub fn run(&self, kind: Option<DeviceKind>) -> Warmed {
        let began = Instant::now();
        let pages = Pages::new(&self.root, &self.list);
        let kind = kind.unwrap_or_else(|| probe::measure(&self.list, &pages));
        let available = machine::memory().map_or(LITTLE_MEMORY, |(available, _)| available);
        let requests = requests(&self.list, kind, Restraint::budget_pages(available));
        pages.expect(&requests);
        let (next, restraint) = (AtomicUsize::new(0), Mutex::new(Restraint::default()));
        std::thread::scope(|scope| {
            let worker = || self.work(&requests, &next, &pages, &restraint);
            let workers = kind.under_way().min(requests.len()).saturating_sub(1);
            for _ in 0..workers {
                let small = std::thread::Builder::new().name("hs-early".to_owned()).stack_size(64 << 10);
                if small.spawn_scoped(scope, worker).is_err() {
                    break;
                }
            }
            worker();
        });
        self.is_over.store(true, Relaxed);
        let asked = self.asked.lock();
        Warmed {
            device: kind.name().to_owned(),
            pages: asked.iter().map(|request| u64::from(request.pages)).sum(),
            requests: asked.len() as u64,
            missing_files: pages.missing(),
            stopped: self.reason.lock().map(|reason| reason.words().to_owned()),
            seconds: began.elapsed().as_secs_f64(),
        }
    }

    fn work(
        &self,
        requests: &[PageRequest],
        next: &AtomicUsize,
        pages: &Pages<'_>,
        restraint: &Mutex<Restraint>,
    ) {
        while !self.stop.load(Relaxed) {
            let number = next.fetch_add(1, Relaxed);
            let Some(request) = requests.get(number) else { return };
            if number % REQUESTS_A_LOOK == REQUESTS_A_LOOK - 1
                && let Some((available, total)) = machine::memory()
                && let Some(reason) = Restraint::memory(available, total)
            {
                self.stop(Some(reason));
            }
            if let Some(is_there) = pages.open_first(request)
                && let Some(reason) = restraint.lock().file(is_there)
            {
                self.stop(Some(reason));
            }
            match pages.bring(request) {
                Ok(0) => {}
                Ok(_) => self.asked.lock().push(*request),
                Err(error) => {
                    log::debug!("{request:?}: {error}");
                    if let Some(reason) = restraint.lock().error() {
                        self.stop(Some(reason));
                    }
                }
            }
            pages.close_last(request);
        }
    }

    /// Pages that were asked for and should have been used `grace_ms` ago, when `now_ms` have passed since
    /// the beginning of the start.
    pub(crate) fn due(&self, now_ms: u64, grace_ms: u64) -> Vec<(Object, u64)> {
        let asked = self.asked.lock();
        let due = asked.iter().filter(|request| u64::from(request.at_ms) + grace_ms < now_ms);
        due.flat_map(|request| {
            let object = self.object(request);
            (request.page..request.page + u64::from(request.pages)).map(move |page| (object, page))
        })
        .collect()
    }

    fn object(&self, request: &PageRequest) -> Object {
        request.file.map_or(Object::Device, |file| Object::Inode(self.list.files[file as usize].inode))
    }
}

/// A file of the list, while requests for it are left.
enum Slot {
    NotOpened,
    Missing,
    Open(Arc<OwnedFd>, u64),
    Done,
}

/// The files of a list, opened when they are needed.
pub(crate) struct Pages<'a> {
    root: &'a Root,
    list: &'a PageList,
    /// Of each file, with the requests that are left.
    slots: Vec<Mutex<(Slot, usize)>>,
}

impl<'a> Pages<'a> {
    fn new(root: &'a Root, list: &'a PageList) -> Self {
        let slots = list.files.iter().map(|_| Mutex::new((Slot::NotOpened, 0))).collect();
        // Many files are open at once where requests are in the order of time.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
        Self { root, list, slots }
    }

    fn expect(&self, requests: &[PageRequest]) {
        for file in requests.iter().filter_map(|request| request.file) {
            self.slots[file as usize].lock().1 += 1;
        }
    }

    fn missing(&self) -> u64 {
        self.slots.iter().filter(|slot| matches!(slot.lock().0, Slot::Missing)).count() as u64
    }

    /// Opens the file of a request; whether it was there, if it was not looked for before.
    fn open_first(&self, request: &PageRequest) -> Option<bool> {
        let file = request.file? as usize;
        let mut slot = self.slots[file].lock();
        if !matches!(slot.0, Slot::NotOpened) {
            return None;
        }
        let opened = self.root.open_listed(&self.list.files[file].identity);
        // Only what is a regular file is read: opening others does nothing, reading them might.
        let opened = opened.ok().and_then(|file| {
            let found = rustix::fs::fstat(&file).ok()?;
            let is_file = rustix::fs::FileType::from_raw_mode(found.st_mode).is_file();
            is_file.then(|| (file, found.st_size.cast_unsigned().div_ceil(4096)))
        });
        let is_there = opened.is_some();
        slot.0 = opened.map_or(Slot::Missing, |(file, pages)| Slot::Open(Arc::new(file), pages));
        Some(is_there)
    }

    /// The same; whether it is there.
    pub(crate) fn open(&self, request: &PageRequest) -> bool {
        self.open_first(request);
        self.with(request, |_, _| ()).is_some()
    }

    fn close_last(&self, request: &PageRequest) {
        let Some(file) = request.file else { return };
        let mut slot = self.slots[file as usize].lock();
        slot.1 = slot.1.saturating_sub(1);
        if slot.1 == 0 && matches!(slot.0, Slot::Open(..)) {
            slot.0 = Slot::Done;
        }
    }

    /// Calls with the open file or device of a request, and its size in pages.
    fn with<T>(&self, request: &PageRequest, call: impl FnOnce(BorrowedFd<'_>, u64) -> T) -> Option<T> {
        let Some(file) = request.file else {
            return self.root.device().map(|device: &File| call(device.as_fd(), u64::MAX));
        };
        let open = match &self.slots[file as usize].lock().0 {
            Slot::Open(file, pages) => Some((Arc::clone(file), *pages)),
            Slot::NotOpened | Slot::Missing | Slot::Done => None,
        };
        open.map(|(file, pages)| call(file.as_fd(), pages))
    }

    /// Whether the first page of a request is in the page cache.
    pub(crate) fn is_cached(&self, request: &PageRequest) -> bool {
        self.with(request, |file, _| hs_linux::is_cached(file, request.page))
            .is_some_and(|is| is.unwrap_or(true))
    }

    /// Asks for the pages of a request: how many. A file that has become shorter has fewer of them.
    pub(crate) fn ask(&self, request: &PageRequest) -> io::Result<u64> {
        let asked = self.with(request, |file, size| {
            let count = u64::from(request.pages).min(size.saturating_sub(request.page));
            if count > 0 {
                hs_linux::ask_for_pages(file, request.page, count)?;
            }
            Ok(count)
        });
        asked.unwrap_or(Ok(0))
    }

    /// Asks for the pages of a request and waits until they are there: how many.
    pub(crate) fn bring(&self, request: &PageRequest) -> io::Result<u64> {
        let count = self.ask(request)?;
        if count > 0 {
            let last = request.page + count - 1;
            self.with(request, |file, _| hs_linux::wait_for_page(file, last)).unwrap_or(Ok(()))?;
        }
        Ok(count)
    }
}
