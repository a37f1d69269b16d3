//! Whether to fetch the rest of an image behind demand, and how much of it at a time.
//!
//! A program that starts without a profile asks for one window after another, and waits one latency for each.
//! Where requests are dear and bytes are cheap, the windows that it has not asked for come behind its own
//! requests. A window pays when the latency that it saves, times the chance that it is needed, is longer than
//! its transfer. All of that is observed: latency and rate from every fetch, the chance from the windows that
//! came this way and were read.
//!
//! No more is under way than the medium transfers in one latency. A read that is made at the same time
//! passes its own latency meanwhile, so it loses no time. While no read waits, less is under way: the next
//! read should not find the medium occupied.

mod learned;
mod order;

use hs_units::Nanos;

use crate::{MediumEstimate, NeighbourPrice};
pub(crate) use learned::Learned;
pub(crate) use order::Order;

/// The chance that a window is needed before anything is observed: a start reads a fifth to two fifths of the
/// windows of an image that is made for it.
const ASSUMED_CHANCE: f64 = 0.25;
/// How many windows that assumption weighs.
const ASSUMED_WINDOWS: f64 = 64.0;
/// A window counts as unused when this many reads have passed it by.
const RIPENING: usize = 32;
/// The most that is under way, however long the latency and however high the rate.
const MOST_UNDER_WAY: u64 = 16 << 20;
/// The least that is worth a request.
const LEAST_REQUEST: u64 = 64 << 10;
/// While no read waits, this part of what could be under way is.
const IDLE_PART: u64 = 2;
/// What may be under way as long as the medium's rate is not known.
const ASSUMED_IN_A_LATENCY: u64 = 512 << 10;
/// What may be under way is asked for with so many requests, so that there is always one that the medium
/// works on.
const REQUESTS: u64 = 4;

/// One answered request to the medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub asked: Nanos,
    /// When its first piece had come, and the bytes of that.
    pub first: (Nanos, u64),
    pub done: Nanos,
    pub bytes: u64,
    /// Nothing else was under way when it was made, and the medium had to be asked: its first piece shows the
    /// latency.
    pub shows_latency: bool,
}

/// The size of one request for learned windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LearnedRequest {
    pub bytes: u64,
    /// Bytes between two windows that are read over rather than asked for twice.
    pub gap_bytes: u64,
}

/// Learns whether windows that no read has asked for pay.
#[derive(Debug)]
pub(crate) struct Background {
    /// What may be under way is asked for with so many requests.
    requests: u64,
    estimate: MediumEstimate,
    /// Windows brought, their bytes, and how many of them were read.
    windows: u64,
    bytes: u64,
    used: u64,
    /// How many had been brought at each of the latest reads.
    at_reads: [u64; RIPENING],
    reads: usize,
}

impl Background {
    /// `overlaps` is whether the medium serves several requests in the time of one.
    pub(crate) fn new(overlaps: bool) -> Self {
        Self {
            requests: if overlaps { REQUESTS } else { 1 },
            estimate: MediumEstimate::default(),
            windows: 0,
            bytes: 0,
            used: 0,
            at_reads: [0; RIPENING],
            reads: 0,
        }
    }

    /// A request to the medium was answered, whatever it was for.
    pub(crate) fn handle_answered(&mut self, answered: Answered) {
        let (first, first_bytes) = answered.first;
        if answered.shows_latency {
            self.estimate.observe_latency(answered.asked, first, first_bytes);
        }
        self.estimate.observe_rate(first, answered.done, answered.bytes.saturating_sub(first_bytes));
    }

    /// A window came that no read had asked for.
    pub(crate) const fn handle_brought(&mut self, bytes: u64) {
        self.windows += 1;
        self.bytes += bytes;
    }

    /// A window that came this way, or is coming, is read.
    pub(crate) const fn handle_used(&mut self) {
        self.used += 1;
    }

    /// A read waits for the medium, or would have without this.
    pub(crate) const fn handle_read(&mut self) {
        self.at_reads[self.reads % RIPENING] = self.windows;
        self.reads += 1;
    }

    /// How many reads have waited for the medium, or would have without this.
    pub(crate) const fn reads(&self) -> usize {
        self.reads
    }

    /// The chance that a window is needed.
    fn chance(&self) -> f64 {
        // The oldest entry is the next to be written over; before there are enough none is ripe.
        let ripe = self.at_reads[self.reads % RIPENING].max(self.used);
        (self.used as f64 + ASSUMED_CHANCE * ASSUMED_WINDOWS) / (ripe as f64 + ASSUMED_WINDOWS)
    }

    /// Whether another window, of `assumed_bytes` as long as none has come, saves more than it costs.
    pub(crate) fn pays(&self, assumed_bytes: u64) -> bool {
        let bytes = self.bytes.checked_div(self.windows).unwrap_or(assumed_bytes);
        let saved = self.chance() * self.estimate.latency().0 as f64;
        self.estimate.transfer(bytes).is_some_and(|transfer| saved > transfer.0 as f64)
    }

    /// What a neighbour of a miss saves and costs; none as long as the medium is not known.
    pub(crate) fn neighbour_price(&self, bytes: u64) -> Option<NeighbourPrice> {
        let transfer = self.estimate.transfer(bytes)?;
        let latency = self.estimate.latency();
        (latency > Nanos::ZERO).then_some(NeighbourPrice { latency, transfer })
    }

