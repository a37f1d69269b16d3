//! Conversions to narrower integers that lose nothing.

const _: () = assert!(usize::BITS == u64::BITS, "images are larger than 32-bit addresses reach");

/// A length or a position as memory counts it. There are no machines on which this loses something: the crate
/// compiles for 64-bit addresses only.
#[must_use]
pub const fn to_usize(value: u64) -> usize {
    value as usize
}

/// A number that a limit keeps below 2^32.
///
/// # Panics
/// When it is not: the caller has not checked the limit.
#[must_use]
#[track_caller]
pub const fn to_u32(value: u64) -> u32 {
    assert!(value <= u32::MAX as u64, "a number beyond 32 bits that was not checked");
    value as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays_the_same() {
        assert_eq!((to_u32(0), to_u32(u32::MAX.into())), (0, u32::MAX));
        assert_eq!(to_usize(u64::MAX), usize::MAX);
    }

    #[test]
    #[should_panic = "beyond 32 bits"]
    fn what_does_not_fit_is_a_mistake() {
        let _ = to_u32(1 << 32);
    }
}
