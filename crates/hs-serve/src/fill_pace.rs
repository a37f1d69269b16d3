//! How large the requests of a fill are, and how long it leaves the medium alone for readers.
//!
//! A read that comes while a request is under way waits for it, or shares the link with it. So a request
//! takes no longer than [`REQUEST_TAKES`], as far as the ones before it tell. Before the next one, no read
//! may have waited for as long as a request takes. So a program that waits again and again is at most half
//! as fast as without the fill; one that soon needs the next read, as most do, is held up once.

use std::time::Duration;

/// What a request may take.
const REQUEST_TAKES: Duration = Duration::from_millis(100);
/// Bytes of a request; also those of the first one.
pub(crate) const LEAST_REQUEST_BYTES: u64 = 64 << 10;
const MOST_REQUEST_BYTES: u64 = 4 << 20;
/// The time in which no read may have waited before the first request: programs start then, and read from
/// memory what the prefetch has brought.
const FIRST_QUIET: Duration = Duration::from_secs(2);
/// Its bounds before the other requests.
const LEAST_QUIET: Duration = Duration::from_millis(50);
const MOST_QUIET: Duration = Duration::from_millis(500);

/// What the requests that are over say of the medium.
#[derive(Debug)]
pub(crate) struct FillPace {
    request_bytes: u64,
    quiet: Duration,
}

impl FillPace {
    pub(crate) const fn new() -> Self {
        Self { request_bytes: LEAST_REQUEST_BYTES, quiet: FIRST_QUIET }
    }

    /// Bytes of the next request.
    pub(crate) const fn request_bytes(&self) -> u64 {
        self.request_bytes
    }

    /// The time in which no read may have waited.
    pub(crate) const fn quiet(&self) -> Duration {
        self.quiet
    }

    /// A request took so long, and the fill is so many bytes further. That may be more than the request had:
    /// chunks that are there are passed over.
    pub(crate) fn handle_request(&mut self, bytes: u64, took: Duration) {
        self.quiet = took.clamp(LEAST_QUIET, MOST_QUIET);
        // One that was too long halves the next ones, one that was short doubles them.
        if took > REQUEST_TAKES {
            self.request_bytes = (self.request_bytes / 2).max(LEAST_REQUEST_BYTES);
        } else if took < REQUEST_TAKES / 2 && bytes > self.request_bytes / 2 {
            self.request_bytes = (self.request_bytes * 2).min(MOST_REQUEST_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(bytes_a_second: f64, access: f64) -> FillPace {
        let mut pace = FillPace::new();
        for _ in 0..10 {
            let bytes = pace.request_bytes();
            pace.handle_request(bytes, Duration::from_secs_f64(access + bytes as f64 / bytes_a_second));
        }
        pace
    }

    #[test]
    fn a_fast_medium_has_large_requests_and_short_pauses() {
        let pace = after(25e9, 0.01);
        assert_eq!(pace.request_bytes(), MOST_REQUEST_BYTES);
        assert_eq!(pace.quiet(), LEAST_QUIET);
    }

    #[test]
    fn a_request_is_as_long_as_a_reader_may_wait_and_many_times_the_latency() {
        let pace = after(25e6, 0.005);
        assert_eq!(pace.request_bytes(), 2 << 20, "0.089 s");
    }

    #[test]
    fn a_slow_link_has_small_requests_and_longer_pauses() {
        let pace = after(1.18e6, 0.001);
        assert!(pace.request_bytes() <= 128 << 10, "{pace:?}");
        assert!((Duration::from_millis(55)..Duration::from_millis(115)).contains(&pace.quiet()), "{pace:?}");
        let pace = after(1e4, 0.1);
        assert_eq!((pace.request_bytes(), pace.quiet()), (LEAST_REQUEST_BYTES, MOST_QUIET));
    }

    #[test]
    fn small_requests_at_the_end_of_a_run_say_nothing_of_large_ones() {
        let mut pace = FillPace::new();
        pace.handle_request(1000, Duration::from_millis(1));
        assert_eq!(pace.request_bytes(), LEAST_REQUEST_BYTES);
    }
}
