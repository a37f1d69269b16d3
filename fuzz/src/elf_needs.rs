//! Bytes as a program or library in a tree: its interpreter and the libraries that it needs.

use hs_build::source::libraries::needs_in_memory;

/// Whether it was one; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Some(names) = needs_in_memory(data) else { return false };
    assert!(names.iter().all(|name| !name.is_empty() && !name.contains(&b'/') && !name.contains(&0)));
    true
}
