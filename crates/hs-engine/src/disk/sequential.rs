//! What to fetch and to decompress ahead of sequential readers: [`ReadAhead`], of windows.

use std::ops::Range;

use crate::{ReadAhead, ReadAheadConfig};

/// Streams followed at once.
const STREAMS: usize = 8;
/// Windows in sequence that make a reader sequential: more than a starting program reads of a library by
/// chance, and little enough to be over when the neighbours of its first miss are used up.
const PROOF: u64 = 6;
/// Windows read ahead of a reader that has just proved to be sequential: as many as a miss brings.
const FIRST_DEPTH: u64 = 8;
/// Requests of one reader overtake each other: a window that is so little behind is still its own.
const BEHIND: u64 = 4;
/// A reader finds so many windows elsewhere, in the hot region or in a page cache, and goes on.
const SKIPPED: u64 = 2;
/// Windows that are decompressed ahead of a sequential reader, for each decoder.
const DECODED_AHEAD: u64 = 2;

/// What to do ahead of a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ahead {
    /// Windows to fetch.
    pub fetch: Range<u64>,
    /// Windows to decompress as soon as they have come.
    pub decode: Range<u64>,
}

/// Follows a few streams of windows.
#[derive(Debug)]
pub(super) struct Sequential {
    streams: ReadAhead,
    decode_ahead: u64,
}

impl Sequential {
    /// Reads at most `most_windows` ahead.
    pub(super) fn new(most_windows: u64, decoders: u32) -> Self {
        let config = ReadAheadConfig {
            streams: STREAMS,
            proof: PROOF,
            first: FIRST_DEPTH,
            limit: most_windows,
            behind: BEHIND,
            skipped: SKIPPED,
        };
        Self { streams: ReadAhead::new(config), decode_ahead: DECODED_AHEAD * u64::from(decoders.max(1)) }
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
