//! A request to a block device (virtio 1.2, 5.2.6): a header, data, and a byte for the status.

use vm_memory::{Address, Bytes, GuestAddress, GuestMemory, GuestMemoryMmap, Permissions};

use crate::chain::{Chain, Extent};
use crate::config::SECTOR_BYTES;

pub(crate) const STATUS_OK: u8 = 0;
pub(crate) const STATUS_IO_ERROR: u8 = 1;
pub(crate) const STATUS_UNSUPPORTED: u8 = 2;

const HEADER_BYTES: usize = 16;
/// A device's serial number has so many bytes at most.
pub(crate) const ID_BYTES: usize = 20;

const TYPE_IN: u32 = 0;
const TYPE_OUT: u32 = 1;
const TYPE_FLUSH: u32 = 4;
const TYPE_GET_ID: u32 = 8;

/// What a guest asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) wish: Wish,
    /// Where answered data goes.
    pub(crate) data: Vec<Extent>,
    /// Where the status goes.
    pub(crate) status_at: GuestAddress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// These bytes of the disk, at least one.
    Read { offset: u64, bytes: u32 },
    /// The serial number.
    Id,
    /// It is answered without anything to do.
    Nothing,
    /// It is answered with this status.
    Refused(u8),
}

impl Request {
    /// What the buffers of a chain say; nothing when there is no place for an answer.
    pub(crate) fn parse(memory: &GuestMemoryMmap, chain: Chain, disk_bytes: u64) -> Option<Self> {
        let Chain { readable, writable: mut data } = chain;
        while data.last().is_some_and(|extent| extent.len == 0) {
            data.pop();
        }
        let last = data.last_mut()?;
        last.len -= 1;
        let status_at = last.at.checked_add(last.len.into())?;
        if !memory.check_range(status_at, 1, Permissions::Write) {
            return None;
        }
        let data_fits =
            data.iter().all(|extent| memory.check_range(extent.at, extent.len as usize, Permissions::Write));
        let wish = match header(memory, &readable) {
            Some((kind, sector)) if data_fits => wish(kind, sector, &data, disk_bytes),
            _ => Wish::Refused(STATUS_IO_ERROR),
        };
        Some(Self { wish, data, status_at })
    }
}

fn wish(kind: u32, sector: u64, data: &[Extent], disk_bytes: u64) -> Wish {
    // The chain has 4 GiB at most.
    let bytes: u32 = data.iter().map(|extent| extent.len).sum();
    match kind {
        TYPE_IN => {
            let offset = sector.checked_mul(SECTOR_BYTES);
            let inside = offset.and_then(|offset| offset.checked_add(bytes.into()));
            match offset {
                Some(offset)
                    if u64::from(bytes) % SECTOR_BYTES == 0
                        && inside.is_some_and(|end| end <= disk_bytes) =>
                {
                    if bytes == 0 {
                        Wish::Nothing
                    } else {
                        Wish::Read { offset, bytes }
                    }
                }
                _ => Wish::Refused(STATUS_IO_ERROR),
            }
        }
        // A driver that has seen that the disk is read-only does not write.
        TYPE_OUT => Wish::Refused(STATUS_IO_ERROR),
        // All that was written is stored: nothing was.
        TYPE_FLUSH => Wish::Nothing,
        TYPE_GET_ID => Wish::Id,
        _ => Wish::Refused(STATUS_UNSUPPORTED),
    }
}

/// Type and sector. The header may lie in several buffers.
fn header(memory: &GuestMemoryMmap, readable: &[Extent]) -> Option<(u32, u64)> {
    let mut header = [0; HEADER_BYTES];
    let mut filled = 0;
    for extent in readable {
        let len = (HEADER_BYTES - filled).min(extent.len as usize);
        memory.read_slice(&mut header[filled..filled + len], extent.at).ok()?;
        filled += len;
        if filled == HEADER_BYTES {
            break;
        }
    }
    let (kind, sector) = (header[..4].try_into().ok()?, header[8..].try_into().ok()?);
    (filled == HEADER_BYTES).then(|| (u32::from_le_bytes(kind), u64::from_le_bytes(sector)))
}

#[cfg(test)]
mod tests {
    use hs_units::Prng;
    use virtio_queue::desc::split::Descriptor;

    use super::*;
    use crate::chain::Table;

    const DISK_BYTES: u64 = 1 << 20;

    fn extent(at: u64, len: u32) -> Extent {
        Extent { at: GuestAddress(at), len }
    }

