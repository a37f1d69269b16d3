//! The store itself.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hs_units::{ByteRange, Nanos, Prng};
use parking_lot::Mutex;
use reqwest::header::HeaderMap;
use url::Url;

use super::address::{Locate, Located};
use super::flow::Flow;
use super::lanes::{LEAST_FOR_LANES, Lanes};
use super::line::Line;
use super::reader::Reader;
use super::reply::{Brings, Version, understand};
use super::transport::{Request, Transport};
use super::{HttpError, Patience};
use hs_store::{Clock, Completion, Counters, InService, Monotonic, RetryCounters, Sink, Store, StoreError};

/// When a user is told that a server is waited for.
const SAY_AFTER: Duration = Duration::from_secs(8);
/// How long a pause lasts at most after the store was closed.
const LOOK: Nanos = Nanos::from_millis(50);

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
    /// The clock that measures pauses.
    pub clock: Arc<dyn Clock>,
    /// Chooses pauses within their bounds.
    pub seed: u64,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            opening_bytes: 64 << 10,
            opening: Patience::for_opening(),
            patience: Patience::default(),
            remembered: None,
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
    locate: Arc<dyn Locate>,
    place: tokio::sync::Mutex<KnownLocation>,
    clock: Arc<dyn Clock>,
    jitter: Mutex<Prng>,
    counters: Arc<Counters>,
    retries: Arc<RetryCounters>,
    is_closed: AtomicBool,
}

