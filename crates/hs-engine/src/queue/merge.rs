//! Merging: what lies next to a chosen request goes with it.

use hs_units::ByteRange;

use super::arena::{Arena, Entry};
use super::request::Direction;
use super::waiting::Waiting;

/// Bytes that one request to the medium will cover, and who goes with it.
#[derive(Debug)]
pub(super) struct Merged {
    pub range: ByteRange,
    /// The chosen request and its neighbours, the chosen one first.
    pub members: Vec<u32>,
}

impl Merged {
    pub(super) const fn new() -> Self {
        Self { range: ByteRange::new(0, 0), members: Vec::new() }
    }

    /// Starts from the request at `index` and takes neighbours of its class, group and direction along, those above
    /// first, as long as all is not more than `limit_bytes`. Writes have to touch exactly; reads may overlap or be the
    /// same.
    pub(super) fn gather(&mut self, waiting: &Waiting, arena: &Arena, index: u32, limit_bytes: u64) {
        let chosen = arena.get(index);
        self.range = chosen.range;
        self.members.clear();
        self.members.push(index);
        if limit_bytes <= self.range.len {
            return;
        }
        let Some(start) = waiting.cursor_of(chosen, index) else { return };
        let mut cursor = start;
        while let Some((next, neighbour)) = waiting.above(cursor) {
            if !self.take(arena.get(neighbour), neighbour, chosen.direction, limit_bytes) {
                break;
            }
            cursor = next;
        }
        cursor = start;
        while let Some((next, neighbour)) = waiting.below(cursor) {
            if !self.take(arena.get(neighbour), neighbour, chosen.direction, limit_bytes) {
                break;
            }
            cursor = next;
        }
    }

    fn take(&mut self, entry: &Entry, index: u32, direction: Direction, limit_bytes: u64) -> bool {
        let (mine, other) = (self.range, entry.range);
        let touches = match direction {
            Direction::Read => other.offset <= mine.end() && mine.offset <= other.end(),
            Direction::Write => other.offset == mine.end() || mine.offset == other.end(),
        };
        let offset = mine.offset.min(other.offset);
        let len = mine.end().max(other.end()) - offset;
        if entry.direction != direction || !touches || len > limit_bytes {
            return false;
        }
        self.range = ByteRange::new(offset, len);
        self.members.push(index);
        true
    }
}
