//! Starts of a program: its own time, its reads through a page cache, and what it waits for.

use std::collections::BTreeMap;
use std::ops::Range;

use hs_engine::disk::ReadId;
use hs_engine::queue::{Class, ClientKey, Direction};
use hs_units::{BLOCK_BYTES, ByteRange, Nanos};

use super::caches::{Caches, Wanted};
use super::crowd::Cohort;
use super::files::Files;
use super::loop_device::LoopDevice;
use super::page_cache::PageState;
use super::program::Program;
use super::{Disk, Prediction};
use crate::served::{LayoutMap, SERVED, ServedEvent, ServedImage};
use crate::simulation::{Io, Workload};

/// How the disk is shown to the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Front<'a> {
    /// The files that it reads, where it reads them through a file system that is mounted from the disk. A
    /// raw disk is then behind a loop device that has a page cache of its own, as `headstart run --raw` has
    /// one.
    pub files: Option<&'a Files>,
    /// Blocks of inode tables that the file system reads at once, where files are known.
    pub inode_ahead_blocks: u64,
    /// How far the kernel reads ahead in it.
    pub read_ahead_pages: u64,
    /// Hot blocks are put into the page cache as they come.
    pub pushed: bool,
    /// When one of its processes waits, the others can compute for this long before they all wait.
    pub overlap: Nanos,
}

/// A read that the kernel has made and that has not been answered.
#[derive(Debug)]
struct Asked {
    wanted: Wanted,
    /// Requests to the medium that have not ended, where the disk is raw.
    requests: Vec<usize>,
    /// Calls of a loop device that have not.
    calls: usize,
    /// Reads that have not been answered, where it is an image.
    reads: Vec<ReadId>,
}

impl Asked {
    fn is_answered(&self) -> bool {
        self.requests.is_empty() && self.calls == 0 && self.reads.is_empty()
    }
}

enum Medium<'a> {
    Raw,
    Loop(LoopDevice),
    Image(Box<ServedImage<'a>>),
}

/// One client.
struct Client<'a> {
    key: ClientKey,
    cohort: Cohort,
    program: &'a Program,
    front: Front<'a>,
    medium: Medium<'a>,
    cache: Caches<'a>,
    next: usize,
    /// Of the call under way, the page that is next, and the end.
    call: Option<(u64, u64)>,
    own: Nanos,
    asked: BTreeMap<u64, Asked>,
    next_asked: u64,
    waiting: Option<(u64, Nanos)>,
    opened: Nanos,
    waited: Nanos,
    waits: u64,
    ready: Option<Nanos>,
}

/// How a start went; times since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Started {
    /// When the disk could be read.
    pub opened: Nanos,
    /// The program's own time.
    pub own: Nanos,
    /// How long it waited for reads.
    pub waited: Nanos,
    /// How often.
    pub waits: u64,
    /// When the last of the hot region had come, if there was one.
    pub streamed: Option<Nanos>,
    /// When it was ready.
    pub ready: Nanos,
}

/// Marks the token of [`Io::wake`] by which a client begins.
const BEGINS: u64 = 1;

