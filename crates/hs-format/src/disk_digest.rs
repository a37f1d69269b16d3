//! The disk digest: a Merkle tree over the uncompressed disk in fixed logical windows, which names
//! the content whatever the codec, the cold windows or the hot segments.
//!
//! A leaf is the plain BLAKE3 of one window of [`DISK_DIGEST_WINDOW_BYTES`] (the last one ends with the
//! disk). Each level above holds one node for every [`DISK_DIGEST_FANOUT`] digests of the level below,
//! until a level has one digest; the root binds that one to the disk's size.

use hs_units::{BLOCK_BYTES, Digest, to_usize};

use crate::digest::{DISK_NODE_CONTEXT, DISK_ROOT_CONTEXT, derived, plain};
use crate::limits::{DISK_DIGEST_FANOUT, DISK_DIGEST_WINDOW_BYTES, MAX_DISK_BYTES};

/// The leaf digest of one logical window: plain BLAKE3 of its bytes.
#[must_use]
pub fn leaf_digest(window: &[u8]) -> Digest {
    plain(window)
}

/// Computes a disk digest from the windows in ascending order, without keeping them.
#[derive(Clone, Debug)]
pub struct DiskHasher {
    disk_bytes: u64,
    pushed: u64,
    /// Digests of each level that no node covers yet, leaves first; fewer than a fan-out in each.
    levels: Vec<Vec<Digest>>,
    /// The digest of a subtree of zeros of each height, leaf first, as far as it was needed.
    zeros: Vec<Digest>,
}

impl DiskHasher {
    /// A hasher for a disk of `disk_bytes`.
    ///
    /// # Panics
    /// When the size is zero, not whole blocks, or above [`MAX_DISK_BYTES`].
    #[must_use]
    pub fn new(disk_bytes: u64) -> Self {
        assert!(
            disk_bytes > 0 && disk_bytes.is_multiple_of(BLOCK_BYTES) && disk_bytes <= MAX_DISK_BYTES,
            "a disk of {disk_bytes} bytes"
        );
        Self { disk_bytes, pushed: 0, levels: vec![Vec::new()], zeros: Vec::new() }
    }

    /// Windows of the disk.
    #[must_use]
    pub fn windows(&self) -> u64 {
        self.disk_bytes.div_ceil(DISK_DIGEST_WINDOW_BYTES as u64)
    }

    /// Bytes that the next window has; zero when all have been given.
    #[must_use]
    pub fn next_window_bytes(&self) -> usize {
        let window_bytes = DISK_DIGEST_WINDOW_BYTES as u64;
        to_usize((self.disk_bytes - (self.pushed * window_bytes).min(self.disk_bytes)).min(window_bytes))
    }

    /// Takes the next window.
    ///
    /// # Panics
    /// When its length is not [`Self::next_window_bytes`].
    pub fn update_window(&mut self, window: &[u8]) {
        assert_eq!(window.len(), self.next_window_bytes(), "length of window {}", self.pushed);
        self.push_leaf(leaf_digest(window));
    }

    /// Takes the next window's [`leaf_digest`], which a caller may have computed in parallel.
    ///
    /// # Panics
    /// When every window has been given.
    pub fn push_leaf(&mut self, leaf: Digest) {
        assert!(self.pushed < self.windows(), "more windows than the disk's {}", self.windows());
        self.pushed += 1;
        self.push(0, leaf);
    }

    /// Takes the next `count` windows as zeros, in a time that grows with the logarithm of `count`; the
    /// disk's last, short window may be among them.
    ///
    /// # Panics
    /// When the disk has fewer windows left.
    pub fn zero_windows(&mut self, count: u64) {
        let left = self.windows() - self.pushed;
        assert!(count <= left, "{count} zero windows where {left} are left");
        let window_bytes = DISK_DIGEST_WINDOW_BYTES as u64;
        let short = count == left && count > 0 && !self.disk_bytes.is_multiple_of(window_bytes);
        let full = count - u64::from(short);
        self.pushed += full;
        self.push_zeros(0, full);
        if short {
            let zeros = vec![0; self.next_window_bytes()];
            self.update_window(&zeros);
        }
    }

    /// The disk digest.
    ///
    /// # Panics
    /// When windows are missing.
    #[must_use]
    pub fn finish(mut self) -> Digest {
        assert_eq!(self.pushed, self.windows(), "windows given");
        let mut level = 0;
        // A level's remainder becomes a node, however few it has, unless it is the tree's only digest.
        while level + 1 < self.levels.len() || self.levels[level].len() > 1 {
            if !self.levels[level].is_empty() {
                self.close_node(level);
            }
            level += 1;
        }
        let mut input = [0; 40];
        input[..8].copy_from_slice(&self.disk_bytes.to_le_bytes());
        input[8..].copy_from_slice(&self.levels[level][0].0);
        derived(DISK_ROOT_CONTEXT, &input)
    }

    fn push(&mut self, level: usize, digest: Digest) {
        if self.levels.len() == level {
            self.levels.push(Vec::new());
        }
        self.levels[level].push(digest);
        if self.levels[level].len() == DISK_DIGEST_FANOUT {
            self.close_node(level);
        }
    }

