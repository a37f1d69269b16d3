//! Storage that grows without moving what it holds.

use std::ops::{Index, IndexMut};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// Elements of one segment: small enough to allocate at once, large enough that their list stays short.
const SEGMENT: usize = 1 << SEGMENT_LOG;
const SEGMENT_LOG: u32 = 12;

/// A growing array in segments of 4,096 elements. A `Vec` would copy a million elements when it grows, and a
/// reader would wait for that.
#[derive(Debug)]
pub(super) struct Segments<T> {
    segments: Vec<Vec<T>>,
    len: u32,
}

impl<T> Default for Segments<T> {
    fn default() -> Self {
        Self { segments: Vec::new(), len: 0 }
    }
}

impl<T> Segments<T> {
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn push(&mut self, element: T) {
        if (self.len as usize).is_multiple_of(SEGMENT) {
            self.segments.push(Vec::with_capacity(SEGMENT));
        }
        if let Some(last) = self.segments.last_mut() {
            last.push(element);
            self.len += 1;
        }
    }
}

impl<T> Index<u32> for Segments<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.segments[(at >> SEGMENT_LOG) as usize][at as usize % SEGMENT]
    }
}

impl<T> IndexMut<u32> for Segments<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.segments[(at >> SEGMENT_LOG) as usize][at as usize % SEGMENT]
    }
}

/// Values with a slot each; a slot that was left is used again first.
#[derive(Debug)]
pub(super) struct Arena<T> {
    slots: Segments<Slot<T>>,
    free: u32,
    len: u32,
}

#[derive(Debug)]
enum Slot<T> {
    Full(T),
    /// And the next free one.
    Free(u32),
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { slots: Segments::default(), free: NONE, len: 0 }
    }
}

impl<T> Arena<T> {
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        let slot = self.free;
        if slot == NONE {
            self.slots.push(Slot::Full(value));
            return self.slots.len() - 1;
        }
        if let Slot::Free(next) = std::mem::replace(&mut self.slots[slot], Slot::Full(value)) {
            self.free = next;
        }
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<T> {
        if matches!(self.slots[slot], Slot::Free(_)) {
            return None;
        }
        let Slot::Full(value) = std::mem::replace(&mut self.slots[slot], Slot::Free(self.free)) else {
            return None;
        };
        self.free = slot;
        self.len -= 1;
        Some(value)
    }

    pub(super) fn get(&self, slot: u32) -> Option<&T> {
        match &self.slots[slot] {
            Slot::Full(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        match &mut self.slots[slot] {
            Slot::Full(value) => Some(value),
            Slot::Free(_) => None,
        }
    }
}
