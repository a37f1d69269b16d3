//! The pieces of a read, one for each chunk that it touches.

use super::Bytes;
use super::memory::Key;

/// A piece of a read: these bytes of this chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) key: Key,
    pub(super) from: u32,
    pub(super) len: u32,
}

/// Where a piece of a read is in memory.
pub(super) struct Found {
    pub(super) bytes: Bytes,
    /// Where in the chunk they begin: only markers do so elsewhere than at its start.
    pub(super) base: u32,
    pub(super) is_marker: bool,
}

impl Found {
    pub(super) const fn whole(bytes: Bytes) -> Self {
        Self { bytes, base: 0, is_marker: false }
    }

    pub(super) fn piece(&self, span: &Span) -> &[u8] {
        let from = span.from - self.base;
        &self.bytes[from as usize..(from + span.len) as usize]
    }
}

/// The windows that a read touches outside the hot region.
pub(super) fn cold_windows(spans: &[Span]) -> impl Iterator<Item = u64> + use<> {
    let cold = |span: &Span| match span.key {
        Key::Cold(window) => Some(window),
        Key::Hot(_) => None,
    };
    let first = spans.iter().find_map(cold);
    let last = spans.iter().rev().find_map(cold);
    first.zip(last).into_iter().flat_map(|(first, last)| first..=last)
}
