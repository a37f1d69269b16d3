//! A 256-bit digest, whatever was hashed.

use core::fmt;
use core::str::FromStr;

/// 32 bytes that name some content; printed and parsed as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a [`Digest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseDigestError;

impl fmt::Display for ParseDigestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a digest is 64 hexadecimal digits")
    }
}

impl std::error::Error for ParseDigestError {}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(ParseDigestError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = core::str::from_utf8(pair).map_err(|_| ParseDigestError)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| ParseDigestError)?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let digest = Digest(core::array::from_fn(|i| i as u8 * 7));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert!("zz".repeat(32).parse::<Digest>().is_err());
        assert!("ab".parse::<Digest>().is_err());
    }
}
