//! One qcow2 file: which parts of the disk it has, and their bytes.

use std::collections::HashSet;
use std::io::Read;

use hs_units::{ByteRange, to_usize};
use lru::LruCache;

use super::fault::Qcow2Fault;
use super::header::{Compression, Entry, HEADER_AREA_BYTES, Header, PartState};

/// Second tables that are kept: at most 16 MiB with the largest clusters.
const KEPT_TABLES: std::num::NonZeroUsize = std::num::NonZeroUsize::new(8).unwrap();

/// Bytes at places: a file, or memory in tests.
pub(in crate::source) trait Bytes {
    fn len(&self) -> u64;
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()>;
}

impl Bytes for std::fs::File {
    fn len(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buf, offset)
    }
}

/// An opened qcow2 file.
pub(super) struct Qcow2File<B> {
    from: B,
    file_bytes: u64,
    header: Header,
    /// Where second tables lie; 0 for none.
    l1: Vec<u64>,
    tables: LruCache<u64, Vec<u8>>,
    /// The cluster that was unpacked last: its offset in the file.
    unpacked: Option<(u64, Vec<u8>)>,
}

/// What a run of the disk is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Run {
    Zeros,
    OfBacking,
    /// From this place of the file.
    Stored(u64),
    /// Of a compressed cluster, from this place in it.
    Compressed {
        offset: u64,
        bytes: u64,
        within: u64,
    },
}

impl<B: Bytes> Qcow2File<B> {
    pub(super) fn open(from: B) -> Result<Self, Qcow2Fault> {
        let file_bytes = from.len();
        let mut area = vec![0; to_usize(file_bytes.min(HEADER_AREA_BYTES))];
        read(&from, 0, &mut area)?;
        let header = Header::parse(&area, file_bytes)?;
        let mut table = vec![0; to_usize(header.l1_entries * 8)];
        read(&from, header.l1_at, &mut table)?;
        let (entries, _) = table.as_chunks::<8>();
        let l1: Vec<u64> =
            entries.iter().map(|entry| Header::offset_in(u64::from_be_bytes(*entry))).collect();
        // Else a small file could have a disk without end.
        let mut seen = HashSet::new();
        for &offset in l1.iter().filter(|&&offset| offset != 0) {
            if !seen.insert(offset) {
                return Err(Qcow2Fault::SharedTable { offset });
            }
            if offset.checked_add(header.cluster_bytes()).is_none_or(|end| end > file_bytes) {
                return Err(Qcow2Fault::OutOfFile { what: "a second table", offset });
            }
        }
        Ok(Self { from, file_bytes, header, l1, tables: LruCache::new(KEPT_TABLES), unpacked: None })
    }

    pub(super) const fn header(&self) -> &Header {
        &self.header
    }

    /// What lies at `offset` of the disk, and for how many bytes.
    pub(super) fn run_at(&mut self, offset: u64) -> Result<(Run, u64), Qcow2Fault> {
        let header = &self.header;
        let left = header.disk_bytes - offset;
        let table_at = self.l1[to_usize(offset / header.l2_covers())];
        if table_at == 0 {
            let here = header.l2_covers() - offset % header.l2_covers();
            return Ok((Run::OfBacking, here.min(left)));
        }
        let cluster_bytes = header.cluster_bytes();
        let number = offset % header.l2_covers() / cluster_bytes;
        let (at, entry_bytes) = (to_usize(number * header.entry_bytes()), to_usize(header.entry_bytes()));
        let table = table(&self.from, header, &mut self.tables, table_at)?;
        let entry = header.entry(&table[at..at + entry_bytes]);
        let within = offset % cluster_bytes;
        if let Entry::Compressed { offset, bytes } = entry {
            return Ok((Run::Compressed { offset, bytes, within }, (cluster_bytes - within).min(left)));
        }
        let part_bytes = cluster_bytes / header.parts();
        let first = within / part_bytes;
        let state = entry.part(first);
        let last =
            (first + 1..header.parts()).find(|&part| entry.part(part) != state).unwrap_or(header.parts());
        let here = (last * part_bytes - within).min(left);
        let run = match (state, entry) {
            (PartState::Present, Entry::Parts { offset: 0, .. }) => {
                return Err(Qcow2Fault::OutOfFile { what: "a cluster without a place,", offset: 0 });
            }
            (PartState::Present, Entry::Parts { offset, .. }) => Run::Stored(offset + within),
            (PartState::OfBacking, _) => Run::OfBacking,
            _ => Run::Zeros,
        };
        Ok((run, here))
    }

