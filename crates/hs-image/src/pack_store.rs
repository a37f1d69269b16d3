//! A pack and the disk that it is for, as the store of the image that both make.
//!
//! The cold chunks of that image are windows of the disk as they are, so a read of them is a read of the
//! disk. Everything above sees an image: its digests verify what comes from the disk as well.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use hs_format::{BackingFile, FileKind, FormatError, PackHeader, PackRuns, PackTrust, Unverified};
use hs_store::{Sink, Snapshot, Store, StoreError};
use hs_units::{ByteRange, to_usize};

/// The disk of a pack, which is opened when it is first needed.
pub trait OpenDisk: Send + Sync {
    /// Gives the disk, in whole blocks or a little shorter; may wait until it is open.
    ///
    /// # Errors
    /// When it cannot be opened, or is not the one that was packed.
    fn open(&self) -> Result<Arc<dyn Store>, StoreError>;

    /// Requests to its files so far.
    fn counted(&self) -> Snapshot;
}

/// A disk that is open, and whose requests are not counted.
impl OpenDisk for Arc<dyn Store> {
    fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::clone(self))
    }

    fn counted(&self) -> Snapshot {
        Snapshot::default()
    }
}

/// Bytes of zeros that are handed out at once.
const ZEROS: &[u8] = &[0; 64 << 10];
/// Bytes of the header, as an offset in the file.
const HEADER_BYTES: u64 = hs_format::limits::PACK_HEADER_BYTES as u64;

/// A pack with its disk.
pub struct PackStore {
    pack: Arc<dyn Store>,
    header: PackHeader,
    disk: Box<dyn OpenDisk>,
    disk_name: String,
    opened: OnceLock<Arc<dyn Store>>,
    runs: OnceLock<PackRuns>,
}

impl std::fmt::Debug for PackStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PackStore").field("name", &self.pack.name()).finish_non_exhaustive()
    }
}

/// Where bytes of the image lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ImagePart {
    /// In the pack.
    Pack,
    /// On the disk.
    Disk,
    /// Nowhere: they are leaves without digests.
    Leaves,
}

impl PackStore {
    /// The header of the pack in `store`; none when it is something else.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or the file is cut short.
    pub fn header_in(store: &dyn Store) -> Result<Option<PackHeader>, crate::ImageError> {
        let at = ByteRange::new(0, HEADER_BYTES);
        if !at.fits_in(store.len()) {
            return Ok(None);
        }
        let mut start = vec![0; to_usize(at.len)];
        store.read_at(0, &mut start)?;
        Self::header_of(&start, store)
    }

    /// The same of the file in `store`, which begins with `start`.
    ///
    /// # Errors
    /// When it is damaged, or the file is cut short.
    pub fn header_of(start: &[u8], store: &dyn Store) -> Result<Option<PackHeader>, crate::ImageError> {
        let at = ByteRange::new(0, HEADER_BYTES.min(start.len() as u64));
        if FileKind::of(start) != FileKind::Pack {
            return Ok(None);
        }
        let header = PackHeader::decode(Unverified::new(&start[..to_usize(at.len)]));
        let checked = header.and_then(|header| header.check_file(store.len()).map(|()| header));
        checked.map(Some).map_err(crate::cold::in_file(store, at))
    }

    /// The pack in `pack`, which begins with `header`. `disk_name` is for messages.
    #[must_use]
    pub fn new(pack: Arc<dyn Store>, header: PackHeader, disk_name: String, disk: Box<dyn OpenDisk>) -> Self {
        Self { pack, header, disk, disk_name, opened: OnceLock::new(), runs: OnceLock::new() }
    }

    /// What the pack says of its disk.
    #[must_use]
    pub const fn header(&self) -> &PackHeader {
        &self.header
    }

    /// The name of the disk's file, for messages.
    #[must_use]
    pub fn base_name(&self) -> &str {
        &self.disk_name
    }

