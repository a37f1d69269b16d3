//! Where the hot blocks of an earlier disk are now, also those of files whose content has changed: in a
//! program that was built anew, what a start reads has moved by some bytes, and by others in each part of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use hs_image::{Blocks, Image, ImageError};
use hs_units::{BLOCK_BYTES, BlockRange, Lba};

use crate::ext4::{Ext4, ReadDisk};
use crate::source::Moves;

/// Bytes that are looked for as a whole: so many are seldom twice in a program, and often the same in the
/// next build of it.
const PIECE_BYTES: usize = 32;
/// A piece that is there more often says nothing.
const MOST_HITS: u8 = 4;
/// So many pieces of a block must have moved by the same number of bytes, and one in so many of those that
/// moved by the most frequent one.
const LEAST_VOTES: u32 = 2;
const LEAST_SHARE: u32 = 4;
/// Where a block has been torn apart, so many parts are followed.
const MOST_PARTS: usize = 3;

/// How many bytes further a block's pieces are, with the number of the pieces that say so.
type Votes = HashMap<i64, u32>;

/// Where the hot blocks of an earlier image are on the disk of the new one.
pub(crate) struct Followed<'a> {
    moves: Option<&'a Moves>,
    /// The blocks that have moved within their file, each with those that have its bytes now.
    shifted: HashMap<Lba, Vec<Lba>>,
}

impl<'a> Followed<'a> {
    /// Looks for the hot blocks of `before` in the files that have changed.
    pub(crate) fn find(image: &Image, before: &Image, moves: Option<&'a Moves>) -> Result<Self, ImageError> {
        let mut followed = Self { moves, shifted: HashMap::new() };
        let chunks = 0..before.hot_chunk_count();
        let extents = chunks.flat_map(|number| before.hot_extents(number).iter().copied());
        let mut hot: Vec<Lba> = extents.flat_map(BlockRange::blocks).collect();
        hot.sort_unstable();
        let (mut old, mut new) = (Blocks::new(before), Blocks::new(image));
        for &(was, now) in moves.map_or(&[][..], Moves::changed) {
            let from = hot.partition_point(|block| *block < was.start);
            let until = hot.partition_point(|block| *block < was.end());
            followed.follow(&hot[from..until], (was, &mut old), (now, &mut new))?;
        }
        Ok(followed)
    }

