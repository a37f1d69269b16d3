//! Where everything lies, and what a block holds.

use std::ops::Range;

use hs_units::{BLOCK_BYTES, to_u32, to_usize};

use crate::attributes::{self, MOST_SHARES};
use crate::bytes::{Block, inode_seed};
use crate::directory::Directories;
use crate::earlier::{Earlier, KeptNode};
use crate::error::LayoutError;
use crate::extents::Extents;
use crate::geometry::{Geometry, INODES_PER_BLOCK};
use crate::inode::{self, MAP_BYTES, Placed};
use crate::like::like;
use crate::numbers::Numbers;
use crate::places::{Items, one_behind_the_other};
use crate::plan::{Node, NodeId, Plan, SHORT_TARGET};
use crate::tables::{Tables, uuid_seed};
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
    /// What the earlier file system has in these blocks, which are free.
    Earlier,
    /// Bytes of a file; zeros where the last block is longer than the file.
    Data {
        /// The file.
        file: NodeId,
        /// Where they begin in the file.
        offset: u64,
    },
}

/// What blocks of metadata hold.
#[derive(Clone, Copy, Debug)]
enum Part {
    Superblock,
    Descriptors,
    /// Bit maps and inodes of groups: the place of their span.
    Tables(usize),
    /// The place in the list.
    Directory(usize),
    Link(usize),
    Attributes(usize),
    Value(usize),
    Tree(usize),
}

/// Blocks of metadata that lie together.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: u64,
    blocks: u64,
    part: Part,
    /// Whether they are written: tables that nothing uses are not.
    is_written: bool,
}

/// A file system: what each of its blocks holds.
#[derive(Debug)]
pub struct Layout {
    plan: Plan,
    tables: Tables,
    items: Items,
    /// Metadata, ascending.
    pieces: Vec<Piece>,
    /// Files with data of their own, in the order of that.
    data: Vec<u32>,
    metadata_end: u64,
    left: Vec<Range<u64>>,
    is_like: bool,
}