    /// Whether the disk was not read when it was packed.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.header.trust == PackTrust::Sampled
    }

    /// Which windows of the disk are cold chunks.
    ///
    /// # Errors
    /// When the table cannot be read or is damaged.
    pub fn runs(&self) -> Result<&PackRuns, StoreError> {
        if let Some(runs) = self.runs.get() {
            return Ok(runs);
        }
        let at = self.header.runs_range();
        let mut bytes = vec![0; to_usize(at.len)];
        self.pack.read_at(at.offset, &mut bytes)?;
        let failed = |fault: FormatError| StoreError::read(self.pack.name(), at, io::Error::other(fault));
        let runs = PackRuns::decode(&self.header, Unverified::new(&bytes)).map_err(failed)?;
        Ok(self.runs.get_or_init(|| runs))
    }

    /// The files behind the one that holds the disk, in their order.
    ///
    /// # Errors
    /// When their table cannot be read or is damaged.
    pub fn backing(&self) -> Result<Vec<BackingFile>, StoreError> {
        Self::backing_in(&*self.pack, &self.header)
    }

    /// The same of the pack in `pack`, which begins with `header`.
    ///
    /// # Errors
    /// When their table cannot be read or is damaged.
    pub fn backing_in(pack: &dyn Store, header: &PackHeader) -> Result<Vec<BackingFile>, StoreError> {
        if header.backing_count == 0 {
            return Ok(Vec::new());
        }
        let at = header.backing_range();
        let mut bytes = vec![0; to_usize(at.len)];
        pack.read_at(at.offset, &mut bytes)?;
        let failed = |fault: FormatError| StoreError::read(pack.name(), at, io::Error::other(fault));
        BackingFile::decode_all(header, Unverified::new(&bytes)).map_err(failed)
    }

    /// Requests to the files of the disk so far.
    #[must_use]
    pub fn disk_counted(&self) -> Snapshot {
        self.disk.counted()
    }

    /// The parts of a range of the image, in their order: where each lies, and where there.
    fn parts(&self, range: ByteRange) -> Result<Vec<(ImagePart, ByteRange)>, StoreError> {
        let header = &self.header;
        let chunks_at = header.head_bytes;
        let leaves_at = chunks_at + header.chunk_bytes;
        let tail_at = leaves_at + header.leaf_bytes();
        let mut parts = Vec::new();
        let mut cut = |from: u64, to: u64, place: ImagePart, moved: &dyn Fn(u64) -> u64| {
            let (start, end) = (range.offset.max(from), range.end().min(to));
            if start < end {
                parts.push((place, ByteRange::new(moved(start), end - start)));
            }
        };
        cut(0, chunks_at, ImagePart::Pack, &|at| HEADER_BYTES + at);
        cut(chunks_at, leaves_at, ImagePart::Disk, &|at| at - chunks_at);
        cut(leaves_at, tail_at, ImagePart::Leaves, &|at| at - leaves_at);
        cut(tail_at, u64::MAX, ImagePart::Pack, &|at| HEADER_BYTES + chunks_at + (at - tail_at));
        let mut mapped = Vec::with_capacity(parts.len());
        for (place, range) in parts {
            match place {
                ImagePart::Disk => {
                    mapped.extend(self.runs()?.on_disk(range).into_iter().map(|range| (place, range)));
                }
                _ => mapped.push((place, range)),
            }
        }
        Ok(mapped)
    }

    fn disk(&self) -> Result<&Arc<dyn Store>, StoreError> {
        if let Some(disk) = self.opened.get() {
            return Ok(disk);
        }
        let disk = self.disk.open()?;
        Ok(self.opened.get_or_init(|| disk))
    }

    /// Fills `buf`, which lies on the disk, with its bytes as they are, unverified.
    ///
    /// # Errors
    /// When the disk cannot be opened or read.
    pub fn read_disk(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let disk = self.disk()?;
        let there = (buf.len() as u64).min(disk.len().saturating_sub(offset));
        let (stored, missing) = buf.split_at_mut(to_usize(there));
        missing.fill(0);
        if stored.is_empty() { Ok(()) } else { disk.read_at(offset, stored) }
    }
}

impl Store for PackStore {
    fn len(&self) -> u64 {
        self.header.image_bytes()
    }

