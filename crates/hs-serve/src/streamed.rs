//! How fast the hot chunks of a prefetch really came.

use hs_units::Nanos;

/// What the prefetch's requests brought, from the end of the first hot chunk to the end of the latest: every
/// pause between is in it, whatever made it, and the seek to the first chunk is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streamed {
    /// Stored bytes of the chunks after the first.
    pub bytes: u64,
    /// The time in which these came.
    pub time: Nanos,
}

/// Notes chunks as they come.
#[derive(Debug, Default)]
pub(crate) struct StreamLog {
    first: Option<Nanos>,
    streamed: Streamed,
}

impl StreamLog {
    /// All `stored_bytes` of a chunk had come at `now`.
    pub(crate) fn note(&mut self, now: Nanos, stored_bytes: u64) {
        match self.first {
            None => self.first = Some(now),
            Some(first) => {
                self.streamed.bytes += stored_bytes;
                // Two streams may note their chunks in another order than they took the time.
                self.streamed.time = self.streamed.time.max(now.saturating_sub(first));
            }
        }
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
    fn the_first_chunk_only_starts_the_clock() {
        let mut log = StreamLog::default();
        assert_eq!(log.streamed(), Streamed::default());
        log.note(Nanos(100), 7);
        assert_eq!(log.streamed(), Streamed::default());
        log.note(Nanos(300), 20);
        log.note(Nanos(250), 5);
        assert_eq!(log.streamed(), Streamed { bytes: 25, time: Nanos(200) });
        log.note(Nanos(1_100), 10);
        assert_eq!(log.streamed(), Streamed { bytes: 35, time: Nanos(1_000) });
    }
}
