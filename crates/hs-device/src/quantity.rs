//! Numbers with units, as people write them in model files: `"8.5 ms"`, `"128 KiB"`, `"94 Mbit/s"`.

use core::fmt;

/// What is measured; its value is a whole number of the smallest unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// A span of time, in nanoseconds.
    Time,
    /// A size, in bytes.
    Size,
    /// Bytes a second.
    Rate,
    /// Bits a second.
    BitRate,
}

/// Why a text is not such a quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityFault {
    /// No number stands in front.
    #[error("it does not begin with a number")]
    NoNumber,
    /// The unit is missing, or one of something else.
    #[error("its unit is not one of {}", .0.units())]
    WrongUnit(Quantity),
    /// More than 2⁶³ of the smallest unit.
    #[error("it is too large")]
    TooLarge,
}

const TIMES: &[(&str, u64)] =
    &[("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];
const BIT_RATES: &[(&str, u64)] =
    &[("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)];

impl Quantity {
    fn units(self) -> &'static str {
        match self {
            Self::Time => "ns, us, ms, s",
            Self::Size => "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
            Self::Rate => "B/s, kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s",
            Self::BitRate => "bit/s, kbit/s, Mbit/s, Gbit/s",
        }
    }

    fn scale(self, unit: &str) -> Option<u64> {
        let (units, unit) = match self {
            Self::Time => (TIMES, unit),
            Self::Size => (SIZES, unit),
            Self::Rate => (SIZES, unit.strip_suffix("/s")?),
            Self::BitRate => (BIT_RATES, unit),
        };
        units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale)
    }

    /// The value of `text`, rounded down.
    ///
    /// # Errors
    /// When it is not a number and a unit of this quantity, with or without a space between them.
    pub fn parse(self, text: &str) -> Result<u64, QuantityFault> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = (&text[..end], text[end..].trim_start());
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || part.contains('.') || (number.contains('.') && part.is_empty()) {
            return Err(QuantityFault::NoNumber);
        }
        if whole.len() > 18 || part.len() > 9 {
            return Err(QuantityFault::TooLarge);
        }
        let scale = self.scale(unit).ok_or(QuantityFault::WrongUnit(self))?;
        let digits: u128 = format!("{whole}{part}").parse().map_err(|_| QuantityFault::NoNumber)?;
        let value = digits * u128::from(scale) / 10_u128.pow(part.len() as u32);
        match u64::try_from(value) {
            Ok(value) if value < 1 << 63 => Ok(value),
            _ => Err(QuantityFault::TooLarge),
        }
    }

    /// Writes `value` so that [`parse`](Self::parse) reads the same.
    pub(crate) fn write(self, value: u64) -> String {
        match self {
            Self::Time => format!("{value} ns"),
            Self::Size => format!("{value} B"),
            Self::Rate => format!("{value} B/s"),
            Self::BitRate => format!("{value} bit/s"),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "time",
            Self::Size => "size",
            Self::Rate => "rate",
            Self::BitRate => "rate in bits",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn people_write_them_so() {
        for (quantity, text, value) in [
            (Quantity::Time, "8.5 ms", 8_500_000),
            (Quantity::Time, "80us", 80_000),
            (Quantity::Time, "0 s", 0),
            (Quantity::Size, "128 KiB", 131_072),
            (Quantity::Size, "500 GB", 500_000_000_000),
            (Quantity::Rate, "64.8 MB/s", 64_800_000),
            (Quantity::BitRate, "1 Gbit/s", 1_000_000_000),
        ] {
            assert_eq!(quantity.parse(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn nonsense_is_told_apart() {
        for (quantity, text, fault) in [
            (Quantity::Time, "", QuantityFault::NoNumber),
            (Quantity::Time, "ms", QuantityFault::NoNumber),
            (Quantity::Time, "-1 ms", QuantityFault::NoNumber),
            (Quantity::Time, "1. ms", QuantityFault::NoNumber),
            (Quantity::Time, "1.2.3 ms", QuantityFault::NoNumber),
            (Quantity::Time, "10", QuantityFault::WrongUnit(Quantity::Time)),
            (Quantity::Time, "10 MB/s", QuantityFault::WrongUnit(Quantity::Time)),
            (Quantity::Rate, "10 ms", QuantityFault::WrongUnit(Quantity::Rate)),
            (Quantity::Rate, "10 Mbit/s", QuantityFault::WrongUnit(Quantity::Rate)),
            (Quantity::BitRate, "10 MB/s", QuantityFault::WrongUnit(Quantity::BitRate)),
            (Quantity::Time, "99999999999 s", QuantityFault::TooLarge),
            (Quantity::Time, "1e9 s", QuantityFault::WrongUnit(Quantity::Time)),
        ] {
            assert_eq!(quantity.parse(text), Err(fault), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in 0..1_u64 << 59) {
            for quantity in [Quantity::Time, Quantity::Size, Quantity::Rate, Quantity::BitRate] {
                prop_assert_eq!(quantity.parse(&quantity.write(value)), Ok(value));
            }
        }
    }
}
