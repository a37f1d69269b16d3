//! The hot region of an image as that of an image of another disk: chunks are copied as they are stored, also
//! those that have blocks which the other disk does not have any more (R60).

use std::collections::{HashMap, HashSet};

use hs_format::{Decompressor, HotRun};
use hs_image::{Blocks, Image, ImageError};
use hs_layout::{LayoutPlan, PlannedChunk, PlannedHint};
use hs_units::{BLOCK_BYTES, BlockRange, Lba, to_usize};

use crate::followed::{Followed, pages_of};
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
    let followed = Followed::find(image, before, moves)?;
    for number in 0..before.hot_chunk_count() {
        let became = became(&mut blocks, before, number, &followed, &mut seen, &mut tools)?;
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
    plan.plan.hints = hints(image, before, &followed);
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
    followed: &Followed<'_>,
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
            let (copy, mut stored) = (copies.next(), None);
            // R21: what two blocks became is hot once.
            for now in followed.of_block(block).into_iter().filter(|now| seen.insert(*now)) {
                became.now.push(now);
                match copy {
                    Some(copy) if stored.is_none() && blocks.block(now)? == copy => stored = Some(now),
                    _ => became.new.push(now),
                }
            }
            became.stored.extend(copy.map(|_| stored));
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

fn hints(image: &Image, before: &Image, followed: &Followed<'_>) -> Vec<PlannedHint> {
    let mut known: HashMap<u64, Vec<(u64, u64, u64)>> = HashMap::new();
    let hints = before.hints().flat_map(|hint| {
        let (blocks, inode) = (BlockRange::new(hint.lba, hint.blocks.into()), hint.inode);
        let pages = || known.entry(inode).or_insert_with(|| pages_of(image, inode)).clone();
        let runs = followed.of_pages(blocks, hint.page.into(), pages);
        runs.into_iter().map(move |(page, blocks)| PlannedHint { blocks, inode, page })
    });
    hints.collect()
}
