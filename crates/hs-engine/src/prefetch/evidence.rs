//! Whether anybody wants what the stream brings, by what readers ask for.
//!
//! Who misses beside a stream waits for it, and gains nothing while nobody reads what it brings. So each miss
//! is a doubt, and each use of the hot region takes half of the doubts away: a start, which uses hundreds of
//! times what it misses, has none; a reader of something else soon has several. While there are two or more
//! the stream stands back after each miss, for longer than misses are usually apart, so that they hardly ever
//! meet it. Whoever uses it brings it back at once, however long it was to stand back.

use hs_units::Nanos;

/// Doubts before anybody has read anything: the first miss makes the stream stand back, unless a use came
/// before it.
const AT_FIRST: u32 = 1;
/// From so many doubts on the stream stands back. One is what a start that now and then misses has.
const ENOUGH: u32 = 2;
/// More are not counted, so that a start that began with something else is believed after six uses.
const MOST: u32 = 32;
/// The stream stands back for so many times the pause that there usually is between two misses. If they come
/// at random, one in four hundred (e⁻⁶) then finds it under way.
const PAUSES: u64 = 6;
/// And for so many reads elsewhere at least: of what follows one miss little is known after it.
const READS: u64 = 40;
/// But never for longer, or a pause of minutes would end the stream.
const LONGEST: Nanos = Nanos::from_millis(60_000);
/// For so long after the opening request, or for [`READS`] reads, a stream that nobody has used yet is
/// careful. Whoever opened the image is expected to read within that time.
const CAREFUL: Nanos = Nanos::from_millis(500);

/// What speaks for the stream and against it.
#[derive(Debug)]
pub(super) struct Evidence {
    /// Whether uses are seen at all; else nothing is ever held against the stream.
    sees_use: bool,
    used: bool,
    doubts: u32,
    /// When the first request was made.
    began: Option<Nanos>,
    /// When the last miss was answered, if it was.
    answered: Option<Nanos>,
    /// The usual pause between two misses. Longer ones count more, since it is they in which the stream would
    /// go on.
    pause_ns: f64,
    /// Behind the last chunk that somebody waits for.
    wanted_end: u32,
}

impl Evidence {
    pub(super) const fn new(sees_use: bool) -> Self {
        Self {
            sees_use,
            used: false,
            doubts: AT_FIRST,
            began: None,
            answered: None,
            pause_ns: 0.0,
            wanted_end: 0,
        }
    }

    /// From now on uses are seen, or not.
    pub(super) const fn set_sight(&mut self, sees_use: bool) {
        self.sees_use = sees_use;
    }

    pub(super) const fn has_doubts(&self) -> bool {
        self.sees_use && (self.doubts > 0 || !self.used)
    }

    pub(super) fn handle_request(&mut self, asked: Nanos) {
        self.began.get_or_insert(asked);
    }

    /// Somebody read something of the hot region.
    pub(super) const fn handle_used(&mut self) {
        self.used = true;
        self.doubts /= 2;
    }

    /// Somebody waits for this chunk, or asks whether to.
    pub(super) fn handle_wanted(&mut self, chunk: u32) {
        self.handle_used();
        self.wanted_end = self.wanted_end.max(chunk + 1);
    }

    pub(super) fn handle_miss(&mut self, now: Nanos) {
        if self.sees_use {
            self.doubts = (self.doubts + 1).min(MOST);
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

    /// How long after a miss the stream stands back before it asks for `next`, if it does; `read` is how long
    /// one elsewhere takes.
    pub(super) fn stands_back_for(&self, next: u32, read: Nanos) -> Option<Nanos> {
        if !self.sees_use || self.doubts < ENOUGH || next < self.wanted_end {
            return None;
        }
        let pauses = Nanos((self.pause_ns as u64).saturating_mul(PAUSES));
        Some(pauses.max(Nanos(read.0.saturating_mul(READS))).min(LONGEST))
    }

    /// Whether somebody may yet come who wants nothing of the stream; `read` is what is known of how long a
    /// read takes.
    pub(super) fn is_careful(&self, now: Nanos, read: Nanos) -> bool {
        let until = CAREFUL.max(Nanos(read.0.saturating_mul(READS)));
        self.sees_use && !self.used && self.began.is_some_and(|began| now < began + until)
    }
}
