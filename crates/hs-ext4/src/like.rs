//! Places like those of an earlier file system: what is the same stays where it was, what is new goes where
//! nothing else is.
//!
//! Blocks come in windows of as many as a chunk of an image has. A window with something that stays is
//! closed: nothing new comes into it, and its free blocks keep what they held, so that the window is the same
//! as before. All else goes into windows that are free as a whole, or behind the end.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::data_order;
use crate::earlier::{Earlier, KeptNode};
use crate::geometry::{GROUP_BLOCKS, Geometry, LEAST_LAST_GROUP, Span};
use crate::inode;
use crate::layout::LayoutOptions;
use crate::numbers::Numbers;
use crate::places::{Items, Places, by_place, with_free, without_data_of_their_own};
use crate::plan::Plan;

/// Small files of a window leave it when no more than this part of it stays: what is gone would be stored for
/// ever.
const LEAST_SHARE: u64 = 4;

/// Gives everything its place. Nothing, if there would be more groups than descriptors have room for.
pub(crate) fn like(
    plan: &mut Plan,
    items: &mut Items,
    earlier: &Earlier,
    kept: &[KeptNode],
    options: &LayoutOptions,
) -> Option<Places> {
    let kept_of = |node: u32| kept.get(node as usize).copied().unwrap_or_default();
    let window = options.chunk_blocks.max(1);
    let mut space = Space { window: window.into(), used: BTreeMap::new() };
    space.take(0, earlier.geometry.descriptors_end());
    for span in &earlier.geometry.spans {
        let blocks = earlier.geometry.span_blocks(span);
        space.take(blocks.start, blocks.end - blocks.start);
    }
    // Asked for twice in the same order: for what stays, and for what does not.
    let mut stays = Vec::new();
    items.place(plan, |node, blocks| {
        let place = node.and_then(|node| kept_of(node).place);
        let place = place.filter(|&(first, had)| {
            had >= blocks && first + had <= earlier.blocks() && space.take(first, blocks)
        });
        stays.push(place.map(|(first, _)| first));
        0
    });
    let mut is_placed = without_data_of_their_own(plan);
    let shared = is_placed.clone();
    keep_files(plan, &mut space, earlier, &kept_of, &mut is_placed);
    leave_sparse_windows(plan, &mut space, &shared, &mut is_placed);
    keep_large_files(plan, &mut space, earlier, &kept_of, &mut is_placed);

    let closed = space.closed();
    let mut open = Open::between(&closed, window.into());
    let mut stays = stays.into_iter();
    items.place(plan, |_, blocks| stays.next().flatten().unwrap_or_else(|| open.next(blocks)));
    for file in data_order::of_rest(plan, &is_placed, window) {
        let node = &mut plan.nodes[file as usize];
        let blocks = node.blocks.into();
        node.first = if node.blocks < window { open.next(blocks) } else { open.first_aligned(blocks) };
        is_placed[file as usize] = true;
    }
    let marks: Vec<bool> = is_placed.iter().zip(shared).map(|(&placed, shared)| placed && !shared).collect();
    let data = by_place(plan, &marks);

    let nodes = plan.nodes.len() + items.values.len();
    let numbers = (0..nodes).map(|node| kept.get(node).map(|kept| kept.inode));
    let most_inodes = earlier.geometry.inodes();
    let numbers =
        Numbers::kept(numbers.map(|number| number.filter(|&number| u64::from(number) <= most_inodes)));
    let end = open.end();
    let geometry = grown(&earlier.geometry, &numbers, nodes as u64, end, options)?;
    let metadata_end = data.first().map_or(end, |&file| plan.nodes[file as usize].first);
    let left = closed.into_iter().map(|range| range.start..range.end.min(earlier.blocks())).collect();
    Some(Places { geometry, numbers, data, metadata_end, left })
}

/// Files with the same content stay.
fn keep_files(
    plan: &mut Plan,
    space: &mut Space,
    earlier: &Earlier,
    kept_of: &impl Fn(u32) -> KeptNode,
    is_placed: &mut [bool],
) {
    for (number, node) in (0..).zip(&mut plan.nodes) {
        let KeptNode { place: Some((first, blocks)), is_same: true, .. } = kept_of(number) else { continue };
        let fits = node.is(inode::REGULAR) && blocks == u64::from(node.blocks) && blocks > 0;
        let is_free = fits && !is_placed[number as usize] && first + blocks <= earlier.blocks();
        if is_free && space.take(first, blocks) {
            node.first = first;
            is_placed[number as usize] = true;
        }
    }
}

/// Small files leave windows in which little else stays.
fn leave_sparse_windows(plan: &Plan, space: &mut Space, shared: &[bool], is_placed: &mut [bool]) {
    let stay = space.blocks_by_window();
    for (number, node) in plan.nodes.iter().enumerate() {
        let blocks = u64::from(node.blocks);
        let is_small = node.is(inode::REGULAR) && blocks < space.window;
        if !is_small || !is_placed[number] || shared[number] {
            continue;
        }
        let mut windows = node.first / space.window..=(node.first + blocks - 1) / space.window;
        let is_sparse =
            |window| stay.get(&window).is_some_and(|&blocks| blocks * LEAST_SHARE <= space.window);
        if windows.all(is_sparse) {
            space.used.remove(&node.first);
            is_placed[number] = false;
        }
    }
}