impl Client<'_> {
    fn begin(&mut self, io: &mut Io, file_bytes: u64) {
        self.opened = io.now();
        match &mut self.medium {
            Medium::Raw | Medium::Loop(_) => self.proceed(io),
            Medium::Image(served) => served.open(io, file_bytes),
        }
    }

    /// Goes on until the program computes, waits, or is ready.
    fn proceed(&mut self, io: &mut Io) {
        loop {
            let Some((page, end)) = self.call else {
                let due = self.program.reads.get(self.next).map(|read| read.after);
                let then = due.unwrap_or(self.program.own_time);
                if then > self.own {
                    let pause = then.saturating_sub(self.own);
                    return io.wake(io.now() + pause, self.key.0 << 32);
                }
                if due.is_none() {
                    self.ready = Some(io.now());
                    return;
                }
                let read = self.program.reads[self.next];
                self.call = Some((read.block, read.block + read.blocks));
                continue;
            };
            if page >= end {
                self.next += 1;
                self.call = None;
                continue;
            }
            let place = self.cache.locate(page, end);
            match self.cache.find(place) {
                PageState::Missing if self.is_warmed(page) => {
                    self.ask(io, place.file, place.page..place.page + 1, None);
                }
                PageState::Missing => {
                    let (pages, mark) = self.cache.miss(place);
                    self.ask(io, place.file, pages, mark);
                }
                found => {
                    if let Some((pages, mark)) = self.cache.hit(place) {
                        self.ask(io, place.file, pages, mark);
                    }
                    match found {
                        PageState::Coming(asked) if self.asked.contains_key(&asked) => {
                            self.waiting = Some((asked, io.now()));
                            return;
                        }
                        _ => {
                            if place.pages == 1 {
                                self.cache.read(place);
                            }
                            self.call = Some((page + 1, end));
                        }
                    }
                }
            }
        }
    }

    /// Whether the warmer of a mounted file system has asked for a block by the time that the program needs
    /// it: for those of the hot region, in the stream's order and a few chunks before it. Its pages are on
    /// their way, one by one, so nothing is read ahead of them
    /// (docs/decisions/002-read-ahead-and-page-caches.md).
    fn is_warmed(&self, block: u64) -> bool {
        let Medium::Image(served) = &self.medium else { return false };
        self.front.files.is_some() && self.front.pushed && served.is_hot(block)
    }

    /// The time for which it computed is over.
    fn handle_computed(&mut self, io: &mut Io) {
        let due = self.program.reads.get(self.next).map_or(self.program.own_time, |read| read.after);
        self.own = self.own.max(due);
        self.proceed(io);
    }

    fn ask(&mut self, io: &mut Io, file: Option<usize>, pages: Range<u64>, mark: Option<u64>) {
        for wanted in self.cache.ask(file, pages, mark, self.next_asked) {
            let number = self.next_asked;
            self.next_asked += 1;
            let mut asked = Asked { wanted, requests: Vec::new(), calls: 0, reads: Vec::new() };
            for blocks in &asked.wanted.blocks {
                match &mut self.medium {
                    Medium::Raw => {
                        let range = ByteRange::new(blocks.start.byte_offset(), blocks.bytes());
                        asked.requests.push(io.request(Class::Demand, self.key, Direction::Read, range));
                    }
                    Medium::Loop(device) => {
                        device.read(number, *blocks);
                        asked.calls += 1;
                    }
                    Medium::Image(served) => asked.reads.push(served.read(io, *blocks)),
                }
            }
            self.asked.insert(number, asked);
        }
        if let Medium::Loop(device) = &mut self.medium {
            for number in device.work(io) {
                self.called(number);
            }
        }
        self.take_events();
        self.arrive();
    }

    /// A loop device has served a part of a request.
    fn called(&mut self, number: u64) {
        if let Some(asked) = self.asked.get_mut(&number) {
            asked.calls -= 1;
        }
    }

    /// Pages that have come are put into their caches; says which requests those were.
    fn arrive(&mut self) -> Vec<u64> {
        let answered = |(number, asked): (&u64, &Asked)| asked.is_answered().then_some(*number);
        let done: Vec<u64> = self.asked.iter().filter_map(answered).collect();
        for number in &done {
            let Some(asked) = self.asked.remove(number) else { continue };
            self.cache.arrived(asked.wanted, *number);
        }
        done
    }

    /// Requests of the kernel are answered; the reads that have waited for one of them go on.
    fn answer(&mut self, io: &mut Io) {
        let done = self.arrive();
        if let Some((_, since)) = self.waiting.take_if(|(waiting, _)| done.contains(waiting)) {
            let waited = io.now().saturating_sub(since);
            self.waited += waited;
            self.waits += 1;
            self.own += waited.min(self.front.overlap);
            self.proceed(io);
        }
    }

    /// A request to the medium has ended, where the disk is raw.
    fn handle_done(&mut self, io: &mut Io, request: usize) {
        match &mut self.medium {
            Medium::Raw => {
                for asked in self.asked.values_mut() {
                    asked.requests.retain(|other| *other != request);
                }
            }
            Medium::Loop(device) => {
                device.handle_done(request);
                for number in device.work(io) {
                    self.called(number);
                }
            }
            Medium::Image(served) => {
                served.handle_done(io, request);
                return self.handle_events(io);
            }
        }
        self.answer(io);
    }

    /// What the engine has answered and delivered reaches the page cache. Whether the disk was opened.
    fn take_events(&mut self) -> bool {
        let Medium::Image(served) = &mut self.medium else { return false };
        let mut is_opened = false;
        while let Some(event) = served.next_event() {
            match event {
                ServedEvent::Opened => is_opened = true,
                ServedEvent::Answered(read) => {
                    for asked in self.asked.values_mut() {
                        asked.reads.retain(|other| *other != read);
                    }
                }
                ServedEvent::Delivered(chunk) => {
                    let extents = &served.layout().hot[chunk as usize].extents;
                    extents.iter().for_each(|run| self.cache.put(run.start.0, run.end().0));
                }
            }
        }
        is_opened
    }

    fn handle_events(&mut self, io: &mut Io) {
        if self.take_events() {
            self.opened = io.now();
            self.proceed(io);
        }
        self.answer(io);
    }

    fn started(&self) -> Option<Started> {
        let streamed = match &self.medium {
            Medium::Raw | Medium::Loop(_) => None,
            Medium::Image(served) => served.streamed,
        };
        let since = |then: Nanos| then.saturating_sub(self.cohort.begins);
        Some(Started {
            opened: since(self.opened),
            own: self.program.own_time,
            waited: self.waited,
            waits: self.waits,
            streamed: streamed.map(since),
            ready: since(self.ready?),
        })
    }
}