    fn follow(
        &mut self,
        hot: &[Lba],
        (was, old): (BlockRange, &mut Blocks<'_>),
        (now, new): (BlockRange, &mut Blocks<'_>),
    ) -> Result<(), ImageError> {
        let (mut pieces, mut changed) = (Pieces::default(), Vec::new());
        for &block in hot {
            let (index, copy) = (block.0 - was.start.0, old.block(block)?);
            pieces.add(index * BLOCK_BYTES, copy);
            if index >= now.count || new.block(Lba(now.start.0 + index))? != copy {
                changed.push(index);
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        let steps = steps(&pieces.look_for(now, new)?);
        for index in changed {
            // A block of which nothing is known has moved with the one before it, or with the next.
            let around = [steps.range(..=index).next_back(), steps.range(index..).next()];
            let steps: BTreeSet<i64> =
                around.into_iter().flatten().flat_map(|(_, steps)| steps).copied().collect();
            let within = steps.into_iter().flat_map(|step| {
                let first = (index * BLOCK_BYTES).cast_signed() + step;
                first.div_euclid(BLOCK)..=(first + BLOCK - 1).div_euclid(BLOCK)
            });
            let within =
                within.filter_map(|index| u64::try_from(index).ok()).filter(|index| *index < now.count);
            let blocks: Vec<Lba> = within.map(|index| Lba(now.start.0 + index)).collect();
            if !blocks.is_empty() {
                self.shifted.insert(Lba(was.start.0 + index), blocks);
            }
        }
        Ok(())
    }

    /// Where a block is now.
    pub(crate) fn of_block(&self, block: Lba) -> Vec<Lba> {
        match (self.shifted.get(&block), self.moves) {
            (Some(now), _) => now.clone(),
            (None, Some(moves)) => moves.of_block(block).into_iter().collect(),
            (None, None) => vec![block],
        }
    }

    /// Where these blocks of an inode's pages from `page` on are now, each run behind its page.
    pub(crate) fn of_pages(
        &self,
        blocks: BlockRange,
        page: u64,
        pages: impl FnOnce() -> Vec<(u64, u64, u64)>,
    ) -> Vec<(u64, BlockRange)> {
        if !blocks.blocks().any(|block| self.shifted.contains_key(&block)) {
            let mut page = page;
            let moved = self.moves.map_or_else(|| vec![blocks], |moves| moves.of(blocks));
            let with_page = |run: BlockRange| {
                page += run.count;
                (page - run.count, run)
            };
            return moved.into_iter().map(with_page).collect();
        }
        let (pages, mut seen) = (pages(), HashSet::new());
        let page_of = |block: Lba| {
            let holds = |&&(_, first, count): &&(u64, u64, u64)| (first..first + count).contains(&block.0);
            pages.iter().find(holds).map(|(page, first, _)| page + block.0 - first)
        };
        let mut runs: Vec<(u64, BlockRange)> = Vec::new();
        let now = blocks.blocks().flat_map(|block| self.of_block(block)).filter(|now| seen.insert(*now));
        for (block, page) in now.filter_map(|block| Some((block, page_of(block)?))) {
            match runs.last_mut() {
                Some((from, run)) if run.end() == block && *from + run.count == page => run.count += 1,
                _ => runs.push((page, BlockRange::new(block, 1))),
            }
        }
        runs
    }
}

const BLOCK: i64 = BLOCK_BYTES.cast_signed();

/// Which pages of an inode lie where: page, first block and number of each run. Nothing where that cannot be
/// read.
pub(crate) fn pages_of(image: &Image, inode: u64) -> Vec<(u64, u64, u64)> {
    let mut blocks = Blocks::new(image);
    let disk = ReadDisk::new(image.disk_bytes(), |at, bytes| blocks.read_at(at, bytes));
    let found = Ext4::open(disk).and_then(|mut files| {
        let inode = files.inode(u32::try_from(inode).unwrap_or(0))?;
        files.placed_runs(&inode)
    });
    found.unwrap_or_default()
}

/// Pieces of hot blocks by their hashes: where each was, and how often it may still be found. A mistake
/// leads to another order of blocks, never to other bytes.
#[derive(Default)]
struct Pieces(HashMap<u64, (u64, u8)>);

impl Pieces {
    /// Adds the pieces of a block that was at `offset` of its file. What is there twice says nothing.
    fn add(&mut self, offset: u64, copy: &[u8]) {
        for (at, piece) in (offset..).step_by(PIECE_BYTES).zip(copy.chunks(PIECE_BYTES)) {
            let hash = piece.iter().fold(0, |hash, byte| pushed(hash, *byte));
            self.0.entry(hash).and_modify(|(_, hits)| *hits = 0).or_insert((at, MOST_HITS));
        }
    }

    /// What the pieces say of each block, by its number in the old file.
    fn look_for(
        &mut self,
        now: BlockRange,
        new: &mut Blocks<'_>,
    ) -> Result<BTreeMap<u64, Votes>, ImageError> {
        let oldest = (0..PIECE_BYTES).fold(1_u64, |power, _| power.wrapping_mul(FACTOR));
        let (mut ring, mut hash, mut end) = ([0_u8; PIECE_BYTES], 0_u64, 0_usize);
        let mut votes: BTreeMap<u64, Votes> = BTreeMap::new();
        for block in now.blocks() {
            for &byte in new.block(block)? {
                let gone = std::mem::replace(&mut ring[end % PIECE_BYTES], byte);
                hash = pushed(hash, byte).wrapping_sub(oldest.wrapping_mul(u64::from(gone)));
                end += 1;
                let Some((was, hits)) = self.0.get_mut(&hash).filter(|(_, hits)| *hits > 0) else { continue };
                *hits -= 1;
                let step = (end as u64).cast_signed() - PIECE_BYTES as i64 - was.cast_signed();
                *votes.entry(*was / BLOCK_BYTES).or_default().entry(step).or_default() += 1;
            }
        }
        Ok(votes)
    }
}

/// An odd number with bits everywhere.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

fn pushed(hash: u64, byte: u8) -> u64 {
    hash.wrapping_mul(FACTOR).wrapping_add(byte.into())
}

/// By how many bytes the parts of each block have moved of which enough is known.
fn steps(votes: &BTreeMap<u64, Votes>) -> BTreeMap<u64, Vec<i64>> {
    let most = |(index, votes): (&u64, &Votes)| {
        let most = votes.values().max().copied().unwrap_or(0);
        let least = LEAST_VOTES.max(most.div_ceil(LEAST_SHARE));
        let mut known: Vec<_> = votes.iter().filter(|(_, count)| **count >= least).collect();
        // Of those with as many votes the nearest, so that the result is always the same.
        known.sort_unstable_by_key(|(step, count)| (Reverse(**count), step.abs(), **step));
        let steps: Vec<i64> = known.into_iter().map(|(step, _)| *step).take(MOST_PARTS).collect();
        (!steps.is_empty()).then_some((*index, steps))
    };
    votes.iter().filter_map(most).collect()
}
