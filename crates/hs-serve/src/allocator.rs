//! How this process allocates.

/// Gives free memory back to the system. It looks at all of the heap, so this is for after rare events
/// that needed much.
pub(crate) fn give_back() {
    // SAFETY: malloc_trim changes nothing that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// For the start of a program that serves images: chunks are allocated and freed all the time. By default
/// each would be mapped and unmapped, which costs a page fault for every 4 KiB; and each thread would
/// keep a heap of its own.
pub fn allocate_kindly() {
    // SAFETY: mallopt only sets parameters of the allocator; they hold for what is allocated afterwards.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}
