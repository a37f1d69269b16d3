//! Unreadable sectors on purpose: `--bad-sectors`.

use std::fmt;
use std::str::FromStr;

use hs_store::{FaultKind, Rule};
use hs_units::{ByteRange, ByteSize};

/// A place of a file that cannot be read, or not at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSectors {
    /// Bytes of the file.
    pub range: ByteRange,
    /// Requests that fail before the place can be read; it never can when none.
    pub times: Option<u64>,
}

impl BadSectors {
    /// The damage, for the layer that does it.
    pub const fn rule(&self) -> Rule {
        let rule = Rule::new(FaultKind::Io, self.range);
        match self.times {
            Some(times) => rule.times(times),
            None => rule,
        }
    }
}

impl FromStr for BadSectors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is not a place: write OFFSET+LEN, such as 10M+64K, or OFFSET+LENxTIMES, such as 10M+64Kx2"
            )
        };
        let (offset, rest) = text.split_once('+').ok_or_else(wrong)?;
        let (len, times) = match rest.split_once('x') {
            Some((len, times)) => (len, Some(times.parse().map_err(|_| wrong())?)),
            None => (rest, None),
        };
        let bytes =
            |size: &str| size.parse::<ByteSize>().map(|size| size.0).map_err(|error| error.to_string());
        let range = ByteRange::new(bytes(offset)?, bytes(len)?);
        if range.len == 0 || times == Some(0) || !range.fits_in(u64::MAX) {
            return Err(wrong());
        }
        Ok(Self { range, times })
    }
}

impl fmt::Display for BadSectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.range)?;
        self.times.map_or(Ok(()), |times| write!(f, "x{times}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_parse() {
        let parse = |text: &str| text.parse::<BadSectors>();
        let forever = BadSectors { range: ByteRange::new(10 << 20, 64 << 10), times: None };
        assert_eq!(parse("10M+64K"), Ok(forever));
        assert_eq!(parse("0+1"), Ok(BadSectors { range: ByteRange::new(0, 1), times: None }));
        assert_eq!(parse("10M+64Kx2"), Ok(BadSectors { times: Some(2), ..forever }));
        assert_eq!(parse(&forever.to_string()), Ok(forever));
        for wrong in
            ["", "10M", "10M+", "+64K", "10M+0", "10M+64Kx0", "10M+64Kx", "10M+64Kxtwo", "-1+5", "a+b"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("18446744073709551615+2").is_err(), "beyond all files");
    }
}
