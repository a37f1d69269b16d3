//! The index of the cold region in pages that are fetched, verified and kept one by one, each like a chunk.
//!
//! The first page is the root. Where the whole index is small, it is read with all leaves: on a medium with
//! latency the pieces would cost more than the transfer of the whole.

use std::collections::HashMap;

use hs_format::{ColdLeaf, ColdRoot, LeafRef, Superblock, WindowRef};
use hs_store::DiskCache;
use hs_units::{ByteRange, Digest};

use crate::cold::{WHOLE_INDEX_BYTES, in_file, index_range, read, split};
use crate::{Image, ImageError, Stored};

/// A page of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexPage {
    /// The root, with all leaves where these are few.
    Root,
    /// The leaf with this number.
    Leaf(u64, LeafRef),
}

/// A page as it is stored, not verified.
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
    pub const fn len(&self) -> u64 {
        match self {
            Self::Whole(bytes) | Self::Alone(bytes) => bytes.len() as u64,
        }
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
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
        if self.root.as_ref()?.leaves.get(leaf as usize)?.is_zero() {
            return Some(WindowRef::Zero);
        }
        self.leaves.get(&leaf).map(|Leaf { leaf, .. }| leaf.window(slot))
    }

    /// The page to be read next for a window: the root as long as it is missing, then the window's leaf.
    #[must_use]
    pub fn page_of(&self, image: &Image, window: u64) -> u32 {
        if self.root.is_none() { 0 } else { 1 + split(image.superblock(), window).0 as u32 }
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
        let (store, superblock, cache) = (&**self.store(), self.superblock(), self.disk_cache());
        let (digest, at, digest_of) = match page {
            IndexPage::Root => {
                let at = superblock.cold.in_file(superblock.cold.root);
                (superblock.cold.root_digest, at, ColdRoot::digest_of as fn(&[u8]) -> Digest)
            }
            IndexPage::Leaf(_, leaf) => {
                (leaf.digest, superblock.cold.in_file(leaf.range), LeafRef::digest_of as fn(&[u8]) -> Digest)
            }
        };
        if let Some(kept) = cache.and_then(|cache| kept(cache, &digest, digest_of, at.len)) {
            return Ok(StoredPage::Alone(kept.into()));
        }
        let index = index_range(superblock);
        if *page == IndexPage::Root && index.len <= WHOLE_INDEX_BYTES {
            match read(store, index) {
                Ok(whole) => return Ok(StoredPage::Whole(whole.into())),
                // One place of the index that cannot be read must not take the rest with it.
                Err(error) => log::debug!("{error}; the index is read page by page"),
            }
        }
        Ok(StoredPage::Alone(read(store, at)?.into()))
    }

    /// Verifies a page. What is right goes into the cache on disk.
    ///
    /// # Errors
    /// When it is not what its digest says, or breaks a rule of the format.
    pub fn decode_page(&self, page: &IndexPage, stored: &StoredPage) -> Result<DecodedPage, ImageError> {
        let (superblock, store) = (self.superblock(), &**self.store());
        let decoded = match (page, stored) {
            (IndexPage::Leaf(number, leaf), StoredPage::Alone(bytes) | StoredPage::Whole(bytes)) => {
                let at = superblock.cold.in_file(leaf.range);
                let decoded = ColdLeaf::decode(bytes, *number, leaf, superblock);
                let decoded = decoded.map_err(in_file(store, at))?;
                self.keep_page(&leaf.digest, bytes);
                DecodedPage::Leaf(*number, decoded)
            }
            (IndexPage::Root, StoredPage::Alone(bytes)) => {
                let at = superblock.cold.in_file(superblock.cold.root);
                let root = ColdRoot::decode(bytes, superblock).map_err(in_file(store, at))?;
                self.keep_page(&superblock.cold.root_digest, bytes);
                DecodedPage::Root(root, Vec::new())
            }
            (IndexPage::Root, StoredPage::Whole(bytes)) => self.decode_index(superblock, bytes)?,
        };
        Ok(decoded)
    }

    /// Root and leaves from the bytes of the whole index.
    fn decode_index(&self, superblock: &Superblock, bytes: &Stored) -> Result<DecodedPage, ImageError> {
        let index = index_range(superblock);
        let root_at = superblock.cold.in_file(superblock.cold.root);
        let piece = |at: ByteRange| {
            let from = (at.offset - index.offset) as usize;
            &bytes[from..from + at.len as usize]
        };
        let decoded = ColdRoot::decode(piece(root_at), superblock);
        let root = decoded.map_err(in_file(&**self.store(), root_at))?;
        self.keep_page(&superblock.cold.root_digest, piece(root_at));
        let mut leaves = Vec::with_capacity(root.leaves.len());
        for (number, leaf) in (0..).zip(&root.leaves).filter(|(_, leaf)| !leaf.is_zero()) {
            let at = superblock.cold.in_file(leaf.range);
            // A leaf that is damaged or lies elsewhere is met again, and reported, when it is needed.
            if at.offset < index.offset || at.end() > index.end() {
                continue;
            }
            if let Ok(decoded) = ColdLeaf::decode(piece(at), number, leaf, superblock) {
                self.keep_page(&leaf.digest, piece(at));
                leaves.push((number, decoded));
            }
        }
        Ok(DecodedPage::Root(root, leaves))
    }

    fn keep_page(&self, digest: &Digest, bytes: &[u8]) {
        if let Some(cache) = self.disk_cache() {
            cache.put(digest, Stored::copy_from_slice(bytes));
        }
    }
}

/// The bytes with this digest, if the cache has them.
fn kept(cache: &DiskCache, digest: &Digest, digest_of: fn(&[u8]) -> Digest, len: u64) -> Option<Vec<u8>> {
    let bytes = cache.get(digest, len)?;
    if digest_of(&bytes) != *digest {
        cache.spoiled(digest);
        return None;
    }
    Some(bytes)
}
