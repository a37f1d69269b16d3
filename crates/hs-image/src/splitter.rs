//! From pieces of any size to chunks.

use std::ops::ControlFlow;

/// Cuts a stream of bytes into the chunks that it holds.
pub(crate) struct ChunkSplitter {
    next: u32,
    partial: Vec<u8>,
}

impl ChunkSplitter {
    pub(crate) const fn new(first: u32) -> Self {
        Self { next: first, partial: Vec::new() }
    }

    /// Takes the next bytes; hands each whole chunk to `sink`, without a copy when the piece holds it.
    pub(crate) fn push(
        &mut self,
        mut piece: &[u8],
        stored_bytes: impl Fn(u32) -> usize,
        sink: &mut dyn FnMut(u32, &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        while !piece.is_empty() {
            let want = stored_bytes(self.next);
            let take = (want - self.partial.len()).min(piece.len());
            let (head, rest) = piece.split_at(take);
            piece = rest;
            if self.partial.is_empty() && take == want {
                sink(self.next, head)?;
            } else {
                self.partial.extend_from_slice(head);
                if self.partial.len() < want {
                    break;
                }
                sink(self.next, &self.partial)?;
                self.partial.clear();
            }
            self.next += 1;
        }
        ControlFlow::Continue(())
    }
}
