//! The requests of one class that an elevator chooses from: in order of arrival and in order of position.

use super::arena::{Arena, Entry, List, NONE, Place};
use super::positions::{Cursor, Positions};
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

impl Found {
    const fn somewhere(index: u32) -> Self {
        Self { index, at: None }
    }
}

/// What an elevator chooses from.
#[derive(Debug)]
pub(super) struct Waiting {
    grouping: Grouping,
    arrivals: [List; Direction::COUNT],
    /// Of each group.
    positions: Vec<Positions>,
    count: u32,
    /// Length of the longest request so far: how far below a request one that touches it can begin.
    longest_bytes: u64,
}

impl Waiting {
    pub(super) fn new(grouping: Grouping) -> Self {
        Self { grouping, arrivals: Default::default(), positions: Vec::new(), count: 0, longest_bytes: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) const fn len(&self) -> u32 {
        self.count
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
        let (group, offset) = (self.group(entry), entry.range.offset);
        arena.push(&mut self.arrivals[direction.index()], index);
        if group >= self.positions.len() {
            self.positions.resize_with(group + 1, Positions::default);
        }
        self.positions[group].insert(offset, index);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, arena: &mut Arena, index: u32) {
        let cursor = self.cursor(Found::somewhere(index), arena.get(index));
        self.remove_run(arena, cursor, &[index]);
    }

    /// Takes out `members`, at least one, which stand one after another from a place on.
    pub(super) fn remove_run(&mut self, arena: &mut Arena, from: Cursor, members: &[u32]) {
        for member in members {
            let direction = arena.get(*member).direction;
            arena.unlink(&mut self.arrivals[direction.index()], *member);
        }
        let group = self.group(arena.get(members[0]));
        self.positions[group].remove(from, members.len());
        self.count -= members.len() as u32;
    }

    /// Whoever of this direction came first.
    pub(super) fn oldest_of(&self, direction: Direction) -> Option<Found> {
        let index = self.arrivals[direction.index()].first;
        (index != NONE).then_some(Found::somewhere(index))
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
    pub(super) fn at_or_above(&self, group: usize, offset: u64) -> Option<Found> {
        let positions = self.positions.get(group)?;
        let at = positions.at_or_above(offset)?;
        Some(Found { index: positions.get(at).1, at: Some(at) })
    }

    /// The lowest position of a group.
    pub(super) fn lowest(&self, group: usize) -> Option<Found> {
        let positions = self.positions.get(group)?;
        let at = positions.first()?;
        Some(Found { index: positions.get(at).1, at: Some(at) })
    }

    /// The first group from this one on in which somebody waits.
    pub(super) fn group_from(&self, group: usize) -> Option<usize> {
        let waits = self.positions.get(group..)?.iter().position(|positions| !positions.is_empty());
        waits.map(|further| group + further)
    }

    /// Where a request stands in its group.
    pub(super) fn cursor(&self, found: Found, entry: &Entry) -> Cursor {
        found.at.unwrap_or_else(|| {
            let positions = &self.positions[self.group(entry)];
            positions.find(entry.range.offset, found.index).expect("a request that waits has a position")
        })
    }

    /// Those with which a request can be merged.
    pub(super) fn peers(&self, entry: &Entry) -> &Positions {
        &self.positions[self.group(entry)]
    }

    fn group(&self, entry: &Entry) -> usize {
        match self.grouping {
            Grouping::Together => 0,
            Grouping::ByDirection => entry.direction.index(),
            Grouping::ByClient => entry.client as usize,
        }
    }
}
