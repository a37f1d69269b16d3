//! A virtual clock, with the engine's queue before the model of a medium.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hs_device::{Device, FlowKey, LinkEvent, Service, WritableDevice};
use hs_engine::queue::{
    Class, ClientKey, Direction, Dispatch, Poll, Queue, QueueConfig, Request, RequestTag, Ticket,
};
use hs_units::{ByteRange, Nanos};

use crate::network::Network;

/// A medium that serves requests in time.
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

/// Programs that make requests to a medium.
///
/// Requests are named by their place in [`Io::requests`], in the order in which they were made.
pub trait Workload {
    /// The clock begins.
    fn start(&mut self, io: &mut Io);

    /// The first byte of a request to the medium, which holds these requests, has come.
    fn handle_first_byte(&mut self, _io: &mut Io, _requests: &[usize]) {}

    /// A request has ended.
    fn handle_done(&mut self, io: &mut Io, request: usize);

    /// A time that [`Io::wake`] was called for has come.
    fn handle_wake(&mut self, _io: &mut Io, _token: u64) {}
}

/// The result of one request.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The request.
    pub class: Class,
    /// The client.
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
    /// The dispatch that the queue made of one or several requests.
    pub dispatch: Dispatch,
    /// When it was sent.
    pub at: Nanos,
    /// When it was served; on a network its end is known only when it has come.
    pub service: Service,
}

/// The medium or the network.
enum Medium {
    /// It knows the end of a request when it is made.
    Station(Box<dyn Station>),
    /// It does not, as other requests may come.
    Network(Box<Network>),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Wake(u64),
    FirstByte(usize),
    Done(usize),
    Poll,
    Network,
}

/// The clock, the queue and the medium, as a workload sees them.
pub struct Io {
    now: Nanos,
    queue: Queue,
    medium: Medium,
    /// When to ask the network for its next event.
    asks_network: Option<Nanos>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    requests: Vec<Answer>,
    tickets: Vec<Ticket>,
    /// Of each request, the request to the medium that holds it, once it was sent.
    holders: Vec<Option<usize>>,
    sent: Vec<Sent>,
    stopped: bool,
}

impl Io {
    /// The time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Makes a request; returns its number.
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
        self.holders.push(None);
        number
    }

    /// A reader now waits for a request.
    pub fn promote(&mut self, request: usize, class: Class) {
        self.queue.handle_promote(self.now, self.tickets[request], class);
    }

    /// Plans a call of [`Workload::handle_wake`] with `token` at `then`.
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

    /// The request to the medium that holds `request`, which is there.
    ///
    /// # Panics
    /// When it has not been sent.
    #[must_use]
    pub fn sent_for(&self, request: usize) -> Sent {
        self.sent[self.holders[request].expect("the request was sent")]
    }

    /// Plans a call of [`Workload::handle_wake`] with `token` when the first `bytes` of the request to the
    /// medium that holds `request` have come.
    ///
    /// # Panics
    /// When it has not been sent.
    pub fn wake_on_arrival(&mut self, request: usize, bytes: u64, token: u64) {
        let holder = self.holders[request].expect("the request was sent");
        let Sent { dispatch, service, .. } = self.sent[holder];
        match &mut self.medium {
            Medium::Station(_) => {
                let then = service.arrival(bytes, dispatch.range.len);
                self.plan(then, Event::Wake(token));
            }
            Medium::Network(network) => network.mark(self.now, FlowKey(holder as u64), bytes, token),
        }
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
                    let number = self.sent.len();
                    let mut client = None;
                    for tag in self.queue.tags(dispatch.id) {
                        let request = tag.0 as usize;
                        self.requests[request].sent = Some(self.now);
                        self.holders[request] = Some(number);
                        client.get_or_insert(self.requests[request].client);
                    }
                    let service = match &mut self.medium {
                        Medium::Station(station) => {
                            let service = station.serve(self.now, dispatch.direction, dispatch.range);
                            self.plan(service.first_byte, Event::FirstByte(number));
                            self.plan(service.done, Event::Done(number));
                            service
                        }
                        Medium::Network(network) => {
                            let client = client.expect("a dispatch holds a request");
                            network.open(
                                self.now,
                                FlowKey(number as u64),
                                client,
                                dispatch.class,
                                dispatch.range,
                            );
                            Service { starts: self.now, first_byte: self.now, done: Nanos(u64::MAX) }
                        }
                    };
                    self.sent.push(Sent { dispatch, at: self.now, service });
                }
                Poll::WaitUntil(then) => {
                    assert!(then > self.now, "the queue waits for the future");
                    self.plan(then, Event::Poll);
                    return self.plan_network();
                }
                Poll::Idle => return self.plan_network(),
            }
        }
    }

    /// Plans a look at the network for when something happens on it.
    fn plan_network(&mut self) {
        let Medium::Network(network) = &self.medium else { return };
        let Some(then) = network.next_event() else { return };
        if self.asks_network.is_none_or(|planned| then < planned) {
            self.asks_network = Some(then);
            self.plan(then, Event::Network);
        }
    }

    /// The next event of the network.
    fn poll_network(&mut self) -> Option<LinkEvent> {
        match &mut self.medium {
            Medium::Station(_) => None,
            Medium::Network(network) => network.poll(self.now),
        }
    }
}

