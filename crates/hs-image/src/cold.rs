//! The index of the cold region, loaded on demand and kept within bounds.

use std::num::NonZeroUsize;
use std::sync::Arc;

use hs_format::limits::WINDOW_ENTRY_BYTES;
use hs_format::{ColdLeaf, ColdRoot, FormatError, Superblock, Unverified, WindowRef};
use hs_store::{DiskCache, Store};
use hs_units::{ByteRange, to_usize};
use lru::LruCache;
use parking_lot::Mutex;

use crate::index_pages::WholeIndex;
use crate::{ImageError, kept_chunks};

/// An index of up to this size is read with one request: on a medium with latency the pieces would
/// cost more than the transfer of the whole.
pub(crate) const WHOLE_INDEX_BYTES: u64 = 512 * 1024;
/// Decoded leaves kept in memory: 85 of the usual 512 windows, and never less than two of the largest
/// that the format has.
const KEPT_INDEX_BYTES: u64 = 2 << 20;
/// What a leaf in memory counts for at least, as its place in the cache is not free.
const SMALLEST_LEAF_BYTES: u64 = 256;

/// Which chunk holds a window: asked of the root, then of a leaf.
pub(crate) struct ColdIndex {
    state: Mutex<IndexCache>,
    loading: Mutex<()>,
    cache: Option<Arc<DiskCache>>,
}

struct IndexCache {
    root: Option<Arc<ColdRoot>>,
    leaves: LruCache<u64, Arc<ColdLeaf>>,
}

impl ColdIndex {
    pub(crate) fn new(superblock: &Superblock, cache: Option<Arc<DiskCache>>) -> Self {
        let leaf_bytes = u64::from(superblock.cold.windows_per_leaf) * WINDOW_ENTRY_BYTES as u64;
        let leaves = to_usize(KEPT_INDEX_BYTES / leaf_bytes.max(SMALLEST_LEAF_BYTES));
        let capacity = NonZeroUsize::new(leaves).unwrap_or(NonZeroUsize::MIN);
        Self {
            state: Mutex::new(IndexCache { root: None, leaves: LruCache::new(capacity) }),
            loading: Mutex::new(()),
            cache,
        }
    }

    /// Bytes of leaves in memory.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.leaves.iter().map(|(_, leaf)| (leaf.len() * WINDOW_ENTRY_BYTES) as u64).sum()
    }

    /// The window's place if the index in memory knows it.
    pub(crate) fn peek(&self, superblock: &Superblock, window: u64) -> Option<WindowRef> {
        let (leaf, slot) = split(superblock, window);
        let mut state = self.state.lock();
        if state.root.as_ref()?.leaves[to_usize(leaf)].is_zero() {
            return Some(WindowRef::Zero);
        }
        state.leaves.get(&leaf).map(|leaf| leaf.window(slot))
    }

    /// The window's place; reads what is missing of the index.
    pub(crate) fn window(
        &self,
        store: &dyn Store,
        superblock: &Superblock,
        window: u64,
    ) -> Result<WindowRef, ImageError> {
        if let Some(place) = self.peek(superblock, window) {
            return Ok(place);
        }
        let (leaf, slot) = split(superblock, window);
        Ok(self.leaf(store, superblock, leaf)?.map_or(WindowRef::Zero, |leaf| leaf.window(slot)))
    }

    /// The leaf with this number; `None` when all its windows are zero.
    pub(crate) fn leaf(
        &self,
        store: &dyn Store,
        superblock: &Superblock,
        leaf: u64,
    ) -> Result<Option<Arc<ColdLeaf>>, ImageError> {
        // One thread loads; the others find the result when it is their turn.
        let _turn = self.loading.lock();
        let is_kept = self.cache.as_ref().is_some_and(|cache| cache.has(&superblock.cold.root_digest));
        if self.state.lock().root.is_none() && index_range(superblock).len <= WHOLE_INDEX_BYTES && !is_kept {
            match self.load_whole(store, superblock) {
                // One place of the index that cannot be read must not take the rest with it.
                Err(ImageError::Store(error)) => log::debug!("{}", error.with_causes()),
                loaded => loaded?,
            }
        }
        let root = self.root(store, superblock)?;
        let leaf_ref = root.leaves[to_usize(leaf)];
        if leaf_ref.is_zero() {
            return Ok(None);
        }
        if let Some(known) = self.state.lock().leaves.get(&leaf) {
            return Ok(Some(Arc::clone(known)));
        }
        let at = superblock.cold.in_file(leaf_ref.range);
        let decode = |bytes: Unverified<&[u8]>| ColdLeaf::decode(bytes, leaf, &leaf_ref, superblock);
        let (cache, digest) = (self.cache.as_deref(), &leaf_ref.digest);
        let decoded = kept_chunks::table(store, cache, digest, at, decode, ColdLeaf::encode)?;
        let decoded = Arc::new(decoded);
        self.state.lock().leaves.put(leaf, Arc::clone(&decoded));
        Ok(Some(decoded))
    }

    fn root(&self, store: &dyn Store, superblock: &Superblock) -> Result<Arc<ColdRoot>, ImageError> {
        if let Some(root) = &self.state.lock().root {
            return Ok(Arc::clone(root));
        }
        let at = superblock.cold.in_file(superblock.cold.root);
        let decode = |bytes: Unverified<&[u8]>| ColdRoot::decode(bytes, superblock);
        let (cache, digest) = (self.cache.as_deref(), &superblock.cold.root_digest);
        let root = Arc::new(kept_chunks::table(store, cache, digest, at, decode, ColdRoot::encode)?);
        self.state.lock().root = Some(Arc::clone(&root));
        Ok(root)
    }

    /// Reads root and leaves with one request and keeps as many leaves as memory is meant for.
    fn load_whole(&self, store: &dyn Store, superblock: &Superblock) -> Result<(), ImageError> {
        let bytes = read(store, index_range(superblock))?;
        let index = WholeIndex::decode(bytes.as_slice(), superblock, store, self.cache.as_deref())?;
        let mut state = self.state.lock();
        for (number, leaf) in index.leaves {
            state.leaves.put(number, Arc::new(leaf));
        }
        state.root = Some(Arc::new(index.root));
        Ok(())
    }
}

/// Leaves and root, which lie one after the other at the end of the cold region.
pub(crate) fn index_range(superblock: &Superblock) -> ByteRange {
    let cold = &superblock.cold;
    cold.in_file(ByteRange::new(cold.leaves_offset, cold.range.len - cold.leaves_offset))
}

pub(crate) fn split(superblock: &Superblock, window: u64) -> (u64, usize) {
    let per_leaf = u64::from(superblock.cold.windows_per_leaf);
    (window / per_leaf, to_usize(window % per_leaf))
}

pub(crate) fn read(store: &dyn Store, range: ByteRange) -> Result<Unverified<Vec<u8>>, ImageError> {
    let mut bytes = vec![0; to_usize(range.len)];
    store.read_at(range.offset, &mut bytes)?;
    Ok(Unverified::new(bytes))
}

pub(crate) fn in_file(store: &dyn Store, range: ByteRange) -> impl FnOnce(FormatError) -> ImageError {
    let path = store.name().to_owned();
    move |fault| ImageError::Format { path, range, fault: Box::new(fault) }
}
