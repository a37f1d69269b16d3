//! The requests of one class that an elevator chooses from: in order of arrival and in order of position.

use super::arena::{Arena, Entry, EntryState, List, NONE};
use super::positions::{Cursor, Positions, Spot};
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
pub(super) struct Candidate {
    pub index: u32,
    pub at: Option<Cursor>,
}

impl Candidate {
    const fn somewhere(index: u32) -> Self {
        Self { index, at: None }
    }

    const fn at(spot: Spot) -> Self {
        Self { index: spot.index, at: Some(spot.at) }
    }

    /// Where it stands among its peers.
    pub(super) fn cursor(self, peers: &Positions, entry: &Entry) -> Cursor {
        self.at.unwrap_or_else(|| {
            peers.find(entry.range.offset, self.index).expect("a request that waits has a position")
        })
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
        entry.place = EntryState::Waiting;
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
        let entry = arena.get(index);
        let cursor = Candidate::somewhere(index).cursor(self.peers(entry), entry);
        self.remove_run(arena, cursor, &[index]);
    }

    /// Takes out `members`, at least one, all of one direction, which stand one after another from a place
    /// on.
    pub(super) fn remove_run(&mut self, arena: &mut Arena, from: Cursor, members: &[u32]) {
        let first = arena.get(members[0]);
        let (group, arrivals) = (self.group(first), &mut self.arrivals[first.direction.index()]);
        for member in members {
            arena.unlink(arrivals, *member);
        }
        self.positions[group].remove(from, members.len());
        self.count -= members.len() as u32;
    }

    /// The request of this direction that came first.
    pub(super) fn oldest_of(&self, direction: Direction) -> Option<Candidate> {
        let index = self.arrivals[direction.index()].first;
        (index != NONE).then_some(Candidate::somewhere(index))
    }

    /// The request that came first.
    pub(super) fn oldest(&self, arena: &Arena) -> Option<Candidate> {
        let (read, write) = (self.oldest_of(Direction::Read), self.oldest_of(Direction::Write));
        match (read, write) {
            (Some(read), Some(write)) => {
                Some(if arena.get(read.index).came_before(arena.get(write.index)) { read } else { write })
            }
            (read, write) => read.or(write),
        }
    }

    /// The lowest position of a group at or above `offset`.
    pub(super) fn at_or_above(&self, group: usize, offset: u64) -> Option<Candidate> {
        self.positions.get(group)?.at_or_above(offset).map(Candidate::at)
    }

    /// The lowest position of a group.
    pub(super) fn lowest(&self, group: usize) -> Option<Candidate> {
        self.positions.get(group)?.first().map(Candidate::at)
    }

    /// The first group from this one on in which a request waits.
    pub(super) fn group_from(&self, group: usize) -> Option<usize> {
        let waits = self.positions.get(group..)?.iter().position(|positions| !positions.is_empty());
        waits.map(|further| group + further)
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
