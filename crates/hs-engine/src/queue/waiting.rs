//! The requests of one class that an elevator chooses from: in order of arrival and in order of position.

use super::arena::{Arena, Entry, List, NONE, Place};
use super::positions::{Cursor, Key, Positions};
use super::request::Direction;

/// Which requests are sorted by position among themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Grouping {
    /// All of them.
    Together,
    /// Reads, and writes.
    ByDirection,
    /// Those of each client.
    ByClient,
}

/// A request that waits, and where in order of position, if that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub index: u32,
    pub at: Option<Cursor>,
}

/// A request next to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Neighbour {
    pub index: u32,
    pub at: Cursor,
    pub offset: u64,
}

/// What an elevator chooses from.
#[derive(Debug)]
pub(super) struct Waiting {
    grouping: Grouping,
    arrivals: [List; Direction::COUNT],
    positions: Positions,
    count: u32,
    /// Length of the longest request so far: how far below a request one that touches it can begin.
    longest_bytes: u64,
}

impl Waiting {
    pub(super) fn new(grouping: Grouping) -> Self {
        Self {
            grouping,
            arrivals: Default::default(),
            positions: Positions::default(),
            count: 0,
            longest_bytes: 0,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Length of the longest request so far.
    pub(super) const fn longest_bytes(&self) -> u64 {
        self.longest_bytes
    }

    pub(super) fn insert(&mut self, arena: &mut Arena, index: u32) {
        let entry = arena.get_mut(index);
        entry.place = Place::Waiting;
        let direction = entry.direction;
        self.longest_bytes = self.longest_bytes.max(entry.range.len);
        let key = self.key(entry, index);
        arena.push(&mut self.arrivals[direction.index()], index);
        self.positions.insert(key);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, arena: &mut Arena, index: u32) {
        let entry = *arena.get(index);
        arena.unlink(&mut self.arrivals[entry.direction.index()], index);
        let cursor = self.cursor(Found { index, at: None }, &entry);
        self.positions.remove(cursor, 1);
        self.count -= 1;
    }

    /// Takes out `members`, which lie one after another from a place on.
    pub(super) fn remove_run(&mut self, arena: &mut Arena, from: Cursor, members: &[u32]) {
        for member in members {
            let direction = arena.get(*member).direction;
            arena.unlink(&mut self.arrivals[direction.index()], *member);
        }
        self.positions.remove(from, members.len());
        self.count -= members.len() as u32;
    }

    /// Whoever of this direction came first.
    pub(super) fn oldest_of(&self, direction: Direction) -> Option<Found> {
        let index = self.arrivals[direction.index()].first;
        (index != NONE).then_some(Found { index, at: None })
    }

    /// Whoever came first.
    pub(super) fn oldest(&self, arena: &Arena) -> Option<Found> {
        let (read, write) = (self.oldest_of(Direction::Read), self.oldest_of(Direction::Write));
        match (read, write) {
            (Some(read), Some(write)) => {
                Some(if arena.get(read.index).came_before(arena.get(write.index)) { read } else { write })
            }
            (read, write) => read.or(write),
        }
    }

    /// The lowest position of a group at or above `offset`.
    pub(super) fn at_or_above(&self, group: u32, offset: u64) -> Option<Found> {
        let cursor = self.positions.at_or_after(Key::first_at(group, offset))?;
        let key = self.positions.key(cursor);
        (key.group() == group).then_some(Found { index: key.index(), at: Some(cursor) })
    }

    /// The lowest position of the first group from this one on that has any.
    pub(super) fn first_from_group(&self, group: u32) -> Option<Found> {
        let cursor = self.positions.at_or_after(Key::first_at(group, 0))?;
        Some(Found { index: self.positions.key(cursor).index(), at: Some(cursor) })
    }

    /// Where a request stands in order of position.
    pub(super) fn cursor(&self, found: Found, entry: &Entry) -> Cursor {
        found.at.unwrap_or_else(|| {
            let key = self.key(entry, found.index);
            self.positions.at_or_after(key).expect("a request that waits has a position")
        })
    }

    /// The next one of the same group above, and where it begins.
    pub(super) fn above(&self, cursor: Cursor) -> Option<Neighbour> {
        self.neighbour(cursor, self.positions.next(cursor)?)
    }

    /// The next one of the same group below, and where it begins.
    pub(super) fn below(&self, cursor: Cursor) -> Option<Neighbour> {
        self.neighbour(cursor, self.positions.previous(cursor)?)
    }

    fn neighbour(&self, from: Cursor, at: Cursor) -> Option<Neighbour> {
        let (from, key) = (self.positions.key(from), self.positions.key(at));
        let neighbour = Neighbour { index: key.index(), at, offset: key.offset() };
        (from.group() == key.group()).then_some(neighbour)
    }

    fn key(&self, entry: &Entry, index: u32) -> Key {
        let group = match self.grouping {
            Grouping::Together => 0,
            Grouping::ByDirection => entry.direction.index() as u32,
            Grouping::ByClient => entry.client,
        };
        Key::new(group, entry.range.offset, index)
    }
}
