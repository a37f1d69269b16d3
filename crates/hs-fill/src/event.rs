//! What a fanotify group says: bytes to events. docs: fanotify(7); `struct fanotify_event_metadata` and
//! `struct fanotify_event_info_range` of `<linux/fanotify.h>`, in the machine's byte order.
//!
//! ```text
//! 0  u32 event_len | u8 vers | u8 reserved | u16 metadata_len | u64 mask | i32 fd | i32 pid
//! metadata_len: information records up to event_len, each
//! 0  u8 type | u8 pad | u16 len | ...     type 6, a range: u32 pad | u64 offset | u64 count
//! ```

/// A program is about to read or write a range: `FAN_PRE_ACCESS`, since Linux 6.14.
pub const PRE_ACCESS: u64 = 0x0010_0000;
/// A program has written: `FAN_MODIFY`.
pub const MODIFY: u64 = 0x0000_0002;
/// Events were lost: `FAN_Q_OVERFLOW`.
pub const OVERFLOW: u64 = 0x0000_4000;

/// `FANOTIFY_METADATA_VERSION`.
const VERSION: u8 = 3;
/// `FAN_EVENT_INFO_TYPE_RANGE`.
const RANGE: u8 = 6;
const METADATA_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 4;
const RANGE_BYTES: usize = 24;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened, as bits.
    pub mask: u64,
    /// A descriptor of the file that this process now has and must close; none of an overflow.
    pub fd: Option<i32>,
    /// The process that did it; 0 when it is not of this PID namespace.
    pub pid: i32,
    /// Offset and length of what is to be read or written, in bytes; nothing where the kernel does not say.
    pub range: Option<(u64, u64)>,
}

impl Event {
    /// Whether the kernel waits for an answer.
    #[must_use]
    pub const fn asks(&self) -> bool {
        self.mask & PRE_ACCESS != 0
    }
}

/// Why bytes are not events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The bytes end within an event.
    #[error("an event of {needed} bytes with only {left} left")]
    Cut {
        /// Bytes that the event says it has.
        needed: usize,
        /// Bytes that there are.
        left: usize,
    },
    /// The kernel speaks another version of the protocol.
    #[error("fanotify events of version {found}, where {VERSION} is known")]
    Version {
        /// The version.
        found: u8,
    },
    /// A length that cannot be.
    #[error("an event of {event} bytes with {metadata} bytes of metadata")]
    Lengths {
        /// `event_len`.
        event: usize,
        /// `metadata_len`.
        metadata: usize,
    },
    /// An information record that does not fit into its event.
    #[error("an information record of {record} bytes with {left} left in its event")]
    Record {
        /// `len` of the record.
        record: usize,
        /// Bytes left.
        left: usize,
    },
}

/// The events in what one read(2) of a group gave, in order; ends after the first error.
pub fn events(bytes: &[u8]) -> impl Iterator<Item = Result<Event, EventError>> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let parsed = next(rest);
        rest = parsed.as_ref().map_or(&[], |(_, after)| after);
        Some(parsed.map(|(event, _)| event))
    })
}

fn next(bytes: &[u8]) -> Result<(Event, &[u8]), EventError> {
    let cut = |needed| EventError::Cut { needed, left: bytes.len() };
    let metadata: &[u8; METADATA_BYTES] = bytes.first_chunk().ok_or(cut(METADATA_BYTES))?;
    let event_len = u32_at(metadata, 0) as usize;
    if metadata[4] != VERSION {
        return Err(EventError::Version { found: metadata[4] });
    }
    let metadata_len = usize::from(u16::from_ne_bytes([metadata[6], metadata[7]]));
    if metadata_len < METADATA_BYTES || event_len < metadata_len {
        return Err(EventError::Lengths { event: event_len, metadata: metadata_len });
    }
    let (event, after) = bytes.split_at_checked(event_len).ok_or(cut(event_len))?;
    let fd = u32_at(metadata, 16).cast_signed();
    let event = Event {
        mask: u64_at(metadata, 8),
        fd: (fd >= 0).then_some(fd),
        pid: u32_at(metadata, 20).cast_signed(),
        range: range(&event[metadata_len..])?,
    };
    Ok((event, after))
}

