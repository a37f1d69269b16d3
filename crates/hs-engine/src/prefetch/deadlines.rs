//! When the start will need each hot chunk, and how fast the stream has to be for that.

use hs_units::Nanos;

/// How fast the hot region is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefetchRate {
    /// As fast as the medium allows.
    #[default]
    Full,
    /// So that everything is there some time before it is needed, and no sooner: the rest of the medium's
    /// time is left to others. Without deadlines it is [`PrefetchRate::Full`].
    ByDeadline,
    /// At most this many bytes of the image a second.
    BytesPerS(u64),
}

/// A paced stream is this far ahead of need.
const LEAD: Nanos = Nanos::from_millis(1_000);
/// Or by this many times the time of the next request, where that is more: other requests may delay it.
const LEAD_REQUESTS: u64 = 4;

/// The program's own time until it needs each chunk, without the time that it waits for storage
/// (docs/decisions/006-late-reads.md), and how far the program has come.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// By when a chunk and all behind it are needed: the stream passes over none of them. Empty when nothing
    /// is known.
    needed: Vec<Nanos>,
    /// When the start would have begun if the program had only computed since, in nanoseconds. Each wait
    /// moves it later; a program that is faster than its profile moves it earlier.
    began: i64,
    /// The smallest lead of a chunk over its need, in nanoseconds; negative when the chunk came after it.
    least_slack: Option<i64>,
    /// Which chunks came after they were needed; as long as `needed`.
    overdue: Vec<bool>,
    /// When a stream of a fixed rate may go on.
    free: Nanos,
}

impl Deadlines {
    /// Sets by when each chunk is needed, on a clock on which the start begins at `began`.
    pub(super) fn set(&mut self, began: Nanos, mut needed: Vec<Nanos>) {
        // The stream goes in order, so a later chunk with an early deadline moves earlier chunks forward.
        let mut least = Nanos(u64::MAX);
        for need in needed.iter_mut().rev() {
            least = least.min(*need);
            *need = least;
        }
        // A start that needs everything at once, or without a record of when it needs what.
        if needed.last().is_none_or(|last| *last == Nanos::ZERO) {
            needed.clear();
        }
        self.overdue = vec![false; needed.len()];
        self.needed = needed;
        self.began = began.0 as i64;
    }

    /// By when a chunk is needed, as far as is known now.
    fn due(&self, chunk: u32) -> Option<Nanos> {
        let needed = self.needed.get(chunk as usize)?;
        Some(Nanos(self.began.saturating_add_unsigned(needed.0).max(0) as u64))
    }

    /// A reader waits for a chunk, so the progress of the program is known.
    pub(super) fn handle_wanted(&mut self, now: Nanos, chunk: u32) {
        if let Some(needed) = self.needed.get(chunk as usize) {
            self.began = (now.0 as i64).saturating_sub_unsigned(needed.0);
        }
    }

    /// A chunk has come.
    pub(super) fn handle_came(&mut self, now: Nanos, chunk: u32) {
        if let Some(due) = self.due(chunk) {
            let slack = due.0 as i64 - now.0 as i64;
            self.least_slack = Some(self.least_slack.map_or(slack, |least| least.min(slack)));
            self.overdue[chunk as usize] = slack < 0;
        }
    }

    /// Whether a chunk came after it was needed, as far as was known when it came.
    pub(super) fn is_overdue(&self, chunk: u32) -> bool {
        self.overdue.get(chunk as usize).is_some_and(|overdue| *overdue)
    }

    /// A request of this many bytes begins.
    pub(super) fn handle_request(&mut self, now: Nanos, rate: PrefetchRate, bytes: u64) {
        if let PrefetchRate::BytesPerS(rate) = rate {
            self.free = self.free.max(now) + Nanos::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        }
    }

    /// When the request that begins with a chunk may be made, if one takes `request`.
    pub(super) fn may_begin(&self, rate: PrefetchRate, chunk: u32, request: Nanos) -> Nanos {
        match rate {
            PrefetchRate::Full => Nanos::ZERO,
            PrefetchRate::BytesPerS(_) => self.free,
            PrefetchRate::ByDeadline => {
                let lead = LEAD.max(Nanos(request.0.saturating_mul(LEAD_REQUESTS)));
                self.due(chunk).map_or(Nanos::ZERO, |due| due.saturating_sub(lead))
            }
        }
    }

    /// The smallest lead of the stream over need, in seconds; negative when a chunk came too late.
    pub(super) fn least_slack_s(&self) -> Option<f64> {
        self.least_slack.map(|slack| slack as f64 / 1e9)
    }
}
