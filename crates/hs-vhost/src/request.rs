//! A request to a block device (virtio 1.2, 5.2.6): a header, data, and a byte for the status.

use hs_keep::ZeroKind;
use hs_units::ByteRange;
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
const TYPE_DISCARD: u32 = 11;
const TYPE_WRITE_ZEROES: u32 = 13;
/// A range to discard or to zero: sector, number of sectors, flags.
const SEGMENT_BYTES: usize = 16;
/// Zeros may be a hole.
const SEGMENT_UNMAP: u32 = 1;

/// What a guest asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) wish: Wish,
    /// Where answered data goes; of a write, where its data lies.
    pub(crate) data: Vec<Extent>,
    /// Where the status goes.
    pub(crate) status_at: GuestAddress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// These bytes of the disk, at least one.
    Read { offset: u64, bytes: u32 },
    /// The data are these bytes of the disk, at least one.
    Write { offset: u64, bytes: u32 },
    /// These bytes of the disk become zero, or are not needed any more.
    Zero { range: ByteRange, kind: ZeroKind },
    /// What was written lasts when it is answered.
    Flush,
    /// The serial number.
    Id,
    /// It is answered without anything to do.
    Nothing,
    /// It is answered with this status.
    Refused(u8),
}

/// The disk that requests are for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) bytes: u64,
    pub(crate) is_writable: bool,
}

impl Target {
    /// Where so many bytes from a sector on are, if they lie in the disk and are whole sectors.
    fn place(self, sector: u64, bytes: u64) -> Option<u64> {
        let offset = sector.checked_mul(SECTOR_BYTES)?;
        let end = offset.checked_add(bytes)?;
        (bytes.is_multiple_of(SECTOR_BYTES) && end <= self.bytes).then_some(offset)
    }
}

impl Request {
    /// What the buffers of a chain say; nothing when there is no place for an answer.
    pub(crate) fn parse(memory: &GuestMemoryMmap, chain: Chain, target: Target) -> Option<Self> {
        let Chain { mut readable, writable: mut data } = chain;
        while data.last().is_some_and(|extent| extent.len == 0) {
            data.pop();
        }
        let last = data.last_mut()?;
        last.len -= 1;
        let status_at = last.at.checked_add(last.len.into())?;
        if !memory.check_range(status_at, 1, Permissions::Write) {
            return None;
        }
        let header = take_front(memory, &mut readable);
        let lies = |extents: &[Extent], way| {
            extents.iter().all(|extent| memory.check_range(extent.at, extent.len as usize, way))
        };
        let fits = lies(&data, Permissions::Write) && lies(&readable, Permissions::Read);
        let header = header.filter(|_| fits).map(Header::of);
        let wish = match header {
            // A driver that has seen that the disk is read-only does not write.
            Some(Header { kind: TYPE_OUT, .. }) if !target.is_writable => Wish::Refused(STATUS_IO_ERROR),
            Some(Header { kind: TYPE_OUT, sector }) => {
                data = readable;
                transfer(target, sector, &data, |offset, bytes| Wish::Write { offset, bytes })
            }
            Some(Header { kind: kind @ (TYPE_DISCARD | TYPE_WRITE_ZEROES), .. }) if target.is_writable => {
                zero(kind, take_front(memory, &mut readable), &readable, target)
            }
            Some(Header { kind: TYPE_IN, sector }) => {
                transfer(target, sector, &data, |offset, bytes| Wish::Read { offset, bytes })
            }
            Some(Header { kind: TYPE_FLUSH, .. }) => Wish::Flush,
            Some(Header { kind: TYPE_GET_ID, .. }) => Wish::Id,
            Some(_) => Wish::Refused(STATUS_UNSUPPORTED),
            None => Wish::Refused(STATUS_IO_ERROR),
        };
        Some(Self { wish, data, status_at })
    }
}

/// What a request begins with.
struct Header {
    kind: u32,
    sector: u64,
}

impl Header {
    fn of(bytes: [u8; HEADER_BYTES]) -> Self {
        let words = u128::from_le_bytes(bytes);
        Self { kind: words as u32, sector: (words >> 64) as u64 }
    }
}

