//! One request over HTTP, as the store sees it: what tests replace.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Builder, Thread};
use std::time::Duration;

use hs_store::Clock;
use hs_units::{ByteRange, Nanos};
use reqwest::header::HeaderMap;
use url::Url;

use super::HttpError;

/// A request for bytes of a file.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where the file is.
    pub url: Url,
    /// Further headers for the server, such as a login. Secrets: nothing here is ever printed.
    pub headers: HeaderMap,
    /// The bytes that are wanted; not empty.
    pub range: ByteRange,
    /// Only when the file has this strong entity tag (`If-Match`).
    pub if_match: Option<String>,
    /// Only when the file has not this entity tag (`If-None-Match`).
    pub if_none_match: Option<String>,
    /// Only the head of an answer that would bring the whole file (`HEAD`), whatever the range.
    pub only_head: bool,
}

/// How a server answered.
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// Where the answer came from, after redirects.
    pub url: Url,
    /// What follows.
    pub body: Box<dyn Body>,
}

/// Something that is under way and ends with this.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The bytes of an answer, as they come. Dropping it ends the transfer.
pub trait Body: Send {
    /// The next piece, when it has come; nothing at the end. Pieces are not empty.
    ///
    /// # Errors
    /// [`HttpError::Connection`] when the connection is cut, or nothing comes for too long.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<bytes::Bytes>, HttpError>>;
}

/// What makes requests, on as many connections as there are requests at once, and waits for them.
pub trait Transport: Send + Sync {
    /// Makes a request; ends with the head of the answer, redirects followed.
    ///
    /// # Errors
    /// [`HttpError::Connection`] when there is none.
    fn ask<'a>(&'a self, request: &'a Request) -> Pending<'a, Result<Reply, HttpError>>;

    /// Carries this out on the calling thread, which waits for it.
    fn drive(&self, future: Pin<&mut dyn Future<Output = ()>>) {
        drive_here(future);
    }

    /// Carries this out while the calling thread goes on; false when that is not possible.
    fn spawn(&self, mut future: Pending<'static, ()>) -> bool {
        let thread = Builder::new().name("hs-remote".to_owned());
        thread.spawn(move || drive_here(future.as_mut())).is_ok()
    }

    /// Does something that blocks its thread where no request waits for that thread.
    fn apart(&self, work: Box<dyn FnOnce() + Send>) -> Pending<'static, ()> {
        work();
        Box::pin(std::future::ready(()))
    }

    /// Waits until the clock shows this time.
    fn pause<'a>(&'a self, clock: &'a dyn Clock, until: Nanos) -> Pending<'a, ()> {
        clock.sleep_until(until);
        Box::pin(std::future::ready(()))
    }

    /// Ends all transfers: whatever waits for [`closed`](Self::closed) ends.
    fn close(&self) {}

    /// Ends when the transport is closed.
    fn closed(&self) -> Pending<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// Polls a future whenever it wakes the thread, until it is ready.
fn drive_here(mut future: Pin<&mut dyn Future<Output = ()>>) {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        std::thread::park();
    }
}

impl dyn Transport + '_ {
    /// Waits on the calling thread for this.
    pub(super) fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        let mut output = None;
        self.drive(pin!(async { output = Some(future.await) }));
        output.expect("it was driven to its end")
    }

    /// Ends with this, or with an error when the transport is closed before.
    pub(super) async fn while_open<T>(
        &self,
        future: impl Future<Output = Result<T, HttpError>>,
    ) -> Result<T, HttpError> {
        let mut closed = self.closed();
        let mut future = pin!(future);
        std::future::poll_fn(|context| {
            if closed.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(HttpError::Closed));
            }
            future.as_mut().poll(context)
        })
        .await
    }
}

/// How long the network may be silent.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Until a connection is there, TLS included.
    pub connect: Duration,
    /// Between two pieces of an answer, and before its head.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::within(Duration::from_secs(60))
    }
}

impl Timeouts {
    /// Timeouts that leave a reader with this patience time to try several connections.
    #[must_use]
    pub fn within(patience: Duration) -> Self {
        let part = (patience / 4).clamp(Duration::from_millis(100), Duration::from_secs(15));
        Self { connect: part.min(Duration::from_secs(10)), stall: part }
    }
}
