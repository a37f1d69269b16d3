//! A request of the stream that is under way.

use std::ops::Range;

use hs_units::Nanos;

use super::RequestId;
use crate::MediumEstimate;

/// A request that has been made and has not ended.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) id: RequestId,
    pub(super) chunks: Range<u32>,
    /// Bytes that it brings before those of the chunks.
    pub(super) bytes_before: u64,
    pub(super) asked: Nanos,
    /// Requested while another was under way: its first byte says nothing about the medium's latency.
    pub(super) queued: bool,
    pub(super) first_byte: Option<Nanos>,
    /// What had come by then.
    pub(super) first_bytes: u64,
    /// When this many stored bytes of it had come.
    pub(super) seen: Option<(Nanos, u64)>,
}

impl InFlight {
    /// When the last of `chunk_bytes` will come: by its own rate so far, or else by that of the requests
    /// before it. `expected` is when its first byte should come, if that is known.
    pub(super) fn done(
        &self,
        expected: Option<Nanos>,
        chunk_bytes: u64,
        estimate: &MediumEstimate,
    ) -> Option<Nanos> {
        let first_byte = self.first_byte.or(expected)?;
        let bytes = (self.bytes_before + chunk_bytes).saturating_sub(self.first_bytes);
        let transfer = match self.seen.map(|(at, seen)| (at, seen.saturating_sub(self.first_bytes))) {
            Some((at, seen)) if seen > 0 => {
                Nanos((at.saturating_sub(first_byte).0 as f64 / seen as f64 * bytes as f64) as u64)
            }
            _ => estimate.transfer(bytes)?,
        };
        Some(first_byte + transfer)
    }
}
