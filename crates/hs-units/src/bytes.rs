//! Sizes and ranges in bytes.

use core::fmt;
use core::str::FromStr;

/// A run of bytes of a file: `offset` included, `offset + len` excluded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl ByteRange {
    /// The run of `len` bytes from `offset`.
    #[must_use]
    pub const fn new(offset: u64, len: u64) -> Self {
        Self { offset, len }
    }

    /// The first byte after the run.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Whether the run lies wholly in a file of `file_bytes`; false too when its end overflows.
    #[must_use]
    pub const fn fits_in(&self, file_bytes: u64) -> bool {
        match self.offset.checked_add(self.len) {
            Some(end) => end <= file_bytes,
            None => false,
        }
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.offset, self.len)
    }
}

/// A size in bytes that people write and read: `4096`, `128K`, `64MiB`, `1.5 GiB`. Suffixes are
/// powers of 1024.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByteSize(pub u64);

/// Why a text is not a [`ByteSize`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseByteSizeError(String);

impl fmt::Display for ParseByteSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a size: write a number and K, M, G or T, such as 128K or 64MiB", self.0)
    }
}

impl std::error::Error for ParseByteSizeError {}

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseByteSizeError(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, suffix) = trimmed.split_at(digits);
        let shift = match suffix.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(error()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(1 << shift).map(Self).ok_or_else(error);
        }
        let value = number.parse::<f64>().map_err(|_| error())? * (1_u64 << shift) as f64;
        if value.is_finite() && value >= 0.0 && value < u64::MAX as f64 {
            Ok(Self(value as u64))
        } else {
            Err(error())
        }
    }
}

impl ByteSize {
    /// The size in MiB, for the column of a table whose title names the unit.
    #[must_use]
    pub fn in_mib(self) -> f64 {
        self.0 as f64 / f64::from(1_u32 << 20)
    }
}

/// Prints the size in the largest unit of which it has one or more, with one decimal where it is not whole:
/// `64 KiB`, `1.5 GiB`. Width and alignment are obeyed.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let digits = usize::from(value.fract() != 0.0);
        f.pad(&format!("{value:.digits$} {}", UNITS[unit]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_and_print() {
        assert_eq!("128K".parse(), Ok(ByteSize(131_072)));
        assert_eq!("64MiB".parse(), Ok(ByteSize(64 << 20)));
        assert_eq!("1.5 GiB".parse(), Ok(ByteSize(3 << 29)));
        assert_eq!(ByteSize(3 << 29).to_string(), "1.5 GiB");
        assert_eq!(ByteSize(12).to_string(), "12 B");
        assert_eq!(format!("{:>9}", ByteSize(2048)), "    2 KiB");
        assert_eq!(ByteSize(3 << 19).in_mib(), 1.5);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "K", "-1", "1X", "99999999999T", "1.2.3M"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_range_that_overflows_fits_nowhere() {
        assert!(!ByteRange::new(u64::MAX, 2).fits_in(u64::MAX));
        assert!(ByteRange::new(4, 4).fits_in(8));
    }
}
