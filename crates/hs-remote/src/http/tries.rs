//! Repeats requests after pauses, one at a time.

use std::time::{Duration, SystemTime};

use hs_units::{Nanos, Prng};

use super::{HttpError, Patience};
use hs_store::{Clock, Monotonic};

/// Repeats requests while they may succeed.
pub(crate) struct Tries {
    /// The server, for messages.
    address: String,
    jitter: Prng,
    clock: Monotonic,
}

impl Tries {
    pub(crate) fn new(address: String) -> Self {
        Self { address, jitter: Prng::new(seed()), clock: Monotonic::new() }
    }

    /// Repeats an operation, after pauses, while it may succeed.
    pub(crate) fn often<T>(
        &mut self,
        mut what: impl FnMut() -> Result<T, HttpError>,
    ) -> Result<T, HttpError> {
        let mut done = 0;
        loop {
            match what() {
                Err(error) => self.pause(&mut done, error)?,
                done => return done,
            }
        }
    }

    /// Waits before the next try, or returns the error when there is none.
    pub(crate) fn pause(&mut self, done: &mut u32, error: HttpError) -> Result<(), HttpError> {
        let patience = Patience::for_opening();
        let pause = patience.pause(*done, error.retry_after(), &mut self.jitter);
        let Some(pause) = pause.filter(|_| error.is_transient()) else { return Err(error) };
        *done += 1;
        log::debug!("{}: {error}; again in {pause:.1?}", self.address);
        self.clock.sleep_until(self.clock.now() + Nanos::from(pause.max(Duration::from_nanos(1))));
        Ok(())
    }
}

/// Not a secret: it only has to differ between processes.
fn seed() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
