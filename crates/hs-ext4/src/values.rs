//! Values of attributes that have inodes of their own (the feature `ea_inode`): equal ones share one. Fields
//! from the kernel's documentation, "Extended Attributes", and from `fs/ext4/xattr.c`.

use std::collections::BTreeMap;

use hs_units::{BLOCK_BYTES, to_u32, to_usize};

use crate::bytes::Block;
use crate::plan::{NodeId, Plan};

/// A value.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) bytes: Vec<u8>,
    /// Blocks of attributes that name it.
    pub(crate) references: u32,
    /// Its first block.
    pub(crate) first: u64,
}

impl Value {
    pub(crate) fn blocks(&self) -> u64 {
        blocks_of(&self.bytes)
    }
}

/// All of them, sorted; their inodes follow those of the plan.
#[derive(Debug)]
pub(crate) struct Values {
    list: Vec<Value>,
    first_node: u32,
}

impl Values {
    /// Those that `blocks` of attributes name, by the numbers of their sets.
    pub(crate) fn new(plan: &Plan, blocks: &[(u32, u32)]) -> Self {
        let mut found: BTreeMap<&[u8], u32> = BTreeMap::new();
        for attribute in blocks.iter().filter_map(|(set, _)| plan.sets.get(*set)).flatten() {
            if attribute.is_apart {
                *found.entry(&attribute.value).or_default() += 1;
            }
        }
        let value = |(bytes, references): (&[u8], u32)| Value { bytes: bytes.to_vec(), references, first: 0 };
        Self { list: found.into_iter().map(value).collect(), first_node: to_u32(plan.nodes.len() as u64) }
    }

    pub(crate) fn len(&self) -> u64 {
        self.list.len() as u64
    }

    /// Blocks of all.
    pub(crate) fn blocks(&self) -> u64 {
        self.list.iter().map(Value::blocks).sum()
    }

    /// Gives them their blocks from this one on.
    pub(crate) fn place(&mut self, mut at: u64) {
        for value in &mut self.list {
            (value.first, at) = (at, at + value.blocks());
        }
    }

    /// The inode of a value that is one of them.
    pub(crate) fn inode_of(&self, bytes: &[u8]) -> u32 {
        let place = self.list.binary_search_by(|value| value.bytes[..].cmp(bytes)).expect("it was collected");
        NodeId(self.first_node + to_u32(place as u64)).inode()
    }

    /// The value whose inode this node would have.
    pub(crate) fn of_node(&self, node: u32) -> Option<&Value> {
        self.list.get(node.checked_sub(self.first_node)? as usize)
    }

    /// Writes a block that one of them has.
    pub(crate) fn write_block(&self, number: u64, block: &mut Block) {
        let value = &self.list[self.list.partition_point(|value| value.first <= number) - 1];
        let part = &value.bytes[to_usize((number - value.first) * BLOCK_BYTES)..];
        let part = &part[..part.len().min(block.len())];
        block[..part.len()].copy_from_slice(part);
    }
}

/// Blocks that a value takes.
pub(crate) fn blocks_of(value: &[u8]) -> u64 {
    (value.len() as u64).div_ceil(BLOCK_BYTES)
}
