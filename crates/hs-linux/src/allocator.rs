//! How this process allocates.

/// Processors that share a heap. Decompressing a chunk takes a hundred times as long as finding a place for
/// it.
const CORES_OF_A_HEAP: usize = 4;

/// Gives free memory back to the system. It looks at all of the heap, so this is for after rare events
/// that needed much.
pub fn give_back() {
    // SAFETY: malloc_trim changes nothing that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// For the start of a program that has little memory and serves images: neither it nor the programs that it
/// starts get huge pages. Of those a heap of chunks uses parts only, and 2 MiB stay for each.
pub fn use_small_pages() {
    const ON: libc::c_ulong = 1;
    const NONE: libc::c_ulong = 0;
    // SAFETY: this only sets a flag of this process, and takes no pointers.
    if unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, ON, NONE, NONE, NONE) } != 0 {
        log::debug!("huge pages as the system has them: {}", std::io::Error::last_os_error());
    }
}

/// For the start of a program that serves images: chunks are allocated and freed all the time. By default
/// each would be mapped and unmapped, which costs a page fault for every 4 KiB; and each thread would keep a
/// heap of its own, of which none can use what another has free: so there are few, and more only where so
/// many processors allocate at once that they would wait for each other.
pub fn allocate_kindly() {
    let heaps = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(CORES_OF_A_HEAP);
    // SAFETY: mallopt only sets parameters of the allocator; they hold for what is allocated afterwards.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_ARENA_MAX, heaps as libc::c_int);
    }
}
