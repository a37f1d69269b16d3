//! The pages in which the kernel hands out its trace.
//!
//! Source: the kernel's include/linux/ring_buffer.h and Documentation/trace/ring-buffer-design.rst; the
//! head of the page is described by `events/header_page`, the head of an event by `events/header_event`.

use hs_units::Nanos;

use super::format::PageFormat;

/// Bits of `commit` that are the number of data bytes; the others are flags.
const COMMIT_BYTES: u64 = 0xf_ffff;

// Types of an event; smaller ones are the length of its data in words.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// An absolute time stamp has 59 bits; the rest comes from the page's own.
const STAMP_BITS: u32 = 59;

/// Hands every record of `page`, as `trace_pipe_raw` gave it, to `record` with its time. What makes no
/// sense ends the page.
pub(super) fn records(format: &PageFormat, page: &[u8], mut record: impl FnMut(Nanos, &[u8])) {
    let head = (format.timestamp.read(page), format.commit.read(page));
    let (Some(mut now), Some(commit)) = head else { return };
    let Some(data) = page.get(format.data..) else { return };
    let mut rest = &data[..data.len().min((commit & COMMIT_BYTES) as usize)];
    while let Some((head, tail)) = word(rest) {
        let (kind, delta) = if cfg!(target_endian = "little") {
            (head & 0x1f, u64::from(head >> 5))
        } else {
            (head >> 27, u64::from(head & 0x7ff_ffff))
        };
        let (bytes, skip) = match kind {
            PADDING if delta == 0 => return,
            TIME_EXTEND | TIME_STAMP => {
                let Some((high, after)) = word(tail) else { return };
                let time = (u64::from(high) << 27) | delta;
                now = if kind == TIME_EXTEND {
                    now.wrapping_add(time)
                } else {
                    (now >> STAMP_BITS << STAMP_BITS) | time
                };
                rest = after;
                continue;
            }
            // A length in bytes, which counts itself.
            PADDING | 0 => {
                let Some((length, after)) = word(tail) else { return };
                (after, (length as usize).saturating_sub(4))
            }
            words => (tail, words as usize * 4),
        };
        let Some(data) = bytes.get(..skip) else { return };
        if kind != PADDING {
            now = now.wrapping_add(delta);
            record(Nanos(now), data);
        }
        rest = &bytes[skip..];
    }
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_ne_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn format() -> PageFormat {
        PageFormat::parse(
            "field: u64 timestamp; offset:0; size:8; signed:0;\nfield: local_t commit; offset:8; size:8; signed:1;\n\
             field: char data; offset:16; size:4080; signed:0;",
        )
        .unwrap()
    }

    fn page(words: &[u32], timestamp: u64, flags: u64) -> Vec<u8> {
        let mut page = timestamp.to_ne_bytes().to_vec();
        page.extend_from_slice(&((words.len() as u64 * 4) | flags).to_ne_bytes());
        words.iter().for_each(|word| page.extend_from_slice(&word.to_ne_bytes()));
        page.resize(4096, 0xff);
        page
    }

    #[cfg(target_endian = "little")]
    fn head(kind: u32, delta: u32) -> u32 {
        kind | delta << 5
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn every_kind_of_event_is_understood() {
        let words = [
            [head(2, 5), 11, 12].as_slice(),
            &[head(TIME_EXTEND, 7), 1],
            // Length in a word of its own, which it counts.
            &[head(0, 1), 12, 21, 22],
            // A discarded event, with its length after the head.
            &[head(PADDING, 9), 8, 0],
            &[head(TIME_STAMP, 3), 2, head(1, 4), 31],
            &[head(PADDING, 0), 0, 0],
        ]
        .concat();
        let mut seen = Vec::new();
        let missed = 1 << 31;
        records(&format(), &page(&words, 1000, missed), |at, data| {
            let words = data.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
            seen.push((at.0, words));
        });
        let extended = 1005 + (1 << 27) + 7;
        let stamp = (2 << 27) + 3;
        let expected: [(u64, Vec<u32>); 3] =
            [(1005, vec![11, 12]), (extended + 1, vec![21, 22]), (stamp + 4, vec![31])];
        assert_eq!(seen, expected);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), len in 0..300_u64) {
            let mut bytes = bytes;
            if let Some(commit) = bytes.get_mut(8..16) {
                commit.copy_from_slice(&len.to_ne_bytes());
            }
            let mut total = 0;
            records(&format(), &bytes, |_, data| total += data.len());
            prop_assert!(total <= bytes.len());
        }
    }
}
