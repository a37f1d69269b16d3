//! Which pages of a program or a library are its code: the kernel reads those ahead from a fault on, not
//! around it.
//!
//! Fields are those of elf(5), of 64 bits and little-endian.

use std::ops::Range;

use hs_units::BLOCK_BYTES;

/// A segment that is loaded, and executed.
const LOADED: u32 = 1;
const EXECUTED: u32 = 1;
/// What says where a segment lies.
const HEADER_BYTES: usize = 0x38;

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The pages of the file whose first block this is that are executed; nothing where it is no ELF file, or
/// says so elsewhere.
pub(super) fn pages(head: &[u8]) -> Option<Range<u64>> {
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let headers = usize::try_from(u64::from_le_bytes(field(head, 0x20)?)).ok()?;
    let size = usize::from(u16::from_le_bytes(field(head, 0x36)?));
    let count = usize::from(u16::from_le_bytes(field(head, 0x38)?));
    (0..count).find_map(|number| {
        let header: [u8; HEADER_BYTES] = field(head, headers.checked_add(number * size)?)?;
        let (kind, flags) = (u32::from_le_bytes(field(&header, 0)?), u32::from_le_bytes(field(&header, 4)?));
        if kind != LOADED || flags & EXECUTED == 0 {
            return None;
        }
        let first = u64::from_le_bytes(field(&header, 0x8)?);
        let end = first.checked_add(u64::from_le_bytes(field(&header, 0x20)?))?;
        Some(first / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(segments: &[(u32, u32, u64, u64)]) -> Vec<u8> {
        let mut head = b"\x7fELF\x02\x01".to_vec();
        head.resize(0x40, 0);
        head[0x20..0x28].copy_from_slice(&0x40_u64.to_le_bytes());
        head[0x36..0x38].copy_from_slice(&0x38_u16.to_le_bytes());
        head[0x38..0x3a].copy_from_slice(&(segments.len() as u16).to_le_bytes());
        for (kind, flags, offset, bytes) in segments {
            let mut header = [0; 0x38];
            header[0..4].copy_from_slice(&kind.to_le_bytes());
            header[4..8].copy_from_slice(&flags.to_le_bytes());
            header[0x8..0x10].copy_from_slice(&offset.to_le_bytes());
            header[0x20..0x28].copy_from_slice(&bytes.to_le_bytes());
            head.extend(header);
        }
        head
    }

    #[test]
    fn the_executed_segment_is_found() {
        let head = program(&[(1, 4, 0, 0x1_1000), (1, 5, 0x1_2000, 0x4_1001), (1, 6, 0x6_0000, 9)]);
        assert_eq!(pages(&head), Some(0x12..0x54));
        assert_eq!(pages(&program(&[(1, 4, 0, 10), (2, 1, 0, 10)])), None);
    }

    #[test]
    fn what_is_no_program_or_a_broken_one_has_none() {
        assert_eq!(pages(b"#!/bin/sh"), None);
        assert_eq!(pages(&program(&[(1, 5, u64::MAX, 2)])), None);
        let mut far = program(&[(1, 5, 0, 2)]);
        far[0x20..0x28].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(pages(&far), None);
        let head = program(&[(1, 5, 0x1000, 0x1000)]);
        (0..head.len()).for_each(|end| assert_eq!(pages(&head[..end]), None, "{end}"));
    }
}
