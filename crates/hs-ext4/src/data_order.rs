//! The order of data where no profile gives one.

use hs_units::to_u32;

use crate::inode;
use crate::plan::Plan;

/// Files with data that are not `placed` already: first those of fewer than `large_blocks`, by folder, and in
/// a folder by the end of their names, since equal kinds compress together; then the others by folder.
pub(crate) fn of_rest(plan: &Plan, placed: &[bool], large_blocks: u32) -> Vec<u32> {
    let mut keyed: Vec<(bool, u32, &[u8], u32)> = Vec::new();
    // Entries of a folder were added together, and folders in the order of their paths.
    let (mut folder, mut parent) = (0, None);
    for (number, node) in plan.nodes.iter().enumerate() {
        if !node.is(inode::REGULAR) || node.blocks == 0 || placed[number] {
            continue;
        }
        let entry = &plan.entries[node.entry as usize];
        if parent.replace(entry.parent) != Some(entry.parent) {
            folder += 1;
        }
        let is_large = node.blocks >= large_blocks;
        let kind = if is_large { &[] } else { suffix(plan.name(entry)) };
        keyed.push((is_large, folder, kind, to_u32(number as u64)));
    }
    keyed.sort_unstable();
    keyed.into_iter().map(|(.., number)| number).collect()
}

/// What follows the last dot, unless the name begins with that.
fn suffix(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|&byte| byte == b'.') {
        None | Some(0) => &[],
        Some(dot) => &name[dot + 1..],
    }
}
