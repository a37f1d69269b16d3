//! The connection of one VMM.

use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::device::Device;
use crate::ring::Common;

/// How long a VMM may take over a message that it has begun, or to take an answer.
const MESSAGE_PATIENCE: Duration = Duration::from_secs(10);

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Why {
    HungUp,
    Stopped,
    Silent,
    Failed(Error),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HungUp => f.write_str("it has closed the connection"),
            Self::Stopped => f.write_str("the server ends"),
            Self::Silent => f.write_str("it said nothing"),
            // The crate says no more of a message that it refuses.
            Self::Failed(Error::InvalidParam) => f.write_str(
                "one of its messages cannot be right (does it share its guest's memory, and as much as it says? \
                 QEMU: memory-backend-memfd with share=on)",
            ),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// Serves a VMM until it is gone or `stop` becomes readable. One that says nothing for `patience` at its
/// beginning is disconnected.
pub(crate) fn run(
    stream: UnixStream,
    common: Arc<Common>,
    queues: u16,
    stop: &OwnedFd,
    patience: Duration,
) -> Why {
    let prepared = stream
        .set_read_timeout(Some(MESSAGE_PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(MESSAGE_PATIENCE)))
        .and_then(|()| stream.try_clone());
    let socket = match prepared {
        Ok(socket) => socket,
        Err(error) => return Why::Failed(Error::SocketError(error)),
    };
    let device = Arc::new(Mutex::new(Device::new(common, queues)));
    let mut handler = BackendReqHandler::from_stream(stream, Arc::clone(&device));
    let why = serve(&mut handler, &socket, stop, patience);
    device.lock().unwrap_or_else(PoisonError::into_inner).abandon();
    why
}

fn serve(
    handler: &mut BackendReqHandler<Mutex<Device>>,
    socket: &UnixStream,
    stop: &OwnedFd,
    patience: Duration,
) -> Why {
    let mut silent_until = Some(Instant::now() + patience);
    loop {
        let mut watched = [PollFd::new(socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        let left = silent_until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut watched, timeout.as_ref()) {
            Ok(0) => return Why::Silent,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Why::Failed(Error::SocketError(errno.into())),
        }
        if !watched[1].revents().is_empty() {
            return Why::Stopped;
        }
        match handler.handle_request() {
            Ok(()) => silent_until = None,
            // A guest that ends, or a server that hangs up.
            Err(Error::Disconnected | Error::SocketBroken(_)) => return Why::HungUp,
            Err(error) => return Why::Failed(error),
        }
    }
}
