//! Records the reads of one start, as they come.

use hs_disk::{DemandEvent, Watch};
use hs_trace::{Read, limits};
use hs_units::BlockRange;
use parking_lot::Mutex;

/// Keeps every read that was answered, in the order of arrival, up to the limit of a profile.
#[derive(Debug, Default)]
pub struct Recorder {
    state: Mutex<Recording>,
}

#[derive(Debug, Default)]
struct Recording {
    reads: Vec<Read>,
    dropped: u64,
}

impl Recorder {
    /// The reads so far, by arrival, and how many came beyond the limit.
    #[must_use]
    pub fn take(&self) -> (Vec<Read>, u64) {
        let mut state = self.state.lock();
        let mut reads = std::mem::take(&mut state.reads);
        reads.sort_by_key(|read| read.at);
        (reads, std::mem::take(&mut state.dropped))
    }
}

impl Watch for Recorder {
    fn demand(&self, event: &DemandEvent) {
        let mut state = self.state.lock();
        if state.reads.len() as u64 >= limits::MAX_READS {
            state.dropped += 1;
            return;
        }
        let blocks = BlockRange::covering(event.range.offset, event.range.len);
        state.reads.push(Read { at: event.at, blocks, cost: event.cost });
    }
}
