//! Requests by `reqwest`, for threads that block and for requests that need none.
//!
//! The threads that wait drive all connections: a stream's bytes go from its connection to their consumer
//! without a switch between threads, which cost as much as receiving them. Requests for which no thread waits
//! ([`Transport::spawn`]) are driven by one thread for all of them, which exists from the first of them on.
//! Until then only the kernel works while no thread waits. A connection that its server has closed is found
//! by the next request, which takes another one ([`kept`]).
//!
//! HTTP/1.1 only: demand has to overtake the prefetch, and does so on a connection of its own. (With HTTP/2
//! all requests of a host share one connection, its window, and every lost packet.)

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hs_store::Clock;
use hs_units::Nanos;
use parking_lot::Mutex;
use reqwest::Method;
use reqwest::redirect::{Attempt, Policy};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;

use super::HttpError;
use super::authorities::Authorities;
use super::proxies::Proxies;
use super::transport::{Body, Pending, Reply, Request, Timeouts, Transport};

mod kept;

/// Redirects that are followed for one request.
const MOST_REDIRECTS: usize = 10;
/// Idle connections that are kept: those of a reader's eight threads and two streams.
const KEPT_CONNECTIONS: usize = 10;

/// The largest answer that is accepted: a manifest may have this much (distribution specification 1.1,
/// "Pushing Manifests"), and nothing else has more.
const MOST_ANSWER_BYTES: usize = 4 << 20;
/// How long a registry without lists of referrers is not asked for one: it may be upgraded.
const LACKS_LISTS_FOR: Duration = Duration::from_secs(600);
/// How long a thread that looked up a name or a login is kept.
const KEPT_LOOKUP: Duration = Duration::from_secs(1);
/// How long a small answer may take, however slowly its bytes come.
const EXCHANGE_PATIENCE: Duration = Duration::from_secs(60);

/// A client with the connections that it keeps. Proxies come from the environment (`https_proxy` and
/// similar), certificates of authorities from the system (or `SSL_CERT_FILE`).
pub struct HttpClient {
    client: reqwest::Client,
    /// For requests with a secret in their body or address, which a redirect would pass on.
    unredirected: reqwest::Client,
    connections: Arc<Connections>,
    /// Registries that list no referrers, and when they have said so.
    without_lists: Mutex<HashMap<String, Instant>>,
}

/// The runtime that drives connections, one for all threads: a thread that waits has it, and passes it on
/// when it is done.
struct Connections {
    driver: Arc<Driver>,
    /// Whether waiting has ended for all threads. The thread of [`Connections::start`] ends with it.
    closed: watch::Sender<bool>,
    /// Whether that thread was started.
    is_started: Mutex<bool>,
}

struct Driver {
    /// There until it is dropped.
    runtime: Option<Runtime>,
}

impl Driver {
    fn runtime(&self) -> &Runtime {
        let Some(runtime) = &self.runtime else { unreachable!("only drop takes it") };
        runtime
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Does not wait for tasks: looking up a name cannot be interrupted.
            runtime.shutdown_background();
        }
    }
}

impl HttpClient {
    /// A client without connections.
    ///
    /// # Errors
    /// [`HttpError::Connection`] when the system has no descriptors to wait for connections with.
    pub fn new(timeouts: Timeouts) -> Result<Arc<Self>, HttpError> {
        let broken = |error: &dyn std::error::Error| HttpError::Connection {
            reason: format!("the HTTP client cannot be started: {}", with_causes(error)),
            permanent: true,
        };
        let tls = tls().map_err(|error| broken(&error))?;
        let proxies = Proxies::of_environment(|name| std::env::var(name).ok());
        let client = |policy| {
            let mut client = reqwest::Client::builder().no_proxy();
            if !proxies.is_empty() {
                let proxies = proxies.clone();
                client = client.proxy(reqwest::Proxy::custom(move |url| proxies.of(url).cloned()));
            }
            client
                .tls_backend_preconfigured(tls.clone())
                .http1_only()
                .user_agent(concat!("headstart/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(timeouts.connect)
                .read_timeout(timeouts.stall)
                .pool_max_idle_per_host(KEPT_CONNECTIONS)
                .tcp_nodelay(true)
                .connector_layer(kept::NoteConnects)
                .referer(false)
                .retry(reqwest::retry::never())
                .redirect(policy)
                .build()
                .map_err(|error| broken(&error))
        };
        let (client, unredirected) = (client(Policy::custom(redirect))?, client(Policy::none())?);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .thread_name("hs-lookup")
            .thread_keep_alive(KEPT_LOOKUP)
            .build()
            .map_err(|error| broken(&error))?;
        let connections = Connections {
            driver: Arc::new(Driver { runtime: Some(runtime) }),
            closed: watch::Sender::new(false),
            is_started: Mutex::new(false),
        };
        let (connections, without_lists) = (Arc::new(connections), Mutex::default());
        Ok(Arc::new(Self { client, unredirected, connections, without_lists }))
    }
}

impl Connections {
    /// Waits for a future, and drives all connections until it is ready.
    fn wait_for<F: Future>(&self, future: F) -> F::Output {
        self.driver.runtime().block_on(future)
    }

    /// Starts the thread that drives the connections while no other thread does; false when that fails.
    fn start(&self) -> bool {
        let mut is_started = self.is_started.lock();
        if !*is_started {
            let (driver, mut closed) = (Arc::clone(&self.driver), self.closed.subscribe());
            let drive = move || {
                // Until there is no sender any more.
                let _ = driver.runtime().block_on(closed.wait_for(|_| false));
            };
            *is_started = std::thread::Builder::new().name("hs-remote".to_owned()).spawn(drive).is_ok();
        }
        *is_started
    }

    /// The same until the connections are closed.
    fn wait_while_open<T>(&self, future: impl Future<Output = Result<T, HttpError>>) -> Result<T, HttpError> {
        let mut closed = self.closed.subscribe();
        self.wait_for(async {
            let mut closed = pin!(closed.wait_for(|closed| *closed));
            let mut future = pin!(future);
            poll_fn(|context| {
                if closed.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Err(HttpError::Closed));
                }
                future.as_mut().poll(context)
            })
            .await
        })
    }

