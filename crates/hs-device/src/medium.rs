//! What an image lies on, by name.

use core::fmt;
use core::str::FromStr;

use hs_units::Nanos;

use crate::{Device, Flat, FlatSpec};

/// A medium that a user can name: `none` for the real one, whatever it is, or the model of another.
///
/// Its text parses back to the same medium; a name with another unit is printed in the plainest
/// one, so `flat-1000us-25mbs` prints as `flat-1ms-25mbs`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Medium {
    /// The real medium, nothing emulated.
    #[default]
    None,
    /// A latency and a rate, the same everywhere.
    Flat(FlatSpec),
}

/// Why a text names no medium.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediumError {
    /// The name is none of the known ones and has none of their shapes.
    #[error(
        "'{name}' is not a medium: use {}, or describe one as {} \
         (N up to an hour, M from 1 to {} MB/s, a MB being 1000000 bytes)",
        Medium::names().join(", "), Medium::grammar().join(" or "), FlatSpec::MAX_MBS
    )]
    Unknown {
        /// What was written.
        name: String,
    },
}

impl Medium {
    /// The medium called `name`.
    ///
    /// # Errors
    /// [`MediumError::Unknown`], which lists the known names, when there is none.
    pub fn parse(name: &str) -> Result<Self, MediumError> {
        if name == "none" {
            return Ok(Self::None);
        }
        FlatSpec::parse(name).map(Self::Flat).ok_or_else(|| MediumError::Unknown { name: name.to_owned() })
    }

    /// Names that [`parse`](Self::parse) accepts as they stand, for help texts.
    #[must_use]
    pub fn names() -> &'static [&'static str] {
        &["none", "flat-10ms-25mbs", "flat-10ms-25mbs-serial"]
    }

    /// Shapes of further names, for help texts.
    #[must_use]
    pub fn grammar() -> &'static [&'static str] {
        &FlatSpec::GRAMMAR
    }

    /// A fresh, idle device of this medium; nothing when nothing is to be emulated.
    #[must_use]
    pub fn device(&self) -> Option<Box<dyn Device>> {
        match self {
            Self::None => None,
            Self::Flat(spec) => Some(Box::new(Flat::new(*spec))),
        }
    }

    /// Bytes a second of one long sequential read; nothing when the medium is not modelled.
    #[must_use]
    pub fn rate_bytes_per_second(&self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Flat(spec) => Some(spec.rate_bytes_per_second.get()),
        }
    }

    /// Time from the start of a request to its first byte; zero when the medium is not modelled.
    #[must_use]
    pub fn latency(&self) -> Nanos {
        match self {
            Self::None => Nanos::ZERO,
            Self::Flat(spec) => spec.latency,
        }
    }

    /// Whether requests in flight together cost less than one after the other.
    #[must_use]
    pub fn overlaps(&self) -> bool {
        match self {
            Self::None => true,
            Self::Flat(spec) => !spec.serial,
        }
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Flat(spec) => spec.fmt(f),
        }
    }
}

impl FromStr for Medium {
    type Err = MediumError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::parse(name)
    }
}

#[cfg(test)]
mod tests {
    use hs_units::ByteRange;

    use super::*;

    #[test]
    fn known_names_round_trip_and_make_devices() {
        for name in Medium::names() {
            let medium = Medium::parse(name).expect(name);
            assert_eq!(medium.to_string(), *name);
            assert_eq!(medium.device().is_none(), *name == "none");
        }
        let odd = Medium::parse("flat-250us-400mbs-serial").expect("of the grammar");
        assert_eq!(odd.to_string(), "flat-250us-400mbs-serial");
        assert_eq!(Medium::parse("flat-2000us-1mbs").map(|m| m.to_string()), Ok("flat-2ms-1mbs".to_owned()));
    }

    #[test]
    fn a_name_says_what_its_device_does() {
        let medium = Medium::parse("flat-10ms-25mbs").expect("known");
        assert_eq!(medium.rate_bytes_per_second(), Some(25_000_000));
        assert!(medium.overlaps());
        assert!(!Medium::parse("flat-10ms-25mbs-serial").expect("known").overlaps());
        let service = medium.device().expect("modelled").submit(Nanos::ZERO, ByteRange::new(0, 25_000_000));
        assert_eq!(service.first_byte, medium.latency());
        assert_eq!(service.done, Nanos::from_millis(1_010));
    }

    #[test]
    fn nonsense_is_refused_with_the_known_names() {
        for name in [
            "",
            "cd",
            "flat",
            "flat-",
            "flat-10ms",
            "flat-10ms-25",
            "flat-ms-25mbs",
            "flat-10-25mbs",
            "flat-+1ms-25mbs",
            "flat-10ms-0mbs",
            "flat-10ms-25mbs-",
            "flat-10ms-25mbs-serial-serial",
            "flat-3600001ms-25mbs",
            "flat-10ms-1000001mbs",
            "flat-99999999999999999999ms-25mbs",
            "flat-18446744073709551615ms-1mbs",
            "Flat-10ms-25mbs",
            "none ",
        ] {
            let error = Medium::parse(name).expect_err(name);
            assert!(error.to_string().contains("flat-10ms-25mbs-serial"), "{error}");
        }
    }
}
