//! Directories. One that fits into a block is a list of names. A larger one has an index, by the hash of its
//! names, that is made at once: names are sorted by hash and fill blocks one after the other, so the time is
//! linear but for the sort, and no block is split. Layout from the kernel's documentation, "Directory
//! Entries" and "Hash Tree Directories".

use std::ops::Range;

use hs_units::to_u32;

use crate::bytes::{BLOCK, Block, checksum, put};
use crate::error::LayoutError;
use crate::hash;
use crate::inode;
use crate::numbers::Numbers;
use crate::plan::{Entry, NodeId, Plan};

const HEADER: usize = 8;
/// Names end here; a checksum follows.
const NAMES_END: usize = BLOCK - 12;
/// `.` and `..`.
const DOTS: usize = 24;
/// Where count and limit of an index lie, in its first block and in others; the entries follow from there,
/// and the first of them has no hash.
const ROOT_COUNTS: usize = 0x20;
const NODE_COUNTS: usize = 8;
const INDEX_ENTRY: usize = 8;
/// The checksum of an index, behind its entries.
const INDEX_END: usize = BLOCK - 8;
const IN_ROOT: usize = (INDEX_END - ROOT_COUNTS) / INDEX_ENTRY;
const IN_NODE: usize = (INDEX_END - NODE_COUNTS) / INDEX_ENTRY;

/// One directory of [`Directories`].
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) node: u32,
    names: Range<u32>,
    /// Where each block with names begins; none without an index.
    leaves: Range<u32>,
    /// Blocks of the index behind the first one.
    index_blocks: u32,
}

impl Directory {
    pub(crate) fn blocks(&self) -> u32 {
        1 + self.index_blocks + to_u32(self.leaves.len() as u64)
    }

    pub(crate) fn has_index(&self) -> bool {
        !self.leaves.is_empty()
    }
}

/// All directories, in the order of their nodes, with their names in the order in which they lie on the disk.
#[derive(Debug)]
pub(crate) struct Directories {
    pub(crate) list: Vec<Directory>,
    order: Vec<u32>,
    leaves: Vec<u32>,
    seed: [u32; 4],
}

impl Directories {
    pub(crate) fn new(plan: &Plan, seed: [u32; 4]) -> Result<Self, LayoutError> {
        let (order, starts) = by_parent(plan);
        let mut all = Self { list: Vec::new(), order, leaves: Vec::new(), seed };
        for (number, node) in plan.nodes.iter().enumerate() {
            if node.is(inode::DIRECTORY) {
                all.add(plan, to_u32(number as u64), starts[number]..starts[number + 1])?;
            }
        }
        Ok(all)
    }

