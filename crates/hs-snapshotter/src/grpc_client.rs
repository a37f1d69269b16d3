//! One connection to a server of gRPC, for calls with one message and an answer of one.

use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, bail};
use hyper::Request;
use hyper::body::Body as _;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::grpc::{Body, unframed};

/// The most bytes of an answer.
const MOST_ANSWER_BYTES: usize = 4 << 20;
/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A call that a server has refused.
#[derive(Debug, thiserror::Error)]
#[error("{message} (code {code} of gRPC)")]
pub(crate) struct Refused {
    /// gRPC's code.
    pub(crate) code: u32,
    /// What the server says.
    message: String,
}

/// A connection. Its calls block, one at a time.
pub(crate) struct Client {
    runtime: Runtime,
    sender: SendRequest<Body>,
}

impl Client {
    /// Connects to the server on the unix socket at `path`.
    ///
    /// # Errors
    /// When none listens, or it does not speak HTTP/2.
    pub(crate) fn connect(path: &Path) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let sender = runtime.block_on(async {
            let stream = UnixStream::connect(path).await?;
            let shaken = timeout(PATIENCE, handshake(TokioExecutor::new(), TokioIo::new(stream)));
            let (sender, connection) = shaken.await??;
            tokio::spawn(connection);
            anyhow::Ok(sender)
        });
        let sender = sender.with_context(|| format!("connect to {}", path.display()))?;
        Ok(Self { runtime, sender })
    }

    /// Calls the method at `path`, such as `/containerd.services.version.v1.Version/Version`, in a namespace
    /// of containerd's.
    ///
    /// # Errors
    /// [`Refused`] when the server answers so; others when it does not answer.
    pub(crate) fn call<T: Message + Default>(
        &mut self,
        path: &str,
        namespace: &str,
        message: &impl Message,
    ) -> anyhow::Result<T> {
        let Self { runtime, sender } = self;
        let called = async { timeout(PATIENCE, ask(sender, path, namespace, message.encode_to_vec())).await };
        let (bytes, trailers) = runtime.block_on(called).context("it takes too long")??;
        let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match text("grpc-status").parse() {
            Ok(0) => {}
            Ok(code) => bail!(Refused { code, message: text("grpc-message").to_owned() }),
            Err(_) => bail!("the answer has no code"),
        }
        let message = unframed(&bytes).map_err(|failure| anyhow::anyhow!(failure.message))?;
        Ok(T::decode(message)?)
    }
}

/// The bytes of the answer, and its trailers.
async fn ask(
    sender: &mut SendRequest<Body>,
    path: &str,
    namespace: &str,
    message: Vec<u8>,
) -> anyhow::Result<(Vec<u8>, HeaderMap)> {
    let request = Request::post(format!("http://localhost{path}"))
        .header(CONTENT_TYPE, "application/grpc")
        .header("te", "trailers")
        .header("containerd-namespace", namespace)
        .body(Body::of_request(message))?;
    sender.ready().await?;
    let (head, mut body) = sender.send_request(request).await?.into_parts();
    // A call that fails at once has its code here.
    let (mut bytes, mut trailers) = (Vec::new(), head.headers);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        match frame?.into_data() {
            Ok(data) if bytes.len() + data.len() > MOST_ANSWER_BYTES => {
                bail!("an answer of more than {MOST_ANSWER_BYTES} bytes")
            }
            Ok(data) => bytes.extend_from_slice(&data),
            Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
        }
    }
    Ok((bytes, trailers))
}
