//! Damage on purpose, for tests and drills.
//!
//! [`Fault`] spoils requests that touch chosen places, as real media do: the store ends early, a
//! sector cannot be read, bytes come back wrong, an answer takes long. What is spoiled is a
//! function of the seed and the place, not of the order of requests, so that the same damage is
//! met by every run, however its threads interleave, and a failure replays from its seed. Only
//! [`Rule::times`] has a memory: a fault that goes away when the request is repeated.
//!
//! Bad sectors belong to the surface, so `Fault` lies *under* [`Emulate`](crate::Emulate) and
//! [`Count`](crate::Count): the medium takes its time to reach them and counts the request. Around these two
//! it spoils what a healthy medium has delivered, as a bad cable does.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hs_units::{BLOCK_BYTES, ByteRange, Nanos, Prng};
use rustix::io::Errno;

use crate::{Clock, Filter, Layer, Monotonic, Sink, Store, StoreError};

/// How a request is spoiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultKind {
    /// The store ends at the place: [`StoreError::Short`].
    Short,
    /// The place cannot be read: [`StoreError::Read`] with `EIO`.
    Io,
    /// One bit of the byte is wrong, always the same one.
    Flip,
    /// The request is held up for so long before it begins.
    Delay(Duration),
}

/// Where, how and how often requests are spoiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    kind: FaultKind,
    range: ByteRange,
    one_in: u64,
    times: u64,
}

impl Rule {
    /// Spoils every place of `range`, always.
    #[must_use]
    pub const fn new(kind: FaultKind, range: ByteRange) -> Self {
        Self { kind, range, one_in: 1, times: u64::MAX }
    }

    /// Spoils one place in about `places` instead of all. A place is a byte for
    /// [`FaultKind::Flip`] and a block of 4096 bytes for the others.
    ///
    /// # Panics
    /// When `places` is zero.
    #[must_use]
    pub const fn one_in(mut self, places: u64) -> Self {
        assert!(places > 0, "one in no places is not a share");
        self.one_in = places;
        self
    }

    /// Spoils this many requests, then no more.
    #[must_use]
    pub const fn times(mut self, requests: u64) -> Self {
        self.times = requests;
        self
    }

    /// The part of the rule that lies in `range`, which lies in a store.
    fn within(&self, range: ByteRange) -> Option<ByteRange> {
        let start = self.range.offset.max(range.offset);
        let end = self.range.offset.saturating_add(self.range.len).min(range.end());
        (start < end).then(|| ByteRange::new(start, end - start))
    }
}

/// A rule at work.
struct Armed {
    rule: Rule,
    /// Tells the places of this rule from those of another one with the same seed.
    salt: u64,
    left: AtomicU64,
}

impl Armed {
    /// What is to be known about a place: whether it is spoiled, and some bits for how.
    fn strike(&self, place: u64) -> Option<u64> {
        let mut prng = Prng::new(self.salt ^ place);
        (prng.below(self.rule.one_in) == 0).then(|| prng.next_u64())
    }

    /// The first spoiled byte of `range` for faults whose places are blocks.
    fn first_struck(&self, range: ByteRange) -> Option<u64> {
        let part = self.rule.within(range)?;
        let blocks = part.offset / BLOCK_BYTES..part.end().div_ceil(BLOCK_BYTES);
        let block = blocks.into_iter().find(|block| self.strike(*block).is_some())?;
        Some(part.offset.max(block * BLOCK_BYTES))
    }

    /// Uses up one of the rule's times, if there is one left.
    fn fire(&self) -> bool {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
                u64::MAX => Some(left),
                _ => left.checked_sub(1),
            })
            .is_ok()
    }
}

/// A store that is damaged in chosen places.
pub type Fault<S> = Layer<Faults, S>;

/// What [`Fault`] does with requests.
pub struct Faults {
    rules: Vec<Armed>,
    clock: Arc<dyn Clock>,
    fired: AtomicU64,
    bypassed: AtomicBool,
}

impl<S: Store> Fault<S> {
    /// `inner` with the damage of `rules`, whose places follow from `seed`.
    #[must_use]
    pub fn new(inner: S, rules: Vec<Rule>, seed: u64) -> Self {
        Self::with_clock(inner, rules, seed, Arc::new(Monotonic::new()))
    }

    /// The same, with delays on a clock of the caller's.
    #[must_use]
    pub fn with_clock(inner: S, rules: Vec<Rule>, seed: u64, clock: Arc<dyn Clock>) -> Self {
        let mut salts = Prng::new(seed);
        let rules = rules
            .into_iter()
            .map(|rule| Armed { rule, salt: salts.next_u64(), left: AtomicU64::new(rule.times) })
            .collect();
        let (fired, bypassed) = (AtomicU64::new(0), AtomicBool::new(false));
        Self::around(inner, Faults { rules, clock, fired, bypassed })
    }

