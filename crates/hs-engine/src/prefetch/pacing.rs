//! When the next request is made, and how much it brings.

use hs_units::Nanos;

use super::{Prefetch, UNKNOWN_JUMP};

/// When the next request may be made.
pub(super) enum NextRequest {
    Now,
    At(Nanos),
    Unknown,
}

/// How much earlier than one latency before its end a request is followed by the next. Waking takes time, and
/// time in which the medium is idle is lost.
pub(super) const EARLY: Nanos = Nanos::from_millis(2);
/// Until a reader has used the stream, the stream leaves a medium that overlaps requests idle for this part
/// of its latency.
const CAREFUL_SHARE: u64 = 4;
/// For the time of this many jumps after a miss another one is expected, and requests are kept short.
const RECENT_JUMPS: u64 = 40;
/// While readers miss, or may come that use nothing of the stream, a request lasts for this many times its
/// fixed cost, which is then a price of 20%. The fixed cost is one command on a drive that reads ahead, when
/// the request continues the last one, and one latency on a link without overlap.
const LEAST_GAPS: u64 = 4;
/// Where each request costs as much as a read, it lasts for three times that while readers miss, and
/// [`AWAITED`] does the rest.
const DEAR_GAPS: u64 = 3;
/// There the stream waits after each request until the program has shown what it needs next, for at most this
/// long. The program computes when the last chunk has come. If it then wants something else, the medium is
/// free.
const AWAITED: Nanos = Nanos::from_millis(5);
/// While readers miss, a request lasts no longer than this part of a read elsewhere, so that a read that
/// comes during the request waits at most half as long again.
const SHARE_OF_JUMP: u64 = 2;
/// Where one chunk takes more than this part of a small read elsewhere, requests cannot be made so small, and
/// the stream waits for the program as if each request cost as much as a read.
const SHARE_OF_READ: u64 = 2;
/// No request is smaller, but for the last.
const LEAST_REQUEST: u64 = 64 << 10;

impl Prefetch {
    /// Whether no reader has used the stream yet, so that the first read may be for something else.
    pub(super) fn is_careful(&self, now: Nanos) -> bool {
        self.confidence.is_careful(now, self.read_elsewhere(self.estimate.latency()))
    }

    /// How long a small read elsewhere takes; its jump is `unknown` until one was measured.
    pub(super) fn read_elsewhere(&self, unknown: Nanos) -> Nanos {
        self.estimate.jump().unwrap_or(unknown) + self.estimate.transfer(LEAST_REQUEST).unwrap_or_default()
    }

    /// Whether each request delays a reader for about as long as the reader's own request takes, however
    /// small it is. On a link that does not overlap requests, a request that continues the last one costs
    /// what the first one did. The time to wake a thread is not such a price: a disk whose head is already
    /// there answers the first request as fast as any other. A response that brings everything has no
    /// requests, and what looks like their price is waiting for a processor.
    pub(super) fn has_dear_requests(&self) -> bool {
        let price = EARLY.max(Nanos(self.estimate.latency().0 / 2));
        !self.overlaps && self.config.most_under_way > 1 && self.estimate.gap().is_some_and(|gap| gap > price)
    }

