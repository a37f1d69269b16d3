//! How often, and after which pauses, a request is made again.

use std::time::Duration;

use hs_units::{Nanos, Prng};

use super::HttpError;

/// When a user is told that a server is waited for.
const SAY_AFTER: Duration = Duration::from_secs(8);

/// Limits of trying again.
///
/// Pauses double from `first_pause` to `longest_pause`, and each is drawn between half of that and all of it,
/// so that the clients of a server that comes back do not all ask at once ("Exponential Backoff And Jitter",
/// AWS Architecture Blog 2015, "equal jitter").
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Further tries of a request that brings nothing. Bytes that come reset the count.
    pub tries: u32,
    /// The pause before the first of them.
    pub first_pause: Duration,
    /// The longest pause of our choice. A server may ask for more (`Retry-After`), up to
    /// [`longest_asked`](Self::longest_asked).
    pub longest_pause: Duration,
    /// The longest pause that a server may ask for; if it asks for more, the request fails.
    pub longest_asked: Duration,
    /// No try begins after this long without progress, so that the wait of a reader has an end however each
    /// try fails.
    pub total: Duration,
}

impl Default for Patience {
    /// A minute in all: the reboot of a small server, or a link that is plugged in again.
    fn default() -> Self {
        Self {
            tries: 10,
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(15),
            longest_asked: Duration::from_secs(60),
            total: Duration::from_secs(60),
        }
    }
}

impl Patience {
    /// Tries go on until so much time has passed without progress.
    #[must_use]
    pub fn within(total: Duration) -> Self {
        let usual = Self::default();
        let longest = usual.longest_pause.as_secs().max(1);
        // A pause may be half of the longest.
        let tries = u32::try_from(2 * total.as_secs() / longest).unwrap_or(u32::MAX);
        Self { total, tries: usual.tries.saturating_add(tries), ..usual }
    }

    /// For the first request, when a user waits for the result.
    #[must_use]
    pub fn for_opening() -> Self {
        Self { tries: 4, ..Self::default() }
    }

    /// The pause before further try number `done` + 1; `None` when it was the last one, or the server asks
    /// for too long a pause.
    pub(crate) fn pause(&self, done: u32, asked: Option<Duration>, jitter: &mut Prng) -> Option<Duration> {
        if done >= self.tries || asked.is_some_and(|asked| asked > self.longest_asked) {
            return None;
        }
        let full = self.first_pause.saturating_mul(1 << done.min(20)).min(self.longest_pause);
        let half = u64::try_from(full.as_nanos() / 2).unwrap_or(u64::MAX);
        let drawn = Duration::from_nanos(half.saturating_add(jitter.below(half.saturating_add(1))));
        Some(asked.map_or(drawn, |asked| asked.max(drawn)))
    }
}

/// Tries of one request.
pub(super) struct Tries {
    pub(super) patience: Patience,
    pub(super) done: u32,
    /// When the first was made, or progress was last seen.
    pub(super) began: Nanos,
    /// A user was told that they go on.
    has_said: bool,
}

impl Tries {
    pub(super) const fn new(patience: Patience, began: Nanos) -> Self {
        Self { patience, done: 0, began, has_said: false }
    }

    /// Says once that a server is waited for, when that takes long.
    pub(super) fn say_once(&mut self, name: &str, error: &HttpError, now: Nanos) {
        let total = self.patience.total;
        let waits = now.saturating_sub(self.began) >= Nanos::from(SAY_AFTER.min(total / 2));
        if waits
            && !self.has_said
            && self.patience.tries > Patience::for_opening().tries
            && error.is_transient()
        {
            self.has_said = true;
            log::warn!("{name}: {error}; it is asked again for {} s in all", total.as_secs());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_is_told_once_and_not_while_an_image_is_opened() {
        let late = Nanos::from(Duration::from_secs(3600));
        let passing = HttpError::Connection { reason: "cut".to_owned(), permanent: false };
        let lasting = HttpError::Connection { reason: "refused".to_owned(), permanent: true };
        let says = |patience: Patience, error: &HttpError, now: Nanos| {
            let mut tries = Tries::new(patience, Nanos(0));
            tries.say_once("x", error, now);
            tries.has_said
        };
        assert!(says(Patience::default(), &passing, late));
        assert!(!says(Patience::default(), &passing, Nanos(0)), "at once");
        assert!(!says(Patience::default(), &lasting, late), "it is not asked again");
        assert!(!says(Patience::for_opening(), &passing, late));
    }

    #[test]
    fn pauses_double_within_their_bounds_and_end() {
        let patience = Patience::default();
        let mut jitter = Prng::new(1);
        let mut total = Duration::ZERO;
        for done in 0..patience.tries {
            let full = (patience.first_pause * 2_u32.pow(done)).min(patience.longest_pause);
            let pause = patience.pause(done, None, &mut jitter).expect("one more");
            assert!(pause >= full / 2 && pause <= full, "{done}: {pause:?}");
            total += pause;
        }
        assert!(total > Duration::from_secs(30) && total < Duration::from_secs(100), "{total:?}");
        assert_eq!(patience.pause(patience.tries, None, &mut jitter), None);
    }

    #[test]
    fn tries_go_on_for_the_time_that_was_asked_for() {
        for seconds in [0, 60, 3_600, 1 << 40] {
            let patience = Patience::within(Duration::from_secs(seconds));
            let shortest = patience.longest_pause / 2;
            assert!(patience.tries >= Patience::default().tries);
            assert!(shortest * patience.tries >= patience.total.min(shortest * u32::MAX), "{seconds}");
        }
    }

    #[test]
    fn a_server_may_ask_for_more_time_but_not_for_ever() {
        let patience = Patience::default();
        let mut jitter = Prng::new(2);
        let asked = Duration::from_secs(40);
        assert_eq!(patience.pause(0, Some(asked), &mut jitter), Some(asked));
        assert!(patience.pause(3, Some(Duration::ZERO), &mut jitter) > Some(Duration::from_millis(100)));
        assert_eq!(patience.pause(0, Some(Duration::from_secs(61)), &mut jitter), None);
    }
}
