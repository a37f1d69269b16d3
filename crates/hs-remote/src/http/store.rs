//! The store itself.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hs_units::{ByteRange, Nanos, Prng};
use parking_lot::Mutex;

use super::address::Locate;
use super::current_address::{CurrentAddress, Target};
use super::flow::Flow;
use super::lanes::{LEAST_FOR_LANES, Lanes};
use super::line::Line;
use super::marks::Marks;
use super::patience::Tries;
use super::reader::Reader;
use super::reply::{Brings, Expected, Version, length_of_head, understand};
use super::transport::{Reply, Request, Transport};
use super::{HttpError, Patience};
use hs_store::{Clock, Completion, Counters, InService, Monotonic, RetryCounters, Sink, Store, StoreError};

/// How long a pause lasts at most after the store was closed.
const LOOK: Nanos = Nanos::from_millis(50);
/// Addresses that one request is refused at before it asks the file's own address itself: one that is good
/// for a single request is always used up by another.
const SHARED_ADDRESSES: u32 = 4;
/// Addresses that one request is refused at before its reader gets an error.
const MOST_ADDRESSES: u32 = 8;

/// How a remote file is opened.
#[derive(Clone)]
pub struct HttpOptions {
    /// Bytes of the first request; a reader of the file's start gets them without another request.
    pub opening_bytes: u64,
    /// How often the first request is made again.
    pub opening: Patience,
    /// How often later requests are made again.
    pub patience: Patience,
    /// The version of the file that was opened last, if known: if it is unchanged, opening brings no bytes.
    pub remembered: Option<Version>,
    /// Finds the file's length in its first bytes, for servers that do not say it.
    pub measure: Option<Measure>,
    /// The clock that measures pauses.
    pub clock: Arc<dyn Clock>,
    /// Chooses pauses within their bounds.
    pub seed: u64,
}

/// Where the first bytes of a file say how long it is.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Bytes that are needed.
    pub bytes: usize,
    /// The length that they tell, if they are of such a file.
    pub length: fn(&[u8]) -> Option<u64>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            opening_bytes: 64 << 10,
            opening: Patience::for_opening(),
            patience: Patience::default(),
            remembered: None,
            measure: None,
            clock: Arc::new(Monotonic::new()),
            // Not a secret: it only has to differ between processes.
            seed: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_nanos() as u64)
                ^ u64::from(std::process::id()) << 32,
        }
    }
}

/// A file on a web server.
pub struct HttpStore {
    remote: Arc<Remote>,
    /// Brings an announced stream by several responses at once.
    lanes: Mutex<Option<Arc<Lanes>>>,
}

/// The file, shared by its readers.
pub(super) struct Remote {
    name: String,
    asking: Asking,
    version: Version,
    unchanged: bool,
    patience: Patience,
    line: Arc<Line>,
}

/// What a request needs.
struct Asking {
    transport: Arc<dyn Transport>,
    name: String,
    place: CurrentAddress,
    marks: Marks,
    measure: Option<Measure>,
    clock: Arc<dyn Clock>,
    jitter: Mutex<Prng>,
    counters: Arc<Counters>,
    retries: Arc<RetryCounters>,
    /// Why requests are made again, until one is answered.
    trouble: Mutex<Option<HttpError>>,
    is_closed: AtomicBool,
}

impl HttpStore {
    /// Opens the file that `locate` finds.
    ///
    /// # Errors
    /// [`StoreError::Open`] when there is no file, or its server does not support ranges.
    pub fn open(
        locate: Box<dyn Locate>,
        transport: Arc<dyn Transport>,
        options: HttpOptions,
    ) -> Result<Self, StoreError> {
        let name = locate.name();
        let HttpOptions { opening_bytes, opening, patience, remembered, measure, clock, seed } = options;
        let asking = Asking {
            transport,
            name: name.clone(),
            place: CurrentAddress::new(locate.into()),
            marks: Marks::default(),
            measure,
            counters: Arc::new(Counters::new(Arc::clone(&clock))),
            clock,
            jitter: Mutex::new(Prng::new(seed)),
            retries: Arc::default(),
            trouble: Mutex::default(),
            is_closed: AtomicBool::new(false),
        };
        let range = ByteRange::new(0, opening_bytes.max(1));
        let mut tries = Tries::new(opening, asking.clock.now());
        let transport = &*asking.transport;
        let found = transport.while_open(async {
            loop {
                match asking.ask(range, Known::Before(remembered.as_ref())).await {
                    Ok(found) => break Ok(found),
                    Err(error) => {
                        tries.say_once(&name, &error, asking.clock.now());
                        asking.wait(&mut tries, error).await?;
                    }
                }
            }
        });
        let (version, flow) = transport
            .wait_for(found)
            .map_err(|error| StoreError::Open { path: name.clone(), source: error.into_io() })?;
        let unchanged = flow.is_none();
        let line = Arc::<Line>::default();
        if let Some(flow) = flow {
            line.park(flow);
        }
        let remote = Arc::new(Remote { name, asking, version, unchanged, patience, line });
        Ok(Self { remote, lanes: Mutex::default() })
    }

