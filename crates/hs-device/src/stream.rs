//! What a medium brings at best.

use hs_units::{ByteRange, Nanos};

use crate::{Device, Medium, MediumError, Service};

/// Requests of a stream that are in flight at once, where that is quicker than one request for all.
const PIECE_BYTES: u64 = 1 << 20;

/// One stream of bytes that has the medium for itself, where the medium is quickest.
#[derive(Clone, Debug)]
pub struct Stream {
    bytes: u64,
    /// The ways to ask for it, each as requests that are made at once, in order.
    ways: Vec<Vec<(u64, Service)>>,
}

impl Stream {
    /// A stream of so many `bytes`, from a file of `file_bytes` on `medium`; nothing where the medium is the
    /// real one.
    ///
    /// # Errors
    /// [`MediumError::TooLarge`] when the file does not fit on the medium.
    pub fn new(medium: Medium, file_bytes: u64, bytes: u64) -> Result<Option<Self>, MediumError> {
        let mut ways = Vec::new();
        // A CD is quickest at the end of a file, a hard disk at its beginning.
        for offset in [0, file_bytes.saturating_sub(bytes)] {
            for piece_bytes in [bytes.max(1), PIECE_BYTES] {
                let Some(mut device) = medium.device(file_bytes)? else { return Ok(None) };
                ways.push(submit(&mut *device, ByteRange::new(offset, bytes), piece_bytes));
            }
        }
        Ok(Some(Self { bytes, ways }))
    }

    /// When so many bytes have come at the earliest.
    #[must_use]
    pub fn arrival(&self, bytes: u64) -> Nanos {
        let of_way = |requests: &Vec<(u64, Service)>| {
            let at = requests.partition_point(|(begins, _)| *begins < bytes).saturating_sub(1);
            let (begins, service) = requests[at];
            let ends = requests.get(at + 1).map_or(self.bytes, |(begins, _)| *begins);
            service.arrival(bytes - begins, ends - begins)
        };
        self.ways.iter().map(of_way).min().unwrap_or_default()
    }
}

/// Asks for a range in pieces at the beginning of time: where in the range each begins, and its service.
fn submit(device: &mut dyn Device, range: ByteRange, piece_bytes: u64) -> Vec<(u64, Service)> {
    let begins = (0..range.len.div_ceil(piece_bytes).max(1)).map(|piece| piece * piece_bytes);
    begins
        .map(|begins| {
            let piece = ByteRange::new(range.offset + begins, piece_bytes.min(range.len - begins));
            (begins, device.submit(Nanos::ZERO, piece))
        })
        .collect()
}