    /// Reads of what is in this file itself.
    pub(super) fn read_run(&mut self, run: Run, buf: &mut [u8]) -> Result<(), Qcow2Fault> {
        match run {
            Run::Zeros | Run::OfBacking => buf.fill(0),
            Run::Stored(offset) => {
                if offset >= self.file_bytes {
                    return Err(Qcow2Fault::OutOfFile { what: "a cluster", offset });
                }
                // The last cluster of a file may be shorter: the rest are zeros.
                let stored = to_usize((self.file_bytes - offset).min(buf.len() as u64));
                let (stored, rest) = buf.split_at_mut(stored);
                read(&self.from, offset, stored)?;
                rest.fill(0);
            }
            Run::Compressed { offset, bytes, within } => {
                let cluster = self.unpack(offset, bytes)?;
                buf.copy_from_slice(&cluster[to_usize(within)..][..buf.len()]);
            }
        }
        Ok(())
    }

    fn unpack(&mut self, offset: u64, bytes: u64) -> Result<&[u8], Qcow2Fault> {
        if self.unpacked.as_ref().is_none_or(|(known, _)| *known != offset) {
            self.unpacked = None;
            let cluster = unpack(&self.from, &self.header, offset, bytes)?;
            self.unpacked = Some((offset, cluster));
        }
        let Some((_, cluster)) = &self.unpacked else { unreachable!("it has just been unpacked") };
        Ok(cluster)
    }

    /// The parts of the disk that this file has, and those that it leaves to its backing file; of a disk with
    /// neither, zeros.
    pub(super) fn ranges(&mut self) -> Result<(Vec<ByteRange>, Vec<ByteRange>), Qcow2Fault> {
        let (mut own, mut of_backing) = (Vec::new(), Vec::new());
        let (mut offset, mut stored_bytes) = (0, 0);
        while offset < self.header.disk_bytes {
            let (run, len) = self.run_at(offset)?;
            match run {
                Run::Zeros => {}
                Run::OfBacking => push(&mut of_backing, offset, len),
                _ => push(&mut own, offset, len),
            }
            stored_bytes += match run {
                Run::Zeros | Run::OfBacking => 0,
                Run::Stored(_) => len,
                Run::Compressed { .. } => len / self.header.compression.most_ratio(),
            };
            // Else a small file could have a disk without end. Its last cluster may be cut.
            if stored_bytes > self.file_bytes.saturating_add(self.header.cluster_bytes()) {
                return Err(Qcow2Fault::SharedClusters { file_bytes: self.file_bytes });
            }
            offset += len;
        }
        Ok((own, of_backing))
    }
}

/// The content of a compressed cluster.
pub(super) fn unpack<B: Bytes>(
    from: &B,
    header: &Header,
    offset: u64,
    bytes: u64,
) -> Result<Vec<u8>, Qcow2Fault> {
    // It is rounded up to sectors, of which the last may be missing.
    let end = offset.saturating_add(bytes).min(from.len());
    if offset >= end {
        return Err(Qcow2Fault::OutOfFile { what: "a compressed cluster", offset });
    }
    let mut stored = vec![0; to_usize(end - offset)];
    read(from, offset, &mut stored)?;
    let mut cluster = vec![0; to_usize(header.cluster_bytes())];
    let unpacked = match header.compression {
        Compression::Deflate => flate2::bufread::DeflateDecoder::new(&stored[..]).read_exact(&mut cluster),
        Compression::Zstd => zstd::stream::read::Decoder::with_buffer(&stored[..])
            .and_then(|decoder| decoder.single_frame().read_exact(&mut cluster)),
    };
    unpacked.map_err(|_| Qcow2Fault::Cluster { offset })?;
    Ok(cluster)
}

fn table<'a, B: Bytes>(
    from: &B,
    header: &Header,
    tables: &'a mut LruCache<u64, Vec<u8>>,
    at: u64,
) -> Result<&'a [u8], Qcow2Fault> {
    tables
        .try_get_or_insert(at, || {
            let mut table = vec![0; to_usize(header.cluster_bytes())];
            read(from, at, &mut table)?;
            Ok(table)
        })
        .map(|table| &table[..])
}

fn read<B: Bytes>(from: &B, offset: u64, buf: &mut [u8]) -> Result<(), Qcow2Fault> {
    let bytes = buf.len() as u64;
    from.read_exact_at(buf, offset).map_err(|error| Qcow2Fault::Read { offset, bytes, error })
}

/// Adds a range behind all others, joined to the last one where they touch.
pub(in crate::source) fn push(ranges: &mut Vec<ByteRange>, offset: u64, len: u64) {
    match ranges.last_mut() {
        Some(last) if last.end() == offset => last.len += len,
        _ => ranges.push(ByteRange::new(offset, len)),
    }
}