/// A transfer of all of these buffers, from a sector on.
fn transfer(target: Target, sector: u64, data: &[Extent], wish: impl Fn(u64, u32) -> Wish) -> Wish {
    // The chain has 4 GiB at most.
    let bytes: u32 = data.iter().map(|extent| extent.len).sum();
    match target.place(sector, bytes.into()) {
        Some(_) if bytes == 0 => Wish::Nothing,
        Some(offset) => wish(offset, bytes),
        None => Wish::Refused(STATUS_IO_ERROR),
    }
}

/// One range that becomes zero, which is all that a request may have: [`crate::config::space`] says so.
fn zero(kind: u32, segment: Option<[u8; SEGMENT_BYTES]>, rest: &[Extent], target: Target) -> Wish {
    let is_one = rest.iter().all(|extent| extent.len == 0);
    let Some((segment, true)) = segment.map(|segment| (u128::from_le_bytes(segment), is_one)) else {
        return Wish::Refused(STATUS_IO_ERROR);
    };
    let (sector, sectors, flags) = (segment as u64, (segment >> 64) as u32, (segment >> 96) as u32);
    let kind = match (kind, flags) {
        (TYPE_DISCARD, 0) => ZeroKind::Discard,
        (TYPE_WRITE_ZEROES, 0) => ZeroKind::Zeros,
        (TYPE_WRITE_ZEROES, SEGMENT_UNMAP) => ZeroKind::Holes,
        _ => return Wish::Refused(STATUS_UNSUPPORTED),
    };
    let bytes = u64::from(sectors) * SECTOR_BYTES;
    match target.place(sector, bytes) {
        Some(_) if bytes == 0 => Wish::Nothing,
        Some(offset) => Wish::Zero { range: ByteRange::new(offset, bytes), kind },
        None => Wish::Refused(STATUS_IO_ERROR),
    }
}

/// Takes the first bytes out of buffers, of which they may fill several.
fn take_front<const N: usize>(memory: &GuestMemoryMmap, readable: &mut Vec<Extent>) -> Option<[u8; N]> {
    let mut front = [0; N];
    let mut filled = 0;
    for extent in readable.iter_mut() {
        let len = (N - filled).min(extent.len as usize);
        memory.read_slice(&mut front[filled..filled + len], extent.at).ok()?;
        filled += len;
        extent.at = extent.at.checked_add(len as u64)?;
        extent.len -= len as u32;
        if filled == N {
            break;
        }
    }
    readable.retain(|extent| extent.len > 0);
    (filled == N).then_some(front)
}

#[cfg(test)]
mod tests {
    use hs_units::Prng;
    use virtio_queue::desc::split::Descriptor;

    use super::*;
    use crate::chain::Table;

    const DISK_BYTES: u64 = 1 << 20;
    const READ_ONLY: Target = Target { bytes: DISK_BYTES, is_writable: false };
    const WRITABLE: Target = Target { bytes: DISK_BYTES, is_writable: true };

    fn extent(at: u64, len: u32) -> Extent {
        Extent { at: GuestAddress(at), len }
    }