    /// From now on, requests are left alone (`true`) or spoiled (`false`, as at first).
    pub fn bypass(&self, on: bool) {
        self.filter.bypassed.store(on, Ordering::Relaxed);
    }

    /// How often a rule has spoiled a request, so that a drill can tell that it happened at all.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.filter.fired.load(Ordering::Relaxed)
    }
}

impl Faults {
    fn fire(&self, armed: &Armed) -> bool {
        let fires = armed.fire();
        if fires {
            self.fired.fetch_add(1, Ordering::Relaxed);
        }
        fires
    }

    fn hold_up(&self, range: ByteRange) {
        let mut delay = Nanos::ZERO;
        for armed in &self.rules {
            if let FaultKind::Delay(by) = armed.rule.kind
                && armed.first_struck(range).is_some()
                && self.fire(armed)
            {
                delay += by.into();
            }
        }
        if delay > Nanos::ZERO {
            self.clock.sleep_until(self.clock.now() + delay);
        }
    }

    /// Where `range` stops being readable, and what is said then.
    fn stop(&self, name: &str, range: ByteRange) -> Option<(u64, StoreError)> {
        let mut candidates: Vec<(u64, &Armed)> = self
            .rules
            .iter()
            .filter(|armed| matches!(armed.rule.kind, FaultKind::Short | FaultKind::Io))
            .filter_map(|armed| Some((armed.first_struck(range)?, armed)))
            .collect();
        candidates.sort_by_key(|(offset, _)| *offset);
        let (offset, armed) = candidates.into_iter().find(|(_, armed)| self.fire(armed))?;
        let error = match armed.rule.kind {
            FaultKind::Short => StoreError::short(name, range, offset),
            _ => StoreError::read(name, range, io::Error::from(Errno::IO)),
        };
        Some((offset, error))
    }

    fn flips(&self) -> Flips<'_> {
        let rules = self
            .rules
            .iter()
            .filter(|armed| armed.rule.kind == FaultKind::Flip)
            .map(|armed| (armed, None))
            .collect();
        Flips { faults: self, rules }
    }
}

/// The rules that flip bits in one request, each with whether it may: it is asked at the first
/// byte that it would spoil.
struct Flips<'a> {
    faults: &'a Faults,
    rules: Vec<(&'a Armed, Option<bool>)>,
}

impl Flips<'_> {
    fn touch(&self, range: ByteRange) -> bool {
        self.rules.iter().any(|(armed, _)| armed.rule.within(range).is_some())
    }

    fn apply(&mut self, offset: u64, bytes: &mut [u8]) {
        let range = ByteRange::new(offset, bytes.len() as u64);
        for (armed, may) in &mut self.rules {
            let Some(part) = armed.rule.within(range) else { continue };
            for place in part.offset..part.end() {
                let Some(bits) = armed.strike(place) else { continue };
                if !*may.get_or_insert_with(|| self.faults.fire(armed)) {
                    break;
                }
                bytes[(place - offset) as usize] ^= 1 << (bits % 8);
            }
        }
    }
}

impl Filter for Faults {
    fn read_at(&self, next: &dyn Store, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let range = ByteRange::new(offset, buf.len() as u64);
        if self.bypassed.load(Ordering::Relaxed) {
            return next.read_at(offset, buf);
        }
        self.hold_up(range);
        if let Some((_, error)) = self.stop(next.name(), range) {
            return Err(error);
        }
        next.read_at(offset, buf)?;
        self.flips().apply(offset, buf);
        Ok(())
    }

    fn stream(&self, next: &dyn Store, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        if self.bypassed.load(Ordering::Relaxed) {
            return next.stream(range, sink);
        }
        self.hold_up(range);
        let stop = self.stop(next.name(), range);
        let end = stop.as_ref().map_or(range.end(), |(offset, _)| *offset);
        let mut flips = self.flips();
        let mut spoiled = Vec::new();
        let mut at = range.offset;
        let mut broken = false;
        next.stream(range, &mut |bytes| {
            let readable = (end - at).min(bytes.len() as u64);
            let mut piece = &bytes[..readable as usize];
            let place = ByteRange::new(at, readable);
            if flips.touch(place) {
                spoiled.clear();
                spoiled.extend_from_slice(piece);
                flips.apply(at, &mut spoiled);
                piece = &spoiled;
            }
            if !piece.is_empty() && sink(piece).is_break() {
                broken = true;
                return ControlFlow::Break(());
            }
            at += readable;
            if at < end || end == range.end() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        match stop {
            Some((_, error)) if !broken => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
