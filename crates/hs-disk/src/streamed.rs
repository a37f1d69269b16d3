//! How fast the hot chunks of a prefetch really came.

use hs_units::Nanos;

/// Most bytes of a request that have come when its first byte is reported: media deliver pieces of this size.
const FIRST_PIECE_BYTES: u64 = 64 << 10;

/// The bytes of the prefetch's requests, and the time from the first byte to the end of the latest chunk.
/// Every pause is included, and the seek to the first byte is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streamed {
    /// Stored bytes of hot chunks, without those that came with the first byte.
    pub bytes: u64,
    /// The time in which these came.
    pub time: Nanos,
}

/// Notes chunks as they come.
#[derive(Debug, Default)]
pub(crate) struct StreamLog {
    first: Option<Nanos>,
    /// Bytes of the first piece that were not noted yet.
    uncounted: u64,
    streamed: Streamed,
}

impl StreamLog {
    /// The first byte of a request came at `now`; only that of the first request counts.
    pub(crate) fn begin(&mut self, now: Nanos) {
        if self.first.is_none() {
            (self.first, self.uncounted) = (Some(now), FIRST_PIECE_BYTES);
        }
    }

    /// All `stored_bytes` of a chunk had come at `now`.
    pub(crate) fn note(&mut self, now: Nanos, stored_bytes: u64) {
        let Some(first) = self.first else { return };
        let early = stored_bytes.min(self.uncounted);
        self.uncounted -= early;
        self.streamed.bytes += stored_bytes - early;
        // Two streams may note their chunks in another order than they took the time.
        self.streamed.time = self.streamed.time.max(now.saturating_sub(first));
    }

    /// What came so far.
    pub(crate) const fn streamed(&self) -> Streamed {
        self.streamed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_with_the_first_byte_only_starts_the_clock() {
        let mut log = StreamLog::default();
        assert_eq!(log.streamed(), Streamed::default());
        log.begin(Nanos(100));
        log.note(Nanos(150), 40_000);
        assert_eq!(log.streamed().bytes, 0);
        // 65,536 bytes had come with the first.
        log.note(Nanos(300), 30_000);
        log.begin(Nanos(310));
        log.note(Nanos(250), 5);
        assert_eq!(log.streamed(), Streamed { bytes: 4_469, time: Nanos(200) });
        log.note(Nanos(1_100), 10);
        assert_eq!(log.streamed(), Streamed { bytes: 4_479, time: Nanos(1_000) });
    }
}
