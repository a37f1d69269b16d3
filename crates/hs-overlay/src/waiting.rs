//! Changes that wait for room in the gathered batch.

use std::collections::VecDeque;

/// A larger write is one of many that a program does not wait for.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;

/// Changes of one requester of about one size, which are taken in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeKind {
    requester: u64,
    is_large: bool,
}

impl ChangeKind {
    /// The kind of a change with so much data. A kernel is one requester, whatever programs it has, so its
    /// small writes have a kind beside its large ones.
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

/// Changes that wait, and are taken from one kind after the other: many large writes do not hold up a small
/// one. Each was not answered yet, so their order is free.
#[derive(Debug)]
pub struct Waiting<T> {
    /// Kinds in the order in which they are next. None is empty.
    kinds: VecDeque<(ChangeKind, VecDeque<T>)>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { kinds: VecDeque::new() }
    }
}

impl<T> Waiting<T> {
    /// Whether no change waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Whether a change of this kind would pass over others that may find room now: then it has to wait, too.
    #[must_use]
    pub fn must_wait(&self, kind: ChangeKind) -> bool {
        self.kinds.iter().any(|(other, _)| kind.is_large || !other.is_large)
    }

    /// Adds a change behind the others of its kind.
    pub fn push(&mut self, kind: ChangeKind, change: T) {
        match self.kinds.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, changes)) => changes.push_back(change),
            None => self.kinds.push_back((kind, VecDeque::from([change]))),
        }
    }

    /// The next change, and its kind, which is the last one from now on.
    pub fn pop(&mut self) -> Option<(ChangeKind, T)> {
        let (kind, mut changes) = self.kinds.pop_front()?;
        let change = changes.pop_front()?;
        if !changes.is_empty() {
            self.kinds.push_back((kind, changes));
        }
        Some((kind, change))
    }

    /// The next small change: where there is no room for a large one.
    pub fn pop_small(&mut self) -> Option<(ChangeKind, T)> {
        let at = self.kinds.iter().position(|(kind, _)| !kind.is_large)?;
        let small = self.kinds.remove(at)?;
        self.kinds.push_front(small);
        self.pop()
    }

    /// Undoes a [`Self::pop`], where there was no room: the change is the next one, before those of all other
    /// kinds, so that a large one is not passed over again and again.
    pub fn put_back(&mut self, kind: ChangeKind, change: T) {
        let at = self.kinds.iter().position(|(other, _)| *other == kind);
        let mut changes = at.and_then(|at| self.kinds.remove(at)).map(|(_, all)| all).unwrap_or_default();
        changes.push_front(change);
        self.kinds.push_front((kind, changes));
    }

    /// Takes all of them.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.kinds).into_iter().flat_map(|(_, changes)| changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(changes: &[(u64, u64, char)]) -> Waiting<char> {
        let mut waiting = Waiting::default();
        for (requester, bytes, change) in changes {
            waiting.push(ChangeKind::of(*requester, *bytes), *change);
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
        assert!(waiting.must_wait(ChangeKind::of(2, 1 << 20)) && !waiting.must_wait(ChangeKind::of(1, 4096)));
        assert_eq!(waiting.pop_small(), None);
        waiting.push(ChangeKind::of(1, 4096), 'x');
        assert!(waiting.must_wait(ChangeKind::of(2, 4096)));
        assert_eq!(waiting.pop_small().map(|(_, change)| change), Some('x'));
        assert_eq!(all(&mut waiting), "ab");
    }

    #[test]
    fn what_found_no_room_is_next() {
        let mut waiting = of(&[(1, 0, 'a'), (1, 0, 'b'), (2, 0, 'x')]);
        let (kind, change) = waiting.pop().unwrap();
        waiting.put_back(kind, change);
        waiting.push(ChangeKind::of(3, 0), 'y');
        assert_eq!(all(&mut waiting), "axyb");
        waiting.put_back(ChangeKind::of(4, 0), 'n');
        assert_eq!(waiting.drain().collect::<String>(), "n");
        assert!(waiting.is_empty());
    }
}
