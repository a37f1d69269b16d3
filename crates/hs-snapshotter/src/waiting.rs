//! How long one call of containerd waits: for registries and for programs, until these are too late, or the
//! caller has gone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// Why something was not waited for any longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Over {
    /// It takes too long.
    #[error("{what} takes more than {} s", patience.as_secs())]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        patience: Duration,
    },
    /// It took too long or failed a moment ago, and was not asked again.
    #[error("{0} was too late a moment ago, or has failed")]
    Before(String),
    /// Nothing waits for the answer any more.
    #[error("the call was cancelled")]
    Cancelled,
}

/// One call, as what does its work sees it.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// Each hangs up when nothing waits for the answer any more.
    callers: Vec<Arc<OwnedFd>>,
}

impl Call {
    /// A call, and what is dropped when its caller is gone.
    ///
    /// # Errors
    /// When there are no descriptors for it.
    pub(crate) fn with_caller() -> std::io::Result<(Self, OwnedFd)> {
        Self::default().part()
    }

    /// A part of this call, and what is dropped when that alone is to end.
    ///
    /// # Errors
    /// When there are no descriptors for it.
    pub(crate) fn part(&self) -> std::io::Result<(Self, OwnedFd)> {
        let (caller, held) = pipe_with(PipeFlags::CLOEXEC)?;
        let callers = self.callers.iter().cloned().chain([Arc::new(caller)]).collect();
        Ok((Self { callers }, held))
    }

    /// Waits until something happens at this descriptor.
    pub(crate) fn wait(&self, what: &str, event: BorrowedFd<'_>, patience: Duration) -> Result<(), Over> {
        let end = Instant::now() + patience;
        let mut events = vec![PollFd::from_borrowed_fd(event, PollFlags::IN)];
        let callers = self.callers.iter();
        events.extend(callers.map(|caller| PollFd::from_borrowed_fd(caller.as_fd(), PollFlags::IN)));
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match poll(&mut events, Timespec::try_from(left).ok().as_ref()) {
                Err(Errno::INTR) => {}
                Ok(0) => return Err(Over::Late { what: what.to_owned(), patience }),
                _ if events[0].revents().is_empty() => return Err(Over::Cancelled),
                _ => return Ok(()),
            }
        }
    }

    /// Does this on a thread of its own, which goes on when it is too late.
    pub(crate) fn apart<T: Send + 'static>(
        &self,
        what: &str,
        patience: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let (done, end) = pipe_with(PipeFlags::CLOEXEC)?;
        let (sender, result) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("apart".to_owned());
        thread.spawn(move || {
            // Nothing may listen any more.
            let _ = sender.send(work());
            drop(end);
        })?;
        self.wait(what, done.as_fd(), patience)?;
        result.recv().map_err(|_| anyhow::anyhow!("{what} has failed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_waits_for_its_work_for_its_caller_and_for_so_long() {
        let (call, held) = Call::with_caller().expect("a pipe");
        let hour = Duration::from_secs(3600);
        assert_eq!(call.apart("it", hour, || 7).expect("done"), 7);
        let (never, _sender) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let soon = Duration::from_millis(1);
        let late = Over::Late { what: "it".to_owned(), patience: soon };
        let (part, ended) = call.part().expect("a pipe");
        drop(ended);
        assert_eq!(part.wait("it", never.as_fd(), hour), Err(Over::Cancelled));
        assert_eq!(call.wait("it", never.as_fd(), soon), Err(late));
        let (part, _held) = call.part().expect("a pipe");
        drop(held);
        assert_eq!(part.wait("it", never.as_fd(), hour), Err(Over::Cancelled));
        assert_eq!(call.wait("it", never.as_fd(), hour), Err(Over::Cancelled));
    }
}
