//! A client of gRPC for calls with one message: what CRI's clients ask containerd, and containerd its
//! snapshotters.

use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;

use hyper::body::{Body, Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};

/// The one message of a request.
struct Once(Option<Bytes>);

impl Body for Once {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// What a call gave: the messages of the answer, each with its prefix, and the code and message of a failure.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) bytes: Vec<u8>,
    pub(crate) code: u32,
    pub(crate) message: String,
}

/// Calls `path` on the server at `socket`, whose messages are not waited for without a limit.
pub(crate) fn call(socket: &Path, path: &str, message: &[u8]) -> Called {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let called = async { tokio::time::timeout(crate::scene::PATIENCE, ask(socket, path, message)).await };
    runtime.block_on(called).expect("it answers in time")
}

/// Calls, and hangs up as soon as this is so.
pub(crate) fn call_and_leave(socket: &Path, path: &str, message: &[u8], is_so: impl Fn() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut asking = std::pin::pin!(ask(socket, path, message));
        while !is_so() {
            let answered = tokio::time::timeout(std::time::Duration::from_millis(5), asking.as_mut()).await;
            assert!(answered.is_err(), "it was answered: {answered:?}");
        }
    });
    // The connection's task ends with its runtime.
    drop(runtime);
}

async fn ask(socket: &Path, path: &str, message: &[u8]) -> Called {
    let stream = tokio::net::UnixStream::connect(socket).await.expect("it listens");
    let http = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = http.await.expect("it speaks HTTP/2");
    let connection = tokio::spawn(connection);
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(message.len()).expect("short").to_be_bytes());
    framed.extend_from_slice(message);
    let request = hyper::Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Once(Some(framed.into())));
    let answered = sender.send_request(request.expect("a request")).await.expect("it answers");
    let (head, mut body) = answered.into_parts();
    let (mut bytes, mut trailers) = (Vec::new(), head.headers);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        match frame.expect("an answer").into_data() {
            Ok(data) => bytes.extend_from_slice(&data),
            Err(frame) => trailers = frame.into_trailers().expect("trailers"),
        }
    }
    connection.abort();
    let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Called {
        bytes,
        code: text("grpc-status").parse().expect("a code"),
        message: text("grpc-message").to_owned(),
    }
}

/// A field of bytes, a string or a message: its number, its length and itself.
pub(crate) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 127 {
        field.push(length as u8 | 128);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(bytes);
    field
}
