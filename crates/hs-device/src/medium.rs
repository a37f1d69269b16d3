//! What an image lies on, by name.

use core::fmt;
use core::str::FromStr;

use hs_units::{ByteRange, Nanos};

use crate::cloud_volume::CloudVolume;
use crate::link::LinkSpec;
use crate::model::{Model, ModelKind};
use crate::presets::{PRESETS, preset};
use crate::{Device, Flat, FlatSpec, OpticalDrive, WritableDevice, cd, cloud_volume, hdd};

/// A medium that a user can name: `none` for the real one, whatever it is, or the model of another.
///
/// Its text parses back to the same medium, but for a model of a person's own, which has only its name; a
/// name with another unit is printed in the plainest one, so `flat-1000us-25mbs` prints as `flat-1ms-25mbs`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Medium {
    /// The real medium, nothing emulated.
    #[default]
    None,
    /// A latency and a rate, the same everywhere.
    Flat(FlatSpec),
    /// A filled disc of 700 MB in a drive of 24× at the outer edge, at a constant angular velocity.
    Cd24xCav,
    /// The same disc in another drive.
    Optical(OpticalDrive),
    /// A hard disk of 7200 turns a minute.
    Hdd7200,
    /// A disk in a cloud that was made from a snapshot.
    CloudVolume,
    /// One of [`PRESETS`], or a model from a file.
    Model(Model),
}

/// Why a text names no medium, or a file does not fit on one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediumError {
    /// The name is none of the known ones and has none of their shapes.
    #[error(
        "'{name}' is not a medium: use {}, a model of your own as FILE.toml, or describe one as {} \
         (N up to an hour, or {} times 150 KiB/s; M from 1 to {} MB/s, each 1000000 bytes a second)",
        Medium::names().collect::<Vec<_>>().join(", "), Medium::grammar().join(" or "), OpticalDrive::FASTEST, FlatSpec::MAX_MBS
    )]
    Unknown {
        /// What was written.
        name: String,
    },
    /// The medium is smaller than the file.
    #[error(
        "{file_bytes} bytes do not fit on {medium}, which holds {capacity_bytes}: choose another medium, or make \
         the file smaller"
    )]
    TooLarge {
        /// The medium.
        medium: Box<Medium>,
        /// Size of the file.
        file_bytes: u64,
        /// Most bytes that a file on the medium can have.
        capacity_bytes: u64,
    },
}

/// Name of [`Medium::Cd24xCav`].
const CD: &str = "cd-24x-cav";
/// Name of [`Medium::Hdd7200`].
const HDD: &str = "hdd-7200";
/// Name of [`Medium::CloudVolume`].
const CLOUD_VOLUME: &str = "cloud-volume";

impl Medium {
    /// The medium called `name`.
    ///
    /// # Errors
    /// [`MediumError::Unknown`], which lists the known names, when there is none.
    pub fn parse(name: &str) -> Result<Self, MediumError> {
        match name {
            "none" => Ok(Self::None),
            CD => Ok(Self::Cd24xCav),
            HDD => Ok(Self::Hdd7200),
            CLOUD_VOLUME => Ok(Self::CloudVolume),
            _ => preset(name)
                .map(Self::Model)
                .or_else(|| FlatSpec::parse(name).map(Self::Flat))
                .or_else(|| OpticalDrive::parse(name).map(Self::Optical))
                .ok_or_else(|| MediumError::Unknown { name: name.to_owned() }),
        }
    }

