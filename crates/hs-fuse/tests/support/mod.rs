//! A disk to show.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hs_fuse::{Disk, Reply};

/// A disk in memory that counts what it is asked.
pub(crate) struct MemoryDisk {
    pub(crate) content: Vec<u8>,
    pub(crate) reads: AtomicUsize,
}

impl MemoryDisk {
    pub(crate) fn new(content: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { content, reads: AtomicUsize::new(0) })
    }
}

impl Disk for MemoryDisk {
    fn bytes(&self) -> u64 {
        self.content.len() as u64
    }

    fn read(&self, offset: u64, len: u32, reply: Reply) {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let start = offset as usize;
        reply.data(&[&self.content[start..start + len as usize]]);
    }
}