    fn close_node(&mut self, level: usize) {
        let children = core::mem::take(&mut self.levels[level]);
        self.push(level + 1, node_digest(&children));
    }

    /// Pushes `count` zero subtrees of the height `level`, whole nodes of them at once where they align.
    fn push_zeros(&mut self, level: usize, mut count: u64) {
        let fanout = DISK_DIGEST_FANOUT as u64;
        while count > 0 {
            let aligned = self.levels.get(level).is_none_or(Vec::is_empty);
            if aligned && count >= fanout {
                if self.levels.len() == level {
                    self.levels.push(Vec::new());
                }
                self.push_zeros(level + 1, count / fanout);
                count %= fanout;
            } else {
                let zero = self.zero_subtree(level);
                self.push(level, zero);
                count -= 1;
            }
        }
    }

    fn zero_subtree(&mut self, level: usize) -> Digest {
        if self.zeros.is_empty() {
            self.zeros.push(leaf_digest(&vec![0; DISK_DIGEST_WINDOW_BYTES]));
        }
        while self.zeros.len() <= level {
            let below = self.zeros[self.zeros.len() - 1];
            self.zeros.push(node_digest(&[below; DISK_DIGEST_FANOUT]));
        }
        self.zeros[level]
    }
}

fn node_digest(children: &[Digest]) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key(DISK_NODE_CONTEXT);
    for child in children {
        hasher.update(&child.0);
    }
    Digest(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, read literally: whole levels, top down from the leaves.
    fn by_definition(disk_bytes: u64, mut level: Vec<Digest>) -> Digest {
        while level.len() > 1 {
            level = level.chunks(DISK_DIGEST_FANOUT).map(node_digest).collect();
        }
        let mut input = disk_bytes.to_le_bytes().to_vec();
        input.extend_from_slice(&level[0].0);
        derived(DISK_ROOT_CONTEXT, &input)
    }

    const WINDOW: u64 = DISK_DIGEST_WINDOW_BYTES as u64;

    #[test]
    fn streaming_matches_the_definition() {
        for leaves in [1_u64, 2, 1023, 1024, 1025, 2048, 3000] {
            let digests: Vec<_> = (0..leaves).map(|i| plain(&i.to_le_bytes())).collect();
            let mut hasher = DiskHasher::new(leaves * WINDOW);
            digests.iter().for_each(|&digest| hasher.push_leaf(digest));
            assert_eq!(hasher.finish(), by_definition(leaves * WINDOW, digests), "{leaves} leaves");
        }
    }

    #[test]
    fn zero_windows_are_windows_of_zeros() {
        let zero = leaf_digest(&vec![0; DISK_DIGEST_WINDOW_BYTES]);
        for (before, zeros) in [(0_u64, 1_u64), (0, 1024), (1, 1500), (1023, 2049), (1024, 1024), (5, 3000)] {
            let data = plain(b"data");
            let disk_bytes = (before + zeros + 1) * WINDOW;
            let mut hasher = DiskHasher::new(disk_bytes);
            (0..before).for_each(|_| hasher.push_leaf(data));
            hasher.zero_windows(zeros);
            hasher.push_leaf(data);
            let mut leaves = vec![data; before as usize];
            leaves.extend(vec![zero; zeros as usize]);
            leaves.push(data);
            assert_eq!(hasher.finish(), by_definition(disk_bytes, leaves), "{before} + {zeros}");
        }
    }

    #[test]
    fn zero_windows_may_come_in_parts() {
        let windows = 5 * DISK_DIGEST_FANOUT as u64 + 3;
        let digest_of = |parts: &[u64]| {
            let mut hasher = DiskHasher::new(windows * WINDOW);
            parts.iter().for_each(|&count| hasher.zero_windows(count));
            hasher.finish()
        };
        let fanout = DISK_DIGEST_FANOUT as u64;
        let parts = [fanout, fanout, fanout, 0, fanout, fanout, 3];
        assert_eq!(digest_of(&parts), digest_of(&[windows]));
    }

    #[test]
    fn a_short_last_window_is_hashed_as_it_is() {
        let disk_bytes = WINDOW + BLOCK_BYTES;
        let mut zeros = DiskHasher::new(disk_bytes);
        zeros.zero_windows(2);
        let mut windows = DiskHasher::new(disk_bytes);
        windows.update_window(&vec![0; DISK_DIGEST_WINDOW_BYTES]);
        assert_eq!(windows.next_window_bytes(), 4096);
        windows.update_window(&[0; 4096]);
        assert_eq!(windows.next_window_bytes(), 0);
        assert_eq!(zeros.finish(), windows.finish());
    }

    #[test]
    fn the_largest_disk_of_zeros_is_cheap_and_sizes_differ() {
        let digest_of = |disk_bytes| {
            let mut hasher = DiskHasher::new(disk_bytes);
            hasher.zero_windows(hasher.windows());
            hasher.finish()
        };
        assert_ne!(digest_of(MAX_DISK_BYTES), digest_of(MAX_DISK_BYTES - BLOCK_BYTES));
        // One full window as the only leaf, and the same leaf digest under another size.
        assert_ne!(digest_of(WINDOW), digest_of(2 * WINDOW));
    }
}
