//! Where everything lies, and what a block holds.

use std::ops::Range;

use hs_units::{BLOCK_BYTES, to_u32, to_usize};

use crate::attributes::{self, MOST_SHARES};
use crate::bytes::{Block, inode_seed};
use crate::data_order;
use crate::directory::Directories;
use crate::error::LayoutError;
use crate::extents::Extents;
use crate::geometry::{Geometry, inode_blocks};
use crate::inode::{self, MAP_BYTES, Placed};
use crate::plan::{Node, NodeId, Plan, SHORT_TARGET};
use crate::tables::Tables;
use crate::values::{Values, blocks_of};

/// How a plan is laid out.
#[derive(Clone, Debug)]
pub struct LayoutOptions {
    /// Names the file system; hashes of names begin with it too.
    pub uuid: [u8; 16],
    /// The volume label, filled up with zeros.
    pub label: [u8; 16],
    /// Bytes that a user of a writable copy can fill.
    pub free_bytes: u64,
    /// Inodes that are free, at least.
    pub free_inodes: u64,
    /// Files of as many blocks or more begin at a multiple of it, as the data does. At least 1.
    pub chunk_blocks: u32,
}

/// What lies in consecutive blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first block.
    pub first: u64,
    /// How many.
    pub blocks: u64,
    /// What lies there.
    pub content: RunContent,
}

/// What lies in a [`Run`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunContent {
    /// Zeros: free space, and tables that are not used.
    Zeros,
    /// Blocks that [`Layout::write_metadata`] makes.
    Metadata,
    /// Bytes of a file; zeros where the last block is longer than the file.
    Data {
        /// The file.
        file: NodeId,
        /// Where they begin in the file.
        offset: u64,
    },
}

/// A file system: what each of its blocks holds.
#[derive(Debug)]
pub struct Layout {
    plan: Plan,
    tables: Tables,
    directories: Directories,
    /// Nodes of symbolic links with a block of their own, in the order of their blocks.
    links: Vec<u32>,
    /// Sets of attributes in blocks, and how many inodes share each.
    attributes: Vec<(u32, u32)>,
    /// Values of attributes with inodes of their own.
    values: Values,
    /// Nodes whose extents take blocks, and the first of these (before [`Layout::place`], how many).
    trees: Vec<(u32, u64)>,
    /// Files with data of their own, in the order of that.
    data: Vec<u32>,
    /// Where links, attributes, their values and trees begin; the latter end where no metadata follows.
    links_at: u64,
    attributes_at: u64,
    values_at: u64,
    trees_at: u64,
    metadata_end: u64,
    /// Up to the end of the tables of inodes: where something ends, and whether that is written.
    tables_written: Vec<(u64, bool)>,
}

impl Layout {
    pub(crate) fn new(
        mut plan: Plan,
        first: &[NodeId],
        options: &LayoutOptions,
    ) -> Result<Self, LayoutError> {
        let hash_seed = hash_seed(options.uuid);
        let directories = Directories::new(&plan, hash_seed)?;
        for directory in &directories.list {
            let node = &mut plan.nodes[directory.node as usize];
            node.blocks = directory.blocks();
            node.size = u64::from(node.blocks) * BLOCK_BYTES;
        }
        let attributes = share_attributes(&mut plan);
        let values = Values::new(&plan, &attributes);
        let links = nodes_where(&plan, |node| node.is(inode::SYMLINK) && node.size >= SHORT_TARGET);
        let trees = nodes_where(&plan, |node| tree_blocks(&plan, node) > 0);
        let trees =
            trees.into_iter().map(|number| (number, tree_blocks(&plan, &plan.nodes[number as usize])));
        let trees: Vec<(u32, u64)> = trees.collect();
        let data = place_data(&mut plan, first, options.chunk_blocks);

        let directory_blocks: u64 = directories.list.iter().map(|dir| u64::from(dir.blocks())).sum();
        let tree_blocks: u64 = trees.iter().map(|(_, blocks)| blocks).sum();
        let metadata_blocks =
            directory_blocks + (links.len() + attributes.len()) as u64 + values.blocks() + tree_blocks;
        let chunk_blocks = u64::from(options.chunk_blocks.max(1));
        let data_at = |tables_end: u64| (tables_end + metadata_blocks).next_multiple_of(chunk_blocks);
        let used_inodes = plan.nodes.len() as u64 + 9 + values.len();
        let geometry = Geometry::new(used_inodes + options.free_inodes, |tables_end| {
            with_free(data_at(tables_end) + data.end, options.free_bytes)
        })?;
        let metadata_end = geometry.tables_end + metadata_blocks;
        let data_at = data_at(geometry.tables_end);
        let mut free: Vec<Range<u64>> = Vec::with_capacity(data.gaps.len() + 2);
        free.push(metadata_end..data_at);
        free.extend(data.gaps.iter().map(|gap| gap.start + data_at..gap.end + data_at));
        free.push(data_at + data.end..geometry.blocks);
        let tables = Tables {
            geometry,
            uuid: options.uuid,
            hash_seed,
            label: options.label,
            has_shared_blocks: !plan.shared.is_empty(),
            has_values: values.len() > 0,
            used_inodes,
            directories: directories_by_group(&directories, &geometry),
            free,
        };
        let links_at = geometry.tables_end + directory_blocks;
        let attributes_at = links_at + links.len() as u64;
        let values_at = attributes_at + attributes.len() as u64;
        let mut layout = Self {
            tables_written: tables_written(&tables),
            trees_at: values_at + values.blocks(),
            plan,
            tables,
            directories,
            links,
            attributes,
            values,
            trees,
            data: data.files,
            links_at,
            attributes_at,
            values_at,
            metadata_end,
        };
        layout.place(data_at);
        Ok(layout)
    }

