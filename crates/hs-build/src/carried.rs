//! The hot region of an image as that of an image of another disk: chunks are copied as they are stored, also
//! those that have blocks which the other disk does not have any more (R60).

use std::collections::HashSet;

use hs_format::{Decompressor, HotRun};
use hs_image::{Blocks, Image, ImageError};
use hs_layout::{LayoutPlan, PlannedChunk, PlannedHint};
use hs_units::{BLOCK_BYTES, BlockRange, Lba, to_usize};

use crate::source::Moves;

/// A chunk stays if at most one in so many of its blocks is stale, where the new image stores it: what starts
/// read in vain.
const STALE_SHARE: u64 = 4;
/// The same where the image of the base has it.
const STALE_SHARE_OF_BORROWED: u64 = 2;
/// Blocks that are new lie in front of the chunks that they were in, so many together, or those of so many
/// chunks: a chunk for each would compress less.
const NEW_BLOCKS: usize = 16;
const NEW_OF_CHUNKS: usize = 8;

/// A stored chunk of the earlier image.
pub(crate) struct Carried {
    /// Its number there.
    pub number: u32,
    /// What its blocks are on the new disk.
    pub runs: Vec<HotRun>,
}

/// A hot region whose chunks are those of an earlier image, or new.
#[derive(Default)]
pub(crate) struct CarriedPlan {
    pub plan: LayoutPlan,
    /// For each chunk of the plan where it comes from, if it is not new.
    pub chunks: Vec<Option<Carried>>,
}

/// What became of a chunk.
struct Became {
    /// Its blocks as they are stored: where each is now, if the disk has the same bytes there.
    stored: Vec<Option<Lba>>,
    /// Where its blocks are now, whatever they are.
    now: Vec<Lba>,
    /// Of these, the ones that are not among the stored.
    new: Vec<Lba>,
}

/// The hot region of `before` for `image`, whose disk has the blocks of that where `moves` says, or where
/// they were.
pub(crate) fn plan(
    image: &Image,
    before: &Image,
    moves: Option<&Moves>,
    is_base: bool,
) -> Result<CarriedPlan, ImageError> {
    let (mut blocks, mut tools, mut seen) = (Blocks::new(image), Decompressor::new(), HashSet::new());
    let share = if is_base { STALE_SHARE_OF_BORROWED } else { STALE_SHARE };
    let (mut plan, mut waiting) = (CarriedPlan::default(), Waiting::default());
    for number in 0..before.hot_chunk_count() {
        let became = became(&mut blocks, before, number, moves, &mut seen, &mut tools)?;
        let needed = before.hot_needed(number);
        let stale = became.stored.iter().filter(|now| now.is_none()).count() as u64;
        if became.stored.is_empty() || stale * share > became.stored.len() as u64 {
            waiting.end(&mut plan);
            if !became.now.is_empty() {
                plan.chunks.push(None);
                plan.plan.chunks.push(PlannedChunk { extents: runs(&became.now), needed });
            }
            continue;
        }
        let extents = runs(&became.stored.iter().flatten().copied().collect::<Vec<_>>());
        let chunk = PlannedChunk { extents, needed };
        waiting.add(chunk, Carried { number, runs: hot_runs(&became.stored) }, &became.new);
        if waiting.is_enough() {
            waiting.end(&mut plan);
        }
    }
    waiting.end(&mut plan);
    plan.plan.hints = hints(before, moves);
    plan.plan.blocks = plan.plan.chunks.iter().map(PlannedChunk::blocks).sum();
    Ok(plan)
}

/// Chunks that stay, in front of which new blocks are to lie.
#[derive(Default)]
struct Waiting {
    chunks: Vec<(PlannedChunk, Carried)>,
    new: Vec<Lba>,
}

impl Waiting {
    fn add(&mut self, chunk: PlannedChunk, carried: Carried, new: &[Lba]) {
        self.chunks.push((chunk, carried));
        self.new.extend(new);
    }

    fn is_enough(&self) -> bool {
        self.new.is_empty() || self.new.len() >= NEW_BLOCKS || self.chunks.len() >= NEW_OF_CHUNKS
    }

    fn end(&mut self, plan: &mut CarriedPlan) {
        let chunks = std::mem::take(&mut self.chunks);
        let new = std::mem::take(&mut self.new);
        if let Some((first, _)) = chunks.first().filter(|_| !new.is_empty()) {
            plan.plan.chunks.push(PlannedChunk { extents: runs(&new), needed: first.needed });
            plan.chunks.push(None);
        }
        for (chunk, carried) in chunks {
            plan.plan.chunks.push(chunk);
            plan.chunks.push(Some(carried));
        }
    }
}

fn became(
    blocks: &mut Blocks<'_>,
    before: &Image,
    number: u32,
    moves: Option<&Moves>,
    seen: &mut HashSet<Lba>,
    tools: &mut Decompressor,
) -> Result<Became, ImageError> {
    let mut became = Became { stored: Vec::new(), now: Vec::new(), new: Vec::new() };
    // A damaged one is stored anew.
    let loaded = before.load_whole_hot(number, tools).ok();
    let raw = loaded.as_ref().map_or(&[][..], |loaded| &loaded.raw);
    let mut copies = raw.chunks(to_usize(BLOCK_BYTES));
    for run in before.hot_runs(number) {
        let HotRun::Disk(run) = run else {
            became.stored.extend((0..run.blocks()).filter_map(|_| copies.next()).map(|_| None));
            continue;
        };
        for block in run.blocks() {
            let now = moves.map_or(Some(block), |moves| moves.of_block(block));
            // R21: what two blocks became is hot once.
            let now = now.filter(|now| seen.insert(*now));
            let copy = copies.next();
            let is_same = match (now, copy) {
                (Some(now), Some(copy)) => blocks.block(now)? == copy,
                _ => false,
            };
            became.now.extend(now);
            became.new.extend(now.filter(|_| !is_same));
            became.stored.extend(copy.map(|_| now.filter(|_| is_same)));
        }
    }
    Ok(became)
}

/// Blocks as runs, in their order.
fn runs(blocks: &[Lba]) -> Vec<BlockRange> {
    let mut runs: Vec<BlockRange> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(last) if last.end() == *block => last.count += 1,
            _ => runs.push(BlockRange::new(*block, 1)),
        }
    }
    runs
}

fn hot_runs(blocks: &[Option<Lba>]) -> Vec<HotRun> {
    let mut found = Vec::new();
    for part in blocks.chunk_by(|one, next| one.is_some() == next.is_some()) {
        if part[0].is_none() {
            found.push(HotRun::Stale(part.len() as u64));
        } else {
            let part: Vec<Lba> = part.iter().flatten().copied().collect();
            found.extend(runs(&part).into_iter().map(HotRun::Disk));
        }
    }
    found
}

fn hints(before: &Image, moves: Option<&Moves>) -> Vec<PlannedHint> {
    let moved = |extent: BlockRange| moves.map_or_else(|| vec![extent], |moves| moves.of(extent));
    let hints = before.hints().flat_map(|hint| {
        let mut page = hint.page.into();
        moved(BlockRange::new(hint.lba, hint.blocks.into())).into_iter().map(move |blocks| {
            let planned = PlannedHint { blocks, inode: hint.inode, page };
            page += blocks.count;
            planned
        })
    });
    hints.collect()
}
