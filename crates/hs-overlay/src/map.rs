//! Which blocks of a disk are changed, and where their content is.

use std::collections::BTreeMap;

/// What a changed block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The block with this number: of the file, or of a batch in memory.
    Data(u64),
    /// Zeros, written as such.
    Zero,
    /// Nothing: it reads as zeros.
    Discarded,
}

impl Content {
    /// The content of the block so many blocks further on in the same extent.
    pub(crate) const fn after(self, blocks: u64) -> Self {
        match self {
            Self::Data(place) => Self::Data(place + blocks),
            other => other,
        }
    }
}

const PLACE_BITS: u32 = 34;
const LENGTH_BITS: u32 = 28;
/// Blocks of one extent at most.
pub(crate) const MAX_EXTENT_BLOCKS: u64 = (1 << LENGTH_BITS) - 1;
pub(crate) const MAX_PLACE: u64 = (1 << PLACE_BITS) - 1;

/// Kind, length and place of an extent in eight bytes: with its key twelve, so that a B-tree's node, half
/// full at worst, takes at most 32 for each.
#[derive(Clone, Copy)]
struct Packed(u64);

impl Packed {
    fn new(blocks: u64, content: Content) -> Self {
        let (kind, place) = match content {
            Content::Data(place) => (0, place),
            Content::Zero => (1, 0),
            Content::Discarded => (2, 0),
        };
        debug_assert!(blocks <= MAX_EXTENT_BLOCKS && place <= MAX_PLACE);
        Self(kind << (PLACE_BITS + LENGTH_BITS) | blocks << PLACE_BITS | place)
    }

    const fn blocks(self) -> u64 {
        self.0 >> PLACE_BITS & MAX_EXTENT_BLOCKS
    }

    const fn content(self) -> Content {
        match self.0 >> (PLACE_BITS + LENGTH_BITS) {
            0 => Content::Data(self.0 & MAX_PLACE),
            1 => Content::Zero,
            _ => Content::Discarded,
        }
    }
}

/// A map of extents: runs of consecutive blocks with consecutive content, which do not overlap.
#[derive(Clone, Default)]
pub struct ExtentMap {
    extents: BTreeMap<u32, Packed>,
    data_blocks: u64,
}

impl ExtentMap {
    /// A map of these extents, which are in order and do not overlap. A million are there in the time that
    /// inserting some ten thousand takes.
    pub(crate) fn of_ordered(extents: impl Iterator<Item = (u64, u64, Content)>) -> Self {
        let mut data_blocks = 0;
        let packed = |(start, blocks, content): (u64, u64, Content)| {
            if matches!(content, Content::Data(_)) {
                data_blocks += blocks;
            }
            (start as u32, Packed::new(blocks, content))
        };
        let extents = extents.map(packed).collect();
        Self { extents, data_blocks }
    }

    /// Extents in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// Whether no block is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Blocks with content of their own.
    #[must_use]
    pub const fn data_blocks(&self) -> u64 {
        self.data_blocks
    }

