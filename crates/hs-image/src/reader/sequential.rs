//! Detects sequential readers and says what to read ahead for them.

use std::ops::Range;

/// Streams followed at once.
const STREAMS: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The window that would continue the stream.
    expected: u64,
    /// First window that was not read ahead yet.
    ahead: u64,
    depth: u64,
    used: u64,
}

/// Follows a few streams of windows; each window that continues one doubles how far ahead of it to
/// read, as the kernel's own read-ahead does with its pages.
#[derive(Debug)]
pub(super) struct Sequential {
    streams: [Stream; STREAMS],
    max_depth: u64,
    clock: u64,
}

impl Sequential {
    pub(super) fn new(max_depth: u64) -> Self {
        Self { streams: [Stream::default(); STREAMS], max_depth, clock: 0 }
    }

    /// A read of windows `first..=last` had to wait: the windows to read ahead.
    pub(super) fn observe(&mut self, first: u64, last: u64) -> Range<u64> {
        self.clock += 1;
        let known = self.streams.iter_mut().find(|stream| {
            stream.used > 0 && (first..=last + 1).contains(&stream.expected) || {
                stream.used > 0 && stream.expected <= first && first < stream.ahead
            }
        });
        let Some(stream) = known else {
            let clock = self.clock;
            if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.used) {
                *oldest = Stream { expected: last + 1, ahead: last + 1, depth: 0, used: clock };
            }
            return 0..0;
        };
        stream.used = self.clock;
        if last + 1 > stream.expected {
            stream.expected = last + 1;
            stream.depth = (stream.depth * 2).max(1).min(self.max_depth);
        }
        let start = stream.ahead.max(stream.expected);
        let end = stream.expected + stream.depth;
        stream.ahead = stream.ahead.max(end);
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scattered_reader_gets_nothing_ahead() {
        let mut sequential = Sequential::new(8);
        for window in [5, 90, 17, 40, 2, 77] {
            assert!(sequential.observe(window, window).is_empty());
        }
    }

    #[test]
    fn a_sequential_reader_gets_more_and_more_and_nothing_twice() {
        let mut sequential = Sequential::new(8);
        let mut ahead = Vec::new();
        for window in 0..20 {
            ahead.extend(sequential.observe(window, window));
        }
        let expected: Vec<u64> = (2..28).collect();
        assert_eq!(ahead, expected);
    }

    #[test]
    fn two_streams_do_not_disturb_each_other() {
        let mut sequential = Sequential::new(4);
        for step in 0..4 {
            sequential.observe(step, step);
            sequential.observe(1000 + step, 1000 + step);
        }
        assert!(!sequential.observe(4, 4).is_empty());
        assert!(!sequential.observe(1004, 1004).is_empty());
    }
}
