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

/// What an elevator chooses from.
#[derive(Debug)]
pub(super) struct Waiting {
    grouping: Grouping,
    arrivals: [List; Direction::COUNT],
    positions: Positions,
    count: u32,
}

impl Waiting {
    pub(super) fn new(grouping: Grouping) -> Self {
        Self { grouping, arrivals: Default::default(), positions: Positions::default(), count: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn insert(&mut self, arena: &mut Arena, index: u32) {
        let entry = arena.get_mut(index);
        entry.place = Place::Waiting;
        let direction = entry.direction;
        let key = self.key(entry, index);
        arena.push(&mut self.arrivals[direction.index()], index);
        self.positions.insert(key);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, arena: &mut Arena, index: u32) {
        let entry = *arena.get(index);
        arena.unlink(&mut self.arrivals[entry.direction.index()], index);
        self.positions.remove(self.key(&entry, index));
        self.count -= 1;
    }

    /// Whoever of this direction came first.
    pub(super) fn oldest_of(&self, direction: Direction) -> Option<u32> {
        let first = self.arrivals[direction.index()].first;
        (first != NONE).then_some(first)
    }

    /// Whoever came first.
    pub(super) fn oldest(&self, arena: &Arena) -> Option<u32> {
        let (read, write) = (self.oldest_of(Direction::Read), self.oldest_of(Direction::Write));
        match (read, write) {
            (Some(read), Some(write)) => {
                Some(if arena.get(read).came_before(arena.get(write)) { read } else { write })
            }
            (read, write) => read.or(write),
        }
    }

    /// The lowest position of a group at or above `offset`.
    pub(super) fn at_or_above(&self, group: u32, offset: u64) -> Option<u32> {
        self.cursor_at_or_above(group, offset).map(|cursor| self.positions.key(cursor).index())
    }

    /// The lowest position of any group from this one on.
    pub(super) fn first_from_group(&self, group: u32) -> Option<u32> {
        let cursor = self.positions.at_or_after(Key::first_at(group, 0))?;
        Some(self.positions.key(cursor).index())
    }

    /// Where a request stands among its group.
    pub(super) fn cursor_of(&self, entry: &Entry, index: u32) -> Option<Cursor> {
        self.positions.at_or_after(self.key(entry, index))
    }

    /// The next one of the same group above.
    pub(super) fn above(&self, cursor: Cursor) -> Option<(Cursor, u32)> {
        self.same_group(cursor, self.positions.next(cursor)?)
    }

    /// The next one of the same group below.
    pub(super) fn below(&self, cursor: Cursor) -> Option<(Cursor, u32)> {
        self.same_group(cursor, self.positions.previous(cursor)?)
    }

    fn same_group(&self, from: Cursor, to: Cursor) -> Option<(Cursor, u32)> {
        let (from, key) = (self.positions.key(from), self.positions.key(to));
        (from.group() == key.group()).then_some((to, key.index()))
    }

    fn cursor_at_or_above(&self, group: u32, offset: u64) -> Option<Cursor> {
        let cursor = self.positions.at_or_after(Key::first_at(group, offset))?;
        (self.positions.key(cursor).group() == group).then_some(cursor)
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