/// Several clients that start the same program from the same medium.
pub(crate) struct Starts<'a> {
    clients: Vec<Client<'a>>,
    /// The client of each request.
    of: Vec<usize>,
    file_bytes: u64,
}

impl<'a> Starts<'a> {
    pub(crate) fn new(prediction: &Prediction<'a>, cohorts: &[Cohort]) -> Self {
        let Prediction { program, front, .. } = *prediction;
        let map = match prediction.disk {
            Disk::Raw => None,
            Disk::Image(layout) => Some(LayoutMap::new(layout)),
        };
        let client = |(number, cohort): (u64, &Cohort)| {
            let key = ClientKey(number);
            let blocks = prediction.disk_bytes.div_ceil(BLOCK_BYTES);
            let medium = match &map {
                Some(map) => {
                    let (config, processors) = (prediction.disk_config(), prediction.processors());
                    let image = ServedImage::new(config, processors, map.clone(), key, cohort.begins);
                    Medium::Image(Box::new(image))
                }
                None if front.files.is_some() => {
                    Medium::Loop(LoopDevice::new(blocks, front.read_ahead_pages, key))
                }
                None => Medium::Raw,
            };
            Client {
                key,
                cohort: *cohort,
                program,
                front,
                medium,
                cache: Caches::new(blocks, front.read_ahead_pages, front.files, front.inode_ahead_blocks),
                next: 0,
                call: None,
                own: Nanos::ZERO,
                asked: BTreeMap::new(),
                next_asked: 0,
                waiting: None,
                opened: Nanos::ZERO,
                waited: Nanos::ZERO,
                waits: 0,
                ready: None,
            }
        };
        let clients = (0..).zip(cohorts).map(client).collect();
        Self { clients, of: Vec::new(), file_bytes: prediction.file_bytes }
    }

    /// How each of them went that got ready.
    pub(crate) fn started(&self) -> Vec<Started> {
        let of = |client: &Client<'_>| Some((client.started()?, client.cohort.clients.get() as usize));
        self.clients
            .iter()
            .filter_map(of)
            .flat_map(|(start, count)| std::iter::repeat_n(start, count))
            .collect()
    }

    /// Notes whose requests those are that were made since the last time.
    fn note(&mut self, io: &Io, client: usize) {
        self.of.resize(io.requests().len(), client);
    }

    fn end(&self, io: &mut Io) {
        if self.clients.iter().all(|client| client.ready.is_some()) {
            io.stop();
        }
    }
}

impl Workload for Starts<'_> {
    fn start(&mut self, io: &mut Io) {
        for (number, client) in (0..).zip(&self.clients) {
            io.wake(client.cohort.begins, number << 32 | BEGINS);
        }
    }

    fn handle_first_byte(&mut self, io: &mut Io, requests: &[usize]) {
        for request in requests {
            let number = self.of[*request];
            if let Medium::Image(served) = &mut self.clients[number].medium {
                served.handle_first_byte(io, *request);
            }
            self.note(io, number);
        }
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        let number = self.of[request];
        self.clients[number].handle_done(io, request);
        self.note(io, number);
        self.end(io);
    }

    fn handle_wake(&mut self, io: &mut Io, token: u64) {
        let number = ((token & !SERVED) >> 32) as usize;
        let client = &mut self.clients[number];
        if token & SERVED == 0 && token & BEGINS != 0 {
            client.begin(io, self.file_bytes);
        } else if token & SERVED == 0 {
            client.handle_computed(io);
        } else if let Medium::Image(served) = &mut client.medium {
            served.handle_wake(io, token);
            client.handle_events(io);
        }
        self.note(io, number);
        self.end(io);
    }
}
