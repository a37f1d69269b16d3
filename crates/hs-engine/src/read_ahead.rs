//! Reading ahead of sequential readers, for each stream and not for each process.
//!
//! A reader that asks for one block after another is given the next blocks before it asks: first one block,
//! then twice as many each time it has used half of what was read for it, up to a limit. Unix read one block
//! ahead; reading more made the disks and networks of 1991 transfer at their full rate (Tezuka 1991, sections
//! 3 and 5). The doubling window is that of Linux's on-demand read-ahead (Wu Fengguang, "Sequential File
//! Prefetching in Linux", 2010, section 4).
//!
//! Streams are told apart by position alone: one process may read several files, and several threads one
//! file. A fixed number of them is followed, so that a step always costs the same.

use std::ops::Range;

/// How sequential readers are found and served. The caller chooses the unit of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadAheadConfig {
    /// Streams followed at once; a new one takes the place of the one that was quiet for longest.
    pub streams: usize,
    /// Blocks in sequence that make a reader sequential.
    pub proof: u64,
    /// Blocks read ahead of a reader that has just proved to be sequential.
    pub first: u64,
    /// Blocks read ahead of any reader, at most.
    pub limit: u64,
    /// Requests of one reader overtake each other: a block up to this far behind still belongs to the reader.
    pub behind: u64,
    /// A reader that finds this many blocks elsewhere, in a cache above, still continues its stream.
    pub skipped: u64,
}

impl Default for ReadAheadConfig {
    fn default() -> Self {
        Self { streams: 8, proof: 2, first: 1, limit: 64, behind: 4, skipped: 2 }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The block that would continue the stream.
    expected: u64,
    /// First block that was not read ahead yet.
    ahead: u64,
    /// Blocks that were read ahead the last time.
    depth: u64,
    /// Blocks that have continued it.
    length: u64,
    /// When it was continued last; zero for a stream that was not begun.
    used: u64,
}

/// What to do ahead of a reader.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ahead {
    /// Blocks to bring that were not requested yet; may be empty.
    pub fetch: Range<u64>,
    /// Blocks that the reader will want next, brought or on their way; empty while it is not sequential.
    pub coming: Range<u64>,
}

/// Follows some streams of blocks.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    config: ReadAheadConfig,
    streams: Box<[Stream]>,
    clock: u64,
}

impl ReadAhead {
    /// Without any reader.
    #[must_use]
    pub fn new(config: ReadAheadConfig) -> Self {
        let streams = vec![Stream::default(); config.streams.max(1)].into_boxed_slice();
        Self { config, streams, clock: 0 }
    }

    /// A reader asked for a block, whether it was in memory or not.
    pub fn handle_read(&mut self, block: u64) -> Ahead {
        self.clock += 1;
        let config = self.config;
        let continued = |stream: &&mut Stream| {
            let end = stream.ahead.max(stream.expected.saturating_add(config.skipped + 1));
            stream.used > 0 && block.saturating_add(config.behind) >= stream.expected && block < end
        };
        let Some(stream) = self.streams.iter_mut().find(continued) else {
            self.begin(block);
            return Ahead::default();
        };
        stream.used = self.clock;
        if block < stream.expected {
            return Ahead::default();
        }
        stream.expected = block + 1;
        stream.length += 1;
        // The block that began the stream counts as well.
        if stream.length + 1 < config.proof {
            return Ahead::default();
        }
        let start = stream.ahead.max(stream.expected);
        let mut fetch = start..start;
        if start - stream.expected <= stream.depth / 2 {
            let most = config.limit.max(config.first).max(1);
            stream.depth = (stream.depth * 2).clamp(config.first.max(1), most);
            fetch.end = start.max(stream.expected.saturating_add(stream.depth));
        }
        stream.ahead = fetch.end;
        Ahead { fetch, coming: stream.expected..stream.ahead }
    }

    /// Whether a sequential reader will want this block within the next `blocks`.
    #[must_use]
    pub fn is_near(&self, block: u64, blocks: u64) -> bool {
        let near = |stream: &Stream| {
            stream.depth > 0 && (stream.expected..stream.expected.saturating_add(blocks)).contains(&block)
        };
        self.streams.iter().any(near)
    }