    /// A request whose header is in two buffers.
    fn parse(kind: u32, sector: u64, writable: &[Extent]) -> Option<Request> {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1_0000)]).expect("memory");
        memory.write_obj(kind, GuestAddress(0)).expect("written");
        memory.write_obj(sector, GuestAddress(0x100)).expect("written");
        let readable = vec![extent(0, 8), extent(0x100, 8)];
        Request::parse(&memory, Chain { readable, writable: writable.to_vec() }, DISK_BYTES)
    }

    fn wish(kind: u32, sector: u64, data_bytes: u32) -> Wish {
        parse(kind, sector, &[extent(0x1000, data_bytes), extent(0x800, 1)]).expect("a request").wish
    }

    #[test]
    fn reads_are_within_the_disk_and_of_whole_sectors() {
        assert_eq!(wish(TYPE_IN, 3, 1024), Wish::Read { offset: 1536, bytes: 1024 });
        assert_eq!(wish(TYPE_IN, 2047, 512), Wish::Read { offset: DISK_BYTES - 512, bytes: 512 });
        assert_eq!(wish(TYPE_IN, 2048, 0), Wish::Nothing);
        for (sector, bytes) in [(2047, 1024), (2048, 512), (u64::MAX, 512), (u64::MAX / 512, 512), (0, 511)] {
            assert_eq!(wish(TYPE_IN, sector, bytes), Wish::Refused(STATUS_IO_ERROR), "{sector} {bytes}");
        }
    }

    #[test]
    fn whatever_a_guest_writes_reads_stay_in_its_memory_and_in_the_disk() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1_0000)]).expect("memory");
        let table = Table { at: GuestAddress(0x1000), size: 8 };
        let mut prng = Prng::new(7);
        let mut pick = |from: &[u64]| from[prng.below(from.len() as u64) as usize];
        let mut reads = 0;
        for _ in 0..6_000 {
            for number in 0..8 {
                let at = pick(&[0x800, 0x900, 0x1000, 0x1040, 0x2000, 0xfff0, 0x1_0000, u64::MAX - 8]);
                let len = pick(&[0, 1, 1, 16, 512, 513, 1024, 0xf000, u64::from(u32::MAX)]) as u32;
                let (flags, next) = (pick(&[0, 1, 1, 2, 3, 3, 4, 5]), pick(&[1, 2, 3, 4, 5, 6, 7, 8]));
                let descriptor = Descriptor::new(at, len, flags as u16, next as u16);
                memory.write_obj(descriptor, GuestAddress(0x1000 + 16 * number)).expect("written");
            }
            if pick(&[0, 1]) == 0 {
                let header = Descriptor::new(0x800, 16, 1, 1);
                memory.write_obj(header, GuestAddress(0x1000)).expect("written");
            }
            memory.write_obj(pick(&[0, 0, 0, 1, 4, 8, 11]), GuestAddress(0x800)).expect("written");
            memory.write_obj(pick(&[0, 0, 0, 2047, u64::MAX]), GuestAddress(0x808)).expect("written");
            let Ok(chain) = Chain::walk(&memory, table, 0) else { continue };
            let Some(request) = Request::parse(&memory, chain, DISK_BYTES) else { continue };
            assert!(memory.check_range(request.status_at, 1, Permissions::Write));
            if let Wish::Read { offset, bytes } = request.wish {
                reads += 1;
                assert!(offset + u64::from(bytes) <= DISK_BYTES);
                assert_eq!(request.data.iter().map(|extent| extent.len).sum::<u32>(), bytes);
                let is_inside = |at: &Extent| memory.check_range(at.at, at.len as usize, Permissions::Write);
                assert!(request.data.iter().all(is_inside));
            }
        }
        assert!(reads > 0);
    }

    #[test]
    fn nothing_is_written_and_the_unknown_is_unsupported() {
        assert_eq!(wish(TYPE_OUT, 0, 0), Wish::Refused(STATUS_IO_ERROR));
        assert_eq!(wish(TYPE_FLUSH, 0, 0), Wish::Nothing);
        assert_eq!(wish(TYPE_GET_ID, 0, 20), Wish::Id);
        for kind in [2, 3, 11, 13, u32::MAX] {
            assert_eq!(wish(kind, 0, 512), Wish::Refused(STATUS_UNSUPPORTED));
        }
    }

    #[test]
    fn the_status_is_the_last_byte_that_can_be_written() {
        let one = parse(TYPE_IN, 0, &[extent(0x1000, 513), extent(0x1, 0)]).expect("a request");
        assert_eq!(one.status_at, GuestAddress(0x1200));
        assert_eq!((one.data, one.wish), (vec![extent(0x1000, 512)], Wish::Read { offset: 0, bytes: 512 }));
        assert_eq!(parse(TYPE_IN, 0, &[]), None);
        assert_eq!(parse(TYPE_IN, 0, &[extent(0x1_0000, 1)]), None, "not in memory");
        assert_eq!(parse(TYPE_IN, 0, &[extent(u64::MAX, 2)]), None);
        let outside = parse(TYPE_IN, 0, &[extent(0xff00, 512), extent(0, 1)]).expect("a request");
        assert_eq!(outside.wish, Wish::Refused(STATUS_IO_ERROR));
    }
}