    /// Gives directories, trees of extents and data their blocks.
    fn place(&mut self, data_at: u64) {
        let nodes = &mut self.plan.nodes;
        let mut at = self.tables.geometry.tables_end;
        for directory in &self.directories.list {
            nodes[directory.node as usize].first = at;
            at += u64::from(directory.blocks());
        }
        self.values.place(self.values_at);
        at = self.trees_at;
        for (_, tree) in &mut self.trees {
            (*tree, at) = (at, at + *tree);
        }
        self.data.iter().for_each(|&file| nodes[file as usize].first += data_at);
        for &(file, with) in &self.plan.shared {
            nodes[file as usize].first = nodes[with as usize].first;
        }
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Blocks of the file system.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.tables.geometry.blocks
    }

    /// Blocks at the beginning that hold all metadata.
    #[must_use]
    pub const fn metadata_blocks(&self) -> u64 {
        self.metadata_end
    }

    /// All blocks, in ascending runs.
    pub fn runs(&self) -> impl Iterator<Item = Run> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let run = (at < self.blocks()).then(|| self.run_at(at))?;
            at += run.blocks;
            Some(run)
        })
    }

    /// What lies from a block on.
    ///
    /// # Panics
    /// When the file system has no such block.
    #[must_use]
    pub fn run_at(&self, block: u64) -> Run {
        assert!(block < self.blocks(), "block {block} of {}", self.blocks());
        let until = |end: u64, content| Run { first: block, blocks: end - block, content };
        if block < self.metadata_end {
            let here = self.tables_written.partition_point(|(end, _)| *end <= block);
            return match self.tables_written.get(here) {
                Some(&(end, false)) => until(end, RunContent::Zeros),
                Some(&(end, true)) => until(end, RunContent::Metadata),
                None => until(self.metadata_end, RunContent::Metadata),
            };
        }
        let after = self.data.partition_point(|&file| self.plan.nodes[file as usize].first <= block);
        if let Some(&file) = after.checked_sub(1).map(|here| &self.data[here]) {
            let node = &self.plan.nodes[file as usize];
            let before = block - node.first;
            if before < u64::from(node.blocks) {
                let extents = extents(&self.plan, node);
                let extent = extents.containing(to_u32(before));
                let within = before - u64::from(extent.before);
                let offset = (u64::from(extent.first) + within) * BLOCK_BYTES;
                let content = RunContent::Data { file: NodeId(file), offset };
                return until(block + u64::from(extent.blocks) - within, content);
            }
        }
        let next = self.data.get(after).map_or(self.blocks(), |&file| self.plan.nodes[file as usize].first);
        until(next, RunContent::Zeros)
    }

    /// Writes what lies in a block of [`RunContent::Metadata`].
    pub fn write_metadata(&self, number: u64, block: &mut [u8; to_usize(BLOCK_BYTES)]) {
        block.fill(0);
        let geometry = &self.tables.geometry;
        let seed = self.tables.seed();
        match number {
            0 => self.tables.write_superblock(block),
            _ if number < geometry.block_bitmaps() => self.tables.write_descriptors(number - 1, block),
            _ if number < geometry.inode_bitmaps() => {
                self.tables.write_block_bitmap(number - geometry.block_bitmaps(), block);
            }
            _ if number < geometry.inode_tables() => {
                self.tables.write_inode_bitmap(number - geometry.inode_bitmaps(), block);
            }
            _ if number < geometry.tables_end => self.write_inodes(number - geometry.inode_tables(), block),
            _ if number < self.links_at => self.write_directory(number, block),
            _ if number < self.attributes_at => {
                let link = self.links[to_usize(number - self.links_at)];
                let target = self.plan.target(&self.plan.nodes[link as usize]);
                block[..target.len()].copy_from_slice(target);
            }
            _ if number < self.values_at => {
                let (set, shares) = self.attributes[to_usize(number - self.attributes_at)];
                let set = self.plan.sets.get(set).expect("a block has a set");
                attributes::write_block(set, shares, number, (seed, &self.values), block);
            }
            _ if number < self.trees_at => self.values.write_block(number, block),
            _ => {
                let (file, tree) = self.trees[self.trees.partition_point(|tree| tree.1 <= number) - 1];
                let extents = extents(&self.plan, &self.plan.nodes[file as usize]);
                let inode_seed = inode_seed(seed, NodeId(file).inode());
                extents.write_block(tree, to_usize(number - tree), inode_seed, block);
            }
        }
    }

    fn write_directory(&self, number: u64, block: &mut Block) {
        let first = |node: u32| self.plan.nodes[node as usize].first;
        let after = self.directories.list.partition_point(|directory| first(directory.node) <= number);
        let directory = &self.directories.list[after - 1];
        let seed = inode_seed(self.tables.seed(), NodeId(directory.node).inode());
        let number = to_u32(number - first(directory.node));
        self.directories.write_block(&self.plan, directory, number, seed, block);
    }

    fn write_inodes(&self, number: u64, block: &mut Block) {
        let first = number * (BLOCK_BYTES / inode::BYTES as u64);
        for (index, bytes) in (first..).zip(block.chunks_mut(inode::BYTES)) {
            let node = match index + 1 {
                2 => Some(0),
                1..=10 => None,
                inode => Some(inode - 10),
            };
            let Some(number) = node.and_then(|node| u32::try_from(node).ok()) else { continue };
            if (number as usize) < self.plan.nodes.len() {
                self.write_inode(number, bytes);
            } else if let Some(value) = self.values.of_node(number) {
                let extents = Extents { start: value.first, blocks: to_u32(value.blocks()), list: &[] };
                let inode = NodeId(number).inode();
                inode::write_value(value, inode, extents.root(0), self.tables.seed(), bytes);
            }
        }
    }

    fn write_inode(&self, number: u32, bytes: &mut [u8]) {
        let node = &self.plan.nodes[number as usize];
        let (map, flags, mut blocks) = self.map(number, node);
        let attribute_block = match self.attributes.get(node.attribute_block as usize) {
            Some((set, _)) => {
                // Values count for each file that has them, shared or not.
                let apart = self.plan.sets.get(*set).into_iter().flatten().filter(|value| value.is_apart);
                blocks += 1 + apart.map(|attribute| blocks_of(&attribute.value)).sum::<u64>();
                self.attributes_at + u64::from(node.attribute_block)
            }
            None => 0,
        };
        let placed = Placed {
            number: NodeId(number).inode(),
            flags,
            map,
            blocks,
            attribute_block,
            attributes: self.plan.sets.get(node.attributes),
        };
        inode::write(node, &placed, self.tables.seed(), bytes);
    }

    /// What an inode has in place of a map of blocks, its flags, and the blocks that it maps.
    fn map(&self, number: u32, node: &Node) -> ([u8; MAP_BYTES], u32, u64) {
        let of_extents = |extents: Extents<'_>| {
            let tree = self.trees.binary_search_by_key(&number, |tree| tree.0);
            let root = extents.root(tree.map_or(0, |found| self.trees[found].1));
            (root, inode::FLAG_EXTENTS, u64::from(extents.blocks) + extents.tree_blocks())
        };
        let mut map = [0; MAP_BYTES];
        match node.mode & inode::TYPE {
            inode::REGULAR => of_extents(extents(&self.plan, node)),
            inode::DIRECTORY => {
                let (root, flags, blocks) = of_extents(extents(&self.plan, node));
                let index = if self.directories.of(number).has_index() { inode::FLAG_INDEX } else { 0 };
                (root, flags | index, blocks)
            }
            inode::SYMLINK => match self.links.binary_search(&number) {
                Ok(place) => {
                    let start = self.links_at + place as u64;
                    of_extents(Extents { start, blocks: 1, list: &[] })
                }
                Err(_) => {
                    let target = self.plan.target(node);
                    map[..target.len()].copy_from_slice(target);
                    (map, 0, 0)
                }
            },
            _ => {
                // Small numbers of devices have a form of their own.
                let at = if node.first < 1 << 16 { 0 } else { 4 };
                crate::bytes::put(&mut map, node.first, &[(at, 4)]);
                (map, 0, 0)
            }
        }
    }
}

