//! The index of the cold region in pages that are fetched, verified and kept one by one, each like a chunk.
//!
//! The first page is the root. Where the whole index is small, it is read with all leaves: on a medium with
//! latency the pieces would cost more than the transfer of the whole.

use std::collections::HashMap;

use hs_format::{ColdLeaf, ColdRoot, ExpectedBytes, FormatError, LeafRef, Superblock, Unverified, WindowRef};
use hs_store::{DiskCache, Store};
use hs_units::{ByteRange, to_u32, to_usize};

use crate::cold::{WHOLE_INDEX_BYTES, in_file, index_range, read, split};
use crate::kept_chunks::kept;
use crate::{Image, ImageError, Stored};

/// A page of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexPage {
    /// The root, with all leaves where these are few.
    Root,
    /// The leaf with this number.
    Leaf(u64, LeafRef),
}

/// A page as it is stored.
#[derive(Clone, Debug)]
pub enum StoredPage {
    /// The root and all leaves, as they lie in the file.
    Whole(Stored),
    /// The page alone.
    Alone(Stored),
}

impl StoredPage {
    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Whole(bytes) | Self::Alone(bytes) => bytes.len() as u64,
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A verified page.
#[derive(Debug)]
pub enum DecodedPage {
    /// The root, and leaves that came with it.
    Root(ColdRoot, Vec<(u64, ColdLeaf)>),
    /// The leaf with this number.
    Leaf(u64, ColdLeaf),
}

/// The pages that are in memory. Pages are numbered: the root is 0, the first leaf 1.
#[derive(Debug, Default)]
pub struct IndexPages {
    root: Option<ColdRoot>,
    leaves: HashMap<u64, Leaf>,
}

#[derive(Debug)]
struct Leaf {
    leaf: ColdLeaf,
    /// Whether it is part of the root's page, and goes with it.
    is_of_root: bool,
}

impl IndexPages {
    /// Where a window is; `None` when the page that says so, [`IndexPages::page_of`], is not in memory.
    #[must_use]
    pub fn window(&self, image: &Image, window: u64) -> Option<WindowRef> {
        let (leaf, slot) = split(image.superblock(), window);
        if self.root.as_ref()?.leaves.get(to_usize(leaf))?.is_zero() {
            return Some(WindowRef::Zero);
        }
        self.leaves.get(&leaf).map(|Leaf { leaf, .. }| leaf.window(slot))
    }

    /// The page to be read next for a window: the root as long as it is missing, then the window's leaf.
    #[must_use]
    pub fn page_of(&self, image: &Image, window: u64) -> u32 {
        if self.root.is_none() { 0 } else { 1 + to_u32(split(image.superblock(), window).0) }
    }

    /// A page by its number, and its bytes in the file. Leaves are known when the root is in memory.
    #[must_use]
    pub fn page(&self, image: &Image, page: u32) -> Option<(IndexPage, ByteRange)> {
        let superblock = image.superblock();
        let Some(leaf) = page.checked_sub(1) else {
            let index = index_range(superblock);
            let root = superblock.cold.in_file(superblock.cold.root);
            return Some((IndexPage::Root, if index.len <= WHOLE_INDEX_BYTES { index } else { root }));
        };
        let leaf_ref = *self.root.as_ref()?.leaves.get(leaf as usize)?;
        Some((IndexPage::Leaf(leaf.into(), leaf_ref), superblock.cold.in_file(leaf_ref.range)))
    }

    /// Puts a page into memory.
    pub fn put(&mut self, page: DecodedPage) {
        match page {
            DecodedPage::Root(root, leaves) => {
                self.root = Some(root);
                let leaves =
                    leaves.into_iter().map(|(number, leaf)| (number, Leaf { leaf, is_of_root: true }));
                self.leaves.extend(leaves);
            }
            DecodedPage::Leaf(number, leaf) => {
                self.leaves.insert(number, Leaf { leaf, is_of_root: false });
            }
        }
    }

    /// Takes a page out of memory. Of the root, the leaves that came with it go; the root itself is small and
    /// stays.
    pub fn remove(&mut self, page: u32) {
        match page.checked_sub(1) {
            Some(leaf) => drop(self.leaves.remove(&leaf.into())),
            None => self.leaves.retain(|_, leaf| !leaf.is_of_root),
        }
    }
}

impl Image {
    /// Reads a page of the index, from the cache on disk or from the store.
    ///
    /// # Errors
    /// When the store fails.
    pub fn fetch_page(&self, page: &IndexPage) -> Result<StoredPage, ImageError> {
        let (store, cache) = (&**self.store(), self.disk_cache());
        let (expected, at) = self.page_place(page);
        if let Some(kept) = cache.and_then(|cache| kept(cache, &expected)) {
            return Ok(StoredPage::Alone(kept.convert()));
        }
        if *page == IndexPage::Root && self.reads_whole_index() {
            match read(store, index_range(self.superblock())) {
                Ok(whole) => return Ok(StoredPage::Whole(whole.convert())),
                // One place of the index that cannot be read must not take the rest with it.
                Err(error) => log::debug!("{error}; the index is read page by page"),
            }
        }
        Ok(StoredPage::Alone(read(store, at)?.convert()))
    }

