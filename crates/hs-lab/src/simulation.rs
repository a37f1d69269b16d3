//! A virtual clock, with the engine's queue before the model of a medium.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hs_device::{Device, Service, WritableDevice};
use hs_engine::queue::{
    Class, ClientKey, Direction, Dispatch, Poll, Queue, QueueConfig, Request, RequestTag, Ticket,
};
use hs_units::{ByteRange, Nanos};

/// Whatever serves requests in time.
pub trait Station {
    /// Hands a request over at `now`, and learns when it will be served.
    fn serve(&mut self, now: Nanos, direction: Direction, range: ByteRange) -> Service;
}

impl Station for Box<dyn Station> {
    fn serve(&mut self, now: Nanos, direction: Direction, range: ByteRange) -> Service {
        (**self).serve(now, direction, range)
    }
}

impl Station for Box<dyn Device> {
    fn serve(&mut self, now: Nanos, direction: Direction, range: ByteRange) -> Service {
        assert!(direction == Direction::Read, "the medium can only be read");
        self.submit(now, range)
    }
}

impl Station for Box<dyn WritableDevice> {
    fn serve(&mut self, now: Nanos, direction: Direction, range: ByteRange) -> Service {
        match direction {
            Direction::Read => self.submit(now, range),
            Direction::Write => self.write(now, range),
        }
    }
}

/// Programs that want something from a medium.
///
/// Requests are named by their place in [`Io::requests`], in the order in which they were made.
pub trait Workload {
    /// The clock begins.
    fn start(&mut self, io: &mut Io);

    /// The first byte of a request to the medium, which holds these requests, has come.
    fn handle_first_byte(&mut self, _io: &mut Io, _requests: &[usize]) {}

    /// A request has ended.
    fn handle_done(&mut self, io: &mut Io, request: usize);

    /// A time that [`Io::wake`] asked for has come.
    fn handle_wake(&mut self, _io: &mut Io, _token: u64) {}
}

/// What became of one request.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// As it was asked for.
    pub class: Class,
    /// Who asked.
    pub client: ClientKey,
    /// Which way the bytes go.
    pub direction: Direction,
    /// Which bytes.
    pub range: ByteRange,
    /// When it was made.
    pub came: Nanos,
    /// When it went to the medium.
    pub sent: Option<Nanos>,
    /// When its last byte had come.
    pub done: Option<Nanos>,
}

impl Answer {
    /// From making the request to its end; `None` when it has not ended.
    #[must_use]
    pub fn latency(&self) -> Option<Nanos> {
        self.done.map(|done| done.saturating_sub(self.came))
    }
}

/// One request to the medium.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// What the queue made of one or several requests.
    pub dispatch: Dispatch,
    /// When it was sent.
    pub at: Nanos,
    /// When it was served.
    pub service: Service,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Wake(u64),
    FirstByte(usize),
    Done(usize),
    Poll,
}

/// The clock, the queue and the medium, as a workload sees them.
pub struct Io {
    now: Nanos,
    queue: Queue,
    station: Box<dyn Station>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    requests: Vec<Answer>,
    tickets: Vec<Ticket>,
    sent: Vec<Sent>,
    stopped: bool,
}

impl Io {
    /// The time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Asks for something; returns its number.
    pub fn request(
        &mut self,
        class: Class,
        client: ClientKey,
        direction: Direction,
        range: ByteRange,
    ) -> usize {
        let number = self.requests.len();
        let request = Request { tag: RequestTag(number as u64), class, client, direction, range };
        self.tickets.push(self.queue.handle_request(self.now, request));
        self.requests.push(Answer {
            class,
            client,
            direction,
            range,
            came: self.now,
            sent: None,
            done: None,
        });
        number
    }

    /// Somebody waits now for a request.
    pub fn promote(&mut self, request: usize, class: Class) {
        self.queue.handle_promote(self.now, self.tickets[request], class);
    }

