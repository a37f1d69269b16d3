//! Requests by `reqwest`, for threads that wait.
//!
//! One thread drives all connections; whoever asks waits in his own. HTTP/1.1 only: demand is to overtake the
//! prefetch, and a connection of its own is how it does. (With HTTP/2 all requests of a host share one connection,
//! its window, and every lost packet.)

use std::sync::Arc;

use reqwest::redirect::{Attempt, Policy};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;

use super::HttpError;
use super::authorities::Authorities;
use super::transport::{Body, Reply, Request, Timeouts, Transport};

/// Redirects that are followed for one request.
const MOST_REDIRECTS: usize = 10;
/// Connections that are kept when nothing is asked: those of a reader's eight threads and two streams.
const KEPT_CONNECTIONS: usize = 10;

/// A manifest may have so much (distribution specification 1.1, "Pushing Manifests"), and nothing else has more.
const MOST_ANSWER_BYTES: usize = 4 << 20;

/// A client, with the connections that it keeps. Proxies are taken from the environment (`https_proxy` and its like),
/// certificates of authorities from the system (or `SSL_CERT_FILE`).
pub struct HttpClient {
    client: reqwest::Client,
    handle: Handle,
    /// Ends the thread when dropped.
    _stop: oneshot::Sender<()>,
}

impl HttpClient {
    /// A client and its thread.
    ///
    /// # Errors
    /// [`HttpError::Connection`] when the thread cannot be started.
    pub fn new(timeouts: Timeouts) -> Result<Arc<Self>, HttpError> {
        let broken = |error: &dyn std::error::Error| HttpError::Connection {
            reason: format!("the HTTP client cannot be started: {}", with_causes(error)),
            permanent: true,
        };
        let tls = tls().map_err(|error| broken(&error))?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .user_agent(concat!("headstart/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(timeouts.connect)
            .read_timeout(timeouts.stall)
            .pool_max_idle_per_host(KEPT_CONNECTIONS)
            .tcp_nodelay(true)
            .referer(false)
            .retry(reqwest::retry::never())
            .redirect(Policy::custom(redirect))
            .build()
            .map_err(|error| broken(&error))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| broken(&error))?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        std::thread::Builder::new()
            .name("hs-http".to_owned())
            .spawn(move || drive(&runtime, stopped))
            .map_err(|error| broken(&error))?;
        Ok(Arc::new(Self { client, handle, _stop: stop }))
    }
}

/// The answer to a small request: one that is not for bytes of a file.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    /// Where it came from, after redirects.
    pub(crate) url: url::Url,
    pub(crate) body: Vec<u8>,
}

impl HttpClient {
    /// What requests are made with, for [`exchange`](Self::exchange) and for libraries that make their own.
    pub(crate) const fn requests(&self) -> &reqwest::Client {
        &self.client
    }

    /// Waits for what the client's thread is to do.
    pub(crate) fn wait_for<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Makes a request and waits for all of the answer, whatever its status.
    pub(crate) fn exchange(&self, asked: reqwest::RequestBuilder) -> Result<Answer, HttpError> {
        self.wait_for(async {
            let mut response = asked.send().await.map_err(|error| connection(&error))?;
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
        })
    }
}

/// Trusts the system's authorities. A system without any can still read by plain HTTP, which an image's name makes safe.
fn tls() -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = Arc::new(Authorities::new(Arc::clone(&provider)));
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(authorities).with_no_client_auth())
}

fn drive(runtime: &Runtime, stopped: oneshot::Receiver<()>) {
    // The sender is never used: that it is gone is the message.
    let _ = runtime.block_on(stopped);
}

/// Never from a server that proves who it is to one that does not.
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
    fn ask(&self, request: &Request) -> Result<Reply, HttpError> {
        use reqwest::header::{ACCEPT_ENCODING, IF_MATCH, IF_NONE_MATCH, RANGE};
        let last = request.range.end() - 1;
        let mut asked = self
            .client
            .get(request.url.clone())
            .headers(request.headers.clone())
            .header(ACCEPT_ENCODING, "identity")
            .header(RANGE, format!("bytes={}-{last}", request.range.offset));
        if let Some(tag) = &request.if_match {
            asked = asked.header(IF_MATCH, tag);
        }
        if let Some(tag) = &request.if_none_match {
            asked = asked.header(IF_NONE_MATCH, tag);
        }
        let response =
            self.handle.block_on(async { asked.send().await }).map_err(|error| connection(&error))?;
        Ok(Reply {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            url: response.url().clone(),
            body: Box::new(ResponseBody { response, handle: self.handle.clone() }),
        })
    }
}

struct ResponseBody {
    response: reqwest::Response,
    handle: Handle,
}

impl Body for ResponseBody {
    fn piece(&mut self) -> Result<Option<bytes::Bytes>, HttpError> {
        loop {
            let piece = self
                .handle
                .block_on(async { self.response.chunk().await })
                .map_err(|error| connection(&error))?;
            // An empty piece is legal, and says nothing.
            if piece.as_ref().is_none_or(|piece| !piece.is_empty()) {
                return Ok(piece);
            }
        }
    }
}

/// What `reqwest` said, without the address, which may hold secrets, and which the store's name tells.
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
