//! Where on a disc a start's files lie: at the outer edge, if the drive reads that faster.

use hs_device::Medium;
use hs_units::ByteRange;
use serde::Serialize;

/// A disc to write the medium to.
#[derive(Clone, Copy, Debug)]
pub struct Disc {
    /// Its bytes.
    pub bytes: u64,
    /// The drive that reads it.
    pub drive: Medium,
}

/// How long the drive takes for what a start reads, by where that lies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiscPlace {
    /// The drive.
    pub drive: String,
    /// At the inner edge.
    pub inner_s: f64,
    /// At the outer edge.
    pub outer_s: f64,
    /// Whether the disc is filled, so that it lies at the outer edge.
    pub is_outer: bool,
}

impl Disc {
    /// Decides by the model of the drive where `read_bytes`, read one after another, lie. A drive without a
    /// model, or with a smaller disc, is taken for one that turns at one speed.
    pub(crate) fn place(&self, read_bytes: u64) -> Option<DiscPlace> {
        let seconds = |offset| {
            let delivery = self.drive.delivery(self.bytes, &[ByteRange::new(offset, read_bytes)]);
            delivery.ok().flatten().map(hs_units::Nanos::as_secs_f64)
        };
        let (inner_s, outer_s) = seconds(0).zip(seconds(self.bytes.saturating_sub(read_bytes)))?;
        Some(DiscPlace { drive: self.drive.to_string(), inner_s, outer_s, is_outer: outer_s < inner_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(drive: &str, bytes: u64) -> Option<DiscPlace> {
        let disc = Disc { bytes, drive: Medium::parse(drive).expect("known") };
        disc.place(50_000_000)
    }

    #[test]
    fn the_rotation_decides() {
        let turning = place("cd-24x-cav", 700_000_000).expect("modelled");
        assert!(turning.is_outer && turning.outer_s < 0.6 * turning.inner_s, "{turning:?}");
        // One rate everywhere: filling the disc would gain nothing.
        let even = place("cd-8x-clv", 700_000_000).expect("modelled");
        assert!(!even.is_outer, "{even:?}");
    }

    #[test]
    fn what_is_not_modelled_is_not_judged() {
        assert_eq!(place("none", 700_000_000), None);
        assert_eq!(place("cd-24x-cav", 4_700_000_000), None, "a DVD");
    }
}
