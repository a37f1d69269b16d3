//! Values of attributes that have inodes of their own (the feature `ea_inode`): equal ones share one. Fields
//! from the kernel's documentation, "Extended Attributes", and from `fs/ext4/xattr.c`.

use std::collections::BTreeMap;

use hs_units::{BLOCK_BYTES, to_u32, to_usize};

use crate::bytes::Block;
use crate::plan::Plan;

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

    /// Writes one of its blocks, counted from its first.
    pub(crate) fn write_block(&self, within: u64, block: &mut Block) {
        let part = &self.bytes[to_usize(within * BLOCK_BYTES)..];
        let part = &part[..part.len().min(block.len())];
        block[..part.len()].copy_from_slice(part);
    }
}

/// All of them, sorted; they count as nodes behind those of the plan.
#[derive(Debug)]
pub(crate) struct Values {
    pub(crate) list: Vec<Value>,
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

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Blocks of all.
    pub(crate) fn blocks(&self) -> u64 {
        self.list.iter().map(Value::blocks).sum()
    }

    /// The node that a value which is one of them counts as.
    pub(crate) fn node_of(&self, bytes: &[u8]) -> u32 {
        let place = self.list.binary_search_by(|value| value.bytes[..].cmp(bytes)).expect("it was collected");
        self.first_node + to_u32(place as u64)
    }

    /// The value that a node is.
    pub(crate) fn of_node(&self, node: u32) -> Option<&Value> {
        self.list.get(node.checked_sub(self.first_node)? as usize)
    }
}

/// Blocks that a value takes.
pub(crate) fn blocks_of(value: &[u8]) -> u64 {
    (value.len() as u64).div_ceil(BLOCK_BYTES)
}
