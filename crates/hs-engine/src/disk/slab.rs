//! Values with a number each, which is used again; what a value has allocated is used again with it.

use std::ops::{Index, IndexMut};

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    live: bool,
    value: T,
}

/// Numbered values. A number that is free keeps its value, so that the buffers in it serve the next one.
#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Slab<T> {
    /// A number that was free. Its value is as it was left.
    pub(super) fn take(&mut self) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, live: false, value: T::default() });
            self.entries.len() as u32 - 1
        });
        self.entries[index as usize].live = true;
        index
    }

    /// The number is free again.
    pub(super) fn release(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        assert!(entry.live, "a number is released once");
        entry.live = false;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Which use of the number it is now.
    pub(super) fn generation(&self, index: u32) -> u32 {
        self.entries[index as usize].generation
    }

    /// Whether the number is in use, for the same value as then.
    pub(super) fn is_live(&self, index: u32, generation: u32) -> bool {
        let entry = self.entries.get(index as usize);
        entry.is_some_and(|entry| entry.live && entry.generation == generation)
    }

    /// How many numbers are in use.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// One more than the highest number.
    pub(super) fn end(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The value of a number that is in use.
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize).filter(|entry| entry.live).map(|entry| &entry.value)
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        &self.entries[index as usize].value
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.entries[index as usize].value
    }
}