    /// Whether as many requests are under way as may be. Whatever arrives or is released meanwhile,
    /// [`Prefetch::poll`] requests nothing before one of them has ended.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let most = if self.overlaps { Self::MOST_UNDER_WAY } else { 2 };
        self.in_flight.len() >= most.min(self.config.most_under_way)
    }

    /// Another request is made one latency before what is under way is done. This is early enough that a
    /// medium that overlaps requests never pauses. It is so late that on a medium without overlap a demand
    /// read finds at most one request before it.
    pub(super) fn next_turn(&self, now: Nanos) -> NextRequest {
        let careful = self.is_careful(now);
        let halves = careful && self.has_dear_requests();
        if self.awaits_program(now) {
            return match self.last_done {
                _ if !self.in_flight.is_empty() => NextRequest::Unknown,
                Some(done) if self.heard <= done => NextRequest::At(done + AWAITED),
                _ => NextRequest::Now,
            };
        }
        let Some(front) = self.in_flight.front() else {
            return match self.answered.back() {
                // It leaves two thirds of the medium's time free.
                Some((asked, answered)) if halves => NextRequest::At(
                    *answered + answered.saturating_sub(*asked) + answered.saturating_sub(*asked),
                ),
                _ => NextRequest::Now,
            };
        };
        if halves {
            return NextRequest::Unknown;
        }
        if self.is_full() {
            return NextRequest::Unknown;
        }
        let behind: u64 =
            self.in_flight.iter().skip(1).map(|request| self.chunks.stored(&request.chunks)).sum();
        let latency = self.estimate.latency();
        // What has not come by the end of the request before it comes then, or later.
        let expected = (behind > 0).then(|| (front.asked + latency).max(self.last_done.unwrap_or_default()));
        match front.done(expected, self.chunks.stored(&front.chunks), &self.estimate) {
            Some(done) => {
                let done = done + self.estimate.transfer(behind).unwrap_or_default();
                let ahead = if careful {
                    Nanos(latency.0 / CAREFUL_SHARE * (CAREFUL_SHARE - 1))
                } else if self.is_missing(now) {
                    latency
                } else {
                    // The first piece counts here: a stream that delays no reader may be early.
                    self.estimate.latency_with_piece() + EARLY
                };
                NextRequest::At(done.saturating_sub(ahead))
            }
            None => NextRequest::Unknown,
        }
    }

    /// Whether a request is made only when the program has shown what it needs next.
    pub(super) fn awaits_program(&self, now: Nanos) -> bool {
        self.config.yields && self.is_missing(now) && (self.has_dear_requests() || self.has_long_chunks())
    }

    /// Whether the smallest request, one chunk, delays a reader for more than half of the reader's own
    /// request.
    fn has_long_chunks(&self) -> bool {
        let read = self.read_elsewhere(UNKNOWN_JUMP);
        let long = |lasts: Nanos| lasts.0 > read.0 / SHARE_OF_READ;
        // With only one request at a time, the cost of a request that follows another would never be known.
        let is_known = !self.overlaps && self.estimate.gap().is_some();
        is_known && self.estimate.transfer(self.mean_chunk_bytes()).is_some_and(long)
    }

    /// Whether a reader missed so recently that another miss is expected.
    pub(super) fn is_missing(&self, now: Nanos) -> bool {
        let recent = self.estimate.jump().unwrap_or(UNKNOWN_JUMP).0.saturating_mul(RECENT_JUMPS);
        self.has_missed && now < self.last_demand + Nanos(recent)
    }

    /// How long the next request may occupy the medium.
    pub(super) fn occupancy(&self, now: Nanos) -> Nanos {
        let jump = self.estimate.jump();
        let missing = self.is_missing(now);
        let contended = self.overlaps || missing;
        let most = if contended { self.config.max_occupancy_contended } else { self.config.max_occupancy };
        if !self.config.yields {
            return most;
        }
        let careful = self.is_careful(now);
        if self.overlaps {
            // Several small requests under way are as good as one large request, and a read waits for less.
            let calm = || {
                if missing || careful { self.estimate.latency() } else { self.estimate.latency_with_piece() }
            };
            let elsewhere = jump.filter(|_| missing).unwrap_or_else(calm);
            return most.min(Nanos(elsewhere.0 / SHARE_OF_JUMP));
        }
        // Until one request has followed another its cost is not known.
        let Some(gap) = self.estimate.gap() else { return most.min(self.config.max_occupancy_contended) };
        let gaps = |count: u64| Nanos(gap.0.saturating_mul(count));
        let limit = match jump {
            _ if self.awaits_program(now) => gaps(DEAR_GAPS),
            Some(jump) if missing => Nanos(jump.0 / SHARE_OF_JUMP).max(gaps(LEAST_GAPS)),
            _ if careful => gaps(LEAST_GAPS),
            _ => most,
        };
        most.min(limit)
    }

    /// The most bytes of the next request.
    pub(super) fn request_limit(&self, now: Nanos) -> u64 {
        let least = if self.config.yields { LEAST_REQUEST } else { self.config.first_request_bytes };
        // Before the opening request is done, the time for a byte is not known.
        let unknown = if self.config.yields && !self.in_flight.is_empty() { least } else { u64::MAX };
        let by_occupancy = self.estimate.bytes_in(self.occupancy(now)).unwrap_or(unknown);
        self.request_bytes.min(by_occupancy).max(least.min(self.config.first_request_bytes))
    }
}