/// A large file that has changed stays if it has the room: windows of it may be the same.
fn keep_large_files(
    plan: &mut Plan,
    space: &mut Space,
    earlier: &Earlier,
    kept_of: &impl Fn(u32) -> KeptNode,
    is_placed: &mut [bool],
) {
    for (number, node) in (0..).zip(&mut plan.nodes) {
        let Some((first, _)) = kept_of(number).place else { continue };
        let blocks = u64::from(node.blocks);
        let is_large = node.is(inode::REGULAR) && blocks >= space.window;
        let fits = first.is_multiple_of(space.window) && first + blocks <= earlier.blocks();
        if is_large && fits && !is_placed[number as usize] && space.take(first, blocks) {
            node.first = first;
            is_placed[number as usize] = true;
        }
    }
}

/// The sizes of a file system that ends at a block, or behind tables of further groups there.
fn grown(
    earlier: &Geometry,
    numbers: &Numbers,
    nodes: u64,
    end: u64,
    options: &LayoutOptions,
) -> Option<Geometry> {
    let per_group = earlier.inodes_per_group;
    let inodes = numbers.last().max(nodes + 9 + options.free_inodes);
    let mut geometry = earlier.clone();
    geometry.groups = earlier.groups.max(inodes.div_ceil(per_group));
    loop {
        let groups = geometry.groups - earlier.groups;
        let tables = groups * (2 + geometry.group_table_blocks());
        let least = (geometry.groups - 1) * GROUP_BLOCKS + LEAST_LAST_GROUP;
        geometry.blocks = with_free(end + tables, options.free_bytes).max(earlier.blocks).max(least);
        if geometry.descriptors_end() != earlier.descriptors_end() {
            return None;
        }
        let needed = geometry.blocks.div_ceil(GROUP_BLOCKS);
        if needed <= geometry.groups {
            if groups > 0 {
                geometry.spans.push(Span { group: earlier.groups, groups, at: end });
            }
            return Some(geometry);
        }
        geometry.groups = needed;
    }
}

/// Which blocks are used.
struct Space {
    /// Blocks of a window.
    window: u64,
    /// Runs that do not overlap: first block, and the one behind the last.
    used: BTreeMap<u64, u64>,
}

impl Space {
    /// Uses a run, if all of it is free.
    fn take(&mut self, first: u64, blocks: u64) -> bool {
        let end = first + blocks;
        let before = self.used.range(..end).next_back();
        let is_free = blocks > 0 && before.is_none_or(|(_, &before)| before <= first);
        if is_free {
            self.used.insert(first, end);
        }
        is_free
    }

    /// How many blocks of each window are used, of those that have any.
    fn blocks_by_window(&self) -> BTreeMap<u64, u64> {
        let mut blocks = BTreeMap::new();
        for (&first, &end) in &self.used {
            for window in first / self.window..=(end - 1) / self.window {
                let (start, behind) = (window * self.window, (window + 1) * self.window);
                *blocks.entry(window).or_default() += end.min(behind) - first.max(start);
            }
        }
        blocks
    }

    /// Runs of windows of which anything is used.
    fn closed(&self) -> Vec<Range<u64>> {
        let mut closed: Vec<Range<u64>> = Vec::new();
        for (&first, &end) in &self.used {
            let start = first / self.window * self.window;
            let end = end.next_multiple_of(self.window);
            match closed.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => closed.push(start..end),
            }
        }
        closed
    }
}

/// Runs of windows that are free as a whole; the last one has no end.
struct Open {
    window: u64,
    runs: Vec<Range<u64>>,
    /// The run that small things go to.
    at: usize,
    end: u64,
}

impl Open {
    fn between(closed: &[Range<u64>], window: u64) -> Self {
        let starts = std::iter::once(0).chain(closed.iter().map(|range| range.end));
        let ends = closed.iter().map(|range| range.start).chain(std::iter::once(u64::MAX));
        let runs = starts.zip(ends).map(|(start, end)| start..end).filter(|run| !run.is_empty()).collect();
        Self { window, runs, at: 0, end: closed.last().map_or(0, |last| last.end) }
    }

    /// A place behind the last one that was given.
    fn next(&mut self, blocks: u64) -> u64 {
        while self.runs[self.at].end - self.runs[self.at].start < blocks {
            self.at += 1;
        }
        self.take(self.at, self.runs[self.at].start, blocks)
    }

    /// The first place at the beginning of a window.
    fn first_aligned(&mut self, blocks: u64) -> u64 {
        let start = |run: &Range<u64>| run.start.next_multiple_of(self.window);
        let fits = |run: &Range<u64>| run.end.checked_sub(start(run)).is_some_and(|free| free >= blocks);
        let run = self.runs.iter().position(fits).expect("the last run has no end");
        let first = start(&self.runs[run]);
        self.take(run, first, blocks)
    }

    fn take(&mut self, run: usize, first: u64, blocks: u64) -> u64 {
        self.runs[run].start = first + blocks;
        self.end = self.end.max(first + blocks);
        first
    }

    /// Where everything ends.
    fn end(&self) -> u64 {
        self.end
    }
}