/// The result of a simulation.
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
    run(config, Medium::Station(Box::new(station)), until, workload).0
}

/// The same over a network, which is returned as it was at the end.
pub(crate) fn simulate_network(
    config: QueueConfig,
    network: Network,
    until: Nanos,
    workload: &mut impl Workload,
) -> (Run, Network) {
    let (run, medium) = run(config, Medium::Network(Box::new(network)), until, workload);
    match medium {
        Medium::Network(network) => (run, *network),
        Medium::Station(_) => unreachable!("it was a network"),
    }
}

fn run(config: QueueConfig, medium: Medium, until: Nanos, workload: &mut impl Workload) -> (Run, Medium) {
    let mut io = Io {
        now: Nanos::ZERO,
        queue: Queue::new(config),
        medium,
        asks_network: None,
        events: BinaryHeap::new(),
        sequence: 0,
        requests: Vec::new(),
        tickets: Vec::new(),
        holders: Vec::new(),
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
            Event::FirstByte(number) => first_byte(&mut io, number, workload),
            Event::Done(number) => done(&mut io, number, workload),
            Event::Poll => {}
            Event::Network => {
                if io.asks_network == Some(then) {
                    io.asks_network = None;
                }
                while let Some(event) = io.poll_network() {
                    match event {
                        LinkEvent::FirstByte(flow) => {
                            io.sent[flow.0 as usize].service.first_byte = then;
                            first_byte(&mut io, flow.0 as usize, workload);
                        }
                        LinkEvent::Passed(_, token) => workload.handle_wake(&mut io, token),
                        LinkEvent::Done(flow) => {
                            io.sent[flow.0 as usize].service.done = then;
                            done(&mut io, flow.0 as usize, workload);
                        }
                    }
                }
            }
        }
        io.pump();
    }
    (Run { requests: io.requests, sent: io.sent, ended: io.now }, io.medium)
}

fn first_byte(io: &mut Io, number: usize, workload: &mut impl Workload) {
    let id = io.sent[number].dispatch.id;
    let requests: Vec<usize> = io.queue.tags(id).map(|tag| tag.0 as usize).collect();
    workload.handle_first_byte(io, &requests);
}

fn done(io: &mut Io, number: usize, workload: &mut impl Workload) {
    let Sent { dispatch, .. } = io.sent[number];
    let finished = io.queue.handle_done(io.now, dispatch.id, dispatch.range.len);
    let ended: Vec<usize> = finished.map(|finished| finished.tag.0 as usize).collect();
    for request in ended {
        io.requests[request].done = Some(io.now);
        workload.handle_done(io, request);
    }
}