    /// Lets connections see what has happened to them: that their bytes are no longer wanted, or that they
    /// can be used again.
    fn settle(&self) {
        // A thread that drops a body inside another runtime may not wait; the next request settles it.
        if Handle::try_current().is_err() {
            self.wait_for(tokio::task::yield_now());
        }
    }
}

/// The answer to a small request: one that is not for bytes of a file.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    /// The final address, after redirects.
    pub(crate) url: url::Url,
    pub(crate) body: Vec<u8>,
}

impl HttpClient {
    /// The client for requests, for [`exchange`](Self::exchange) and for libraries that make their own
    /// requests.
    pub(crate) const fn requests(&self) -> &reqwest::Client {
        &self.client
    }

    /// The same, for requests that follow no redirects.
    pub(crate) const fn unredirected(&self) -> &reqwest::Client {
        &self.unredirected
    }

    /// Whether this registry has said a while ago that it lists no referrers.
    pub(crate) fn lacks_lists(&self, host: &str) -> bool {
        let mut without_lists = self.without_lists.lock();
        without_lists.retain(|_, since| since.elapsed() < LACKS_LISTS_FOR);
        without_lists.contains_key(host)
    }

    /// This registry has just said so.
    pub(crate) fn note_without_lists(&self, host: &str) {
        self.without_lists.lock().insert(host.to_owned(), Instant::now());
    }

    /// Waits for a future of a connection.
    pub(crate) fn wait_for<F: Future>(&self, future: F) -> F::Output {
        self.connections.wait_for(future)
    }

    /// Makes a request and waits for the whole answer, whatever its status.
    pub(crate) fn exchange(&self, asked: reqwest::RequestBuilder) -> Result<Answer, HttpError> {
        let (client, request) = asked.build_split();
        let request = request.map_err(|error| connection(&error))?;
        let exchanged = async {
            let mut response = kept::send(&client, request).await.map_err(|error| connection(&error))?;
            let mut body = Vec::new();
            while let Some(piece) = response.chunk().await.map_err(|error| connection(&error))? {
                if body.len() + piece.len() > MOST_ANSWER_BYTES {
                    let reason = format!("it is longer than {MOST_ANSWER_BYTES} bytes");
                    return Err(HttpError::Nonsense { reason });
                }
                body.extend_from_slice(&piece);
            }
            let (status, url) = (response.status().as_u16(), response.url().clone());
            Ok(Answer { status, url, headers: std::mem::take(response.headers_mut()), body })
        };
        self.connections.wait_while_open(async {
            let late = |_| {
                let seconds = EXCHANGE_PATIENCE.as_secs();
                Err(HttpError::Nonsense { reason: format!("it is not whole after {seconds} s") })
            };
            tokio::time::timeout(EXCHANGE_PATIENCE, exchanged).await.unwrap_or_else(late)
        })
    }
}

/// Trusts the system's authorities. A system without any can still read over plain HTTP, which is safe
/// because the image's name verifies the bytes.
fn tls() -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = Arc::new(Authorities::new(Arc::clone(&provider)));
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(authorities).with_no_client_auth())
}

