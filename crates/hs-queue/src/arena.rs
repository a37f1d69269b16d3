//! The memory of requests while they wait and while they are served: one slab, and lists through it.

use hs_units::{ByteRange, Nanos};

use super::request::{Class, Direction, Request, RequestTag, Ticket};

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// Where a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryState {
    Free,
    /// Held back until others have had their share.
    Backlog,
    /// Among those that the elevator chooses from.
    Waiting,
    InService,
}

/// A request. Whatever is asked about it is in one line of the processor's cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub tag: RequestTag,
    pub range: ByteRange,
    pub came: Nanos,
    /// Number of the client, not its key.
    pub client: u32,
    pub generation: u32,
    /// Low bits of the request's number in order of arrival.
    pub sequence: u32,
    pub class: Class,
    pub direction: Direction,
    pub place: EntryState,
    /// Neighbours in the one list that it is in.
    previous: u32,
    next: u32,
}

impl Entry {
    const FREE: Self = Self {
        tag: RequestTag(0),
        range: ByteRange::new(0, 0),
        came: Nanos::ZERO,
        client: 0,
        generation: 0,
        sequence: 0,
        class: Class::Demand,
        direction: Direction::Read,
        place: EntryState::Free,
        previous: NONE,
        next: NONE,
    };

    /// Whether it came earlier than `other`, which waits as well.
    pub(super) const fn came_before(&self, other: &Self) -> bool {
        (self.sequence.wrapping_sub(other.sequence) as i32) < 0
    }
}

/// Ends of a list through the arena: first in, first out, but any entry can be taken out.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub first: u32,
    pub last: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl List {
    pub(super) const fn is_empty(self) -> bool {
        self.first == NONE
    }
}

/// All requests that have not ended.
#[derive(Debug)]
pub(super) struct Arena {
    entries: Vec<Entry>,
    /// The place that was given back last, from which the others follow.
    free: u32,
    arrived: u32,
}

impl Default for Arena {
    fn default() -> Self {
        Self { entries: Vec::new(), free: NONE, arrived: 0 }
    }
}

impl Arena {
    pub(super) fn get(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    /// Takes a request in, in no list yet.
    pub(super) fn insert(&mut self, now: Nanos, request: &Request, class: Class, client: u32) -> Ticket {
        let sequence = self.arrived;
        self.arrived = self.arrived.wrapping_add(1);
        let index = self.vacant();
        let entry = &mut self.entries[index as usize];
        let generation = entry.generation;
        *entry = Entry {
            tag: request.tag,
            range: request.range,
            came: now,
            client,
            generation,
            sequence,
            class,
            direction: request.direction,
            place: EntryState::Backlog,
            previous: NONE,
            next: NONE,
        };
        Ticket { index, generation }
    }

    /// A free place, taken out of the free list.
    fn vacant(&mut self) -> u32 {
        if self.free == NONE {
            return self.grow();
        }
        let index = self.free;
        self.free = self.next(index);
        index
    }

    /// One more place.
    #[cold]
    fn grow(&mut self) -> u32 {
        let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 requests wait");
        assert!(index != NONE, "fewer than 2^32 requests wait");
        self.entries.push(Entry::FREE);
        index
    }

    /// Frees the place of a request, which is in no list.
    pub(super) fn release(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.place = EntryState::Free;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = std::mem::replace(&mut self.free, index);
    }

    /// The entry that a ticket is for, while it waits.
    pub(super) fn waiting(&self, ticket: Ticket) -> Option<u32> {
        let entry = self.entries.get(ticket.index as usize)?;
        let waits = matches!(entry.place, EntryState::Backlog | EntryState::Waiting);
        (waits && entry.generation == ticket.generation).then_some(ticket.index)
    }

    /// The entry behind this one in its list or chain, or [`NONE`].
    pub(super) fn next(&self, index: u32) -> u32 {
        self.get(index).next
    }

    /// Chains entries that are in no list, each to the next; the first of them, or [`NONE`].
    pub(super) fn chain(&mut self, members: &[u32]) -> u32 {
        members.iter().rev().fold(NONE, |next, member| {
            self.get_mut(*member).next = next;
            *member
        })
    }

    /// Appends an entry, which is in no list, to one.
    pub(super) fn push(&mut self, list: &mut List, index: u32) {
        let last = std::mem::replace(&mut list.last, index);
        let entry = self.get_mut(index);
        (entry.previous, entry.next) = (last, NONE);
        if last == NONE {
            list.first = index;
        } else {
            self.get_mut(last).next = index;
        }
    }

    /// Takes an entry out of the list that it is in.
    pub(super) fn unlink(&mut self, list: &mut List, index: u32) {
        let Entry { previous, next, .. } = *self.get(index);
        if previous == NONE {
            list.first = next;
        } else {
            self.get_mut(previous).next = next;
        }
        if next == NONE {
            list.last = previous;
        } else {
            self.get_mut(next).previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_takes_no_more_than_a_line_of_the_processors_cache() {
        assert!(size_of::<Entry>() == 64);
    }
}
