//! Requests on kept connections, which their server may have closed in the meantime.
//!
//! A server closes connections that are idle, and all of them when it ends. A request that is sent at that
//! moment gets no byte of an answer, which says nothing of the server. So a request that may be repeated is
//! made again at once (RFC 9110, section 9.2.2), on another connection. It fails when a connection that was
//! made for it fails.

use std::cell::Cell;
use std::task::{Context, Poll};

use reqwest::{Client, Method, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::KEPT_CONNECTIONS;

tokio::task_local! {
    /// Whether a connection was begun for the request that is under way.
    static CONNECTS: Cell<bool>;
}

/// Notes in [`CONNECTS`] that a connection is begun.
#[derive(Clone)]
pub(super) struct NoteConnects;

/// What makes connections, with that note.
#[derive(Clone)]
pub(super) struct Noting<S>(S);

impl<S> Layer<S> for NoteConnects {
    type Service = Noting<S>;

    fn layer(&self, inner: S) -> Noting<S> {
        Noting(inner)
    }
}

impl<R, S: Service<R>> Service<R> for Noting<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: R) -> S::Future {
        // Outside of a request nothing waits for the note.
        let _ = CONNECTS.try_with(|connects| connects.set(true));
        self.0.call(request)
    }
}

/// Sends a request; again, while it may be repeated and fails on a kept connection.
pub(super) async fn send(client: &Client, mut request: Request) -> reqwest::Result<Response> {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD);
    for _ in 0..=KEPT_CONNECTIONS {
        // Lets the connections see what their servers have closed.
        tokio::task::yield_now().await;
        let again = request.try_clone().filter(|_| is_safe);
        let sent = async { (client.execute(request).await, CONNECTS.with(Cell::get)) };
        let (answer, connects) = CONNECTS.scope(Cell::new(false), sent).await;
        match (answer, again) {
            (Err(error), Some(again)) if !connects && error.is_request() && !error.is_timeout() => {
                log::debug!("a kept connection was closed, another one is taken: {}", error.without_url());
                request = again;
            }
            (answer, _) => return answer,
        }
    }
    client.execute(request).await
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};
    use std::task::Waker;

    use super::*;

    /// Ready or not.
    struct Connects(bool);

    impl Service<()> for Connects {
        type Response = ();
        type Error = ();
        type Future = Ready<Result<(), ()>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
            if self.0 { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn call(&mut self, (): ()) -> Self::Future {
            ready(Ok(()))
        }
    }

    #[test]
    fn what_notes_connections_is_ready_when_what_makes_them_is() {
        let mut context = Context::from_waker(Waker::noop());
        for is_ready in [false, true] {
            let mut noting = NoteConnects.layer(Connects(is_ready));
            assert_eq!(noting.poll_ready(&mut context).is_ready(), is_ready);
        }
    }
}
