//! Which client is sent the next piece, where the server is told the rate of its link.
//!
//! The link is a medium of the engine's queue: it serves one piece at a time, and a client has one share of
//! it, however many connections it has (docs/ENGINE.md). That works only while pieces wait here and not in
//! the buffers of the kernel, so the server must know the link's rate: see [`Rates`]. A client's own limit
//! comes before that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use hs_engine::queue::{
    ByPosition, Class, ClassConfig, ClientKey, Direction, ElevatorKind, FairnessConfig, MediumTraits, Poll,
    Queue, QueueConfig, Request, RequestTag, Ticket,
};
use hs_units::{ByteRange, Nanos};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// How fast a server may send, in bytes a second of content; `None` is as fast as it can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// To all clients together. A little less than what the link carries, so that pieces wait here: each
    /// client that wants something has one share, however many connections it has.
    pub together: Option<u64>,
    /// To one client: an address, or a /64 of IPv6.
    pub client: Option<u64>,
}

/// Bytes read at once: as many as a stream of a file reads.
const MOST_PIECE_BYTES: u64 = 256 << 10;
/// Where there is a limit, a piece lasts for no longer than this, or the pieces behind it wait long.
const LONGEST_PIECE: Nanos = Nanos::from_millis(20);
/// And is no smaller, or sending it costs more than its bytes.
const LEAST_PIECE_BYTES: u64 = 16 << 10;
/// How many pieces a client may be ahead of another that waits as well: a client that asks for one piece
/// after another must not lose its share in between.
const LEAD_PIECES: u64 = 4;
/// Limits of clients that are remembered before those are forgotten that are over.
const REMEMBERED: usize = 1024;
/// A link, or a client, that was idle for a moment is served faster by so much afterwards: timers wake late.
const CATCHES_UP: Nanos = Nanos::from_millis(10);

/// Lets pieces go at the rates.
pub(super) struct Pacer {
    rates: Rates,
    state: Mutex<LinkQueue>,
    changed: Notify,
    started: Instant,
}

struct LinkQueue {
    queue: Queue,
    /// The pieces that wait, by tag.
    waiting: Vec<Option<oneshot::Sender<()>>>,
    free_tags: Vec<u64>,
    /// When each client may have more.
    clients: HashMap<ClientKey, Nanos>,
    /// With so many of them, those are forgotten that may have more at once.
    most_clients: usize,
}

/// A piece that waits. It leaves the queue when this is dropped.
struct QueuedPiece<'a> {
    pacer: &'a Pacer,
    ticket: Ticket,
    tag: u64,
}

impl Pacer {
    /// Nothing waits.
    pub(super) fn new(rates: Rates) -> Arc<Self> {
        let state = LinkQueue {
            queue: Queue::new(link(piece_bytes(rates))),
            waiting: Vec::new(),
            free_tags: Vec::new(),
            clients: HashMap::new(),
            most_clients: REMEMBERED,
        };
        Arc::new(Self { rates, state: Mutex::new(state), changed: Notify::new(), started: Instant::now() })
    }

    /// Whether pieces have to wait at all.
    pub(super) fn is_limited(&self) -> bool {
        self.rates != Rates::default()
    }

    /// Bytes of a piece at most.
    pub(super) fn piece_bytes(&self) -> u64 {
        piece_bytes(self.rates)
    }

    /// Waits until a client may have so many bytes.
    pub(super) async fn wait(self: Arc<Self>, client: ClientKey, bytes: u64) {
        if let Some(rate) = self.rates.client {
            let then = self.state.lock().reserve(self.now(), client, lasting(bytes, rate));
            self.sleep_until(then).await;
        }
        if self.rates.together.is_some() {
            let (piece, may_go) = self.enqueue(client, bytes);
            // A server that ends lets all pieces go.
            let _ = may_go.await;
            drop(piece);
        }
    }

    /// Lets pieces go at the link's rate, without an end.
    pub(super) async fn run(self: Arc<Self>) {
        let Some(rate) = self.rates.together else { return };
        let mut free = Nanos::ZERO;
        loop {
            let now = self.now();
            let (polled, is_wanted) = self.state.lock().next(now);
            match polled {
                Poll::Dispatch(dispatch) => {
                    if is_wanted {
                        free = free.max(now.saturating_sub(CATCHES_UP)) + lasting(dispatch.range.len, rate);
                        // The client of this piece asks for another while it lasts, however late this task
                        // is.
                        tokio::task::yield_now().await;
                        self.sleep_until(free).await;
                    }
                    drop(self.state.lock().queue.handle_done(self.now(), dispatch.id, 0));
                }
                Poll::WaitUntil(then) => {
                    let until = tokio::time::Instant::from_std(self.started + then.into());
                    let _ = tokio::time::timeout_at(until, self.changed.notified()).await;
                }
                Poll::Idle => self.changed.notified().await,
            }
        }
    }

