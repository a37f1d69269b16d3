//! gRPC as far as a service without streams from its clients needs it: HTTP/2, a prefix before each message,
//! and the outcome in the trailers (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body as _, Bytes, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Request, Response};

use crate::waiting::Call;

/// The most bytes of a request: labels of a snapshot are a few KiB.
const MOST_REQUEST_BYTES: usize = 4 << 20;
/// The most bytes of one message of an answer; gRPC's clients take 4 MiB.
const PREFIX_BYTES: usize = 5;
/// The most characters of a message about a failure.
const MOST_MESSAGE_CHARACTERS: usize = 2000;

/// Codes of gRPC that containerd tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Cancelled = 1,
    InvalidArgument = 3,
    NotFound = 5,
    AlreadyExists = 6,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// What answers calls: from a path, such as `/containerd.services.snapshots.v1.Snapshots/Stat`, and a message
/// to the messages of the answer. It may block.
pub(crate) type Calls = dyn Fn(&str, &[u8], &Call) -> Result<Vec<Vec<u8>>, Failure> + Send + Sync;

/// The answer to one call.
pub(crate) async fn answer(
    request: Request<Incoming>,
    calls: Arc<Calls>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let failed =
        |what: &dyn std::fmt::Display| Failure::new(Code::Internal, format!("the call ended: {what}"));
    let outcome = match (message(request.into_body()).await, Call::with_caller()) {
        // hyper drops this future when the caller cancels the call, or is gone.
        (Ok(message), Ok((call, _held))) => {
            let called = tokio::task::spawn_blocking(move || calls(&path, &message, &call)).await;
            called.unwrap_or_else(|error| Err(failed(&error)))
        }
        (Ok(_), Err(error)) => Err(failed(&error)),
        (Err(failure), _) => Err(failure),
    };
    let (bytes, trailers) = match outcome {
        Ok(messages) => (framed(&messages), trailers(0, "")),
        Err(failure) => (None, trailers(failure.code as u8, &failure.message)),
    };
    let mut response = Response::new(Body { bytes, trailers: Some(trailers) });
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// The one message of a request.
async fn message(mut body: Incoming) -> Result<Vec<u8>, Failure> {
    let broken = |what: String| Failure::new(Code::Internal, what);
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|error| broken(format!("the request ended early: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > MOST_REQUEST_BYTES {
            return Err(broken(format!("a request of more than {MOST_REQUEST_BYTES} bytes")));
        }
        bytes.extend_from_slice(&data);
    }
    unframed(&bytes).map(<[u8]>::to_vec)
}

/// The message behind its prefix: a byte that says whether it is compressed, and its length.
pub(crate) fn unframed(bytes: &[u8]) -> Result<&[u8], Failure> {
    let broken = || Failure::new(Code::Internal, "this is not one message of gRPC");
    let (prefix, message) = bytes.split_at_checked(PREFIX_BYTES).ok_or_else(broken)?;
    if prefix[0] != 0 {
        return Err(Failure::new(Code::Unimplemented, "compressed messages are not understood"));
    }
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    if message.len() as u64 == u64::from(length) { Ok(message) } else { Err(broken()) }
}

fn framed(messages: &[Vec<u8>]) -> Option<Bytes> {
    let mut bytes = Vec::new();
    for message in messages {
        bytes.push(0);
        // Answers are made here, of what fits into a state file.
        bytes.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(message);
    }
    (!bytes.is_empty()).then(|| bytes.into())
}

fn trailers(code: u8, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(u16::from(code)));
    let mut text = String::new();
    for byte in message.chars().take(MOST_MESSAGE_CHARACTERS).collect::<String>().bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => text.push(char::from(byte)),
            other => drop(write!(text, "%{other:02X}")),
        }
    }
    if let (false, Ok(text)) = (text.is_empty(), HeaderValue::from_str(&text)) {
        trailers.insert("grpc-message", text);
    }
    trailers
}

/// The body of a request or of an answer: messages, and behind those of an answer what became of the call.
pub(crate) struct Body {
    bytes: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body {
    /// That of a request.
    pub(crate) fn of_request(message: Vec<u8>) -> Self {
        Self { bytes: framed(&[message]), trailers: None }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = self.bytes.take().map(Frame::data);
        Poll::Ready(frame.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() && self.trailers.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_a_prefix() {
        let bytes = framed(&[b"ab".to_vec()]).expect("one");
        assert_eq!(unframed(&bytes).expect("one"), b"ab");
        assert_eq!(unframed(&bytes[..5]).expect_err("cut").code, Code::Internal);
        assert_eq!(unframed(&bytes[..3]).expect_err("cut").code, Code::Internal);
        assert_eq!(unframed(&[1, 0, 0, 0, 0]).expect_err("compressed").code, Code::Unimplemented);
        assert!(framed(&[]).is_none());
    }

    #[test]
    fn what_failed_is_said_in_ascii() {
        let trailers = trailers(5, "ü 1%\n");
        assert_eq!(
            (&trailers["grpc-status"], &trailers["grpc-message"]),
            (&HeaderValue::from_static("5"), &HeaderValue::from_static("%C3%BC 1%25%0A"))
        );
    }
}
