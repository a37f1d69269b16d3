//! A guest that records its own start: it boots by firmware from a medium, whose initramfs records. The
//! profile comes over the guest's second serial line.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use hs_guest::line_socket::LineSocket;
use hs_guest::{Guest, GuestError};
use hs_trace::Profile;
use hs_units::Nanos;

use crate::recording_line::{Listener, Said, say_end};

/// How long a guest may say nothing after it was told that its start is over: it reads what it has recorded
/// once more, and looks for the files of these blocks, which takes a translated one a minute.
const PATIENCE: Patience = Patience { silence: Duration::from_secs(300), whole: Duration::from_secs(1_800) };
/// How long QEMU may take to connect.
const CONNECTS_WITHIN: Duration = Duration::from_secs(30);
/// How often it is told: what is said before the guest listens is lost.
const SAY_EVERY: Duration = Duration::from_secs(1);
/// Why a guest that was ready has not said that it records.
const SILENT: &str = "its medium does not record. A medium of `headstart iso` does, whose kernel has the driver \
    qemu_fw_cfg: make one that is older anew";
/// Why a guest that has ended has no profile.
const ENDED: &str = "the guest ended before it had given the profile";

/// How long a guest may take for its profile.
#[derive(Clone, Copy)]
struct Patience {
    /// Without a byte of it.
    silence: Duration,
    /// Altogether.
    whole: Duration,
}

/// What the line has brought.
enum Heard {
    /// Bytes of a profile that is not whole yet.
    More,
    /// Something whole.
    Said(Said),
}

/// A recording that runs in a guest.
pub(super) struct OwnRecording {
    line: UnixStream,
    heard: Receiver<(Instant, Heard)>,
}

impl OwnRecording {
    /// Listens to a guest that is to record itself.
    pub(super) fn begin(line: &LineSocket, guest: &mut Guest) -> Result<Self, GuestError> {
        let failed = |error: io::Error| not_recorded(format!("its serial line cannot be heard: {error}"));
        let line = line.accept(guest, CONNECTS_WITHIN)?.map_err(failed)?;
        let reader = line.try_clone().map_err(failed)?;
        line.set_write_timeout(Some(SAY_EVERY)).map_err(failed)?;
        // A guest says one thing before it is told to end. One that says more waits.
        let (sender, heard) = sync_channel(1);
        let thread = std::thread::Builder::new().name("hs-recording".to_owned());
        thread.spawn(move || listen(reader, &sender)).map_err(failed)?;
        Ok(Self { line, heard })
    }

    /// Ends the recording of a guest that was started and ready then, and waits for the profile. Gives when
    /// that began as well, from the start on.
    pub(super) fn finish(
        mut self,
        guest: &mut Guest,
        (began, ready): (Instant, Duration),
    ) -> Result<(Duration, Profile), GuestError> {
        let Ok((at, Heard::Said(Said::Begun))) = self.heard.recv_timeout(SAY_EVERY) else {
            return Err(not_recorded(SILENT));
        };
        let bytes = receive(&self.heard, &mut self.line, PATIENCE, || guest.check_runs().is_ok())?;
        let mut profile = Profile::decode(&bytes).map_err(|error| {
            not_recorded(format!(
                "the profile is damaged ({error}): does a program of the guest use /dev/ttyS1 too?"
            ))
        })?;
        let from = at.saturating_duration_since(began);
        // The guest's clock and this one's may differ.
        profile.ready = Some(Nanos::from(ready.saturating_sub(from)).min(profile.ended));
        Ok((from, profile))
    }
}

/// Tells the guest that its start is over, until it gives its profile.
fn receive(
    heard: &Receiver<(Instant, Heard)>,
    line: &mut impl Write,
    patience: Patience,
    mut runs: impl FnMut() -> bool,
) -> Result<Vec<u8>, GuestError> {
    let began = Instant::now();
    let (mut last, mut is_coming) = (began, false);
    // A line that takes nothing now may do so later. One that is closed says so when it is read.
    let _ = say_end(line);
    while last.elapsed() < patience.silence && began.elapsed() < patience.whole {
        match heard.recv_timeout(SAY_EVERY.min(patience.silence)) {
            Ok((_, Heard::Said(Said::Profile(bytes)))) => return Ok(bytes),
            Ok((_, Heard::Said(Said::Failed(why)))) => return Err(not_recorded(why)),
            Ok((_, Heard::Said(Said::Begun))) => {}
            Ok((at, Heard::More)) => (last, is_coming) = (at, true),
            Err(RecvTimeoutError::Disconnected) => return Err(not_recorded(ENDED)),
            Err(RecvTimeoutError::Timeout) if !runs() => return Err(not_recorded(ENDED)),
            Err(RecvTimeoutError::Timeout) if !is_coming => drop(say_end(line)),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    Err(not_recorded(format!("it gave no profile in {} s", began.elapsed().as_secs())))
}

fn not_recorded(why: impl Into<String>) -> GuestError {
    GuestError::NotRecorded { why: why.into() }
}

fn listen(mut line: UnixStream, sender: &SyncSender<(Instant, Heard)>) {
    let (mut listener, mut buffer) = (Listener::default(), [0; 4096]);
    while let Ok(read @ 1..) = line.read(&mut buffer) {
        let said = listener.feed(&buffer[..read]).into_iter().map(Heard::Said);
        let more = listener.is_receiving().then_some(Heard::More);
        for heard in said.chain(more) {
            if sender.send((Instant::now(), heard)).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Patience =
        Patience { silence: Duration::from_millis(300), whole: Duration::from_millis(2_000) };

    /// What is received from a guest that does this with its line.
    fn received(guest: impl FnOnce(UnixStream) + Send + 'static) -> Result<Vec<u8>, GuestError> {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let (sender, heard) = sync_channel(1);
        let reader = ours.try_clone().unwrap();
        std::thread::spawn(move || listen(reader, &sender));
        let guest = std::thread::spawn(move || guest(theirs));
        let received = receive(&heard, &mut ours, SHORT, || true);
        drop((heard, ours));
        guest.join().unwrap();
        received
    }

    fn says(mut line: &UnixStream, what: &[u8], times: usize, pause: Duration) {
        for _ in 0..times {
            std::thread::sleep(pause);
            if line.write_all(what).is_err() {
                return;
            }
        }
    }

    #[test]
    fn a_guest_that_ends_right_after_its_profile_has_given_it() {
        let profile = received(|line| says(&line, b"headstart-profile 3\nabc", 1, Duration::ZERO));
        assert_eq!(profile.unwrap(), b"abc");
    }

    #[test]
    fn a_guest_that_talks_without_end_is_not_waited_for() {
        let chatter =
            |line: UnixStream| says(&line, b"headstart-recording\n", 400, Duration::from_millis(10));
        assert!(received(chatter).is_err());
        let slowly = |line: UnixStream| {
            says(&line, b"headstart-profile 1000000\n", 1, Duration::ZERO);
            says(&line, b"x", 100, Duration::from_millis(100));
        };
        assert!(received(slowly).is_err());
    }

    #[test]
    fn a_line_that_is_full_stops_nothing() {
        let full = |line: UnixStream| {
            std::thread::sleep(Duration::from_millis(1_000));
            drop(line);
        };
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.set_write_timeout(Some(Duration::from_millis(10))).unwrap();
        while say_end(&mut ours).is_ok() {}
        let (_sender, heard) = sync_channel(1);
        let began = Instant::now();
        assert!(receive(&heard, &mut ours, SHORT, || true).is_err());
        assert!(began.elapsed() < Duration::from_secs(20));
        drop(theirs);
        assert!(received(full).is_err());
    }
}