/// Where the file was found.
#[derive(Default)]
struct KnownLocation {
    located: Option<Located>,
    /// When the location has to be looked up again.
    ages_at: Option<Nanos>,
    /// Where a redirect led, to go there directly.
    redirected: Option<Url>,
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
        let HttpOptions { opening_bytes, opening, patience, remembered, clock, seed } = options;
        let asking = Asking {
            transport,
            locate: locate.into(),
            place: tokio::sync::Mutex::default(),
            counters: Arc::new(Counters::new(Arc::clone(&clock))),
            clock,
            jitter: Mutex::new(Prng::new(seed)),
            retries: Arc::default(),
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

    /// The image's name, where the address itself proves it.
    #[must_use]
    pub fn certain_name(&self) -> Option<String> {
        self.remote.asking.locate.certain_name()
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
    /// One request; without bytes when the file is the one that was known before.
    async fn ask(&self, range: ByteRange, known: Known<'_>) -> Result<(Version, Option<Flow>), HttpError> {
        if self.is_closed.load(Relaxed) {
            return Err(HttpError::Closed);
        }
        let (opened, before) = match known {
            Known::Before(before) => (None, before),
            Known::Opened(version) => (Some(version), None),
        };
        let (url, headers, direct) = self.place().await?;
        let request = Request {
            url,
            headers,
            range,
            if_match: opened.and_then(Version::strong_tag).map(str::to_owned),
            if_none_match: before.and_then(|version| version.etag.clone()),
        };
        let mut in_service = InService::begin(&self.counters, range);
        let reply = self.transport.ask(&request).await?;
        let brings = match understand(reply.status, &reply.headers, range, opened) {
            // A redirect or a login has expired: begin again.
            Err(HttpError::Status { status: 401 | 403 | 404 | 410, .. }) if direct.may_have_aged => {
                drop((reply, in_service));
                *self.place.lock().await = KnownLocation::default();
                let (url, headers, _) = self.place().await?;
                in_service = InService::begin(&self.counters, range);
                let reply = self.transport.ask(&Request { url, headers, ..request }).await?;
                let brings = understand(reply.status, &reply.headers, range, opened)?;
                return self.begun(brings, reply, in_service, before);
            }
            brings => brings?,
        };
        if direct.is_original && reply.url != request.url {
            self.place.lock().await.redirected = Some(reply.url.clone());
        }
        self.begun(brings, reply, in_service, before)
    }

    fn begun(
        &self,
        brings: Brings,
        reply: super::transport::Reply,
        in_service: InService,
        before: Option<&Version>,
    ) -> Result<(Version, Option<Flow>), HttpError> {
        match (brings, before) {
            (Brings::Bytes(came, version), _) => Ok((version, Some(Flow::new(reply.body, came, in_service)))),
            (Brings::Unchanged, Some(before)) => Ok((before.clone(), None)),
            (Brings::Unchanged, None) => Err(HttpError::Nonsense {
                reason: "it says that nothing has changed, which was not asked".to_owned(),
            }),
        }
    }

    /// Looks up where the file is.
    async fn locate(&self) -> Result<Located, HttpError> {
        if !self.locate.ages() {
            return self.locate.locate();
        }
        // It may make requests of its own.
        let (locate, found) = (Arc::clone(&self.locate), Arc::new(Mutex::new(None)));
        let out = Arc::clone(&found);
        self.transport.apart(Box::new(move || *out.lock() = Some(locate.locate()))).await;
        let located = found.lock().take();
        located.unwrap_or(Err(HttpError::Closed))
    }

    /// Where to send the request, and with which headers.
    async fn place(&self) -> Result<(Url, HeaderMap, Direct), HttpError> {
        let mut place = self.place.lock().await;
        if place.ages_at.is_some_and(|ages_at| ages_at <= self.clock.now()) {
            *place = KnownLocation::default();
        }
        let fresh = place.located.is_none();
        if fresh {
            let located = self.locate().await?;
            // A request that is made at the very end of that time must still be answered.
            place.ages_at = located.lasts.map(|lasts| self.clock.now() + Nanos::from(lasts / 2));
            place.located = Some(located);
        }
        let Some(located) = &place.located else { unreachable!("set above") };
        Ok(match &place.redirected {
            Some(url) => {
                let headers = if url.origin() == located.url.origin() {
                    located.headers.clone()
                } else {
                    HeaderMap::new()
                };
                (url.clone(), headers, Direct { is_original: false, may_have_aged: true })
            }
            None => {
                let may_have_aged = !fresh && self.locate.ages();
                (located.url.clone(), located.headers.clone(), Direct { is_original: true, may_have_aged })
            }
        })
    }

    /// Waits before the next try, or returns the error when there is none.
    async fn wait(&self, tries: &mut Tries, error: HttpError) -> Result<(), HttpError> {
        if !error.is_transient() {
            return Err(error);
        }
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
        log::debug!("{}: {error}; again in {pause:.1?}", self.locate.name());
        while self.clock.now() < then {
            if self.is_closed.load(Relaxed) {
                return Err(HttpError::Closed);
            }
            self.transport.pause(&*self.clock, then.min(self.clock.now() + LOOK)).await;
        }
        Ok(())
    }
}

/// Where a request's address came from.
#[derive(Clone, Copy)]
struct Direct {
    /// It is the file's own, not one that a redirect led to.
    is_original: bool,
    /// A refusal may mean that the address or login has expired.
    may_have_aged: bool,
}

/// Tries of one request.
pub(super) struct Tries {
    patience: Patience,
    done: u32,
    /// When the first was made, or progress was last seen.
    began: Nanos,
    /// A user was told that they go on.
    has_said: bool,
}

impl Tries {
    const fn new(patience: Patience, began: Nanos) -> Self {
        Self { patience, done: 0, began, has_said: false }
    }

    /// Says once that a server is waited for, when that takes long.
    fn say_once(&mut self, name: &str, error: &HttpError, now: Nanos) {
        let total = self.patience.total;
        let waits = now.saturating_sub(self.began) >= Nanos::from(SAY_AFTER.min(total / 2));
        if waits
            && !self.has_said
            && self.patience.tries > Patience::for_opening().tries
            && error.is_transient()
        {
            self.has_said = true;
            log::warn!("{name}: {error}; it is asked again for {} s in all", total.as_secs());
        }
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

    fn close(&self) {
        self.remote.asking.is_closed.store(true, Relaxed);
        self.remote.asking.transport.close();
    }
}

#[cfg(test)]
mod tests;