    /// All extents in the order of the disk: first block, blocks, content.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, Content)> {
        self.extents.iter().map(|(start, extent)| (u64::from(*start), extent.blocks(), extent.content()))
    }

    /// The blocks from `start` up to `end` hold `content` from now on. `gone` is told of each run of data
    /// that they held before.
    pub fn insert(&mut self, start: u64, end: u64, content: Content, gone: &mut impl FnMut(u64, u64)) {
        self.remove(start, end, gone);
        let mut at = start;
        while at < end {
            let blocks = (end - at).min(MAX_EXTENT_BLOCKS);
            self.add(at, blocks, content.after(at - start));
            at += blocks;
        }
    }

    /// Adds an extent where there is none, as a part of its neighbours where it continues them.
    fn add(&mut self, mut start: u64, mut blocks: u64, mut content: Content) {
        if matches!(content, Content::Data(_)) {
            self.data_blocks += blocks;
        }
        if let Some((before, extent)) = self.extents.range(..start as u32).next_back() {
            let (before, length) = (u64::from(*before), extent.blocks());
            let continues = before + length == start && extent.content().after(length) == content;
            if continues && length + blocks <= MAX_EXTENT_BLOCKS {
                (start, blocks, content) = (before, length + blocks, extent.content());
            }
        }
        let end = start + blocks;
        if let Some(next) = u32::try_from(end).ok().and_then(|end| self.extents.get(&end).copied()) {
            let continues = content.after(blocks) == next.content();
            if continues && blocks + next.blocks() <= MAX_EXTENT_BLOCKS {
                self.extents.remove(&(end as u32));
                blocks += next.blocks();
            }
        }
        self.extents.insert(start as u32, Packed::new(blocks, content));
    }

    fn remove(&mut self, start: u64, end: u64, gone: &mut impl FnMut(u64, u64)) {
        if start >= end {
            return;
        }
        let mut first = start;
        if let Some((before, extent)) = self.extents.range(..start as u32).next_back()
            && u64::from(*before) + extent.blocks() > start
        {
            first = u64::from(*before);
        }
        while let Some((&at, &extent)) =
            self.extents.range(first as u32..).next().filter(|(at, _)| u64::from(**at) < end)
        {
            let (at, content) = (u64::from(at), extent.content());
            let extent_end = at + extent.blocks();
            self.extents.remove(&(at as u32));
            let (cut, cut_end) = (at.max(start), extent_end.min(end));
            if let Content::Data(place) = content {
                self.data_blocks -= cut_end - cut;
                gone(place + (cut - at), cut_end - cut);
            }
            if at < cut {
                self.extents.insert(at as u32, Packed::new(cut - at, content));
            }
            if cut_end < extent_end {
                let rest = Packed::new(extent_end - cut_end, content.after(cut_end - at));
                self.extents.insert(cut_end as u32, rest);
                break;
            }
            first = extent_end;
            if first > u64::from(u32::MAX) {
                break;
            }
        }
    }

    /// Calls `each` for the pieces of the blocks from `start` up to `end`, in order: first block, the block
    /// behind the last, and the content, if the map has it.
    pub fn pieces(&self, start: u64, end: u64, mut each: impl FnMut(u64, u64, Option<Content>)) {
        if start >= end {
            return;
        }
        let before = self.extents.range(..start as u32).next_back();
        let before = before.filter(|(at, extent)| u64::from(**at) + extent.blocks() > start);
        let last = (end - 1).min(u64::from(u32::MAX)) as u32;
        let mut at = start;
        for (first, extent) in before.into_iter().chain(self.extents.range(start as u32..=last)) {
            let first = u64::from(*first);
            let (from, to) = (first.max(start), (first + extent.blocks()).min(end));
            if at < from {
                each(at, from, None);
            }
            each(from, to, Some(extent.content().after(from - first)));
            at = to;
        }
        if at < end {
            each(at, end, None);
        }
    }

    /// Whether the map has any of these blocks.
    #[must_use]
    pub fn touches(&self, start: u64, end: u64) -> bool {
        let mut touches = false;
        if !self.is_empty() {
            self.pieces(start, end, |_, _, content| touches |= content.is_some());
        }
        touches
    }
}

#[cfg(test)]
mod tests {
    use hs_units::Prng;

    use super::*;

    const BLOCKS: u64 = 200;

    #[test]
    fn it_equals_a_list_of_blocks() {
        for seed in 0..50 {
            let mut prng = Prng::new(seed);
            let (mut map, mut model) = (ExtentMap::default(), vec![None; BLOCKS as usize]);
            for round in 0..200 {
                let start = prng.below(BLOCKS);
                let end = start + 1 + prng.below(BLOCKS - start);
                let content = match prng.below(4) {
                    0 => Content::Zero,
                    1 => Content::Discarded,
                    _ => Content::Data(1000 * round),
                };
                let mut gone = Vec::new();
                map.insert(start, end, content, &mut |place, blocks| gone.extend(place..place + blocks));
                let mut expected = Vec::new();
                for at in start..end {
                    let held = model[at as usize].replace(content.after(at - start));
                    expected.extend(held.and_then(|held| match held {
                        Content::Data(place) => Some(place),
                        _ => None,
                    }));
                }
                assert_eq!(gone, expected, "seed {seed}");
                let data = model.iter().flatten().filter(|held| matches!(held, Content::Data(_)));
                assert_eq!(map.data_blocks(), data.count() as u64, "seed {seed}");
                let (from, to) = (prng.below(BLOCKS), BLOCKS);
                let mut found = Vec::new();
                map.pieces(from, to, |at, end, content| {
                    found.extend((0..end - at).map(|block| content.map(|content| content.after(block))));
                });
                assert_eq!(found, model[from as usize..], "seed {seed}");
            }
        }
    }

    #[test]
    fn what_continues_is_one_extent() {
        let mut map = ExtentMap::default();
        let mut gone = |_, _| panic!("nothing was there");
        map.insert(10, 12, Content::Data(50), &mut gone);
        map.insert(14, 16, Content::Data(54), &mut gone);
        map.insert(12, 14, Content::Data(52), &mut gone);
        assert_eq!(map.iter().collect::<Vec<_>>(), [(10, 6, Content::Data(50))]);
    }

    #[test]
    fn a_whole_disk_of_the_largest_size_can_be_discarded() {
        let mut map = ExtentMap::default();
        map.insert(0, 1 << 32, Content::Discarded, &mut |_, _| {});
        map.insert((1 << 32) - 1, 1 << 32, Content::Data(7), &mut |_, _| {});
        let mut pieces = 0;
        map.pieces(0, 1 << 32, |_, _, content| {
            assert!(content.is_some());
            pieces += 1;
        });
        assert_eq!(pieces, map.len());
        assert_eq!(map.data_blocks(), 1);
    }
}
