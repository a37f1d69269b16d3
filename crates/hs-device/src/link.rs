//! A network link: a rate, a round trip, and other users of it.
//!
//! A request for `n` bytes that is made at `t` has its first byte at `max(t + round trip, link free)`, and
//! its last `n / rate` later: round trips of requests in flight overlap, transfers come one after another in
//! the order of the requests. The rate is that of the wire, less what Ethernet, IPv4 and TCP add to a full
//! frame; where others share the link, it is one part of it. Not modelled: loss, slow start, the processors
//! at both ends.

use core::num::{NonZeroU32, NonZeroU64};

use hs_units::Nanos;

use crate::flat::{Flat, FlatSpec};

/// TCP payload of a full frame with time stamps: 1500 − 20 − 20 − 12 bytes.
const PAYLOAD_BYTES: u64 = 1448;
/// What the frame takes of the wire: 1500, header 14, check sum 4, preamble 8, gap 12 bytes (IEEE 802.3).
const FRAME_BYTES: u64 = 1538;

/// The parameters of a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkSpec {
    /// Bits a second on the wire.
    pub bits_per_s: NonZeroU64,
    /// From a request to the first byte of its answer, on an idle link.
    pub round_trip: Nanos,
    /// So many use it all the time, this client being one of them.
    pub shared_by: NonZeroU32,
}

impl LinkSpec {
    /// Bytes a second that a client gets, at least one.
    #[must_use]
    pub fn rate_bytes_per_second(&self) -> NonZeroU64 {
        let wire = u128::from(self.bits_per_s.get()) * u128::from(PAYLOAD_BYTES);
        let parts = u128::from(8 * FRAME_BYTES) * u128::from(self.shared_by.get());
        NonZeroU64::new(u64::try_from(wire / parts).unwrap_or(u64::MAX)).unwrap_or(NonZeroU64::MIN)
    }

    /// An idle link.
    pub(crate) fn device(&self) -> Flat {
        let (latency, rate_bytes_per_second) = (self.round_trip, self.rate_bytes_per_second());
        Flat::new(FlatSpec { latency, rate_bytes_per_second, serial: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use hs_units::ByteRange;

    fn link(bits_per_s: u64, shared_by: u32) -> LinkSpec {
        LinkSpec {
            bits_per_s: NonZeroU64::new(bits_per_s).unwrap(),
            round_trip: Nanos::from_millis(20),
            shared_by: NonZeroU32::new(shared_by).unwrap(),
        }
    }

    #[test]
    fn frames_have_their_price() {
        // What iperf shows on Gigabit Ethernet, about 941 Mbit/s.
        assert_eq!(link(1_000_000_000, 1).rate_bytes_per_second().get(), 117_685_305);
        assert_eq!(link(1_000_000_000, 10).rate_bytes_per_second().get(), 11_768_530);
        assert_eq!(link(1, 1000).rate_bytes_per_second().get(), 1);
    }

    #[test]
    fn round_trips_overlap_and_transfers_do_not() {
        let mut device = link(100_000_000, 1).device();
        let first = device.submit(Nanos::ZERO, ByteRange::new(0, 11_768_530));
        let second = device.submit(Nanos::ZERO, ByteRange::new(1 << 30, 11_768_530));
        assert_eq!(first.first_byte, Nanos::from_millis(20));
        assert_eq!(second.first_byte, first.done);
        assert!((second.done.as_secs_f64() - 2.02).abs() < 1e-6);
    }
}
