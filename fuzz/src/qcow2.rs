//! Bytes as a qcow2 file without its backing file, the first MiB of whose disk is read; and the parts that it
//! has of its disk itself.

use std::io::{Error, ErrorKind};

use hs_build::source::qcow2::{own_parts, read_in_memory};
use hs_units::BLOCK_BYTES;

const MOST_BYTES: u64 = 1 << 20;

/// Whether the disk could be read; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    check_parts(data);
    let Ok(disk) = read_in_memory(data, MOST_BYTES) else { return false };
    assert!(disk.len() as u64 <= MOST_BYTES);
    true
}

/// No two parts have the same bytes of the file.
fn check_parts(data: &[u8]) {
    let read = |offset: u64, buf: &mut [u8]| -> std::io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| data.get(offset..)?.get(..buf.len()));
        buf.copy_from_slice(from.ok_or(Error::from(ErrorKind::UnexpectedEof))?);
        Ok(())
    };
    let Ok(parts) = own_parts(data.len() as u64, &read) else { return };
    let mut end = 0;
    for part in parts {
        assert!(part.range.offset.is_multiple_of(BLOCK_BYTES) && part.range.len.is_multiple_of(BLOCK_BYTES));
        if let Some(place) = part.place {
            assert!(place >= end && place < data.len() as u64);
            end = place + part.range.len;
        }
    }
}