    /// What distinguishes the file from one that replaces it.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.remote.version
    }

    /// Whether the file is still the one that was remembered.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.remote.unchanged
    }

    /// The first `bytes` of the file, or all it has, without taking them from the response that opened it;
    /// none where that brought nothing, or something was read.
    #[must_use]
    pub fn peek(&self, bytes: usize) -> Option<Vec<u8>> {
        let mut flow = self.remote.line.take_unread()?;
        let clock = &*self.remote.asking.clock;
        let transport = self.remote.transport();
        let peeked = transport.wait_for(async { flow.peek(bytes, clock).await.map(<[u8]>::to_vec) });
        self.remote.line.park(flow);
        peeked.ok()
    }

    /// The image's name, where the address itself proves it.
    #[must_use]
    pub fn certain_name(&self) -> Option<String> {
        self.remote.asking.place.locate().certain_name()
    }

    /// Says that a layer above knows the image's name: then its digests decide which bytes are right, and not
    /// entity tags and dates, which differ between the servers of a content delivery network.
    pub fn digests_decide(&self) {
        self.remote.asking.marks.prove();
    }

    /// Counts of requests: each request over HTTP is one.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.remote.asking.counters)
    }

    /// Counts of requests that were made again.
    #[must_use]
    pub fn retries(&self) -> Arc<RetryCounters> {
        Arc::clone(&self.remote.asking.retries)
    }

    /// Hands over what a reader brings.
    fn take(&self, mut reader: Reader, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        let transport = self.remote.transport();
        // Not more than a piece at a time: while the sink works, other threads wait for their requests.
        while let Some(piece) = transport.wait_for(reader.next_while_open())? {
            if sink(&piece).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// For the next part of a stream, which the lanes bring as far as they can.
    fn reader(&self, range: ByteRange) -> Reader {
        Reader::stream(Arc::clone(&self.remote), range, self.lanes.lock().clone())
    }
}

impl Remote {
    /// What makes the requests.
    pub(super) fn transport(&self) -> &dyn Transport {
        &*self.asking.transport
    }

    pub(super) const fn line(&self) -> &Arc<Line> {
        &self.line
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.asking.clock
    }

    pub(super) fn tries(&self) -> Tries {
        Tries::new(self.patience, self.asking.clock.now())
    }

    /// Waits before the next try, or returns the error that a reader of `rest` gets.
    pub(super) async fn wait(
        &self,
        tries: &mut Tries,
        rest: ByteRange,
        error: HttpError,
    ) -> Result<(), StoreError> {
        self.asking.wait(tries, error).await.map_err(|error| self.given_up(rest, error))
    }

    /// The error that a reader gets.
    pub(super) fn given_up(&self, rest: ByteRange, error: HttpError) -> StoreError {
        if matches!(error, HttpError::Closed) {
            return StoreError::Closed { path: self.name.clone() };
        }
        let error = StoreError::read(&self.name, rest, error.into_io());
        self.asking.retries.gave_up(None, &error);
        error
    }

    /// Requests what lies from `at` to `end`, as far as the file goes.
    pub(super) async fn ask(&self, at: u64, end: u64) -> Result<Flow, HttpError> {
        let range = ByteRange::new(at, end.min(self.version.len) - at);
        let (_, flow) = self.asking.ask(range, Known::Opened(&self.version)).await?;
        flow.ok_or(HttpError::Status { status: 304, retry_after: None })
    }
}

/// What is known of a file when a request for it is made.
#[derive(Clone, Copy)]
enum Known<'a> {
    /// It was this one the last time, or this is the first request.
    Before(Option<&'a Version>),
    /// It must be this one.
    Opened(&'a Version),
}

impl Asking {
    /// One request, to as many addresses as that takes; without bytes when the file is the one that was known
    /// before.
    async fn ask(&self, range: ByteRange, known: Known<'_>) -> Result<(Version, Option<Flow>), HttpError> {
        let (opened, before) = match known {
            Known::Before(before) => (None, before),
            Known::Opened(version) => (Some(version), None),
        };
        let expected = Expected { opened, is_proven: self.marks.are_proven() };
        let (mut tag, mut was_refused, mut addresses) = (self.marks.matched(opened), false, 0);
        loop {
            if self.is_closed.load(Relaxed) {
                return Err(HttpError::Closed);
            }
            let is_direct = addresses >= SHARED_ADDRESSES;
            let target = self.place.target(&*self.transport, &*self.clock, is_direct).await?;
            let request = Request {
                url: target.url.clone(),
                headers: target.headers.clone(),
                range,
                if_match: tag.map(str::to_owned),
                if_none_match: before.and_then(|version| version.etag.clone()),
                only_head: false,
            };
            let in_service = InService::begin(&self.counters, range);
            let reply = match self.transport.ask(&request).await {
                Ok(reply) => reply,
                Err(error) => return Err(target.failed(error)),
            };
            let understood = understand(reply.status, &reply.headers, range, expected);
            match understood {
                // The tag of an answer without the condition says whether it is another file.
                Err(_) if reply.status == 412 && tag.is_some() => {
                    target.found(&reply.url);
                    (tag, was_refused) = (None, true);
                }
                Err(HttpError::Status { status, .. })
                    if may_be_expiry(status) && target.may_have_aged && addresses < MOST_ADDRESSES =>
                {
                    addresses += 1;
                    target.refused();
                }
                Err(error @ HttpError::Status { .. }) => {
                    return Err(target.failed(self.place.locate().explained(error)));
                }
                understood => {
                    target.found(&reply.url);
                    let (known, understood) = (Answered { opened, before, was_refused }, understood?);
                    *self.trouble.lock() = None;
                    return self.begun(understood, reply, in_service, known).await;
                }
            }
        }
    }

    /// Goes on with an answer whose head is as it should be.
    async fn begun(
        &self,
        brings: Brings,
        reply: Reply,
        in_service: InService,
        known: Answered<'_>,
    ) -> Result<(Version, Option<Flow>), HttpError> {
        match (brings, known.before) {
            (Brings::Bytes(came, version), _) => {
                if let Some(opened) = known.opened {
                    self.marks.check(&self.name, opened, &version, known.was_refused)?;
                }
                Ok((version, Some(Flow::new(reply.body, came, in_service))))
            }
            (Brings::Unmeasured(came, mut version), _) => {
                let mut flow = Flow::new(reply.body, came, in_service);
                version.len = self.length(&mut flow, &version).await?;
                Ok((version, Some(flow)))
            }
            (Brings::Unchanged, Some(before)) => Ok((before.clone(), None)),
            (Brings::Unchanged, None) => Err(HttpError::Nonsense {
                reason: "it says that nothing has changed, which was not asked".to_owned(),
            }),
        }
    }

    /// The length of a file of which the server sends parts without saying it.
    async fn length(&self, flow: &mut Flow, version: &Version) -> Result<u64, HttpError> {
        let (mut len, mut failed) = (self.place.locate().size(), None);
        if len.is_none() {
            let target = self.place.target(&*self.transport, &*self.clock, false).await?;
            match self.transport.ask(&head_request(&target)).await {
                Ok(reply) => len = length_of_head(reply.status, &reply.headers, version),
                Err(error) => failed = Some(error),
            }
        }
        if let (None, Some(measure)) = (len, self.measure) {
            len = (measure.length)(flow.peek(measure.bytes, &*self.clock).await?);
        }
        match len {
            Some(len) if len < flow.end() => {
                let reason = format!("bytes up to {} of a file of {len} bytes", flow.end());
                Err(HttpError::Nonsense { reason })
            }
            Some(len) => Ok(len),
            None => Err(failed.unwrap_or(HttpError::NoLength)),
        }
    }

    /// Waits before the next try, or returns the error when there is none.
    async fn wait(&self, tries: &mut Tries, error: HttpError) -> Result<(), HttpError> {
        if !error.is_transient() {
            return Err(error);
        }
        *self.trouble.lock() = Some(error.clone());
        let pause = tries.patience.pause(tries.done, error.retry_after(), &mut self.jitter.lock());
        let Some(pause) = pause else { return Err(error) };
        let (now, end) = (self.clock.now(), tries.began + Nanos::from(tries.patience.total));
        let then = now + Nanos::from(pause.max(Duration::from_nanos(1)));
        // The last try is made at the end, unless the server asks for a longer pause.
        if now >= end || (then > end && error.retry_after().is_some()) {
            return Err(error);
        }
        let then = then.min(end);
        tries.done += 1;
        self.retries.tried_again();
        log::debug!("{}: {error}; again in {pause:.1?}", self.name);
        while self.clock.now() < then {
            if self.is_closed.load(Relaxed) {
                return Err(HttpError::Closed);
            }
            self.transport.pause(&*self.clock, then.min(self.clock.now() + LOOK)).await;
        }
        Ok(())
    }
}

/// What was known when a request was made that is answered now.
struct Answered<'a> {
    opened: Option<&'a Version>,
    before: Option<&'a Version>,
    /// The server has refused the same request with `If-Match`.
    was_refused: bool,
}

/// Whether an address or login that was good may have expired. Stores of objects answer 403, or 400
/// (`ExpiredToken`).
const fn may_be_expiry(status: u16) -> bool {
    matches!(status, 400 | 401 | 403 | 404 | 410)
}

fn head_request(target: &Target<'_>) -> Request {
    Request {
        url: target.url.clone(),
        headers: target.headers.clone(),
        range: ByteRange::new(0, 1),
        if_match: None,
        if_none_match: None,
        only_head: true,
    }
}

impl Store for HttpStore {
    fn len(&self) -> u64 {
        self.remote.version.len
    }

    fn name(&self) -> &str {
        &self.remote.name
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let range = ByteRange::new(offset, buf.len() as u64);
        StoreError::check_range(self, range)?;
        if range.len == 0 {
            return Ok(());
        }
        let mut filled = 0;
        self.take(Reader::read(Arc::clone(&self.remote), range), &mut |piece| {
            buf[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
            ControlFlow::Continue(())
        })
    }

    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        StoreError::check_range(self, range)?;
        self.take(self.reader(range), sink)
    }

    fn can_begin(&self) -> bool {
        true
    }

    fn begin(&self, range: ByteRange, mut completion: Box<dyn Completion>) {
        if let Err(error) = StoreError::check_range(self, range) {
            completion.done(Err(error));
            return;
        }
        let (mut reader, remote) = (self.reader(range), Arc::clone(&self.remote));
        let request = async move {
            let bringing = async {
                while let Some(piece) = reader.next().await? {
                    if completion.piece(&piece).is_break() {
                        break;
                    }
                }
                Ok(())
            };
            let brought = remote.transport().while_open(async { Ok(bringing.await) }).await;
            // The next request for the same response waits for this.
            drop(reader);
            completion.done(brought.unwrap_or_else(|closed| Err(remote.given_up(range, closed))));
        };
        // When it cannot be spawned it is dropped, and with it the completion.
        if !self.remote.transport().spawn(Box::pin(request)) {
            log::warn!("{}: no thread can be started for requests", self.remote.name);
        }
    }

    fn expect_stream(&self, range: ByteRange) {
        self.remote.line.expect(range);
    }

    fn expect_most(&self, range: ByteRange) {
        self.expect_stream(range);
        if range.fits_in(self.len()) && range.len >= LEAST_FOR_LANES {
            *self.lanes.lock() = Some(Arc::new(Lanes::new(Arc::clone(&self.remote), range)));
        }
    }

    fn trouble(&self) -> Option<String> {
        self.remote.asking.trouble.lock().as_ref().map(ToString::to_string)
    }

    fn close(&self) {
        self.remote.asking.is_closed.store(true, Relaxed);
        self.remote.asking.transport.close();
    }
}

#[cfg(test)]
mod tests;
