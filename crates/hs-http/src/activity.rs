//! What a connection does, so that one that is silent, trickles or does not read comes to its end.
//!
//! A connection is ended when for so long (see [`Patience`])
//!
//! - nothing was asked: no head came, or only a part of one, or part of a TLS handshake; or
//! - the client took nothing, or next to nothing, of what there is for it: the socket is full, or HTTP/2's
//!   window is.
//!
//! What we are late with ourselves, a slow medium or a rate that the server was told, never counts.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hs_linux::sockets::reached_bytes;
use hs_serve::{Occupant, PROGRESS_BYTES, Standing};
use parking_lot::Mutex;
use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// How long a server waits for a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For a whole head, from the connection's beginning or the last answer's end on.
    pub(super) head: Duration,
    /// For the client to take something of its answers.
    pub(super) answer: Duration,
}

/// Why a connection was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Ended {
    #[error("it asked for nothing in time")]
    Silent,
    #[error("it did not take its answer in time")]
    Unread,
    #[error("its slot was given to another connection")]
    Evicted,
}

/// What one connection does.
pub(super) struct Activity {
    patience: Patience,
    socket: Arc<OwnedFd>,
    state: Mutex<Progress>,
    changed: Notify,
}

struct Progress {
    /// Answers that are not wholly handed over.
    answers: usize,
    /// Of these, those whose bytes we do not have yet.
    late: usize,
    /// The socket is full.
    is_full: bool,
    /// Bytes that the socket took.
    sent_bytes: u64,
    /// Of these, those that had reached the client when the socket became full, or later.
    reached_bytes: u64,
    /// When something was last asked, handed over or taken.
    progress: Instant,
    is_evicted: bool,
}

impl Progress {
    fn is_idle(&self) -> bool {
        self.answers == 0 && !self.is_full
    }

    fn progressed(&mut self) {
        self.progress = Instant::now();
    }
}

impl Activity {
    /// A connection that begins.
    pub(super) fn new(patience: Patience, socket: Arc<OwnedFd>) -> Arc<Self> {
        let state = Progress {
            answers: 0,
            late: 0,
            is_full: false,
            sent_bytes: 0,
            reached_bytes: 0,
            progress: Instant::now(),
            is_evicted: false,
        };
        Arc::new(Self { patience, socket, state: Mutex::new(state), changed: Notify::new() })
    }

    /// An answer begins; it ends when what is returned is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Answering {
        let mut state = self.state.lock();
        state.answers += 1;
        state.progressed();
        drop(state);
        Answering { activity: Arc::clone(self), is_late: false }
    }

    /// Ends the connection, also where another task still has a descriptor of it.
    pub(super) fn hang_up(&self) {
        // It fails when the other side was faster.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Comes back when the connection is to be ended.
    pub(super) async fn end(&self) -> Ended {
        loop {
            let now = Instant::now();
            let until = match self.verdict(now) {
                Ok(until) => until,
                Err(ended) => return ended,
            };
            // Only an eviction wakes it early: what else changes only puts the end off.
            let _ = tokio::time::timeout_at(until.into(), self.changed.notified()).await;
        }
    }

    /// When to look again, or why the connection ends now.
    fn verdict(&self, now: Instant) -> Result<Instant, Ended> {
        let mut state = self.state.lock();
        let (patience, ended) = match () {
            () if state.is_evicted => return Err(Ended::Evicted),
            () if state.is_idle() => (self.patience.head, Ended::Silent),
            () if state.is_full || state.late == 0 => (self.patience.answer, Ended::Unread),
            () => return Ok(now + self.patience.answer.min(self.patience.head)),
        };
        if state.progress + patience <= now {
            // A slow client takes some, of which the socket does not tell before it has room for much more.
            let reached = reached_bytes(&self.socket, state.sent_bytes);
            if ended == Ended::Silent || reached < state.reached_bytes + PROGRESS_BYTES {
                return Err(ended);
            }
            state.reached_bytes = reached;
            state.progressed();
        }
        Ok((state.progress + patience).min(now + self.patience.answer.min(self.patience.head)))
    }

    /// The socket took so many bytes, or none because it is full.
    fn wrote(&self, outcome: &Poll<io::Result<usize>>) {
        let mut state = self.state.lock();
        match outcome {
            Poll::Ready(Ok(bytes)) => state.sent_bytes += *bytes as u64,
            Poll::Ready(Err(_)) => {}
            Poll::Pending if !state.is_full => {
                state.is_full = true;
                state.reached_bytes = reached_bytes(&self.socket, state.sent_bytes);
                state.progressed();
            }
            Poll::Pending => {}
        }
    }

    /// The socket took everything that there was.
    fn flushed(&self) {
        let mut state = self.state.lock();
        if state.is_full {
            state.is_full = false;
            state.progressed();
        }
    }
}

impl Occupant for Activity {
    fn standing(&self) -> Standing {
        let state = self.state.lock();
        Standing { is_idle: state.is_idle(), since: state.progress }
    }

    fn evict(&self) {
        self.state.lock().is_evicted = true;
        self.changed.notify_one();
    }
}

/// An answer that is under way.
pub(super) struct Answering {
    activity: Arc<Activity>,
    is_late: bool,
}

impl Answering {
    /// The connection wants more of it, which is there or not.
    pub(super) fn polled(&mut self, is_there: bool) {
        let is_late = !is_there;
        let mut state = self.activity.state.lock();
        if is_late && !self.is_late {
            state.late += 1;
        }
        if !is_late && self.is_late {
            state.late -= 1;
        }
        // A connection that asks for more has sent what it had.
        if !state.is_full {
            state.progressed();
        }
        self.is_late = is_late;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.polled(true);
        self.activity.state.lock().answers -= 1;
    }
}

/// A stream whose activity is watched.
pub(super) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.activity.wrote(&outcome);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.activity.wrote(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        if let Poll::Ready(Ok(())) = outcome {
            self.activity.flushed();
        }
        outcome
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