    fn add(&mut self, plan: &Plan, node: u32, names: Range<u32>) -> Result<(), LayoutError> {
        let entries = &mut self.order[names.start as usize..names.end as usize];
        let name = |number: u32| plan.name(&plan.entries[number as usize]);
        let bytes: usize = entries.iter().map(|&number| entry_bytes(name(number))).sum();
        let mut directory = Directory { node, names, leaves: 0..0, index_blocks: 0 };
        let is_small = bytes + DOTS <= NAMES_END;
        let hash_of = |number| if is_small { 0 } else { hash::of_name(name(number), self.seed) };
        let mut sorted: Vec<(u32, u32)> = entries.iter().map(|&number| (hash_of(number), number)).collect();
        sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| name(a.1).cmp(name(b.1))));
        if let Some(pair) = sorted.windows(2).find(|pair| name(pair[0].1) == name(pair[1].1)) {
            let mut path = plan.path(NodeId(node));
            path.extend_from_slice(b"/");
            path.extend_from_slice(name(pair[1].1));
            return Err(LayoutError::SameName { path });
        }
        entries.iter_mut().zip(&sorted).for_each(|(entry, (_, number))| *entry = *number);
        if !is_small {
            let first = self.leaves.len();
            let mut room = 0;
            for (at, &number) in (directory.names.start..).zip(entries.iter()) {
                let bytes = entry_bytes(name(number));
                if bytes > room {
                    self.leaves.push(at);
                    room = NAMES_END;
                }
                room -= bytes;
            }
            directory.leaves = to_u32(first as u64)..to_u32(self.leaves.len() as u64);
            let leaves = directory.leaves.len();
            directory.index_blocks =
                if leaves > IN_ROOT { to_u32(leaves.div_ceil(IN_NODE) as u64) } else { 0 };
            if directory.index_blocks as usize > IN_ROOT {
                return Err(LayoutError::Names { path: plan.path(NodeId(node)) });
            }
        }
        self.list.push(directory);
        Ok(())
    }

    /// The directory of a node that is one.
    pub(crate) fn of(&self, node: u32) -> &Directory {
        &self.list[self.list.partition_point(|directory| directory.node < node)]
    }

    /// Writes a block of a directory, counted in it, into zeros.
    pub(crate) fn write_block(
        &self,
        (plan, numbers): (&Plan, &Numbers),
        directory: &Directory,
        number: u32,
        inode_seed: u32,
        block: &mut Block,
    ) {
        if !directory.has_index() {
            write_dots((plan, numbers), directory.node, 12, block);
            self.write_names((plan, numbers), directory.names.clone(), (12, DOTS), inode_seed, block);
        } else if number == 0 {
            write_dots((plan, numbers), directory.node, to_u32(BLOCK as u64) - 12, block);
            put(block, hash::VERSION.into(), &[(0x1c, 1)]);
            put(block, 8, &[(0x1d, 1)]);
            put(block, u64::from(directory.index_blocks > 0), &[(0x1e, 1)]);
            let top_is_leaves = directory.index_blocks == 0;
            let below = if top_is_leaves { directory.leaves.len() } else { directory.index_blocks as usize };
            let first_leaf = |at: usize| if top_is_leaves { at } else { at * IN_NODE };
            let entries = (0..below).map(|at| (first_leaf(at), 1 + to_u32(at as u64)));
            self.write_index(plan, directory, entries, (ROOT_COUNTS, IN_ROOT), inode_seed, block);
        } else if number <= directory.index_blocks {
            put(block, BLOCK as u64, &[(4, 2)]);
            let first = (number as usize - 1) * IN_NODE;
            let leaves = first..directory.leaves.len().min(first + IN_NODE);
            let entries = leaves.map(|leaf| (leaf, 1 + directory.index_blocks + to_u32(leaf as u64)));
            self.write_index(plan, directory, entries, (NODE_COUNTS, IN_NODE), inode_seed, block);
        } else {
            let leaf = directory.leaves.start + number - 1 - directory.index_blocks;
            let next = leaf + 1;
            let end =
                if next < directory.leaves.end { self.leaves[next as usize] } else { directory.names.end };
            self.write_names((plan, numbers), self.leaves[leaf as usize]..end, (0, 0), inode_seed, block);
        }
    }

    /// Writes entries of an index: the first leaf below each, and the block that it leads to.
    fn write_index(
        &self,
        plan: &Plan,
        directory: &Directory,
        entries: impl ExactSizeIterator<Item = (usize, u32)>,
        (counts, limit): (usize, usize),
        inode_seed: u32,
        block: &mut Block,
    ) {
        let end = counts + entries.len() * INDEX_ENTRY;
        put(block, limit as u64, &[(counts, 2)]);
        put(block, entries.len() as u64, &[(counts + 2, 2)]);
        for (index, (leaf, leads_to)) in entries.enumerate() {
            let at = counts + index * INDEX_ENTRY;
            put(block, leads_to.into(), &[(at + 4, 4)]);
            if index > 0 {
                put(block, self.leaf_hash(plan, directory, leaf).into(), &[(at, 4)]);
            }
        }
        // Four unused bytes and the sum follow; both count as zeros.
        let sum = checksum(checksum(inode_seed, &block[..end]), &[0; 8]);
        put(block, sum.into(), &[(INDEX_END + 4, 4)]);
    }

    /// The hash of a leaf's first name, with a mark when the leaf before ends with the same one.
    fn leaf_hash(&self, plan: &Plan, directory: &Directory, leaf: usize) -> u32 {
        let first = self.leaves[directory.leaves.start as usize + leaf] as usize;
        let hash_at = |at: usize| hash::of_name(plan.name(self.entry(plan, at)), self.seed);
        let hash = hash_at(first);
        hash | u32::from(leaf > 0 && hash_at(first - 1) == hash)
    }

    fn entry<'p>(&self, plan: &'p Plan, at: usize) -> &'p Entry {
        &plan.entries[self.order[at] as usize]
    }

    /// Writes names behind what ends at the second of two places and began at the first. The last entry
    /// reaches to the end.
    fn write_names(
        &self,
        (plan, numbers): (&Plan, &Numbers),
        names: Range<u32>,
        (mut last, mut at): (usize, usize),
        inode_seed: u32,
        block: &mut Block,
    ) {
        for number in names {
            let entry = self.entry(plan, number as usize);
            let name = plan.name(entry);
            let mode = plan.nodes[entry.node as usize].mode;
            write_entry(numbers.of(entry.node), name, entry_bytes(name), mode, &mut block[at..]);
            (last, at) = (at, at + entry_bytes(name));
        }
        put(block, (NAMES_END - last) as u64, &[(last + 4, 2)]);
        put(block, 12, &[(NAMES_END + 4, 2)]);
        block[NAMES_END + 7] = 0xde;
        let sum = checksum(inode_seed, &block[..NAMES_END]);
        put(block, sum.into(), &[(NAMES_END + 8, 4)]);
    }
}

/// Entries but that of the root, by their directories, and where the entries of each node begin.
fn by_parent(plan: &Plan) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0; plan.nodes.len() + 1];
    for entry in &plan.entries[1..] {
        starts[entry.parent as usize + 1] += 1;
    }
    for node in 0..plan.nodes.len() {
        starts[node + 1] += starts[node];
    }
    let mut next = starts.clone();
    let mut order = vec![0; plan.entries.len() - 1];
    for (number, entry) in plan.entries.iter().enumerate().skip(1) {
        let at = &mut next[entry.parent as usize];
        order[*at as usize] = to_u32(number as u64);
        *at += 1;
    }
    (order, starts)
}

fn entry_bytes(name: &[u8]) -> usize {
    (HEADER + name.len()).next_multiple_of(4)
}

fn write_dots((plan, numbers): (&Plan, &Numbers), node: u32, second_bytes: u32, block: &mut Block) {
    let parent = plan.entries[plan.nodes[node as usize].entry as usize].parent;
    write_entry(numbers.of(node), b".", 12, inode::DIRECTORY, block);
    write_entry(numbers.of(parent), b"..", second_bytes as usize, inode::DIRECTORY, &mut block[12..]);
}

fn write_entry(inode: u32, name: &[u8], bytes: usize, mode: u16, entry: &mut [u8]) {
    put(entry, inode.into(), &[(0, 4)]);
    put(entry, bytes as u64, &[(4, 2)]);
    put(entry, name.len() as u64, &[(6, 1)]);
    entry[7] = match mode & inode::TYPE {
        inode::REGULAR => 1,
        inode::DIRECTORY => 2,
        inode::CHARACTER_DEVICE => 3,
        inode::BLOCK_DEVICE => 4,
        inode::FIFO => 5,
        inode::SOCKET => 6,
        _ => 7,
    };
    entry[HEADER..HEADER + name.len()].copy_from_slice(name);
}
