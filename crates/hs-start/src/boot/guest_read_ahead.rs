//! How far a guest's kernel reads ahead, on the command line.

use std::str::FromStr;

/// More than this no guest is told; it is what the kernels of disks with many drives choose.
const MOST_KIB: u32 = 16 << 10;

/// How far the guest's kernel reads ahead of what its programs ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuestReadAhead {
    /// Little where a record of what will be read makes guesses needless, otherwise what its kernel chooses.
    #[default]
    Auto,
    /// What its kernel chooses.
    Kernel,
    /// So many KiB.
    Kib(u32),
}

impl FromStr for GuestReadAhead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(Self::Auto),
            "kernel" => return Ok(Self::Kernel),
            _ => {}
        }
        match text.parse() {
            Ok(kib) if kib % 4 == 0 && kib <= MOST_KIB => Ok(Self::Kib(kib)),
            _ => {
                Err(format!("'{text}' is neither auto nor kernel nor KiB: a multiple of 4 up to {MOST_KIB}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_or_a_word() {
        assert_eq!("auto".parse(), Ok(GuestReadAhead::Auto));
        assert_eq!("kernel".parse(), Ok(GuestReadAhead::Kernel));
        assert_eq!("0".parse(), Ok(GuestReadAhead::Kib(0)));
        assert_eq!("32".parse(), Ok(GuestReadAhead::Kib(32)));
        for wrong in ["6", "-4", "32K", "16388", ""] {
            assert!(wrong.parse::<GuestReadAhead>().unwrap_err().contains("multiple of 4"), "{wrong}");
        }
    }
}
