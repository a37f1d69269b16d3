//! What to read and to decompress ahead of sequential readers: the engine's read-ahead, of windows.

use std::ops::Range;

use hs_engine::{ReadAhead, ReadAheadConfig};

/// Streams followed at once.
const STREAMS: usize = 8;
/// Windows in sequence that make a reader sequential, one more than five that continue a sequence: more than
/// a starting program reads of a library by chance, and few enough to be over when the neighbours of its
/// first miss are used up. See docs/decisions/005-sequential-read-ahead.md.
const PROOF: u64 = 6;
/// Windows read ahead of a reader that has just proved to be sequential: as many as a miss brings.
const FIRST_DEPTH: u64 = 8;
/// Requests of one reader overtake each other: a window that is so little behind is still its own.
const BEHIND: u64 = 4;
/// A reader finds so many windows elsewhere, in the hot region or in a page cache, and continues.
const SKIPPED: u64 = 2;

/// What to do ahead of a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ahead {
    /// Windows to fetch from the medium.
    pub fetch: Range<u64>,
    /// Windows to decompress, as soon as they have come.
    pub decode: Range<u64>,
}

/// Follows a few streams of windows.
#[derive(Debug)]
pub(super) struct Sequential {
    streams: ReadAhead,
    decode_ahead: u64,
}

impl Sequential {
    /// Reads at most `max_depth` windows ahead, and decompresses `decode_ahead` of them.
    pub(super) fn new(max_depth: u64, decode_ahead: u64) -> Self {
        let config = ReadAheadConfig {
            streams: STREAMS,
            proof: PROOF,
            first: FIRST_DEPTH,
            limit: max_depth,
            behind: BEHIND,
            skipped: SKIPPED,
        };
        Self { streams: ReadAhead::new(config), decode_ahead }
    }

    /// A window was asked for, whether it was in memory or not.
    pub(super) fn observe(&mut self, window: u64) -> Ahead {
        let ahead = self.streams.handle_read(window);
        let decode = ahead.coming.start..ahead.coming.end.min(ahead.coming.start + self.decode_ahead);
        Ahead { fetch: ahead.fetch, decode }
    }

    /// Whether a reader will soon get to this window, which has just come.
    pub(super) fn is_near(&self, window: u64) -> bool {
        self.streams.is_near(window, self.decode_ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scattered_reader_gets_nothing_ahead() {
        let mut sequential = Sequential::new(8, 4);
        for window in [5, 90, 17, 40, 2, 77] {
            assert_eq!(sequential.observe(window), Ahead::default());
        }
        assert!(!sequential.is_near(78));
    }

    #[test]
    fn a_sequential_reader_gets_more_and_more_and_nothing_twice() {
        let mut sequential = Sequential::new(32, 4);
        let (mut ahead, mut requests) = (Vec::new(), Vec::new());
        for window in 0..200 {
            let fetch = sequential.observe(window).fetch;
            if !fetch.is_empty() {
                requests.push(fetch.end - fetch.start);
            }
            ahead.extend(fetch);
        }
        let expected: Vec<u64> = (PROOF..PROOF + ahead.len() as u64).collect();
        assert_eq!(ahead, expected);
        assert!(*expected.last().unwrap() >= 200 + 15, "the reader is at 200");
        assert!(requests.iter().all(|windows| *windows <= 32), "{requests:?}");
        assert!(requests.len() <= 16, "{requests:?}");
    }

    #[test]
    fn requests_that_overtake_each_other_are_one_stream() {
        let mut sequential = Sequential::new(8, 4);
        let order = [0, 1, 3, 2, 4, 6, 5, 7, 9, 8];
        let fetched: usize = order.iter().map(|window| sequential.observe(*window).fetch.count()).sum();
        assert!(fetched >= 8, "{fetched}");
    }

    #[test]
    fn the_next_few_windows_are_decompressed() {
        let mut sequential = Sequential::new(16, 3);
        for window in 0..10 {
            sequential.observe(window);
        }
        assert_eq!(sequential.observe(10).decode, 11..14);
        assert!(sequential.is_near(11) && sequential.is_near(13) && !sequential.is_near(14));
    }

    #[test]
    fn two_streams_do_not_disturb_each_other() {
        let mut sequential = Sequential::new(8, 4);
        let mut fetched = [0, 0];
        for step in 0..16 {
            fetched[0] += sequential.observe(step).fetch.count();
            fetched[1] += sequential.observe(1000 + step).fetch.count();
        }
        assert!(fetched.iter().all(|count| *count >= 12), "{fetched:?}");
    }
}
