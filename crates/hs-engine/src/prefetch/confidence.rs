//! Whether readers use what the stream brings.
//!
//! A miss beside a stream waits for it, which is a loss while the stream is unused. So each miss adds one to
//! the weight of misses, and each use of the hot region halves it. A start uses hundreds of times what it
//! misses, so its weight is 0; a reader of something else soon has several. From a weight of two on the
//! stream is throttled after each miss, for longer than misses are usually apart, so that they rarely meet. A
//! use ends this at once, however long the stream was to be throttled.

use hs_units::Nanos;

/// Weight of misses before the first read: the first miss throttles the stream, unless a use came before it.
const AT_FIRST: u32 = 1;
/// From this weight on the stream is throttled. A start that now and then misses has one.
const ENOUGH: u32 = 2;
/// More are not counted, so that a start that began with something else is trusted after six uses.
const MOST: u32 = 32;
/// The stream is throttled for this many times the usual pause between two misses. If misses come at random,
/// one in four hundred (e⁻⁶) then finds the stream under way.
const PAUSES: u64 = 6;
/// And for at least this many reads elsewhere: one miss says little about what follows it.
const READS: u64 = 40;
/// But never for longer, or a pause of minutes would end the stream.
const LONGEST: Nanos = Nanos::from_millis(60_000);
/// For this long after the opening request, or for [`READS`] reads, an unused stream is careful. The program
/// that opened the image is expected to read within that time.
const CAREFUL: Nanos = Nanos::from_millis(500);

/// How well uses and misses support the profile.
#[derive(Debug)]
pub(super) struct Confidence {
    /// Whether uses are seen at all. If not, misses do not throttle the stream.
    sees_use: bool,
    used: bool,
    /// Misses that uses do not outweigh.
    miss_weight: u32,
    /// When the first request was made.
    began: Option<Nanos>,
    /// When the last miss was answered, if it was.
    answered: Option<Nanos>,
    /// The usual pause between two misses. Longer pauses count more: it is in them that the stream would go
    /// on.
    pause_ns: f64,
    /// Behind the last chunk that a reader waits for.
    wanted_end: u32,
}

impl Confidence {
    pub(super) const fn new(sees_use: bool) -> Self {
        Self {
            sees_use,
            used: false,
            miss_weight: AT_FIRST,
            began: None,
            answered: None,
            pause_ns: 0.0,
            wanted_end: 0,
        }
    }

    /// From now on uses are seen, or not.
    pub(super) const fn set_use_seen(&mut self, sees_use: bool) {
        self.sees_use = sees_use;
    }

    /// Whether the profile is not, or not yet, fully supported.
    pub(super) const fn is_low(&self) -> bool {
        self.sees_use && (self.miss_weight > 0 || !self.used)
    }

    pub(super) fn handle_request(&mut self, asked: Nanos) {
        self.began.get_or_insert(asked);
    }

    /// A reader used the hot region.
    pub(super) const fn handle_used(&mut self) {
        self.used = true;
        self.miss_weight /= 2;
    }

    /// A reader waits for this chunk, or asks whether it should.
    pub(super) fn handle_wanted(&mut self, chunk: u32) {
        self.handle_used();
        self.wanted_end = self.wanted_end.max(chunk + 1);
    }

    pub(super) fn handle_miss(&mut self, now: Nanos) {
        if self.sees_use {
            self.miss_weight = (self.miss_weight + 1).min(MOST);
        }
        if let Some(answered) = self.answered.take() {
            let pause = now.saturating_sub(answered).0 as f64;
            let share = if pause > self.pause_ns { 0.5 } else { 1.0 / 16.0 };
            self.pause_ns += (pause - self.pause_ns) * share;
        }
    }

    pub(super) const fn handle_miss_answered(&mut self, now: Nanos) {
        self.answered = Some(now);
    }

    /// How long the stream is throttled after a miss before it requests `next`; `None` when it is not. `read`
    /// is the time of a read elsewhere.
    pub(super) fn throttled_for(&self, next: u32, read: Nanos) -> Option<Nanos> {
        if !self.sees_use || self.miss_weight < ENOUGH || next < self.wanted_end {
            return None;
        }
        let pauses = Nanos((self.pause_ns as u64).saturating_mul(PAUSES));
        Some(pauses.max(Nanos(read.0.saturating_mul(READS))).min(LONGEST))
    }

    /// Whether a reader may still come that uses nothing of the stream; `read` is what is known of how long a
    /// read takes.
    pub(super) fn is_careful(&self, now: Nanos, read: Nanos) -> bool {
        let until = CAREFUL.max(Nanos(read.0.saturating_mul(READS)));
        self.sees_use && !self.used && self.began.is_some_and(|began| now < began + until)
    }
}
