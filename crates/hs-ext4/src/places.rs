//! Where directories, links, attributes, trees of extents and data lie.

use std::ops::Range;

use hs_units::{BLOCK_BYTES, to_u32};

use crate::data_order;
use crate::directory::Directories;
use crate::error::LayoutError;
use crate::geometry::Geometry;
use crate::inode;
use crate::layout::LayoutOptions;
use crate::numbers::Numbers;
use crate::plan::{NodeId, Plan};
use crate::values::Values;

/// What has blocks beside data and tables.
#[derive(Debug)]
pub(crate) struct Items {
    pub(crate) directories: Directories,
    /// Nodes of symbolic links with a block of their own, and that.
    pub(crate) links: Vec<(u32, u64)>,
    /// Sets of attributes in blocks, how many inodes share each, and where it lies.
    pub(crate) attributes: Vec<(u32, u32, u64)>,
    /// Values of attributes with inodes of their own.
    pub(crate) values: Values,
    /// Nodes whose extents take blocks, how many, and the first of these.
    pub(crate) trees: Vec<(u32, u64, u64)>,
}

impl Items {
    /// Asks for the place of each; `take` gets the node, if it is of one, and the blocks.
    pub(crate) fn place(&mut self, plan: &mut Plan, mut take: impl FnMut(Option<u32>, u64) -> u64) {
        for directory in &self.directories.list {
            plan.nodes[directory.node as usize].first =
                take(Some(directory.node), u64::from(directory.blocks()));
        }
        self.links.iter_mut().for_each(|(node, at)| *at = take(Some(*node), 1));
        self.attributes.iter_mut().for_each(|(.., at)| *at = take(None, 1));
        self.values.list.iter_mut().for_each(|value| value.first = take(None, value.blocks()));
        self.trees.iter_mut().for_each(|(_, blocks, at)| *at = take(None, *blocks));
    }

    fn blocks(&self) -> u64 {
        let directories: u64 = self.directories.list.iter().map(|dir| u64::from(dir.blocks())).sum();
        let trees: u64 = self.trees.iter().map(|(_, blocks, _)| blocks).sum();
        directories + (self.links.len() + self.attributes.len()) as u64 + self.values.blocks() + trees
    }
}

/// Places in a file system.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) geometry: Geometry,
    pub(crate) numbers: Numbers,
    /// Files with data of their own, in the order of that.
    pub(crate) data: Vec<u32>,
    /// Where metadata ends, but for what lies in the midst of data.
    pub(crate) metadata_end: u64,
    /// Where free blocks hold what they held in the earlier file system.
    pub(crate) left: Vec<Range<u64>>,
}

/// Metadata behind the tables, one kind behind the other, and then the data.
pub(crate) fn one_behind_the_other(
    plan: &mut Plan,
    items: &mut Items,
    first: &[NodeId],
    options: &LayoutOptions,
) -> Result<Places, LayoutError> {
    let chunk_blocks = u64::from(options.chunk_blocks.max(1));
    let (data, data_blocks) = place_data(plan, first, options.chunk_blocks.max(1));
    let metadata_blocks = items.blocks();
    let data_at = |tables_end: u64| (tables_end + metadata_blocks).next_multiple_of(chunk_blocks);
    let nodes = plan.nodes.len() + items.values.len();
    let used_inodes = nodes as u64 + 9;
    let geometry = Geometry::new(used_inodes + options.free_inodes, |tables_end| {
        with_free(data_at(tables_end) + data_blocks, options.free_bytes)
    })?;
    let data_at = data_at(geometry.tables_end());
    data.iter().for_each(|&file| plan.nodes[file as usize].first += data_at);
    let mut at = geometry.tables_end();
    items.place(plan, |_, blocks| {
        at += blocks;
        at - blocks
    });
    let numbers = Numbers::in_order(nodes);
    Ok(Places { geometry, numbers, data, metadata_end: at, left: Vec::new() })
}

/// Where a file system ends that has so many free bytes behind `used` blocks. The kernel keeps a fiftieth, at
/// most 4096 blocks, for itself (`ext4_set_resv_clusters`).
pub(crate) fn with_free(used: u64, free_bytes: u64) -> u64 {
    if free_bytes == 0 {
        return used;
    }
    let wanted = used + free_bytes.div_ceil(BLOCK_BYTES);
    wanted + (wanted / 49 + 1).min(4096)
}

/// Gives each file the place of its data, counted from the first block with data. Gives the files in their
/// order, and how many blocks they reach over.
fn place_data(plan: &mut Plan, first: &[NodeId], chunk_blocks: u32) -> (Vec<u32>, u64) {
    let mut is_placed = without_data_of_their_own(plan);
    let mut files = Vec::new();
    for file in first {
        let node = &plan.nodes[file.index()];
        if node.is(inode::REGULAR)
            && node.blocks > 0
            && !std::mem::replace(&mut is_placed[file.index()], true)
        {
            files.push(file.0);
        }
    }
    files.extend(data_order::of_rest(plan, &is_placed, chunk_blocks));
    let mut end: u64 = 0;
    for &file in &files {
        let node = &mut plan.nodes[file as usize];
        node.first = end;
        if node.blocks >= chunk_blocks {
            node.first = end.next_multiple_of(chunk_blocks.into());
        }
        end = node.first + u64::from(node.blocks);
    }
    (files, end)
}

/// Marks the files that have the data of others.
pub(crate) fn without_data_of_their_own(plan: &Plan) -> Vec<bool> {
    let mut marks = vec![false; plan.nodes.len()];
    plan.shared.iter().for_each(|&(file, _)| marks[file as usize] = true);
    marks
}

/// The files that are marked, in the order of their data.
pub(crate) fn by_place(plan: &Plan, marks: &[bool]) -> Vec<u32> {
    let marked = marks.iter().enumerate().filter(|(_, is_marked)| **is_marked);
    let mut files: Vec<u32> = marked.map(|(node, _)| to_u32(node as u64)).collect();
    files.sort_unstable_by_key(|&file| plan.nodes[file as usize].first);
    files
}
