//! Identifiers of 16 bytes, in the two orders that disks have them in.

use std::fmt;

/// A UUID, in the order in which it is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// From the order of a GPT, whose first three numbers have their least significant byte first.
    #[must_use]
    pub fn mixed(mut bytes: [u8; 16]) -> Self {
        bytes[..4].reverse();
        bytes[4..6].reverse();
        bytes[6..8].reverse();
        Self(bytes)
    }

    /// Whether all of it is zero.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}
