//! The time that an idle medium needs for a hot region.

use hs_device::{Medium, MediumError};
use hs_units::{ByteRange, Nanos};
use serde::Serialize;

/// A hot region, brought from where it lies by the model of a fresh drive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Delivery {
    /// Where it begins in the image.
    pub(super) offset: u64,
    /// Its size, indexes included.
    pub(super) bytes: u64,
    /// From the first request to the last byte, the way of the head included.
    pub(super) delivery_s: f64,
    /// Its rate from the first byte on: the drive's at that place.
    pub(super) bytes_per_second: f64,
}

impl Delivery {
    /// For the `segments` of a hot region in an image on `medium`, one after the other; `None` when the
    /// medium is not modelled, or there is no hot region.
    pub(super) fn new(
        medium: Medium,
        image_bytes: u64,
        segments: impl Iterator<Item = ByteRange>,
    ) -> Result<Option<Self>, MediumError> {
        let Some(mut device) = medium.device(image_bytes)? else { return Ok(None) };
        let (mut now, mut reading, mut bytes, mut offset) = (Nanos::ZERO, Nanos::ZERO, 0, None);
        for segment in segments {
            let service = device.submit(now, segment);
            now = service.done;
            reading += service.done.saturating_sub(service.first_byte);
            bytes += segment.len;
            offset.get_or_insert(segment.offset);
        }
        Ok(offset.filter(|_| reading > Nanos::ZERO).map(|offset| Self {
            offset,
            bytes,
            delivery_s: now.as_secs_f64(),
            bytes_per_second: bytes as f64 / reading.as_secs_f64(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(medium: &str, segments: &[ByteRange]) -> Option<Delivery> {
        let medium = Medium::parse(medium).unwrap();
        Delivery::new(medium, 100_000_000, segments.iter().copied()).unwrap()
    }

    #[test]
    fn it_is_the_rate_of_the_place_and_the_way_there() {
        let found = of("flat-10ms-25mbs-serial", &[ByteRange::new(8192, 25_000_000)]).unwrap();
        assert_eq!((found.offset, found.bytes), (8192, 25_000_000));
        assert!((found.delivery_s - 1.01).abs() < 1e-6 && (found.bytes_per_second - 25e6).abs() < 1.0);
        let two = [ByteRange::new(8192, 12_500_000), ByteRange::new(50_000_000, 12_500_000)];
        let found = of("flat-10ms-25mbs-serial", &two).unwrap();
        assert!((found.delivery_s - 1.02).abs() < 1e-6, "{found:?}");

        let front = of("cd-24x-cav", &[ByteRange::new(8192, 9_000_000)]).unwrap();
        let rim = of("cd-24x-cav", &[ByteRange::new(91_000_000, 9_000_000)]).unwrap();
        assert!(rim.bytes_per_second > 1.04 * front.bytes_per_second);
        // It lies further away than the front, where the head is at first.
        assert!(rim.delivery_s - 9e6 / rim.bytes_per_second > 0.01);
        let rate = Medium::Cd24xCav.rate_bytes_per_second(100_000_000, 95_500_000).unwrap() as f64;
        assert!((rim.bytes_per_second / rate - 1.0).abs() < 0.005, "{rim:?}");
    }

    #[test]
    fn without_a_model_or_a_hot_region_there_is_none() {
        assert_eq!(of("none", &[ByteRange::new(0, 10)]), None);
        assert_eq!(of("cd-24x-cav", &[]), None);
        let none = std::iter::empty();
        assert!(Delivery::new(Medium::Cd24xCav, u64::MAX, none).is_err());
    }
}
