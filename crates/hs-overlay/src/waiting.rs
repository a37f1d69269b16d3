//! Changes that wait for room in the gathered batch.

use std::collections::VecDeque;

/// A larger write is one of many that a program does not wait for.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;

/// Changes of one requester of about one size, which are taken in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    requester: u64,
    is_large: bool,
}

impl Lane {
    /// The lane of a change with so much data. A kernel is one requester, whatever programs it has, so its
    /// small writes have a lane beside its large ones.
    #[must_use]
    pub const fn of(requester: u64, bytes: u64) -> Self {
        Self { requester, is_large: bytes > SMALL_BYTES }
    }

    /// Whether its changes find room only where small ones do as well.
    #[must_use]
    pub const fn is_large(self) -> bool {
        self.is_large
    }
}

/// Changes that wait, and are taken from one lane after the other: many large writes do not hold up a small
/// one. Each was not answered yet, so their order is free.
#[derive(Debug)]
pub struct Waiting<T> {
    /// Lanes in the order in which they are next. None is empty.
    lanes: VecDeque<(Lane, VecDeque<T>)>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { lanes: VecDeque::new() }
    }
}

impl<T> Waiting<T> {
    /// Whether no change waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Whether a change of this lane would pass over others that may find room now: then it has to wait, too.
    #[must_use]
    pub fn must_wait(&self, lane: Lane) -> bool {
        self.lanes.iter().any(|(other, _)| lane.is_large || !other.is_large)
    }

    /// Adds a change behind the others of its lane.
    pub fn push(&mut self, lane: Lane, change: T) {
        match self.lanes.iter_mut().find(|(other, _)| *other == lane) {
            Some((_, changes)) => changes.push_back(change),
            None => self.lanes.push_back((lane, VecDeque::from([change]))),
        }
    }

    /// The next change, and its lane, which is the last one from now on.
    pub fn pop(&mut self) -> Option<(Lane, T)> {
        let (lane, mut changes) = self.lanes.pop_front()?;
        let change = changes.pop_front()?;
        if !changes.is_empty() {
            self.lanes.push_back((lane, changes));
        }
        Some((lane, change))
    }

    /// The next small change: where there is no room for a large one.
    pub fn pop_small(&mut self) -> Option<(Lane, T)> {
        let at = self.lanes.iter().position(|(lane, _)| !lane.is_large)?;
        let small = self.lanes.remove(at)?;
        self.lanes.push_front(small);
        self.pop()
    }

    /// Undoes a [`Self::pop`], where there was no room: the change is the next one, before those of all other
    /// lanes, so that a large one is not passed over again and again.
    pub fn put_back(&mut self, lane: Lane, change: T) {
        let at = self.lanes.iter().position(|(other, _)| *other == lane);
        let mut changes = at.and_then(|at| self.lanes.remove(at)).map(|(_, all)| all).unwrap_or_default();
        changes.push_front(change);
        self.lanes.push_front((lane, changes));
    }

    /// Takes all of them.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.lanes).into_iter().flat_map(|(_, changes)| changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(changes: &[(u64, u64, char)]) -> Waiting<char> {
        let mut waiting = Waiting::default();
        for (requester, bytes, change) in changes {
            waiting.push(Lane::of(*requester, *bytes), *change);
        }
        waiting
    }

    fn all(waiting: &mut Waiting<char>) -> String {
        std::iter::from_fn(|| waiting.pop().map(|(_, change)| change)).collect()
    }

    #[test]
    fn lanes_are_served_in_turn_and_their_changes_in_order() {
        let (small, large) = (4096, 1 << 20);
        let mut waiting = of(&[
            (1, large, 'a'),
            (1, large, 'b'),
            (1, large, 'c'),
            (1, small, 'x'),
            (2, small, 'y'),
            (2, small, 'z'),
        ]);
        assert_eq!(all(&mut waiting), "axybzc");
        assert!(waiting.is_empty());
    }

    #[test]
    fn small_changes_pass_large_ones_that_find_no_room() {
        let mut waiting = of(&[(1, 1 << 20, 'a'), (1, 1 << 20, 'b')]);
        assert!(waiting.must_wait(Lane::of(2, 1 << 20)) && !waiting.must_wait(Lane::of(1, 4096)));
        assert_eq!(waiting.pop_small(), None);
        waiting.push(Lane::of(1, 4096), 'x');
        assert!(waiting.must_wait(Lane::of(2, 4096)));
        assert_eq!(waiting.pop_small().map(|(_, change)| change), Some('x'));
        assert_eq!(all(&mut waiting), "ab");
    }

    #[test]
    fn what_found_no_room_is_next() {
        let mut waiting = of(&[(1, 0, 'a'), (1, 0, 'b'), (2, 0, 'x')]);
        let (lane, change) = waiting.pop().unwrap();
        waiting.put_back(lane, change);
        waiting.push(Lane::of(3, 0), 'y');
        assert_eq!(all(&mut waiting), "axyb");
        waiting.put_back(Lane::of(4, 0), 'n');
        assert_eq!(waiting.drain().collect::<String>(), "n");
        assert!(waiting.is_empty());
    }
}