    /// What a page must be, and where it lies alone.
    pub(crate) fn page_place(&self, page: &IndexPage) -> (ExpectedBytes, ByteRange) {
        let cold = &self.superblock().cold;
        match page {
            IndexPage::Root => (cold.expected_root(), cold.in_file(cold.root)),
            IndexPage::Leaf(number, leaf) => (leaf.expected(*number), cold.in_file(leaf.range)),
        }
    }

    /// Where the index lies, if a reader needs all of it at once: of an image without a hot region, whose
    /// index is read as a whole.
    #[must_use]
    pub fn index_needed_first(&self) -> Option<ByteRange> {
        (self.hot_chunk_count() == 0 && self.reads_whole_index()).then(|| index_range(self.superblock()))
    }

    /// Whether the root is read with all leaves.
    pub(crate) fn reads_whole_index(&self) -> bool {
        index_range(self.superblock()).len <= WHOLE_INDEX_BYTES
    }

    /// Whether the cache on disk has a page, as far as its name tells.
    #[must_use]
    pub fn is_page_kept(&self, page: &IndexPage) -> bool {
        self.disk_cache().is_some_and(|cache| cache.has(&self.page_place(page).0.digest()))
    }

    /// Verifies a page. What is right goes into the cache on disk.
    ///
    /// # Errors
    /// When it is not what its digest says, or breaks a rule of the format.
    pub fn decode_page(&self, page: &IndexPage, stored: &StoredPage) -> Result<DecodedPage, ImageError> {
        let (superblock, store, cache) = (self.superblock(), &**self.store(), self.disk_cache());
        match (page, stored) {
            (IndexPage::Leaf(number, leaf), StoredPage::Alone(bytes) | StoredPage::Whole(bytes)) => {
                let at = superblock.cold.in_file(leaf.range);
                let decoded = decode_leaf(bytes.as_slice(), *number, leaf, superblock, cache);
                Ok(DecodedPage::Leaf(*number, decoded.map_err(in_file(store, at))?))
            }
            (IndexPage::Root, StoredPage::Alone(bytes)) => {
                let root = decode_root(bytes.as_slice(), superblock, store, cache)?;
                Ok(DecodedPage::Root(root, Vec::new()))
            }
            (IndexPage::Root, StoredPage::Whole(bytes)) => {
                let WholeIndex { root, leaves } =
                    WholeIndex::decode(bytes.as_slice(), superblock, store, cache)?;
                Ok(DecodedPage::Root(root, leaves))
            }
        }
    }
}

/// The root and the leaves of an index that was read as a whole. What is right goes into the cache on disk.
pub(crate) struct WholeIndex {
    pub(crate) root: ColdRoot,
    /// By their numbers; without those that are damaged or lie elsewhere. These are met again, and reported,
    /// when they are needed.
    pub(crate) leaves: Vec<(u64, ColdLeaf)>,
}

impl WholeIndex {
    pub(crate) fn decode(
        bytes: Unverified<&[u8]>,
        superblock: &Superblock,
        store: &dyn Store,
        cache: Option<&DiskCache>,
    ) -> Result<Self, ImageError> {
        let index = index_range(superblock);
        let piece = |at: ByteRange| {
            let from = to_usize(at.offset.checked_sub(index.offset)?);
            bytes.slice(from..from + to_usize(at.len))
        };
        let root_at = superblock.cold.in_file(superblock.cold.root);
        let root = decode_root(piece(root_at).unwrap_or_default(), superblock, store, cache)?;
        let stored = (0..).zip(&root.leaves).filter(|(_, leaf)| !leaf.is_zero());
        let leaves = stored.filter_map(|(number, leaf)| {
            let bytes = piece(superblock.cold.in_file(leaf.range))?;
            Some((number, decode_leaf(bytes, number, leaf, superblock, cache).ok()?))
        });
        let leaves = leaves.collect();
        Ok(Self { root, leaves })
    }
}

fn decode_root(
    bytes: Unverified<&[u8]>,
    superblock: &Superblock,
    store: &dyn Store,
    cache: Option<&DiskCache>,
) -> Result<ColdRoot, ImageError> {
    let at = superblock.cold.in_file(superblock.cold.root);
    let root = ColdRoot::decode(bytes, superblock).map_err(in_file(store, at))?;
    if let Some(cache) = cache {
        cache.put(&superblock.cold.root_digest, root.encode().into());
    }
    Ok(root)
}

fn decode_leaf(
    bytes: Unverified<&[u8]>,
    number: u64,
    leaf: &LeafRef,
    superblock: &Superblock,
    cache: Option<&DiskCache>,
) -> Result<ColdLeaf, FormatError> {
    let decoded = ColdLeaf::decode(bytes, number, leaf, superblock)?;
    if let Some(cache) = cache {
        cache.put(&leaf.digest, decoded.encode().into());
    }
    Ok(decoded)
}
