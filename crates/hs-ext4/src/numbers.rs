//! Numbers of inodes: in the order of nodes, or those that an earlier file system had.

use std::collections::BTreeMap;
use std::ops::Range;

use hs_units::to_u32;

use crate::plan::NodeId;

/// Numbers that no entry of a tree gets: 1 to this, of which 2 is the root's.
const RESERVED: u32 = 10;

/// The number of each node, and which numbers are used.
#[derive(Debug)]
pub(crate) enum Numbers {
    /// Of so many nodes, which have numbers in their order.
    InOrder(u32),
    /// By node, and the same by number without the root.
    Kept { by_node: Vec<u32>, nodes: Vec<(u32, u32)> },
}

impl Numbers {
    pub(crate) fn in_order(nodes: usize) -> Self {
        Self::InOrder(to_u32(nodes as u64))
    }

    /// The numbers that nodes had, where they had one that is free; other nodes get the lowest ones.
    pub(crate) fn kept(had: impl ExactSizeIterator<Item = Option<u32>>) -> Self {
        let mut taken = BTreeMap::new();
        let mut by_node = vec![0; had.len()];
        by_node[0] = NodeId::ROOT.inode();
        for (node, number) in had.enumerate().skip(1) {
            let Some(number) = number.filter(|number| *number > RESERVED && !taken.contains_key(number))
            else {
                continue;
            };
            taken.insert(number, to_u32(node as u64));
            by_node[node] = number;
        }
        let mut next = RESERVED + 1;
        for (node, number) in by_node.iter_mut().enumerate().filter(|(_, number)| **number == 0) {
            while taken.contains_key(&next) {
                next += 1;
            }
            *number = next;
            taken.insert(next, to_u32(node as u64));
        }
        Self::Kept { by_node, nodes: taken.into_iter().collect() }
    }

    pub(crate) fn of(&self, node: u32) -> u32 {
        match self {
            Self::InOrder(_) => NodeId(node).inode(),
            Self::Kept { by_node, .. } => by_node[node as usize],
        }
    }

    /// The node that has a number.
    pub(crate) fn node(&self, number: u64) -> Option<u32> {
        let number = u32::try_from(number).ok()?;
        match self {
            _ if number == NodeId::ROOT.inode() => Some(0),
            _ if number <= RESERVED => None,
            Self::InOrder(nodes) => Some(number - RESERVED).filter(|node| node < nodes),
            Self::Kept { nodes, .. } => {
                let found = nodes.binary_search_by_key(&number, |(number, _)| *number);
                found.ok().map(|place| nodes[place].1)
            }
        }
    }

    /// The last number that is used.
    pub(crate) fn last(&self) -> u64 {
        self.last_before(u64::MAX)
    }

    /// The last used number that is less than this, or 0.
    fn last_before(&self, end: u64) -> u64 {
        let reserved = u64::from(RESERVED);
        match self {
            _ if end <= reserved + 1 => end.saturating_sub(1),
            Self::InOrder(nodes) => (u64::from(*nodes) + reserved - 1).min(end - 1),
            Self::Kept { nodes, .. } => {
                let after = nodes.partition_point(|(number, _)| u64::from(*number) < end);
                after.checked_sub(1).map_or(reserved, |last| nodes[last].0.into())
            }
        }
    }

    /// How many of these numbers are used.
    pub(crate) fn used_in(&self, numbers: &Range<u64>) -> u64 {
        let before = |end: u64| match self {
            Self::InOrder(_) => self.last_before(end),
            Self::Kept { nodes, .. } => {
                let of_nodes = nodes.partition_point(|(number, _)| u64::from(*number) < end);
                of_nodes as u64 + end.saturating_sub(1).min(RESERVED.into())
            }
        };
        before(numbers.end) - before(numbers.start)
    }

    /// How many of these numbers there are up to the last one that is used.
    pub(crate) fn span_in(&self, numbers: &Range<u64>) -> u64 {
        (self.last_before(numbers.end) + 1).saturating_sub(numbers.start)
    }

    /// Whether a number is used.
    pub(crate) fn is_used(&self, number: u64) -> bool {
        number <= RESERVED.into() || self.node(number).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_keep_their_numbers_and_new_ones_get_the_lowest() {
        let had = [None, Some(14), None, Some(11), Some(3), Some(14), None];
        let numbers = Numbers::kept(had.into_iter());
        let of: Vec<u32> = (0..7).map(|node| numbers.of(node)).collect();
        // Of two nodes with one number the first has it; reserved numbers are given to none.
        assert_eq!(of, [2, 14, 12, 11, 13, 15, 16]);
        (0..7).for_each(|node| assert_eq!(numbers.node(numbers.of(node).into()), Some(node)));
        assert_eq!((numbers.last(), numbers.used_in(&(1..17)), numbers.used_in(&(12..14))), (16, 16, 2));
    }

    #[test]
    fn gaps_are_not_used() {
        let numbers = Numbers::kept([None, Some(40), Some(11)].into_iter());
        assert_eq!((numbers.last(), numbers.used_in(&(1..41))), (40, 12));
        assert_eq!(
            (numbers.used_in(&(12..40)), numbers.span_in(&(17..33)), numbers.span_in(&(33..49))),
            (0, 0, 8)
        );
        assert!(numbers.is_used(40) && numbers.is_used(1) && !numbers.is_used(39) && !numbers.is_used(41));
        let ordered = Numbers::in_order(3);
        assert_eq!((ordered.last(), ordered.used_in(&(1..17)), ordered.span_in(&(1..17))), (12, 12, 12));
        assert_eq!(ordered.span_in(&(17..33)), 0);
    }
}
