//! A guest that records its own start: it boots by firmware from a medium, whose initramfs records. The
//! profile comes over the guest's second serial line.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use hs_guest::line_socket::LineSocket;
use hs_guest::{Guest, GuestError};
use hs_trace::Profile;
use hs_units::Nanos;

use crate::recording_line::{Listener, Said, say_end};

/// How long a guest may say nothing after it was told that its start is over: it reads what it has recorded
/// once more, and looks for the files of these blocks, which takes a translated one a minute.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long QEMU may take to connect.
const CONNECTS_WITHIN: Duration = Duration::from_secs(30);
/// How often it is told: what is said before the guest listens is lost.
const SAY_EVERY: Duration = Duration::from_secs(1);
/// Why a guest that was ready has not said that it records.
const SILENT: &str = "its medium does not record. A medium of `headstart iso` does, whose kernel has the driver \
    qemu_fw_cfg: make one that is older anew";
/// Why a guest that has ended has no profile.
const ENDED: &str = "the guest ended before it had given the profile";

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
        let (sender, heard) = channel();
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
        let bytes = self.receive(guest)?;
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

    fn receive(&mut self, guest: &mut Guest) -> Result<Vec<u8>, GuestError> {
        let mut last = Instant::now();
        let mut is_coming = false;
        loop {
            // The line ends with the guest.
            let is_open = is_coming || say_end(&mut self.line).is_ok();
            if !is_open || guest.check_runs().is_err() {
                return Err(not_recorded(ENDED));
            }
            match self.heard.recv_timeout(SAY_EVERY) {
                Ok((_, Heard::Said(Said::Profile(bytes)))) => return Ok(bytes),
                Ok((_, Heard::Said(Said::Failed(why)))) => return Err(not_recorded(why)),
                Ok((_, Heard::Said(Said::Begun))) => {}
                Ok((at, Heard::More)) => (last, is_coming) = (at, true),
                Err(RecvTimeoutError::Timeout) if last.elapsed() < PATIENCE => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(not_recorded(format!("it gave no profile in {} s", PATIENCE.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(not_recorded(ENDED)),
            }
        }
    }
}

fn not_recorded(why: impl Into<String>) -> GuestError {
    GuestError::NotRecorded { why: why.into() }
}

fn listen(mut line: UnixStream, sender: &Sender<(Instant, Heard)>) {
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
