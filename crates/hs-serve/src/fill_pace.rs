//! How large the requests of a fill are, how many are under way at once, and how long it leaves the medium
//! alone for readers.
//!
//! Two are under way, so that one is on the link while the other waits for its first byte, and while what it
//! has brought is verified. They share the link: a request alone has as many bytes as both together.
//!
//! A read that comes while requests are under way waits for them, or shares the link with them. So they take
//! no longer than [`REQUEST_TAKES`], as far as the ones before tell. The wait for a first byte does not
//! count, or a far server would be asked for little at a time. Before the next one, no read may have waited
//! for as long as a request takes. So a program that waits again and again is at most half as fast as without
//! the fill; one that soon needs the next read, as most do, is held up once.

use std::time::Duration;

/// What a request may take, while another one shares the link.
const REQUEST_TAKES: Duration = Duration::from_millis(100);
/// Bytes of a request; also those of the first one.
const LEAST_REQUEST_BYTES: u64 = 64 << 10;
const MOST_UNDER_WAY_BYTES: u64 = 4 << 20;
/// The time in which no read may have waited before the first request: programs start then, and read from
/// memory what the prefetch has brought.
const FIRST_QUIET: Duration = Duration::from_secs(2);
/// Its bounds before the other requests.
const LEAST_QUIET: Duration = Duration::from_millis(50);
const MOST_QUIET: Duration = Duration::from_millis(500);

/// What the requests that are over say of the medium.
#[derive(Debug)]
pub(crate) struct FillPace {
    /// Of all requests together.
    under_way_bytes: u64,
    quiet: Duration,
    /// The shortest wait for a first byte: later ones may have waited for the other request.
    access: Duration,
}

impl FillPace {
    pub(crate) const fn new() -> Self {
        Self { under_way_bytes: LEAST_REQUEST_BYTES, quiet: FIRST_QUIET, access: Duration::MAX }
    }

    /// How many requests may be under way at once: where even the smallest ones take long, one.
    pub(crate) const fn requests(&self) -> u64 {
        if self.under_way_bytes < 2 * LEAST_REQUEST_BYTES { 1 } else { 2 }
    }

    /// Bytes of the next request.
    pub(crate) const fn request_bytes(&self) -> u64 {
        self.under_way_bytes / self.requests()
    }

    /// The time in which no read may have waited.
    pub(crate) const fn quiet(&self) -> Duration {
        self.quiet
    }

    /// A request of so many bytes took so long, until its first byte and until its end.
    pub(crate) fn handle_request(&mut self, bytes: u64, first_byte: Duration, end: Duration) {
        self.quiet = end.clamp(LEAST_QUIET, MOST_QUIET);
        self.access = self.access.min(first_byte);
        let took = end.saturating_sub(self.access);
        // One that was too long halves the next ones, one that was short doubles them, if it was as large as
        // they are.
        if took > REQUEST_TAKES {
            self.under_way_bytes = (self.under_way_bytes / 2).max(LEAST_REQUEST_BYTES);
        } else if took < REQUEST_TAKES / 2 && bytes > self.request_bytes() / 2 {
            self.under_way_bytes = (self.under_way_bytes * 2).min(MOST_UNDER_WAY_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After requests to a link of this rate, which all that are under way share.
    fn after(bytes_a_second: f64, access: f64) -> FillPace {
        let mut pace = FillPace::new();
        for _ in 0..20 {
            let bytes = pace.request_bytes() * pace.requests();
            let took = Duration::from_secs_f64(access + bytes as f64 / bytes_a_second);
            pace.handle_request(pace.request_bytes(), Duration::from_secs_f64(access), took);
        }
        pace
    }

    #[test]
    fn a_fast_medium_has_large_requests_and_short_pauses() {
        let pace = after(25e9, 0.01);
        assert_eq!((pace.requests(), pace.request_bytes()), (2, MOST_UNDER_WAY_BYTES / 2));
        assert_eq!(pace.quiet(), LEAST_QUIET);
    }

    #[test]
    fn two_requests_take_as_long_as_a_reader_may_wait_and_each_many_times_the_latency() {
        let pace = after(25e6, 0.005);
        assert_eq!((pace.requests(), pace.request_bytes()), (2, 1 << 20), "0.084 s for both");
        assert_eq!(after(25e6, 0.3).request_bytes(), 1 << 20, "however far the server is");
    }

    #[test]
    fn a_slow_link_has_small_requests_one_after_the_other_and_longer_pauses() {
        let pace = after(1.18e6, 0.001);
        assert_eq!((pace.requests(), pace.request_bytes()), (1, LEAST_REQUEST_BYTES));
        assert!((Duration::from_millis(55)..Duration::from_millis(115)).contains(&pace.quiet()), "{pace:?}");
        let pace = after(1e4, 0.1);
        assert_eq!(
            (pace.requests(), pace.request_bytes(), pace.quiet()),
            (1, LEAST_REQUEST_BYTES, MOST_QUIET)
        );
    }

    #[test]
    fn a_link_that_slows_down_is_left_to_one_request() {
        let mut pace = after(25e6, 0.005);
        for _ in 0..8 {
            pace.handle_request(pace.request_bytes(), Duration::from_millis(5), Duration::from_secs(1));
        }
        assert_eq!((pace.requests(), pace.request_bytes()), (1, LEAST_REQUEST_BYTES));
    }

    #[test]
    fn small_requests_at_the_end_of_a_run_say_nothing_of_large_ones() {
        let mut pace = FillPace::new();
        pace.handle_request(1000, Duration::ZERO, Duration::from_millis(1));
        assert_eq!(pace.request_bytes(), LEAST_REQUEST_BYTES);
    }

    #[test]
    fn a_request_that_began_before_others_were_doubled_says_nothing_of_them() {
        let mut pace = after(25e9, 0.04);
        let bytes = 256 << 10;
        pace.under_way_bytes = 2 * bytes;
        pace.handle_request(bytes, Duration::ZERO, Duration::from_millis(30));
        pace.handle_request(bytes, Duration::ZERO, Duration::from_millis(30));
        assert_eq!(pace.request_bytes(), 2 * bytes);
    }
}
