//! What a qcow2 file itself has of its disk, without the files behind it.

use std::io;

use hs_units::{BLOCK_BYTES, ByteRange};

use super::fault::Qcow2Fault;
use super::file::{Bytes, Qcow2File, Run};

/// Parts at most. Each of a sound file has a cluster, or many that are zeros.
const MOST_PARTS: usize = 4 << 20;

/// A part of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnPart {
    /// Whole blocks of the disk.
    pub range: ByteRange,
    /// Where its bytes begin in the file, which may end before the last of them: the rest are zeros. Without
    /// a place all are.
    pub place: Option<u64>,
}

/// Bytes that a closure reads.
struct ReadBy<'a> {
    len: u64,
    read: &'a dyn Fn(u64, &mut [u8]) -> io::Result<()>,
}

impl Bytes for ReadBy<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        (self.read)(offset, buf)
    }
}

/// The parts that a file of `len` bytes has, in the order in which they lie in it, and then those that are
/// zeros. No two have the same bytes of the file, so they are not more than the file.
///
/// # Errors
/// When it is damaged, has compressed clusters or such that are smaller than a block.
pub fn own_parts(
    len: u64,
    read: &dyn Fn(u64, &mut [u8]) -> io::Result<()>,
) -> Result<Vec<OwnPart>, Qcow2Fault> {
    let mut file = Qcow2File::open(ReadBy { len, read })?;
    let disk_bytes = file.header().disk_bytes;
    let mut parts: Vec<OwnPart> = Vec::new();
    let mut at = 0;
    while at < disk_bytes {
        let (run, bytes) = file.run_at(at)?;
        let range = ByteRange::new(at, bytes);
        at = range.end();
        let place = match run {
            Run::OfBacking => continue,
            Run::Zeros => None,
            Run::Stored(place) if place < len => Some(place),
            Run::Stored(offset) => return Err(Qcow2Fault::OutOfFile { what: "a cluster", offset }),
            Run::Compressed { .. } => return Err(Qcow2Fault::Feature("compressed clusters")),
        };
        if !range.offset.is_multiple_of(BLOCK_BYTES) || !range.len.is_multiple_of(BLOCK_BYTES) {
            return Err(Qcow2Fault::Feature("clusters that are smaller than a block"));
        }
        match parts.last_mut() {
            Some(last) if last.range.end() == range.offset && place == continued(last) => {
                last.range.len += range.len;
            }
            _ => parts.push(OwnPart { range, place }),
        }
        if parts.len() > MOST_PARTS {
            return Err(Qcow2Fault::Feature("too many parts"));
        }
    }
    parts.sort_unstable_by_key(|part| (part.place.unwrap_or(u64::MAX), part.range.offset));
    for pair in parts.windows(2) {
        if let (Some(place), Some(next)) = (pair[0].place, pair[1].place)
            && place.saturating_add(pair[0].range.len) > next
        {
            return Err(Qcow2Fault::SharedCluster { offset: next });
        }
    }
    Ok(parts)
}

/// Where what follows a part lies.
fn continued(part: &OwnPart) -> Option<u64> {
    part.place.map(|place| place.saturating_add(part.range.len))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: u64 = 64 << 10;

    /// A file with one second table of these entries; its clusters follow.
    fn file(cluster_bits: u32, disk_bytes: u64, entries: &[u64]) -> Vec<u8> {
        let cluster = 1_u64 << cluster_bits;
        let mut file = b"QFI\xfb".to_vec();
        let numbers: [(u64, usize); 17] = [
            (3, 4),
            (0, 8),
            (0, 4),
            (cluster_bits.into(), 4),
            (disk_bytes, 8),
            (0, 4),
            (1, 4),
            (cluster, 8),
            (0, 8),
            (0, 4),
            (0, 4),
            (0, 8),
            (0, 8),
            (0, 8),
            (0, 8),
            (4, 4),
            (104, 4),
        ];
        for (number, bytes) in numbers {
            file.extend(&number.to_be_bytes()[8 - bytes..]);
        }
        file.resize(cluster as usize, 0);
        file.extend((2 * cluster).to_be_bytes());
        file.resize(2 * cluster as usize, 0);
        entries.iter().for_each(|entry| file.extend(entry.to_be_bytes()));
        file.resize(3 * cluster as usize, 0);
        file
    }

    fn parts(file: &[u8], more: u64) -> Result<Vec<OwnPart>, Qcow2Fault> {
        let bytes = [file, &vec![7; more as usize][..]].concat();
        own_parts(bytes.len() as u64, &|offset, buf| Bytes::read_exact_at(&&bytes[..], buf, offset))
    }

    fn part(start: u64, clusters: u64, place: Option<u64>) -> OwnPart {
        let range = ByteRange::new(start * CLUSTER, clusters * CLUSTER);
        OwnPart { range, place: place.map(|place| place * CLUSTER) }
    }

    #[test]
    fn parts_come_as_they_lie_in_the_file() {
        let entries = [5, 0, 3, 4, 0].map(|place| place * CLUSTER);
        // The first cluster may end early, and of zeros a place may be kept.
        let entries = [&entries[..], &[1, (6 * CLUSTER) | 1, 0]].concat();
        let found = parts(&file(16, 8 * CLUSTER, &entries), 2 * CLUSTER + 100).unwrap();
        assert_eq!(found, [part(2, 2, Some(3)), part(0, 1, Some(5)), part(5, 2, None)]);
        assert!(parts(&file(16, 8 * CLUSTER, &[0; 8]), 0).unwrap().is_empty());
    }

    #[test]
    fn what_no_guest_writes_is_refused() {
        let refused = |bits, entries: &[u64]| {
            let disk_bytes = (entries.len() as u64) << bits;
            parts(&file(bits, disk_bytes, entries), 2 * CLUSTER).unwrap_err().to_string()
        };
        let twice = refused(16, &[3 * CLUSTER, 4 * CLUSTER, 3 * CLUSTER]);
        assert!(twice.contains("twice"), "{twice}");
        let outside = refused(16, &[5 * CLUSTER]);
        assert!(outside.contains("behind the end of the file"), "{outside}");
        assert!(refused(16, &[(1 << 62) | (3 * CLUSTER)]).contains("compressed"));
        assert!(refused(9, &[3 << 9, 0]).contains("smaller than a block"));
    }
}
