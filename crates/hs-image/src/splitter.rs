//! From pieces of any size to chunks.

use std::borrow::Cow;
use std::ops::ControlFlow;

use hs_format::Unverified;

/// Takes chunks as they are stored, by their numbers; `Break` asks for no more.
pub(crate) type ChunkSink<'a> = dyn FnMut(u32, Unverified<Cow<'_, [u8]>>) -> ControlFlow<()> + 'a;

/// Cuts a stream of bytes into the chunks that it holds.
pub(crate) struct ChunkSplitter {
    next: u32,
    partial: Vec<u8>,
}

impl ChunkSplitter {
    pub(crate) const fn new(first: u32) -> Self {
        Self { next: first, partial: Vec::new() }
    }

    /// Takes the next bytes; hands each whole chunk to `sink`, which may keep it: one that comes in several
    /// pieces is put together once.
    pub(crate) fn push(
        &mut self,
        mut piece: &[u8],
        stored_bytes: impl Fn(u32) -> usize,
        sink: &mut ChunkSink<'_>,
    ) -> ControlFlow<()> {
        while !piece.is_empty() {
            let want = stored_bytes(self.next);
            let take = (want - self.partial.len()).min(piece.len());
            let (head, rest) = piece.split_at(take);
            piece = rest;
            if self.partial.is_empty() && take == want {
                sink(self.next, Unverified::new(Cow::Borrowed(head)))?;
            } else {
                self.partial.reserve_exact(want - self.partial.len());
                self.partial.extend_from_slice(head);
                if self.partial.len() < want {
                    break;
                }
                sink(self.next, Unverified::new(Cow::Owned(std::mem::take(&mut self.partial))))?;
            }
            self.next += 1;
        }
        ControlFlow::Continue(())
    }
}