    /// Whether a learned window saves more than it costs, when it is needed by this `chance`: see
    /// [`learned`].
    pub(crate) fn learned_pays(&self, chance: f64, bytes: u64) -> bool {
        let saved = chance * self.estimate.latency().0 as f64;
        let lost = |transfer: Nanos| (1.0 - chance) * transfer.0 as f64;
        self.estimate.transfer(bytes).is_none_or(|transfer| saved > lost(transfer))
    }

    /// The bytes that a request may ask for now, when `under_way` bytes are; none when it should wait.
    pub(crate) fn request_bytes(&self, under_way: u64, reads_wait: bool) -> Option<u64> {
        let in_a_latency = self.in_a_latency()?;
        let most = if reads_wait { in_a_latency } else { in_a_latency / IDLE_PART };
        self.part_of(most, under_way)
    }

    /// The same for learned windows: no read is likely to want others meanwhile. A gap is read over when that
    /// takes no longer than half of the latency that it saves. Where requests overlap, the others hide most
    /// of that latency.
    pub(crate) fn learned_request(&self, under_way: u64) -> Option<LearnedRequest> {
        let bytes = self.part_of(self.in_a_latency().unwrap_or(ASSUMED_IN_A_LATENCY), under_way)?;
        Some(LearnedRequest { bytes, gap_bytes: bytes / (2 * self.requests) })
    }

    fn in_a_latency(&self) -> Option<u64> {
        Some(self.estimate.bytes_in(self.estimate.latency())?.min(MOST_UNDER_WAY))
    }

    /// What one request may ask for where `most` bytes may be under way.
    fn part_of(&self, most: u64, under_way: u64) -> Option<u64> {
        let most = most.max(LEAST_REQUEST);
        let each = (most / self.requests).max(LEAST_REQUEST);
        (under_way + each <= most).then_some(each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A medium of this latency, in milliseconds, and rate, in MB a second, of which some requests were seen.
    fn seen(latency_ms: u64, mb_per_s: u64) -> Background {
        let mut background = Background::new(true);
        let after = |bytes: u64| Nanos::from_millis(latency_ms) + Nanos(bytes * 1000 / mb_per_s);
        for _ in 0..4 {
            background.handle_answered(Answered {
                asked: Nanos::ZERO,
                first: (after(50_000), 50_000),
                done: after(400_000),
                bytes: 400_000,
                shows_latency: true,
            });
        }
        background
    }

    #[test]
    fn it_pays_where_bytes_are_cheap_and_requests_dear() {
        let pays = |latency_ms, mb_per_s| seen(latency_ms, mb_per_s).pays(50_000);
        assert!(pays(20, 1000) && pays(20, 100) && pays(10, 25));
        assert!(!pays(20, 1) && !pays(0, 125) && !pays(5, 25));
        assert!(!Background::new(true).pays(50_000), "nothing is known yet");
    }

    #[test]
    fn windows_that_are_not_read_end_it_and_windows_that_are_read_begin_it() {
        let mut background = seen(10, 25);
        let bring = |background: &mut Background, used: bool| {
            background.handle_brought(50_000);
            background.handle_read();
            if used {
                background.handle_used();
            }
        };
        (0..100).for_each(|_| bring(&mut background, false));
        assert!(!background.pays(50_000));
        let mut background = seen(5, 25);
        assert!(!background.pays(50_000));
        (0..100).for_each(|_| bring(&mut background, true));
        assert!(background.pays(50_000));
    }

    #[test]
    fn as_much_is_under_way_as_comes_within_a_latency() {
        let background = seen(20, 100);
        let each = background.request_bytes(0, true).expect("nothing is under way");
        assert!((450_000..550_000).contains(&each), "{each}");
        assert_eq!(background.request_bytes(3 * each, true), Some(each));
        assert_eq!(background.request_bytes(3 * each + 4, true), None, "four are as much as comes");
        assert!(background.request_bytes(0, false).expect("nothing is under way") <= each / 2);
        assert_eq!(seen(1, 1).request_bytes(0, true), Some(LEAST_REQUEST));
        assert_eq!(seen(1, 1).request_bytes(1, true), None);
        assert_eq!(seen(1000, 10_000).request_bytes(0, true), Some(MOST_UNDER_WAY / REQUESTS));
        assert_eq!(Background::new(true).request_bytes(0, true), None);
    }

    #[test]
    fn learned_windows_pay_on_nearly_every_medium_as_long_as_they_are_needed() {
        let pays = |latency_ms, mb_per_s, chance| seen(latency_ms, mb_per_s).learned_pays(chance, 50_000);
        assert!(pays(20, 1, 0.9) && pays(5, 25, 0.9) && pays(100, 4, 0.9), "their bytes come anyway");
        assert!(!pays(20, 1, 0.3) && !pays(0, 125, 0.9), "unless they do not, or there is nothing to save");
        assert!(Background::new(true).learned_pays(0.9, 50_000), "the first tell of the medium");
    }

    #[test]
    fn gaps_are_read_over_where_one_request_is_served_at_a_time() {
        let overlapping = seen(20, 100).learned_request(0).expect("nothing is under way");
        let serial = Background { requests: 1, ..seen(20, 100) };
        let serial = serial.learned_request(0).expect("nothing is under way");
        assert!(serial.bytes >= 4 * overlapping.bytes, "one request brings what comes in a latency");
        assert_eq!((serial.gap_bytes, overlapping.gap_bytes), (serial.bytes / 2, overlapping.bytes / 8));
        assert_eq!(
            Background::new(true).learned_request(0).map(|request| request.bytes),
            Some(ASSUMED_IN_A_LATENCY / REQUESTS)
        );
    }
}