impl Layout {
    pub(crate) fn new(
        mut plan: Plan,
        first: &[NodeId],
        earlier: Option<(&Earlier, &[KeptNode])>,
        options: &LayoutOptions,
    ) -> Result<Self, LayoutError> {
        let hash_seed = earlier.map_or_else(|| hash_seed(options.uuid), |(earlier, _)| earlier.hash_seed);
        let mut items = items(&mut plan, hash_seed)?;
        let like = earlier.and_then(|(earlier, kept)| {
            Some((like(&mut plan, &mut items, earlier, kept, options)?, earlier.seed))
        });
        let is_like = like.is_some();
        let (places, seed) = match like {
            Some(like) => like,
            None => (one_behind_the_other(&mut plan, &mut items, first, options)?, uuid_seed(options.uuid)),
        };
        let pieces = pieces(&plan, &items, &places.geometry);
        let tables = Tables {
            free: free(&plan, &pieces, &places.data, places.geometry.blocks),
            directories: directories_by_group(&items.directories, &places.numbers, &places.geometry),
            geometry: places.geometry,
            numbers: places.numbers,
            uuid: options.uuid,
            hash_seed,
            seed,
            label: options.label,
            has_shared_blocks: !plan.shared.is_empty(),
            has_values: items.values.len() > 0,
        };
        for &(file, with) in &plan.shared {
            plan.nodes[file as usize].first = plan.nodes[with as usize].first;
        }
        let pieces = with_written_tables(pieces, &tables);
        let (data, metadata_end, left) = (places.data, places.metadata_end, places.left);
        Ok(Self { plan, tables, items, pieces, data, metadata_end, left, is_like })
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

    /// Blocks at the beginning that hold all metadata, or most where it is like an earlier file system.
    #[must_use]
    pub const fn metadata_blocks(&self) -> u64 {
        self.metadata_end
    }

    /// Whether places are those of the earlier file system that was given.
    #[must_use]
    pub const fn is_like_earlier(&self) -> bool {
        self.is_like
    }

    /// The number of a node's inode.
    #[must_use]
    pub fn inode(&self, node: NodeId) -> u32 {
        self.tables.numbers.of(node.0)
    }

    /// The first block of the content of a file or directory, and how many there are, which lie together.
    #[must_use]
    pub fn place(&self, node: NodeId) -> Option<(u64, u64)> {
        let node = &self.plan.nodes[node.index()];
        let has_place = (node.is(inode::REGULAR) || node.is(inode::DIRECTORY)) && node.blocks > 0;
        has_place.then_some((node.first, node.blocks.into()))
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
        let next_piece = self.pieces.partition_point(|piece| piece.first <= block);
        if let Some(piece) = next_piece.checked_sub(1).map(|here| &self.pieces[here]) {
            let end = piece.first + piece.blocks;
            if block < end {
                return until(end, if piece.is_written { RunContent::Metadata } else { RunContent::Zeros });
            }
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
        let next_file =
            self.data.get(after).map_or(self.blocks(), |&file| self.plan.nodes[file as usize].first);
        let next = self.pieces.get(next_piece).map_or(next_file, |piece| piece.first.min(next_file));
        match self.left.get(self.left.partition_point(|left| left.end <= block)) {
            Some(left) if left.start <= block => until(next.min(left.end), RunContent::Earlier),
            Some(left) => until(next.min(left.start), RunContent::Zeros),
            None => until(next, RunContent::Zeros),
        }
    }

    /// Writes what lies in a block of [`RunContent::Metadata`].
    ///
    /// # Panics
    /// When the block is none of these.
    pub fn write_metadata(&self, number: u64, block: &mut [u8; to_usize(BLOCK_BYTES)]) {
        block.fill(0);
        let after = self.pieces.partition_point(|piece| piece.first <= number);
        let piece = self.pieces[after - 1];
        let within = number - piece.first;
        let seed = self.tables.seed;
        match piece.part {
            Part::Superblock => self.tables.write_superblock(block),
            Part::Descriptors => self.tables.write_descriptors(within, block),
            Part::Tables(span) => self.write_tables(span, number, block),
            Part::Directory(place) => {
                let directory = &self.items.directories.list[place];
                let seed = inode_seed(seed, self.tables.numbers.of(directory.node));
                let names = (&self.plan, &self.tables.numbers);
                self.items.directories.write_block(names, directory, to_u32(within), seed, block);
            }
            Part::Link(place) => {
                let target = self.plan.target(&self.plan.nodes[self.items.links[place].0 as usize]);
                block[..target.len()].copy_from_slice(target);
            }
            Part::Attributes(place) => {
                let (set, shares, _) = self.items.attributes[place];
                let set = self.plan.sets.get(set).expect("a block has a set");
                let inode_of = |value: &[u8]| self.tables.numbers.of(self.items.values.node_of(value));
                attributes::write_block(set, shares, number, seed, inode_of, block);
            }
            Part::Value(place) => self.items.values.list[place].write_block(within, block),
            Part::Tree(place) => {
                let (file, _, tree) = self.items.trees[place];
                let extents = extents(&self.plan, &self.plan.nodes[file as usize]);
                let inode_seed = inode_seed(seed, self.tables.numbers.of(file));
                extents.write_block(tree, to_usize(within), inode_seed, block);
            }
        }
    }

    /// Writes a block of a span of tables.
    fn write_tables(&self, span: usize, number: u64, block: &mut Block) {
        let geometry = &self.tables.geometry;
        let span = &geometry.spans[span];
        let within = number - span.at;
        if within < span.groups {
            self.tables.write_block_bitmap(span.group + within, block);
        } else if within < 2 * span.groups {
            self.tables.write_inode_bitmap(span.group + within - span.groups, block);
        } else {
            let before = geometry.inode_numbers(span.group).start;
            self.write_inodes(before + (within - 2 * span.groups) * INODES_PER_BLOCK, block);
        }
    }

    /// Writes inodes from this number on.
    fn write_inodes(&self, first: u64, block: &mut Block) {
        for (number, bytes) in (first..).zip(block.chunks_mut(inode::BYTES)) {
            let Some(node) = self.tables.numbers.node(number) else { continue };
            match self.items.values.of_node(node) {
                Some(value) => {
                    let extents = Extents { start: value.first, blocks: to_u32(value.blocks()), list: &[] };
                    let number = self.tables.numbers.of(node);
                    inode::write_value(value, number, extents.root(0), self.tables.seed, bytes);
                }
                None => self.write_inode(node, bytes),
            }
        }
    }

    fn write_inode(&self, number: u32, bytes: &mut [u8]) {
        let node = &self.plan.nodes[number as usize];
        let (map, flags, mut blocks) = self.map(number, node);
        let attribute_block = match self.items.attributes.get(node.attribute_block as usize) {
            Some((set, _, at)) => {
                // Values count for each file that has them, shared or not.
                let apart = self.plan.sets.get(*set).into_iter().flatten().filter(|value| value.is_apart);
                blocks += 1 + apart.map(|attribute| blocks_of(&attribute.value)).sum::<u64>();
                *at
            }
            None => 0,
        };
        let placed = Placed {
            number: self.tables.numbers.of(number),
            flags,
            map,
            blocks,
            attribute_block,
            attributes: self.plan.sets.get(node.attributes),
        };
        inode::write(node, &placed, self.tables.seed, bytes);
    }

    /// What an inode has in place of a map of blocks, its flags, and the blocks that it maps.
    fn map(&self, number: u32, node: &Node) -> ([u8; MAP_BYTES], u32, u64) {
        let of_extents = |extents: Extents<'_>| {
            let tree = self.items.trees.binary_search_by_key(&number, |tree| tree.0);
            let root = extents.root(tree.map_or(0, |found| self.items.trees[found].2));
            (root, inode::FLAG_EXTENTS, u64::from(extents.blocks) + extents.tree_blocks())
        };
        let mut map = [0; MAP_BYTES];
        match node.mode & inode::TYPE {
            inode::REGULAR => of_extents(extents(&self.plan, node)),
            inode::DIRECTORY => {
                let (root, flags, blocks) = of_extents(extents(&self.plan, node));
                let index = if self.items.directories.of(number).has_index() { inode::FLAG_INDEX } else { 0 };
                (root, flags | index, blocks)
            }
            inode::SYMLINK => match self.items.links.binary_search_by_key(&number, |link| link.0) {
                Ok(place) => {
                    let start = self.items.links[place].1;
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

/// What has blocks of its own beside data, without its places.
fn items(plan: &mut Plan, hash_seed: [u32; 4]) -> Result<Items, LayoutError> {
    let directories = Directories::new(plan, hash_seed)?;
    for directory in &directories.list {
        let node = &mut plan.nodes[directory.node as usize];
        node.blocks = directory.blocks();
        node.size = u64::from(node.blocks) * BLOCK_BYTES;
    }
    let attributes = share_attributes(plan);
    let values = Values::new(plan, &attributes);
    let attributes = attributes.into_iter().map(|(set, shares)| (set, shares, 0)).collect();
    let links = nodes_where(plan, |node| node.is(inode::SYMLINK) && node.size >= SHORT_TARGET);
    let trees = nodes_where(plan, |node| tree_blocks(plan, node) > 0);
    let tree = |node: u32| (node, tree_blocks(plan, &plan.nodes[node as usize]), 0);
    let trees = trees.into_iter().map(tree).collect();
    let links = links.into_iter().map(|link| (link, 0)).collect();
    Ok(Items { directories, links, attributes, values, trees })
}

/// Metadata, ascending; tables as one piece for each span.
fn pieces(plan: &Plan, items: &Items, geometry: &Geometry) -> Vec<Piece> {
    let piece = |first, blocks, part| Piece { first, blocks, part, is_written: true };
    let mut pieces =
        vec![piece(0, 1, Part::Superblock), piece(1, geometry.descriptors_end() - 1, Part::Descriptors)];
    pieces.extend(geometry.spans.iter().enumerate().map(|(number, span)| {
        let blocks = geometry.span_blocks(span);
        piece(blocks.start, blocks.end - blocks.start, Part::Tables(number))
    }));
    let directories = items.directories.list.iter().enumerate();
    pieces.extend(directories.map(|(place, directory)| {
        let first = plan.nodes[directory.node as usize].first;
        piece(first, directory.blocks().into(), Part::Directory(place))
    }));
    pieces.extend(items.links.iter().enumerate().map(|(place, link)| piece(link.1, 1, Part::Link(place))));
    let attributes = items.attributes.iter().enumerate();
    pieces.extend(attributes.map(|(place, set)| piece(set.2, 1, Part::Attributes(place))));
    let values = items.values.list.iter().enumerate();
    pieces.extend(values.map(|(place, value)| piece(value.first, value.blocks(), Part::Value(place))));
    let trees = items.trees.iter().enumerate();
    pieces.extend(trees.map(|(place, tree)| piece(tree.2, tree.1, Part::Tree(place))));
    pieces.sort_unstable_by_key(|piece| piece.first);
    pieces
}

/// What lies neither in metadata nor in data, ascending; the last range reaches to the end.
fn free(plan: &Plan, pieces: &[Piece], data: &[u32], blocks: u64) -> Vec<Range<u64>> {
    let mut of_pieces = pieces.iter().map(|piece| piece.first..piece.first + piece.blocks).peekable();
    let of_file = |&file: &u32| {
        let node = &plan.nodes[file as usize];
        node.first..node.first + u64::from(node.blocks)
    };
    let mut of_files = data.iter().map(of_file).peekable();
    let (mut free, mut at) = (Vec::new(), 0);
    loop {
        let used = match (of_pieces.peek(), of_files.peek()) {
            (Some(piece), Some(file)) if file.start < piece.start => of_files.next(),
            (Some(_), _) => of_pieces.next(),
            (None, _) => of_files.next(),
        };
        let Some(used) = used else { break };
        assert!(used.start >= at, "block {} has two uses", used.start);
        if used.start > at {
            free.push(at..used.start);
        }
        at = used.end;
    }
    free.push(at..blocks);
    free
}

/// The same, with tables by whether they are written: not the bit maps of groups that nothing uses, and no
/// unused inodes.
fn with_written_tables(pieces: Vec<Piece>, tables: &Tables) -> Vec<Piece> {
    let mut all = Vec::with_capacity(pieces.len() + 8);
    for piece in pieces {
        let Part::Tables(number) = piece.part else {
            all.push(piece);
            continue;
        };
        let mut first = piece.first;
        for (blocks, is_written) in tables.written_in(&tables.geometry.spans[number]) {
            all.push(Piece { first, blocks, is_written, ..piece });
            first += blocks;
        }
    }
    all
}

fn directories_by_group(directories: &Directories, numbers: &Numbers, geometry: &Geometry) -> Vec<u32> {
    let mut counts = Vec::new();
    for directory in &directories.list {
        let group = to_usize(u64::from(numbers.of(directory.node) - 1) / geometry.inodes_per_group);
        counts.resize(counts.len().max(group + 1), 0);
        counts[group] += 1;
    }
    counts
}