fn nodes_where(plan: &Plan, wanted: impl Fn(&Node) -> bool) -> Vec<u32> {
    let found = plan.nodes.iter().enumerate().filter(|(_, node)| wanted(node));
    found.map(|(number, _)| to_u32(number as u64)).collect()
}

fn extents<'p>(plan: &'p Plan, node: &Node) -> Extents<'p> {
    Extents { start: node.first, blocks: node.blocks, list: plan.extents_of(node) }
}

/// Blocks that the extents of a file or directory take.
fn tree_blocks(plan: &Plan, node: &Node) -> u64 {
    if node.is(inode::REGULAR) || node.is(inode::DIRECTORY) { extents(plan, node).tree_blocks() } else { 0 }
}

/// The UUID in words. All zeros would mean that there is no seed.
fn hash_seed(uuid: [u8; 16]) -> [u32; 4] {
    let (words, _) = uuid.as_chunks::<4>();
    let mut seed = [0; 4];
    seed.iter_mut().zip(words).for_each(|(seed, word)| *seed = u32::from_le_bytes(*word));
    if seed == [0; 4] { [1; 4] } else { seed }
}

/// Where a file system ends that has so many free bytes behind `used` blocks. The kernel keeps a fiftieth, at
/// most 4096 blocks, for itself (`ext4_set_resv_clusters`).
fn with_free(used: u64, free_bytes: u64) -> u64 {
    if free_bytes == 0 {
        return used;
    }
    let wanted = used + free_bytes.div_ceil(BLOCK_BYTES);
    wanted + (wanted / 49 + 1).min(4096)
}

