//! Where in the file the hot region lies: where the medium delivers it sooner
//! (docs/decisions/003-placement.md).

use hs_device::{Medium, MediumError};
use hs_units::{ByteRange, Nanos};

/// Where in the file the hot region lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Right behind the superblock: one request brings both.
    #[default]
    Front,
    /// Behind the cold region, which costs a second request, and a seek where the medium seeks.
    End,
}

/// How long a medium takes to open an image and to deliver its hot region, by where that lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementCosts {
    /// In front.
    pub front: Nanos,
    /// At the end.
    pub end: Nanos,
}

impl PlacementCosts {
    /// Costs on `medium` of an image whose superblock has `superblock_bytes`, with its copy at the end;
    /// `None` for a medium that is not modelled.
    ///
    /// # Errors
    /// When the image does not fit on the medium.
    pub fn new(
        medium: Medium,
        superblock_bytes: u64,
        hot_bytes: u64,
        cold_bytes: u64,
    ) -> Result<Option<Self>, MediumError> {
        let file_bytes = 2 * superblock_bytes + hot_bytes + cold_bytes;
        let together = ByteRange::new(0, superblock_bytes + hot_bytes);
        let superblock = ByteRange::new(0, superblock_bytes);
        let behind = ByteRange::new(superblock_bytes + cold_bytes, hot_bytes);
        let front = medium.delivery(file_bytes, &[together])?;
        let end = medium.delivery(file_bytes, &[superblock, behind])?;
        Ok(front.zip(end).map(|(front, end)| Self { front, end }))
    }

    /// The cheaper place.
    #[must_use]
    pub fn best(&self) -> Placement {
        if self.end < self.front { Placement::End } else { Placement::Front }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(medium: &str, hot_bytes: u64, cold_bytes: u64) -> PlacementCosts {
        let medium = Medium::parse(medium).unwrap();
        PlacementCosts::new(medium, 4096, hot_bytes, cold_bytes).unwrap().unwrap()
    }

    #[test]
    fn the_rim_of_a_full_disc_is_worth_a_seek() {
        let costs = costs("cd-24x-cav", 30_000_000, 690_000_000);
        assert_eq!(costs.best(), Placement::End);
        // 24× at the rim, 10.3× inside.
        let ratio = costs.front.as_secs_f64() / costs.end.as_secs_f64();
        assert!((2.0..2.33).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_small_hot_region_is_not() {
        assert_eq!(costs("cd-24x-cav", 100_000, 690_000_000).best(), Placement::Front);
        assert_eq!(costs("cd-24x-cav", 7_000_000, 20_000_000).best(), Placement::Front);
    }

    #[test]
    fn elsewhere_the_front_is_the_place() {
        for medium in ["hdd-7200", "flat-10ms-25mbs", "flat-10ms-25mbs-serial"] {
            assert_eq!(costs(medium, 30_000_000, 690_000_000).best(), Placement::Front, "{medium}");
        }
        assert_eq!(PlacementCosts::new(Medium::None, 4096, 1, 1), Ok(None));
    }

    #[test]
    fn an_image_that_does_not_fit_is_refused() {
        let full = PlacementCosts::new(Medium::Cd24xCav, 4096, 30_000_000, 720_000_000);
        assert!(matches!(full, Err(MediumError::TooLarge { .. })));
    }
}