    fn name(&self) -> &str {
        self.pack.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let range = ByteRange::new(offset, buf.len() as u64);
        StoreError::check_range(self, range)?;
        let mut rest = buf;
        for (place, part) in self.parts(range)? {
            let (piece, later) = rest.split_at_mut(to_usize(part.len));
            match place {
                ImagePart::Pack => self.pack.read_at(part.offset, piece)?,
                ImagePart::Leaves => piece.copy_from_slice(&self.header.leaf_part(part)),
                ImagePart::Disk => self.read_disk(part.offset, piece)?,
            }
            rest = later;
        }
        Ok(())
    }

    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        StoreError::check_range(self, range)?;
        let mut goes_on = ControlFlow::Continue(());
        for (place, part) in self.parts(range)? {
            let mut pass = |piece: &[u8]| {
                goes_on = sink(piece);
                goes_on
            };
            match place {
                ImagePart::Pack => self.pack.stream(part, &mut pass)?,
                ImagePart::Leaves => {
                    let _ = pass(&self.header.leaf_part(part));
                }
                ImagePart::Disk => {
                    let disk = self.disk()?;
                    let there = part.len.min(disk.len().saturating_sub(part.offset));
                    if there > 0 {
                        disk.stream(ByteRange::new(part.offset, there), &mut pass)?;
                    }
                    let mut missing = to_usize(part.len - there);
                    while missing > 0 && goes_on.is_continue() {
                        let piece = &ZEROS[..missing.min(ZEROS.len())];
                        goes_on = sink(piece);
                        missing -= piece.len();
                    }
                }
            }
            if goes_on.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Only of what lies in the pack: the hot region.
    fn expect_stream(&self, range: ByteRange) {
        if let Ok([(ImagePart::Pack, range)]) = self.parts(range).as_deref() {
            self.pack.expect_stream(*range);
        }
    }

    fn expect_most(&self, range: ByteRange) {
        if let Ok([(ImagePart::Pack, range)]) = self.parts(range).as_deref() {
            self.pack.expect_most(*range);
        }
    }

    fn trouble(&self) -> Option<String> {
        self.pack.trouble().or_else(|| self.opened.get()?.trouble())
    }

    fn close(&self) {
        self.pack.close();
        if let Some(disk) = self.opened.get() {
            disk.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use hs_format::{BaseKind, Sample};
    use hs_store::{MemoryStore, contract};

    use super::*;

    /// An image of which some is on a disk that is shorter than its last block.
    fn example(trust: PackTrust) -> (PackStore, Vec<u8>) {
        const WINDOW: u32 = 8192;
        let disk = contract::noise(10 * 8192 - 4000, 1);
        let disk_bytes = (disk.len() as u64).next_multiple_of(4096);
        let mut runs = PackRuns::new(disk_bytes, WINDOW);
        match trust {
            PackTrust::Whole => [0, 1, 4, 9].into_iter().for_each(|window| runs.push(window, 1)),
            PackTrust::Sampled => runs.push(0, 10),
        }
        let (table, runs_digest) = runs.encode();
        let (head, tail) = (contract::noise(5000, 2), contract::noise(6000, 3));
        let header = PackHeader {
            kind: BaseKind::Raw,
            trust,
            name: "disk.raw".to_owned(),
            file_bytes: disk.len() as u64,
            modified_ns: 0,
            samples: Vec::<Sample>::new(),
            disk_bytes,
            window_bytes: WINDOW,
            head_bytes: head.len() as u64,
            chunk_bytes: runs.chunk_bytes(),
            tail_bytes: tail.len() as u64,
            run_count: runs.len() as u32,
            runs_digest,
            backing_count: 0,
            backing_digest: hs_units::Digest::default(),
        };
        let mut image = head.clone();
        let mut padded = disk.clone();
        padded.resize(disk_bytes as usize, 0);
        for range in runs.on_disk(ByteRange::new(0, runs.chunk_bytes())) {
            image.extend(&padded[range.offset as usize..range.end() as usize]);
        }
        image.extend(header.leaf_part(ByteRange::new(0, header.leaf_bytes())));
        image.extend(&tail);
        let pack = [&header.encode()[..], &head, &tail, &table].concat();
        let disk: Arc<dyn Store> = Arc::new(MemoryStore::new(disk));
        let pack: Arc<dyn Store> = Arc::new(MemoryStore::new(pack));
        let header = PackStore::header_in(&*pack).expect("a header").expect("a pack");
        (PackStore::new(pack, header, "disk".to_owned(), Box::new(disk)), image)
    }

    #[test]
    fn pack_and_disk_are_a_store() {
        for trust in [PackTrust::Whole, PackTrust::Sampled] {
            let (store, image) = example(trust);
            contract::check_filled(&store, &image);
        }
    }

    #[test]
    fn a_damaged_table_of_runs_and_a_file_that_is_cut_are_refused() {
        let (store, _) = example(PackTrust::Whole);
        let mut bytes = vec![0; to_usize(store.pack.len())];
        store.pack.read_at(0, &mut bytes).expect("read");
        let cut: Arc<dyn Store> = Arc::new(MemoryStore::new(bytes[..bytes.len() - 1].to_vec()));
        assert!(PackStore::header_in(&*cut).is_err());
        *bytes.last_mut().expect("bytes") ^= 1;
        let damaged = PackStore { pack: Arc::new(MemoryStore::new(bytes)), runs: OnceLock::new(), ..store };
        let error = damaged.read_at(damaged.header.head_bytes, &mut [0]).expect_err("damaged");
        assert!(error.with_causes().contains("pack: expected digest"), "{}", error.with_causes());
    }
}
