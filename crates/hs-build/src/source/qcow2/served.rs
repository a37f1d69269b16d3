//! The disk in a qcow2 file, as a store: for several readers at once, wherever the file lies. What the file
//! leaves to its backing file is read from the store of that. Only its tables are read under a lock.

use std::io;
use std::sync::Arc;

use hs_store::{Sink, Store, StoreError};
use hs_units::{BLOCK_BYTES, ByteRange, to_usize};
use parking_lot::Mutex;

use super::fault::Qcow2Fault;
use super::file::{Bytes, Qcow2File, Run, unpack};
use super::{common, merged};
use crate::source::StoredDisk;

/// Bytes of a stream that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// The disk in a qcow2 file.
pub(in crate::source) struct Qcow2Store {
    from: Arc<dyn Store>,
    file: Mutex<Qcow2File<Arc<dyn Store>>>,
    exact_bytes: u64,
    backing: Option<Box<StoredDisk>>,
}

/// The file behind a qcow2 file, as its header calls it.
pub(in crate::source) struct BackingName {
    /// A name of a file in the same folder.
    pub(in crate::source) name: String,
    /// Its format, where that is said.
    pub(in crate::source) format: Option<Vec<u8>>,
}

impl BackingName {
    fn of((name, format): &(Vec<u8>, Option<Vec<u8>>)) -> Result<Self, Qcow2Fault> {
        let shown = String::from_utf8_lossy(name).into_owned();
        // "json:…", "nbd://…" and other words of QEMU are for what is no file.
        let is_plain = !name.iter().any(|byte| b"/:\0".contains(byte)) && !matches!(&**name, b"." | b"..");
        match String::from_utf8(name.clone()) {
            Ok(name) if is_plain => Ok(Self { name, format: format.clone() }),
            _ => Err(Qcow2Fault::Elsewhere { name: shown }),
        }
    }
}

impl Bytes for Arc<dyn Store> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_at(offset, buf).map_err(io::Error::other)
    }
}

impl Qcow2Store {
    /// Reads the header and the first table. Says which file lies behind it, if one does.
    ///
    /// # Errors
    /// When it is damaged, or its backing file lies in another folder.
    pub(in crate::source) fn open(from: Arc<dyn Store>) -> Result<(Self, Option<BackingName>), Qcow2Fault> {
        let file = Qcow2File::open(Arc::clone(&from))?;
        let header = file.header();
        let behind = header.backing.as_ref().map(BackingName::of).transpose()?;
        let exact_bytes = header.disk_bytes;
        Ok((Self { from, file: Mutex::new(file), exact_bytes, backing: None }, behind))
    }

    /// The same with the disk in the file behind it.
    pub(in crate::source) fn on(self, backing: StoredDisk) -> Self {
        Self { backing: Some(Box::new(backing)), ..self }
    }

    /// Bytes of the disk.
    #[must_use]
    pub(in crate::source) const fn exact_bytes(&self) -> u64 {
        self.exact_bytes
    }

    /// What may hold anything but zeros.
    ///
    /// # Errors
    /// When a table cannot be read or is damaged.
    pub(in crate::source) fn data_ranges(&self) -> Result<Vec<ByteRange>, Qcow2Fault> {
        let (own, of_backing) = self.file.lock().ranges()?;
        let Some(backing) = &self.backing else { return Ok(own) };
        Ok(merged(own, common(&of_backing, &backing.ranges()?)))
    }

    /// A backing file may be shorter than what lies on it.
    fn read_backing(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let bytes = self.backing.as_ref().map_or(0, |backing| backing.exact_bytes());
        let there = to_usize(bytes.saturating_sub(offset).min(buf.len() as u64));
        let (stored, missing) = buf.split_at_mut(there);
        missing.fill(0);
        match &self.backing {
            Some(backing) if !stored.is_empty() => backing.disk().read_at(offset, stored),
            _ => Ok(()),
        }
    }

    fn failed(&self, range: ByteRange) -> impl Fn(Qcow2Fault) -> StoreError {
        let path = self.from.name().to_owned();
        move |fault| StoreError::read(&path, range, io::Error::other(fault))
    }

    /// The runs of a range, those that are contiguous in the file as one.
    fn runs(&self, range: ByteRange) -> Result<Vec<(Run, u64)>, Qcow2Fault> {
        let mut file = self.file.lock();
        let mut runs: Vec<(Run, u64)> = Vec::new();
        let mut at = range.offset;
        while at < range.end() {
            let (run, len) = file.run_at(at)?;
            let len = len.min(range.end() - at);
            match (runs.last_mut(), run) {
                (Some((Run::Stored(before), bytes)), Run::Stored(offset)) if *before + *bytes == offset => {
                    *bytes += len;
                }
                _ => runs.push((run, len)),
            }
            at += len;
        }
        Ok(runs)
    }
}

impl Store for Qcow2Store {
    fn len(&self) -> u64 {
        self.exact_bytes
    }

    fn name(&self) -> &str {
        self.from.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let range = ByteRange::new(offset, buf.len() as u64);
        StoreError::check_range(self, range)?;
        let failed = self.failed(range);
        let (mut rest, mut place) = (buf, offset);
        for (run, len) in self.runs(range).map_err(&failed)? {
            let (piece, later) = rest.split_at_mut(to_usize(len));
            match run {
                Run::Zeros => piece.fill(0),
                Run::OfBacking => self.read_backing(place, piece)?,
                Run::Stored(at) => {
                    // The last cluster of a file may be shorter: the rest are zeros.
                    let there = Store::len(&self.from).saturating_sub(at).min(len);
                    if there == 0 {
                        return Err(failed(Qcow2Fault::OutOfFile { what: "a cluster", offset: at }));
                    }
                    let (stored, missing) = piece.split_at_mut(to_usize(there));
                    self.from.read_at(at, stored)?;
                    missing.fill(0);
                }
                Run::Compressed { offset, bytes, within } => {
                    let header = self.file.lock().header().clone();
                    let cluster = unpack(&self.from, &header, offset, bytes).map_err(&failed)?;
                    piece.copy_from_slice(&cluster[to_usize(within)..][..piece.len()]);
                }
            }
            (rest, place) = (later, place + len);
        }
        Ok(())
    }

    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        StoreError::check_range(self, range)?;
        let mut at = range.offset;
        while at < range.end() {
            let mut piece = vec![0; to_usize(PIECE_BYTES.min(range.end() - at))];
            self.read_at(at, &mut piece)?;
            at += piece.len() as u64;
            if sink(&piece).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn close(&self) {
        self.from.close();
        if let Some(backing) = &self.backing {
            backing.disk().close();
        }
    }
}

/// Ranges in whole blocks, as far as they are.
pub(in crate::source) fn in_blocks(ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    let mut widened: Vec<ByteRange> = Vec::new();
    for range in ranges {
        let start = range.offset - range.offset % BLOCK_BYTES;
        let end = range.end().next_multiple_of(BLOCK_BYTES);
        match widened.last_mut() {
            Some(last) if last.end() >= start => last.len = end - last.offset,
            _ => widened.push(ByteRange::new(start, end - start)),
        }
    }
    widened
}