    /// A request whose header is in two buffers.
    fn parse(kind: u32, sector: u64, writable: &[Extent]) -> Option<Request> {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1_0000)]).expect("memory");
        memory.write_obj(kind, GuestAddress(0)).expect("written");
        memory.write_obj(sector, GuestAddress(0x100)).expect("written");
        let readable = vec![extent(0, 8), extent(0x100, 8)];
        Request::parse(&memory, Chain { readable, writable: writable.to_vec() }, READ_ONLY)
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
        let (mut reads, mut writes) = (0, 0);
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
            memory.write_obj(pick(&[0, 0, 0, 1, 1, 4, 8, 11, 13]), GuestAddress(0x800)).expect("written");
            memory.write_obj(pick(&[0, 0, 0, 2047, u64::MAX]), GuestAddress(0x808)).expect("written");
            let Ok(chain) = Chain::walk(&memory, table, 0) else { continue };
            let Some(request) = Request::parse(&memory, chain, WRITABLE) else { continue };
            assert!(memory.check_range(request.status_at, 1, Permissions::Write));
            if let Wish::Zero { range, .. } = request.wish {
                assert!(range.end() <= DISK_BYTES);
            }
            if let Wish::Read { offset, bytes } | Wish::Write { offset, bytes } = request.wish {
                *(if matches!(request.wish, Wish::Read { .. }) { &mut reads } else { &mut writes }) += 1;
                assert!(offset + u64::from(bytes) <= DISK_BYTES);
                assert_eq!(request.data.iter().map(|extent| extent.len).sum::<u32>(), bytes);
                let is_inside = |at: &Extent| memory.check_range(at.at, at.len as usize, Permissions::Write);
                assert!(request.data.iter().all(is_inside));
            }
        }
        assert!(reads > 0 && writes > 0, "{reads} {writes}");
    }

    /// What a request to a disk that is written to says; its data comes after the header, in one buffer.
    fn of_writer(kind: u32, sector: u64, data: &[u8]) -> Request {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1_0000)]).expect("memory");
        memory.write_obj(kind, GuestAddress(0)).expect("written");
        memory.write_obj(sector, GuestAddress(8)).expect("written");
        memory.write_slice(data, GuestAddress(16)).expect("written");
        let readable = vec![extent(0, 16 + data.len() as u32)];
        let chain = Chain { readable, writable: vec![extent(0x8000, 1)] };
        Request::parse(&memory, chain, WRITABLE).expect("a request")
    }

    #[test]
    fn writes_are_within_the_disk_and_of_whole_sectors() {
        let request = of_writer(TYPE_OUT, 3, &[7; 1024]);
        assert_eq!(request.wish, Wish::Write { offset: 1536, bytes: 1024 });
        assert_eq!(request.data, vec![extent(16, 1024)], "the header is not written");
        assert_eq!(of_writer(TYPE_OUT, 3, &[]).wish, Wish::Nothing);
        for (sector, bytes) in [(2047, 1024), (2048, 512), (u64::MAX, 512), (u64::MAX / 512, 512), (0, 511)] {
            let wish = of_writer(TYPE_OUT, sector, &vec![0; bytes]).wish;
            assert_eq!(wish, Wish::Refused(STATUS_IO_ERROR), "{sector} {bytes}");
        }
    }

    #[test]
    fn one_range_is_discarded_or_zeroed() {
        let segment = |sector: u64, sectors: u32, flags: u32| {
            [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
        };
        let wish = |kind, data: &[u8]| of_writer(kind, 0, data).wish;
        let range = ByteRange::new(1024, 512);
        let zero = |kind| Wish::Zero { range, kind };
        assert_eq!(wish(TYPE_DISCARD, &segment(2, 1, 0)), zero(ZeroKind::Discard));
        assert_eq!(wish(TYPE_WRITE_ZEROES, &segment(2, 1, 0)), zero(ZeroKind::Zeros));
        assert_eq!(wish(TYPE_WRITE_ZEROES, &segment(2, 1, 1)), zero(ZeroKind::Holes));
        assert_eq!(wish(TYPE_DISCARD, &segment(2, 0, 0)), Wish::Nothing);
        assert_eq!(wish(TYPE_DISCARD, &segment(2, 1, 1)), Wish::Refused(STATUS_UNSUPPORTED));
        assert_eq!(wish(TYPE_WRITE_ZEROES, &segment(2, 1, 2)), Wish::Refused(STATUS_UNSUPPORTED));
        let bad = [
            segment(2047, 2, 0),
            segment(u64::MAX, 1, 0),
            segment(0, u32::MAX, 0),
            segment(0, 1, 0)[..15].to_vec(),
            [segment(0, 1, 0), segment(2, 1, 0)].concat(),
        ];
        for data in bad {
            assert_eq!(wish(TYPE_DISCARD, &data), Wish::Refused(STATUS_IO_ERROR), "{data:?}");
        }
    }

    #[test]
    fn a_read_only_disk_refuses_changes_and_the_unknown_is_unsupported() {
        assert_eq!(wish(TYPE_OUT, 0, 0), Wish::Refused(STATUS_IO_ERROR));
        assert_eq!(wish(TYPE_FLUSH, 0, 0), Wish::Flush);
        assert_eq!(wish(TYPE_GET_ID, 0, 20), Wish::Id);
        for kind in [2, 3, TYPE_DISCARD, 12, TYPE_WRITE_ZEROES, u32::MAX] {
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
