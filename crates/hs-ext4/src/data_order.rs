//! The order of data where no profile gives one.

use crate::inode;
use crate::plan::{Node, Plan};

/// Files with data that are not `placed` already: first those of fewer than `large_blocks`, by folder, and in
/// a folder by the end of their names, since equal kinds compress together; then the others by folder.
pub(crate) fn of_rest(plan: &Plan, placed: &[bool], large_blocks: u32) -> Vec<u32> {
    let is_left = |number: usize, node: &Node| node.is(inode::REGULAR) && node.blocks > 0 && !placed[number];
    let left = plan.nodes.iter().enumerate().filter(|&(number, node)| is_left(number, node));
    let mut order: Vec<u32> = left.map(|(number, _)| u32::try_from(number).expect("a node")).collect();
    order.sort_by_cached_key(|&number| {
        let node = &plan.nodes[number as usize];
        let entry = &plan.entries[node.entry as usize];
        let is_large = node.blocks >= large_blocks;
        let kind = if is_large { &[] } else { suffix(plan.name(entry)) };
        (is_large, entry.parent, kind.to_vec(), number)
    });
    order
}

/// What follows the last dot, unless the name begins with that.
fn suffix(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|&byte| byte == b'.') {
        None | Some(0) => &[],
        Some(dot) => &name[dot + 1..],
    }
}