/// The first range among information records; those of other types are passed over.
fn range(mut records: &[u8]) -> Result<Option<(u64, u64)>, EventError> {
    while !records.is_empty() {
        let wrong = |record| EventError::Record { record, left: records.len() };
        let header: &[u8; RECORD_HEADER_BYTES] = records.first_chunk().ok_or(wrong(RECORD_HEADER_BYTES))?;
        let length = usize::from(u16::from_ne_bytes([header[2], header[3]]));
        let least = if header[0] == RANGE { RANGE_BYTES } else { RECORD_HEADER_BYTES };
        if length < least || length > records.len() {
            return Err(wrong(length));
        }
        if header[0] == RANGE {
            return Ok(Some((u64_at(records, 8), u64_at(records, 16))));
        }
        records = &records[length..];
    }
    Ok(None)
}

/// The caller has checked that so many bytes are there.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(mask: u64, fd: i32, pid: i32, records: &[u8]) -> Vec<u8> {
        let length = (METADATA_BYTES + records.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([VERSION, 0]);
        bytes.extend((METADATA_BYTES as u16).to_ne_bytes());
        bytes.extend(mask.to_ne_bytes());
        bytes.extend(fd.to_ne_bytes());
        bytes.extend(pid.to_ne_bytes());
        bytes.extend(records);
        bytes
    }

    fn record(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (RECORD_HEADER_BYTES + body.len()) as u16;
        [&[kind, 0], &length.to_ne_bytes()[..], body].concat()
    }

    fn range_record(offset: u64, count: u64) -> Vec<u8> {
        record(RANGE, &[&[0; 4], &offset.to_ne_bytes()[..], &count.to_ne_bytes()].concat())
    }

    fn all(bytes: &[u8]) -> Vec<Result<Event, EventError>> {
        events(bytes).collect()
    }

    /// As Linux 6.18 sent it for a read of 5,000 bytes from byte 4,090.
    #[test]
    fn a_read_of_a_range_is_understood() {
        let bytes = event(PRE_ACCESS, 5, 17016, &range_record(0, 12_288));
        assert_eq!(bytes.len(), 48);
        let expected = Event { mask: PRE_ACCESS, fd: Some(5), pid: 17016, range: Some((0, 12_288)) };
        assert_eq!(all(&bytes), [Ok(expected)]);
        assert!(expected.asks());
    }

    #[test]
    fn several_events_and_unknown_records_are_understood() {
        let records = [record(4, &[1, 2, 3, 4]), record(200, &[]), range_record(4096, 0)].concat();
        let mut bytes = event(PRE_ACCESS, 7, 1, &records);
        bytes.extend(event(MODIFY, 8, 2, &[]));
        bytes.extend(event(OVERFLOW, -1, 0, &[]));
        let found: Vec<Event> = all(&bytes).into_iter().map(|event| event.expect("an event")).collect();
        assert_eq!(found[0].range, Some((4096, 0)));
        assert_eq!((found[1].mask, found[1].fd, found[1].range), (MODIFY, Some(8), None));
        assert_eq!((found[2].fd, found[2].asks()), (None, false));
        assert!(all(&[]).is_empty());
    }

    #[test]
    fn hostile_lengths_are_errors() {
        let good = event(PRE_ACCESS, 5, 1, &range_record(1, 2));
        for cut in 1..good.len() {
            assert!(all(&good[..cut])[0].is_err(), "{cut} bytes");
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            all(&bytes)
        };
        assert_eq!(with(4, 2), [Err(EventError::Version { found: 2 })]);
        assert_eq!(with(0, 0), [Err(EventError::Lengths { event: 0, metadata: 24 })]);
        assert_eq!(with(6, 23), [Err(EventError::Lengths { event: 48, metadata: 23 })]);
        assert_eq!(with(6, 49), [Err(EventError::Lengths { event: 48, metadata: 49 })]);
        assert_eq!(with(26, 0), [Err(EventError::Record { record: 0, left: 24 })]);
        assert_eq!(with(26, 23), [Err(EventError::Record { record: 23, left: 24 })]);
        assert_eq!(with(26, 25), [Err(EventError::Record { record: 25, left: 24 })]);
        assert_eq!(with(3, 0x40), [Err(EventError::Cut { needed: 0x4000_0030, left: 48 })]);
    }

    proptest! {
        #[test]
        fn any_bytes_end_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let found = all(&bytes);
            prop_assert!(found.len() <= bytes.len() / METADATA_BYTES + 1);
            prop_assert!(found.iter().rev().skip(1).all(Result::is_ok));
        }

        #[test]
        fn changed_bytes_never_panic(at in 0_usize..72, byte: u8) {
            let mut bytes = event(PRE_ACCESS, 5, 1, &range_record(1, 2));
            bytes.extend(event(MODIFY, 6, 1, &[]));
            bytes[at] = byte;
            let _ = all(&bytes);
        }
    }
}