    /// Names that [`parse`](Self::parse) accepts as they stand, for help texts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::described().map(|(name, _)| name)
    }

    /// The same with what each is, in a line.
    pub fn described() -> impl Iterator<Item = (&'static str, &'static str)> {
        let built_in = [
            ("none", "the real medium, whatever it is"),
            (CD, "CD-ROM drive, 24× at the rim, constant angular velocity; the disc is full"),
            (HDD, "hard disk of 2005, 7200 turns a minute"),
            (
                CLOUD_VOLUME,
                "cloud disk made from a snapshot: first touch of 512 KiB 20 ms, 300 of them a second",
            ),
            ("flat-10ms-25mbs", "a latency and a rate; latencies overlap"),
            ("flat-10ms-25mbs-serial", "the same, one request at a time"),
        ];
        built_in.into_iter().chain(PRESETS.iter().map(|preset| (preset.name, preset.about)))
    }

    /// Shapes of further names, for help texts.
    #[must_use]
    pub fn grammar() -> &'static [&'static str] {
        const { &[FlatSpec::GRAMMAR[0], FlatSpec::GRAMMAR[1], OpticalDrive::GRAMMAR] }
    }

    /// Most bytes that a file on this medium can have; nothing where there is no limit.
    #[must_use]
    pub fn capacity_bytes(&self) -> Option<u64> {
        match self {
            Self::None | Self::Flat(_) | Self::CloudVolume => None,
            Self::Cd24xCav | Self::Optical(_) => Some(cd::CAPACITY),
            Self::Hdd7200 => Some(hdd::CAPACITY),
            Self::Model(model) => model.capacity_bytes,
        }
    }

    /// A fresh, idle device of this medium that holds a file of `file_bytes`; nothing when nothing is to be
    /// emulated. Requests are ranges of the file, wherever it lies: on a CD it ends at the outer edge, on a
    /// hard disk it begins there.
    ///
    /// # Errors
    /// [`MediumError::TooLarge`] when the file does not fit.
    pub fn device(&self, file_bytes: u64) -> Result<Option<Box<dyn Device>>, MediumError> {
        self.check_fits(file_bytes)?;
        Ok(match self {
            Self::None => None,
            Self::Flat(spec) => Some(Box::new(Flat::new(*spec))),
            Self::Cd24xCav => Some(cd::device(file_bytes)),
            Self::Optical(drive) => Some(drive.device(file_bytes)),
            Self::Hdd7200 => Some(hdd::device()),
            Self::CloudVolume => Some(Box::new(CloudVolume::default())),
            Self::Model(model) => Some(model.device()),
        })
    }

    /// As [`device`](Self::device), where it can be written to; nothing where it cannot, or nothing is to be
    /// emulated.
    ///
    /// # Errors
    /// [`MediumError::TooLarge`] when the file does not fit.
    pub fn writable_device(&self, file_bytes: u64) -> Result<Option<Box<dyn WritableDevice>>, MediumError> {
        self.check_fits(file_bytes)?;
        Ok(match self {
            Self::None | Self::Cd24xCav | Self::Optical(_) => None,
            Self::Flat(spec) => Some(Box::new(Flat::new(*spec))),
            Self::Hdd7200 => Some(hdd::writable_device()),
            Self::CloudVolume => Some(Box::new(CloudVolume::default())),
            Self::Model(model) => Some(model.device()),
        })
    }

    /// The link, where the medium is one: a caller that can report its bytes' times late may let requests
    /// share it ([`SharedLink`](crate::SharedLink)).
    #[must_use]
    pub const fn link(&self) -> Option<LinkSpec> {
        match self {
            Self::Model(Model { kind: ModelKind::Link(spec), .. }) => Some(*spec),
            _ => None,
        }
    }

    fn check_fits(&self, file_bytes: u64) -> Result<(), MediumError> {
        match self.capacity_bytes().filter(|capacity| *capacity < file_bytes) {
            Some(capacity_bytes) => {
                Err(MediumError::TooLarge { medium: Box::new(*self), file_bytes, capacity_bytes })
            }
            None => Ok(()),
        }
    }

    /// Bytes a second of a long sequential read when it comes to byte `offset` of a file of `file_bytes`,
    /// nothing when the medium is not modelled.
    #[must_use]
    pub fn rate_bytes_per_second(&self, file_bytes: u64, offset: u64) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Flat(spec) => Some(spec.rate_bytes_per_second.get()),
            Self::Cd24xCav => Some(cd::rate(file_bytes, offset) as u64),
            Self::Optical(drive) => Some(drive.rate(cd::base(file_bytes).saturating_add(offset)) as u64),
            Self::Hdd7200 => Some(hdd::rate(offset) as u64),
            Self::CloudVolume => Some(cloud_volume::RATE),
            Self::Model(model) => Some(model.rate(offset)),
        }
    }

    /// How long a fresh device takes to deliver `ranges` of a file of `file_bytes`, one after the other;
    /// nothing when nothing is to be emulated.
    ///
    /// # Errors
    /// [`MediumError::TooLarge`] when the file does not fit.
    pub fn delivery(&self, file_bytes: u64, ranges: &[ByteRange]) -> Result<Option<Nanos>, MediumError> {
        let Some(mut device) = self.device(file_bytes)? else { return Ok(None) };
        let one_more = |now, range: &ByteRange| device.submit(now, *range).done;
        Ok(Some(ranges.iter().fold(Nanos::ZERO, one_more)))
    }

    /// Time from the start of a request to its first byte, a typical one where it depends on the place;
    /// zero when the medium is not modelled.
    #[must_use]
    pub fn latency(&self) -> Nanos {
        match self {
            Self::None => Nanos::ZERO,
            Self::Flat(spec) => spec.latency,
            Self::Cd24xCav => cd::latency(),
            Self::Optical(drive) => drive.latency(),
            Self::Hdd7200 => hdd::latency(),
            Self::CloudVolume => cloud_volume::latency(),
            Self::Model(model) => model.latency(),
        }
    }

    /// Whether requests in flight together cost less than one after the other.
    #[must_use]
    pub fn overlaps(&self) -> bool {
        match self {
            Self::None | Self::CloudVolume => true,
            Self::Flat(spec) => !spec.serial,
            Self::Cd24xCav | Self::Optical(_) | Self::Hdd7200 => false,
            Self::Model(model) => model.overlaps(),
        }
    }

    /// Whether something turns in it, so that it matters where the bytes lie.
    #[must_use]
    pub const fn turns(&self) -> bool {
        match self {
            Self::None | Self::Flat(_) | Self::CloudVolume => false,
            Self::Cd24xCav | Self::Optical(_) | Self::Hdd7200 => true,
            Self::Model(model) => matches!(model.kind, ModelKind::Disk(_)),
        }
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Flat(spec) => spec.fmt(f),
            Self::Cd24xCav => f.write_str(CD),
            Self::Optical(drive) => drive.fmt(f),
            Self::Hdd7200 => f.write_str(HDD),
            Self::CloudVolume => f.write_str(CLOUD_VOLUME),
            Self::Model(model) => model.name.fmt(f),
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
    use super::*;

    #[test]
    fn known_names_round_trip_and_make_devices() {
        for name in Medium::names() {
            let medium = Medium::parse(name).expect(name);
            assert_eq!(medium.to_string(), name);
            assert_eq!(medium.device(1 << 20).expect("fits").is_none(), name == "none");
            let writable = medium.writable_device(1 << 20).expect("fits").is_some();
            assert_eq!(writable, ![CD, "none"].contains(&name));
        }
        let drive = Medium::parse("cd-40x-zclv").expect("of the grammar");
        assert_eq!(drive.to_string(), "cd-40x-zclv");
        assert!(drive.turns() && drive.device(1 << 20).expect("fits").is_some());
        let odd = Medium::parse("flat-250us-400mbs-serial").expect("of the grammar");
        assert_eq!(odd.to_string(), "flat-250us-400mbs-serial");
        assert_eq!(Medium::parse("flat-2000us-1mbs").map(|m| m.to_string()), Ok("flat-2ms-1mbs".to_owned()));
    }

    #[test]
    fn a_name_says_what_its_device_does() {
        let medium = Medium::parse("flat-10ms-25mbs").expect("known");
        assert_eq!(medium.rate_bytes_per_second(1 << 30, 7), Some(25_000_000));
        assert!(medium.overlaps());
        assert!(!Medium::parse("flat-10ms-25mbs-serial").expect("known").overlaps());
        let mut device = medium.device(1 << 30).expect("fits").expect("modelled");
        let service = device.submit(Nanos::ZERO, ByteRange::new(0, 25_000_000));
        assert_eq!(service.first_byte, medium.latency());
        assert_eq!(service.done, Nanos::from_millis(1_010));
    }

    #[test]
    fn delivery_is_one_request_after_the_other() {
        let medium = Medium::parse("flat-10ms-25mbs").expect("known");
        let range = ByteRange::new(0, 25_000_000);
        assert_eq!(medium.delivery(1 << 30, &[range, range]), Ok(Some(Nanos::from_millis(2_020))));
        assert_eq!(medium.delivery(1 << 30, &[]), Ok(Some(Nanos::ZERO)));
        assert_eq!(Medium::None.delivery(1 << 30, &[range]), Ok(None));
    }

    #[test]
    fn nonsense_is_refused_with_the_known_names() {
        for name in [
            "",
            "cd",
            "cd-24x",
            "cd-0x-cav",
            "cd-73x-cav",
            "cd-+8x-cav",
            "cd-24x-cam",
            "hdd",
            "hdd-7200-",
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

    #[test]
    fn a_file_larger_than_the_medium_is_refused() {
        for (name, capacity) in [(CD, 737_280_000), (HDD, 20_000_000_000)] {
            let medium = Medium::parse(name).expect("known");
            assert_eq!(medium.capacity_bytes(), Some(capacity));
            assert!(medium.device(0).expect("fits").is_some());
            assert!(medium.device(capacity).expect("fits").is_some());
            for file_bytes in [capacity + 1, u64::MAX] {
                let error = medium.device(file_bytes).map(|_| ()).expect_err("too large");
                let text = error.to_string();
                assert!(text.starts_with(&format!("{file_bytes} bytes do not fit on {name}")), "{text}");
            }
        }
        assert!(Medium::parse("flat-10ms-25mbs").expect("known").device(u64::MAX).is_ok());
    }

    #[test]
    fn the_rate_is_that_of_the_place() {
        let rate = |name, file_bytes, offset| {
            Medium::parse(name).expect("known").rate_bytes_per_second(file_bytes, offset).expect("modelled")
                as f64
        };
        let disc = 737_280_000;
        // 24 and 24 · 25 / 58 times 150 KiB/s.
        assert!((rate(CD, disc, disc) / 3_686_400.0 - 1.0).abs() < 1e-3);
        assert!((rate(CD, disc, 0) / 1_588_966.0 - 1.0).abs() < 1e-3);
        // A file of half the length begins half as far from the edge, which both share.
        assert_eq!(rate(CD, disc / 2, 0), rate(CD, disc, disc / 2));
        assert!((rate(HDD, disc, 0) / 64_800_000.0 - 1.0).abs() < 1e-3);
    }
}
