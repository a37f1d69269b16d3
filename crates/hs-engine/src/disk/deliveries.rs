//! Hot chunks on their way into the kernel's page cache.
//!
//! A delivery may have to wait for a page that a reader holds, and that read may wait for a chunk that has to
//! be decompressed first. So one decoder at most delivers, only while another goes on whatever readers do,
//! and what the others decompress meanwhile waits for the delivery thread, which does nothing else. While
//! much waits for it no chunk of the stream is decompressed that no read waits for: those wait compressed.

use std::collections::VecDeque;

use super::action::{DecoderId, ReadId};

/// Chunks that wait for the delivery thread beyond which the stream's wait to be decompressed, so that a
/// chunk is delivered while it lies in the processor's cache.
const ENOUGH: usize = 4;

/// Deliveries that wait and that are under way.
#[derive(Debug)]
pub(super) struct Deliveries {
    pub waiting: VecDeque<u32>,
    /// What the delivery thread is at.
    pub by_thread: Option<u32>,
    pub thread_lost: bool,
    /// What a decoder delivers, and which.
    pub by_decoder: Option<(u32, DecoderId)>,
    /// Whether the shell has been told of that, and which block is held back.
    pub untold: bool,
    pub tripwire: Option<u32>,
    /// Reads that are answered after what the decoder delivers.
    pub held_reads: Vec<ReadId>,
}

impl Deliveries {
    pub(super) const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            by_thread: None,
            thread_lost: false,
            by_decoder: None,
            untold: false,
            tripwire: None,
            held_reads: Vec::new(),
        }
    }

    /// Whether so much waits that the stream should.
    pub(super) fn are_behind(&self) -> bool {
        self.waiting.len() >= ENOUGH
    }

    /// Whether one is under way.
    pub(super) const fn are_under_way(&self) -> bool {
        self.by_thread.is_some() || self.by_decoder.is_some()
    }
}