    /// Asks for a call of [`Workload::handle_wake`] with `token` at `then`.
    pub fn wake(&mut self, then: Nanos, token: u64) {
        self.plan(then, Event::Wake(token));
    }

    /// All requests made so far.
    #[must_use]
    pub fn requests(&self) -> &[Answer] {
        &self.requests
    }

    /// The queue, to open and close connections.
    pub const fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// How the request to the medium is served that holds `request`, which is there.
    ///
    /// # Panics
    /// When it has not been sent.
    #[must_use]
    pub fn service_of(&self, request: usize) -> Sent {
        let range = self.requests[request].range;
        let sent = self.requests[request].sent.expect("the request was sent");
        let holds = |each: &&Sent| each.at == sent && each.dispatch.range.offset <= range.offset;
        let found =
            self.sent.iter().rev().filter(holds).find(|each| range.end() <= each.dispatch.range.end());
        *found.expect("what was sent is on record")
    }

    /// The simulation ends after this.
    pub const fn stop(&mut self) {
        self.stopped = true;
    }

    fn plan(&mut self, then: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((then, self.sequence, event)));
    }

    /// Sends to the medium what the queue lets through.
    fn pump(&mut self) {
        loop {
            match self.queue.poll(self.now) {
                Poll::Dispatch(dispatch) => {
                    let service = self.station.serve(self.now, dispatch.direction, dispatch.range);
                    for tag in self.queue.tags(dispatch.id) {
                        self.requests[tag.0 as usize].sent = Some(self.now);
                    }
                    let number = self.sent.len();
                    self.sent.push(Sent { dispatch, at: self.now, service });
                    self.plan(service.first_byte, Event::FirstByte(number));
                    self.plan(service.done, Event::Done(number));
                }
                Poll::WaitUntil(then) => {
                    assert!(then > self.now, "the queue waits for the future");
                    return self.plan(then, Event::Poll);
                }
                Poll::Idle => return,
            }
        }
    }
}

/// What a run of a simulation leaves.
#[derive(Clone, Debug)]
pub struct Run {
    /// Every request, in the order in which they were made.
    pub requests: Vec<Answer>,
    /// Every request to the medium, in the order in which they were sent.
    pub sent: Vec<Sent>,
    /// When it ended.
    pub ended: Nanos,
}

/// Runs a workload until it stops, until nothing is left to happen, or until `until`.
pub fn simulate(
    config: QueueConfig,
    station: impl Station + 'static,
    until: Nanos,
    workload: &mut impl Workload,
) -> Run {
    let mut io = Io {
        now: Nanos::ZERO,
        queue: Queue::new(config),
        station: Box::new(station),
        events: BinaryHeap::new(),
        sequence: 0,
        requests: Vec::new(),
        tickets: Vec::new(),
        sent: Vec::new(),
        stopped: false,
    };
    workload.start(&mut io);
    io.pump();
    while let Some(Reverse((then, _, event))) = io.events.pop() {
        if then > until || io.stopped {
            break;
        }
        io.now = then;
        match event {
            Event::Wake(token) => workload.handle_wake(&mut io, token),
            Event::FirstByte(number) => {
                let id = io.sent[number].dispatch.id;
                let requests: Vec<usize> = io.queue.tags(id).map(|tag| tag.0 as usize).collect();
                workload.handle_first_byte(&mut io, &requests);
            }
            Event::Done(number) => {
                let Sent { dispatch, .. } = io.sent[number];
                let finished = io.queue.handle_done(then, dispatch.id, dispatch.range.len);
                let ended: Vec<usize> = finished.map(|finished| finished.tag.0 as usize).collect();
                for request in ended {
                    io.requests[request].done = Some(then);
                    workload.handle_done(&mut io, request);
                }
            }
            Event::Poll => {}
        }
        io.pump();
    }
    Run { requests: io.requests, sent: io.sent, ended: io.now }
}
