//! The thread that empties the kernel's buffers.

use std::fs::File;
use std::io::{self, PipeReader, Read};

use hs_units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::format::PageFormat;
use super::ring;

/// What becomes of the records.
pub(super) trait Sink: Send + 'static {
    /// A record, understood.
    type Event;

    /// The buffers are not looked at again so soon. Few wait for the result, so looking from time to time
    /// costs less than being woken.
    const PAUSE: Timespec;

    /// After that pause, the longest wait for a buffer that is half full; kernels before 6.1 wake for one
    /// event.
    const LULL: Timespec;

    /// The event that `record` is, with its time; `None` when it makes no sense.
    fn decode(&self, at: Nanos, record: &[u8]) -> Option<Self::Event>;

    /// Its time.
    fn at(event: &Self::Event) -> Nanos;

    /// Takes the next event in the order of time.
    fn take(&mut self, event: Self::Event);

    /// All events up to this time were taken.
    fn drained(&mut self, _until: Nanos) {}
}

pub(super) struct Drain<S> {
    pub(super) page_format: PageFormat,
    pub(super) sink: S,
    /// One for each CPU.
    pub(super) streams: Vec<File>,
}

impl<S: Sink> Drain<S> {
    /// Runs until the other end of `wakes` is closed, then takes what is left.
    pub(super) fn run(mut self, wakes: &PipeReader) -> io::Result<S> {
        prefer_this_thread();
        let mut page = vec![0; self.page_format.page_bytes];
        let mut waiting: Vec<S::Event> = Vec::new();
        // Polling one of a CPU that is not there ends at once.
        let mut are_there = vec![true; self.streams.len()];
        loop {
            let there =
                || self.streams.iter().zip(&are_there).filter(|(_, is)| **is).map(|(stream, _)| stream);
            let woken = match wait(wakes, std::iter::empty(), &S::PAUSE)? {
                Woken::ToLook => wait(wakes, there(), &S::LULL)?,
                woken => woken,
            };
            let stopped = woken == Woken::ToEnd;
            // A thread may move to another CPU between two events. What happened before this moment is in
            // the buffers now; what is younger waits for the next round, so that all CPUs' events up to
            // here are taken in one order.
            let complete = now();
            for (stream, is_there) in self.streams.iter_mut().zip(&mut are_there) {
                *is_there = drain(stream, &mut page, |page| {
                    let mut last = Nanos::ZERO;
                    ring::records(&self.page_format, page, |at, record| {
                        last = at;
                        waiting.extend(self.sink.decode(at, record));
                    });
                    last <= complete
                })?;
            }
            waiting.sort_by_key(S::at);
            let taken = if stopped {
                waiting.len()
            } else {
                waiting.partition_point(|event| S::at(event) <= complete)
            };
            waiting.drain(..taken).for_each(|event| self.sink.take(event));
            self.sink.drained(complete);
            if stopped {
                return Ok(self.sink);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// The time is over, or a stream has enough.
    ToLook,
    /// A byte came: the result is waited for.
    AtOnce,
    /// The other end is closed.
    ToEnd,
}

fn wait<'a>(
    mut wakes: &PipeReader,
    streams: impl Iterator<Item = &'a File>,
    at_most: &Timespec,
) -> io::Result<Woken> {
    let mut poll_fds = vec![PollFd::new(wakes, PollFlags::IN)];
    poll_fds.extend(streams.map(|stream| PollFd::new(stream, PollFlags::IN)));
    match poll(&mut poll_fds, Some(at_most)) {
        Ok(_) if poll_fds[0].revents().is_empty() => Ok(Woken::ToLook),
        Ok(_) => Ok(if wakes.read(&mut [0; 16])? == 0 { Woken::ToEnd } else { Woken::AtOnce }),
        Err(rustix::io::Errno::INTR) => Ok(Woken::ToLook),
        Err(errno) => Err(errno.into()),
    }
}

/// Hands the pages that are there to `take`, until that says that it has enough. It must: reading is a
/// system call, which leaves an event of its own, so that a buffer read until it is empty never is. Gives
/// whether the stream's CPU is there: kernels have streams of those that may be added, and read them with an
/// error.
fn drain(stream: &mut File, page: &mut [u8], mut take: impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
    loop {
        match stream.read(page) {
            Ok(0) => return Ok(true),
            Ok(bytes) if take(&page[..bytes]) => {}
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

/// The niceness of this thread (in Linux each has its own): it has little to do, but on a busy machine it
/// must not wait until the buffers are full.
const NICENESS: libc::c_int = -10;

fn prefer_this_thread() {
    // SAFETY: setpriority takes numbers and touches no memory of ours.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) } != 0 {
        log::debug!("the observing thread keeps its priority: {}", io::Error::last_os_error());
    }
}

/// `CLOCK_MONOTONIC`, which the trace clock `mono` is.
pub(super) fn now() -> Nanos {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the argument is a whole timespec, alive for the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Nanos(
        now.tv_sec.cast_unsigned().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.cast_unsigned()),
    )
}
