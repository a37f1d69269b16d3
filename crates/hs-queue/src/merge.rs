//! Merging: what lies next to a chosen request goes with it.

use hs_units::ByteRange;

use super::arena::{Arena, Entry};
use super::positions::Cursor;
use super::request::Direction;
use super::waiting::{Candidate, Waiting};

/// Bytes that one request to the medium will cover, and who goes with it.
#[derive(Debug)]
pub(super) struct Merged {
    pub range: ByteRange,
    /// The chosen request and its neighbours, the chosen one first.
    pub members: Vec<u32>,
    /// Where the lowest of them stands; the others follow it.
    pub lowest: Cursor,
}

impl Merged {
    pub(super) const fn new() -> Self {
        Self { range: ByteRange::new(0, 0), members: Vec::new(), lowest: Cursor::START }
    }

    /// Starts from a request and takes neighbours of its class, group and direction along, those above first,
    /// as long as all is not more than `limit_bytes`. Writes have to touch exactly; reads may overlap or be
    /// the same.
    pub(super) fn gather(&mut self, waiting: &Waiting, arena: &Arena, found: Candidate, limit_bytes: u64) {
        let chosen = arena.get(found.index);
        let mut range = chosen.range;
        self.members.clear();
        self.members.push(found.index);
        let peers = waiting.peers(chosen);
        self.lowest = found.cursor(peers, chosen);
        if range.len < limit_bytes {
            let mut cursor = self.lowest;
            while let Some(next) = peers.next(cursor) {
                // The offset is at hand, the rest of the neighbour is somewhere in memory.
                if next.offset > range.end() {
                    break;
                }
                let entry = arena.get(next.index);
                let Some(joined) = join(range, entry, chosen.direction, limit_bytes) else { break };
                range = joined;
                self.members.push(next.index);
                cursor = next.at;
            }
            while let Some(next) = peers.previous(self.lowest) {
                if range.offset - next.offset > waiting.longest_bytes() {
                    break;
                }
                let entry = arena.get(next.index);
                let Some(joined) = join(range, entry, chosen.direction, limit_bytes) else { break };
                range = joined;
                self.members.push(next.index);
                self.lowest = next.at;
            }
        }
        self.range = range;
    }
}

/// A range and one more request of the same direction, if they touch and are not more than `limit_bytes`
/// together.
fn join(mine: ByteRange, entry: &Entry, direction: Direction, limit_bytes: u64) -> Option<ByteRange> {
    let other = entry.range;
    let touches = match direction {
        Direction::Read => other.offset <= mine.end() && mine.offset <= other.end(),
        Direction::Write => other.offset == mine.end() || mine.offset == other.end(),
    };
    let offset = mine.offset.min(other.offset);
    let len = mine.end().max(other.end()) - offset;
    (entry.direction == direction && touches && len <= limit_bytes).then(|| ByteRange::new(offset, len))
}