    fn begin(&mut self, block: u64) {
        let begun = Stream { expected: block + 1, ahead: block + 1, used: self.clock, ..Stream::default() };
        if let Some(quiet) = self.streams.iter_mut().min_by_key(|stream| stream.used) {
            *quiet = begun;
        }
    }
}

#[cfg(test)]
mod tests {
    use hs_units::Prng;

    use super::*;

    fn sizes(read_ahead: &mut ReadAhead, blocks: Range<u64>) -> Vec<u64> {
        let fetched = blocks.map(|block| read_ahead.handle_read(block).fetch);
        fetched.filter(|fetch| !fetch.is_empty()).map(|fetch| fetch.end - fetch.start).collect()
    }

    #[test]
    fn the_window_grows_from_one_block_to_the_limit() {
        let mut read_ahead = ReadAhead::new(ReadAheadConfig { limit: 16, ..ReadAheadConfig::default() });
        let sizes = sizes(&mut read_ahead, 0..200);
        assert_eq!(sizes[0], 1);
        assert!(sizes.windows(2).all(|pair| pair[1] <= 2 * pair[0] + 1), "{sizes:?}");
        assert!(sizes.iter().all(|size| *size <= 16) && sizes.contains(&8), "{sizes:?}");
    }

    #[test]
    fn nothing_is_brought_twice_and_nothing_left_out() {
        let mut read_ahead = ReadAhead::new(ReadAheadConfig::default());
        let fetched: Vec<u64> = (100..400).flat_map(|block| read_ahead.handle_read(block).fetch).collect();
        let expected: Vec<u64> = (102..102 + fetched.len() as u64).collect();
        assert_eq!(fetched, expected);
        assert!(*fetched.last().unwrap() >= 400);
    }

    #[test]
    fn a_scattered_reader_gets_nothing() {
        let seed = 3;
        let mut prng = Prng::new(seed);
        let mut read_ahead = ReadAhead::new(ReadAheadConfig::default());
        let fetched = (0..1000).filter(|_| {
            let block = prng.below(1 << 40);
            !read_ahead.handle_read(block).fetch.is_empty()
        });
        assert_eq!(fetched.count(), 0, "seed {seed}");
    }

    #[test]
    fn streams_do_not_disturb_each_other_and_too_many_cost_only_reading_ahead() {
        let config = ReadAheadConfig::default();
        let mut read_ahead = ReadAhead::new(config);
        let mut fetched = vec![0; config.streams];
        for step in 0..40 {
            for (stream, fetched) in fetched.iter_mut().enumerate() {
                *fetched += read_ahead.handle_read(stream as u64 * 100_000 + step).fetch.count();
            }
        }
        assert!(fetched.iter().all(|count| *count >= 38), "{fetched:?}");
        for step in 0..40 {
            for stream in 0..=config.streams as u64 {
                assert!(read_ahead.handle_read(1 << 40 | stream << 20 | step).fetch.is_empty());
            }
        }
    }

    #[test]
    fn requests_that_overtake_each_other_are_one_stream() {
        let mut read_ahead =
            ReadAhead::new(ReadAheadConfig { proof: 5, first: 8, ..ReadAheadConfig::default() });
        let order = [0, 1, 3, 2, 4, 6, 5, 7, 9, 8];
        let fetched: usize = order.iter().map(|block| read_ahead.handle_read(*block).fetch.count()).sum();
        assert!(fetched >= 8, "{fetched}");
        assert!(read_ahead.is_near(10, 3) && !read_ahead.is_near(13, 3));
    }

    #[test]
    fn the_end_of_all_numbers_is_no_end_of_the_program() {
        let mut read_ahead = ReadAhead::new(ReadAheadConfig::default());
        for block in u64::MAX - 20..u64::MAX {
            let ahead = read_ahead.handle_read(block);
            assert!(ahead.coming.start <= ahead.coming.end);
        }
    }
}