/// Refuses redirects from HTTPS to plain HTTP.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let was_secure = attempt.previous().iter().any(|url| url.scheme() == "https");
    let scheme = attempt.url().scheme();
    if attempt.previous().len() > MOST_REDIRECTS {
        attempt.error(format!("more than {MOST_REDIRECTS} redirects"))
    } else if was_secure && scheme != "https" {
        attempt.error("redirected from https to http")
    } else if scheme != "https" && scheme != "http" {
        attempt.error("redirected to what is neither http nor https")
    } else {
        attempt.follow()
    }
}

impl Transport for HttpClient {
    fn ask<'a>(&'a self, request: &'a Request) -> Pending<'a, Result<Reply, HttpError>> {
        use reqwest::header::{ACCEPT_ENCODING, IF_MATCH, IF_NONE_MATCH, RANGE};
        let last = request.range.end() - 1;
        let method = if request.only_head { Method::HEAD } else { Method::GET };
        let mut asked = self
            .client
            .request(method, request.url.clone())
            .headers(request.headers.clone())
            .header(ACCEPT_ENCODING, "identity");
        if !request.only_head {
            asked = asked.header(RANGE, format!("bytes={}-{last}", request.range.offset));
        }
        if let Some(tag) = &request.if_match {
            asked = asked.header(IF_MATCH, tag);
        }
        if let Some(tag) = &request.if_none_match {
            asked = asked.header(IF_NONE_MATCH, tag);
        }
        Box::pin(async {
            let request = asked.build().map_err(|error| connection(&error))?;
            let response = kept::send(&self.client, request).await.map_err(|error| connection(&error))?;
            Ok(Reply {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
                url: response.url().clone(),
                body: Box::new(ResponseBody {
                    response: Some(response),
                    connections: Arc::clone(&self.connections),
                }),
            })
        })
    }

    fn drive(&self, future: Pin<&mut dyn Future<Output = ()>>) {
        self.connections.wait_for(future);
    }

    fn spawn(&self, future: Pending<'static, ()>) -> bool {
        let is_started = self.connections.start();
        if is_started {
            self.connections.driver.runtime().spawn(future);
        }
        is_started
    }

    fn apart(&self, work: Box<dyn FnOnce() + Send>) -> Pending<'static, ()> {
        let work = self.connections.driver.runtime().spawn_blocking(work);
        Box::pin(async { drop(work.await) })
    }

    fn pause<'a>(&'a self, clock: &'a dyn Clock, until: Nanos) -> Pending<'a, ()> {
        Box::pin(async move {
            while let Some(left) = until.0.checked_sub(clock.now().0).filter(|left| *left > 0) {
                tokio::time::sleep(Nanos(left).into()).await;
            }
        })
    }

    fn close(&self) {
        self.connections.closed.send_replace(true);
    }

    fn closed(&self) -> Pending<'_, ()> {
        let mut closed = self.connections.closed.subscribe();
        Box::pin(async move {
            let _ = closed.wait_for(|closed| *closed).await;
        })
    }
}

struct ResponseBody {
    /// There until it is dropped.
    response: Option<reqwest::Response>,
    connections: Arc<Connections>,
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        drop(self.response.take());
        self.connections.settle();
    }
}

impl Body for ResponseBody {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<bytes::Bytes>, HttpError>> {
        let Some(response) = &mut self.response else { return Poll::Ready(Ok(None)) };
        loop {
            // What is under way is kept by the response, not by this future.
            let Poll::Ready(piece) = pin!(response.chunk()).poll(context) else { return Poll::Pending };
            let piece = piece.map_err(|error| connection(&error))?;
            // An empty piece is legal, and says nothing.
            if piece.as_ref().is_none_or(|piece| !piece.is_empty()) {
                return Poll::Ready(Ok(piece));
            }
        }
    }
}

/// The error of `reqwest` without the address: it may contain secrets, and the store's name has it.
fn connection(error: &reqwest::Error) -> HttpError {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let untrusted = causes.clone().any(|cause| {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let of_tls = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        of_tls.or(cause.downcast_ref()).is_some_and(|error| {
            matches!(error, rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
        })
    });
    let mut reason = match error {
        _ if error.is_timeout() => "no answer in time".to_owned(),
        _ if error.is_redirect() => "a redirect that is not followed".to_owned(),
        _ if error.is_connect() => "no connection".to_owned(),
        _ => "the connection failed".to_owned(),
    };
    for cause in causes.map(ToString::to_string) {
        if !reason.contains(&cause) {
            reason = format!("{reason}: {cause}");
        }
    }
    HttpError::Connection { reason, permanent: untrusted || error.is_redirect() || error.is_builder() }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests;
