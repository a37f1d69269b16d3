//! What kind of device this is, as a few timed reads say.

use hs_units::Nanos;

/// How requests are best given to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceKind {
    /// A new place costs much, and one request is served after the other: heads move.
    Moves,
    /// One request is served after the other, wherever it lies: cards, sticks, embedded flash.
    OneByOne,
    /// Requests that are under way together cost little more than one: SSDs, and disks behind a network.
    Overlaps,
}

/// Times of reads at places that are far from each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeTimes {
    /// Of reads one after the other.
    pub alone: Vec<Nanos>,
    /// Of `together_reads` reads that began at once, until the last one's end.
    pub together: Nanos,
    /// How many.
    pub together_reads: u32,
}

/// A new place that costs as much means that heads move, or that a network is in between; the slowest cards
/// need 2 ms.
const MOVING: Nanos = Nanos::from_millis(3);
/// Overlapping requests save at least so much of their time. Disks that sort what is queued save half.
const OVERLAP: f64 = 2.5;

impl DeviceKind {
    /// The kind that the times tell; with none it is the careful one.
    #[must_use]
    pub fn of(times: &ProbeTimes) -> Self {
        let mut alone = times.alone.clone();
        alone.sort_unstable();
        // Reads of programs come between: they make a read longer, and never shorter.
        let Some(least) = alone.first().copied() else { return Self::OneByOne };
        let all = least.as_secs_f64() * f64::from(times.together_reads);
        if times.together_reads > 1 && all >= times.together.as_secs_f64() * OVERLAP {
            return Self::Overlaps;
        }
        // A head that moves may find its place under it at once, and not twice.
        let second = alone.get(1).copied().unwrap_or(least);
        if least + second >= MOVING + MOVING { Self::Moves } else { Self::OneByOne }
    }

    /// Requests that may be under way at once. A read of a program waits for those before it, where requests
    /// are served one by one. Where heads move it costs two seeks in between, so there are to be few of them
    /// before the pages are there.
    #[must_use]
    pub const fn under_way(self) -> usize {
        match self {
            Self::OneByOne => 1,
            Self::Moves | Self::Overlaps => 32,
        }
    }

    /// Its name, as reports show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Moves => "heads that move",
            Self::OneByOne => "one request at a time",
            Self::Overlaps => "requests that overlap",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind<const N: usize>(alone_us: [u64; N], together_us: u64) -> DeviceKind {
        let us = |us: u64| Nanos(us * 1_000);
        let alone = alone_us.map(us).to_vec();
        DeviceKind::of(&ProbeTimes { alone, together: us(together_us), together_reads: 8 })
    }

    #[test]
    fn kinds_are_told_by_times() {
        assert_eq!(kind([12_000, 20_000, 15_000], 110_000), DeviceKind::Moves);
        assert_eq!(kind([12_000, 20_000, 15_000], 60_000), DeviceKind::Moves, "it sorts its queue");
        assert_eq!(kind([600, 700, 100_000], 5_000), DeviceKind::OneByOne, "a card with a hiccup");
        let late = [800, 900, 5_000, 4_000, 810];
        assert_eq!(kind(late, 6_000), DeviceKind::OneByOne, "a card beside programs");
        assert_eq!(kind([20_000, 20_000, 20_000], 45_000), DeviceKind::Overlaps, "a cloud's volume");
        assert_eq!(kind([80, 80, 90], 150), DeviceKind::Overlaps, "an SSD");
        let none = ProbeTimes { alone: Vec::new(), together: Nanos::ZERO, together_reads: 0 };
        assert_eq!(DeviceKind::of(&none), DeviceKind::OneByOne);
    }
}
