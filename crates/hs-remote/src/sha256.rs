//! SHA-256, as registries write it.

use std::fmt;
use std::str::FromStr;

use ring::digest::{Context, SHA256};

/// A SHA-256 digest: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut running = Running::new();
        running.update(bytes);
        running.finish()
    }
}

/// A digest of bytes that come one after the other.
pub(crate) struct Running(Context);

impl Running {
    pub(crate) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Sha256 {
        let mut digest = [0; 32];
        digest.copy_from_slice(self.0.finish().as_ref());
        Sha256(digest)
    }
}

impl FromStr for Sha256 {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits =
            text.strip_prefix("sha256:").filter(|digits| digits.len() == 64 && digits.is_ascii()).ok_or(())?;
        let mut digest = [0; 32];
        for (byte, two) in digest.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let lower = |digit: &u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit);
            if !two.iter().all(lower) {
                return Err(());
            }
            *byte = u8::from_str_radix(std::str::from_utf8(two).map_err(|_| ())?, 16).map_err(|_| ())?;
        }
        Ok(Self(digest))
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_registries_write_them() {
        // The empty JSON object of the image specification, section "Guidance for an empty descriptor".
        let text = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(Sha256::of(b"{}").to_string(), text);
        assert_eq!(text.parse(), Ok(Sha256::of(b"{}")));
        for wrong in
            ["", "sha256:", &text[..70], &text.to_uppercase(), &text.replace('4', "+"), &format!("{text}0")]
        {
            assert_eq!(wrong.parse::<Sha256>(), Err(()), "{wrong}");
        }
    }
}
