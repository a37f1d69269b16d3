//! Numbers of variable length: LEB128 with one encoding for each number, and zigzag for signs.

use crate::error::Syntax;

/// Appends `value`, seven bits a byte, lowest first, the high bit set in all but the last.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `to - from` so that small steps either way are short: 0, -1, 1, -2 become 0, 1, 2, 3.
pub fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    let step = to.wrapping_sub(from).cast_signed();
    put(out, ((step << 1) ^ (step >> 63)).cast_unsigned());
}

/// Takes a number off the front of `bytes`.
///
/// # Errors
/// When the bytes end early, or are no such number.
pub fn take(bytes: &mut &[u8]) -> Result<u64, Syntax> {
    let mut value = 0_u64;
    for index in 0..10 {
        let (&byte, rest) = bytes.split_first().ok_or(Syntax::Short)?;
        // The tenth byte has room for one bit, and a last byte of zero would be an overlong encoding.
        if (index == 9 && byte > 1) || (index > 0 && byte == 0) {
            return Err(Syntax::Varint);
        }
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Syntax::Varint)
}

/// Takes a step, as [`put_step`] wrote it, off the front of `bytes` and makes it from `from`.
///
/// # Errors
/// As [`take`]; also when the sum is outside of 64 bits.
pub fn take_step(bytes: &mut &[u8], from: u64) -> Result<u64, Syntax> {
    let zigzag = take(bytes)?;
    let step = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
    from.checked_add_signed(step).ok_or(Syntax::Range)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_bytes() {
        let bytes = |value| {
            let mut out = Vec::new();
            put(&mut out, value);
            out
        };
        assert_eq!(bytes(0), [0]);
        assert_eq!(bytes(127), [0x7f]);
        assert_eq!(bytes(624_485), [0xe5, 0x8e, 0x26]);
        assert_eq!(bytes(u64::MAX), [[0xff; 9].as_slice(), &[1]].concat());
        let mut steps = Vec::new();
        for to in [5, 4, 6, 3] {
            put_step(&mut steps, 5, to);
        }
        assert_eq!(steps, [0, 1, 2, 3]);
    }

    #[test]
    fn malformed_numbers_are_refused() {
        let cases: [(&[u8], Syntax); 5] = [
            (&[], Syntax::Short),
            (&[0x80], Syntax::Short),
            (&[0x80, 0], Syntax::Varint),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], Syntax::Varint),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1], Syntax::Varint),
        ];
        for (mut bytes, syntax) in cases {
            assert_eq!(take(&mut bytes), Err(syntax));
        }
        assert_eq!(take_step(&mut [1].as_slice(), 0), Err(Syntax::Range));
    }

    proptest! {
        #[test]
        fn numbers_and_steps_round_trip(value: u64, from in 0..1_u64 << 62, to in 0..1_u64 << 62) {
            let mut out = Vec::new();
            put(&mut out, value);
            put_step(&mut out, from, to);
            let mut bytes = out.as_slice();
            prop_assert_eq!(take(&mut bytes), Ok(value));
            prop_assert_eq!(take_step(&mut bytes, from), Ok(to));
            prop_assert!(bytes.is_empty());
        }
    }
}