    fn enqueue(&self, client: ClientKey, bytes: u64) -> (QueuedPiece<'_>, oneshot::Receiver<()>) {
        let (go, may_go) = oneshot::channel();
        let mut state = self.state.lock();
        let tag = state.free_tags.pop().unwrap_or(state.waiting.len() as u64);
        if tag as usize == state.waiting.len() {
            state.waiting.push(None);
        }
        state.waiting[tag as usize] = Some(go);
        let request = Request {
            tag: RequestTag(tag),
            class: Class::Demand,
            client,
            direction: Direction::Read,
            range: ByteRange::new(0, bytes),
        };
        let ticket = state.queue.handle_request(self.now(), request);
        drop(state);
        self.changed.notify_one();
        (QueuedPiece { pacer: self, ticket, tag }, may_go)
    }

    async fn sleep_until(&self, then: Nanos) {
        if then > self.now() {
            tokio::time::sleep_until(tokio::time::Instant::from_std(self.started + then.into())).await;
        }
    }

    fn now(&self) -> Nanos {
        self.started.elapsed().into()
    }
}

impl LinkQueue {
    /// The piece that goes next, which learns of it, and whether it is still wanted.
    fn next(&mut self, now: Nanos) -> (Poll, bool) {
        let polled = self.queue.poll(now);
        let mut is_wanted = false;
        if let Poll::Dispatch(dispatch) = &polled {
            for tag in self.queue.tags(dispatch.id) {
                is_wanted |= self.waiting[tag.0 as usize].take().is_some_and(|go| go.send(()).is_ok());
            }
        }
        (polled, is_wanted)
    }

    /// When the client may have what lasts for so long at its rate; it counts as sent then.
    fn reserve(&mut self, now: Nanos, client: ClientKey, lasts: Nanos) -> Nanos {
        if self.clients.len() >= self.most_clients {
            self.clients.retain(|_, free| *free > now);
            self.most_clients = REMEMBERED.max(2 * self.clients.len());
        }
        let free = self.clients.entry(client).or_default();
        let then = (*free).max(now.saturating_sub(CATCHES_UP));
        *free = then + lasts;
        then
    }
}

impl Drop for QueuedPiece<'_> {
    fn drop(&mut self) {
        let now = self.pacer.now();
        let mut state = self.pacer.state.lock();
        state.queue.handle_cancel(now, self.ticket);
        state.waiting[self.tag as usize] = None;
        state.free_tags.push(self.tag);
    }
}

/// A link: one piece at a time, first of the client that has had least.
fn link(piece_bytes: u64) -> QueueConfig {
    let traits = MediumTraits { rotational: false, overlaps: false, bytes_per_s: None };
    let config = QueueConfig::for_medium(traits);
    let classes = config.classes.map(|class| ClassConfig { merge_bytes: 0, depth: 1, ..class });
    let lead_bytes = LEAD_PIECES * piece_bytes;
    let fairness = FairnessConfig { lead_bytes, together_bytes: lead_bytes, request_cost_bytes: 0 };
    QueueConfig {
        elevator: ElevatorKind::Headstart,
        classes,
        by_position: ByPosition::Never,
        fairness: Some(fairness),
        ..config
    }
}

/// What is sent at once: as much as a stream of a file reads, or what lasts for a moment.
fn piece_bytes(rates: Rates) -> u64 {
    let slowest = rates.together.into_iter().chain(rates.client).min();
    let lasts = |rate: u64| (rate as f64 * LONGEST_PIECE.as_secs_f64()) as u64;
    slowest.map_or(MOST_PIECE_BYTES, |rate| lasts(rate).clamp(LEAST_PIECE_BYTES, MOST_PIECE_BYTES))
}

fn lasting(bytes: u64, rate: u64) -> Nanos {
    Nanos::from_secs_f64(bytes as f64 / rate.max(1) as f64)
}

#[cfg(test)]
mod tests;