/// Gives nodes with equal sets of attributes the same block, up to as many as may share one.
fn share_attributes(plan: &mut Plan) -> Vec<(u32, u32)> {
    let mut blocks: Vec<(u32, u32)> = Vec::new();
    let mut open: Vec<Option<usize>> = vec![None; plan.sets.len()];
    for node in &mut plan.nodes {
        let Some(open) = open.get_mut(node.attribute_block as usize) else { continue };
        let block = match *open {
            Some(block) if blocks[block].1 < MOST_SHARES => block,
            _ => {
                blocks.push((node.attribute_block, 0));
                blocks.len() - 1
            }
        };
        *open = Some(block);
        blocks[block].1 += 1;
        node.attribute_block = to_u32(block as u64);
    }
    blocks
}

/// Files in the order of their data, the blocks between them, and where all ends, counted from the first
/// block with data.
struct PlacedData {
    files: Vec<u32>,
    gaps: Vec<Range<u64>>,
    end: u64,
}

/// Gives each file the place of its data, counted from the first block with data.
fn place_data(plan: &mut Plan, first: &[NodeId], chunk_blocks: u32) -> PlacedData {
    let chunk_blocks = chunk_blocks.max(1);
    let mut is_placed = vec![false; plan.nodes.len()];
    plan.shared.iter().for_each(|&(file, _)| is_placed[file as usize] = true);
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
    let mut placed = PlacedData { files, gaps: Vec::new(), end: 0 };
    for &file in &placed.files {
        let node = &mut plan.nodes[file as usize];
        node.first = placed.end;
        if node.blocks >= chunk_blocks {
            node.first = placed.end.next_multiple_of(chunk_blocks.into());
        }
        if node.first > placed.end {
            placed.gaps.push(placed.end..node.first);
        }
        placed.end = node.first + u64::from(node.blocks);
    }
    placed
}

fn directories_by_group(directories: &Directories, geometry: &Geometry) -> Vec<u32> {
    let mut counts = Vec::new();
    for directory in &directories.list {
        let group = to_usize(u64::from(NodeId(directory.node).inode() - 1) / geometry.inodes_per_group);
        counts.resize(counts.len().max(group + 1), 0);
        counts[group] += 1;
    }
    counts
}

/// What of the tables is written: not the bit maps of groups that nothing uses, and no unused inodes.
fn tables_written(tables: &Tables) -> Vec<(u64, bool)> {
    let geometry = &tables.geometry;
    let (blocks, inodes) = (geometry.block_bitmaps(), geometry.inode_bitmaps());
    let last = inodes - 1;
    vec![
        ((blocks + tables.groups_with_blocks()).min(last), true),
        (last, false),
        (inodes, true),
        (inodes + tables.groups_with_inodes(), true),
        (geometry.inode_tables(), false),
        (geometry.inode_tables() + inode_blocks(tables.used_inodes), true),
        (geometry.tables_end, false),
    ]
}
