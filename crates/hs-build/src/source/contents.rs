//! Where the contents of an archive's files lie: in the archive itself, where it can be read at any place,
//! and else in one file without a name.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hs_units::{BLOCK_BYTES, to_usize};
use rustix::fs::MemfdFlags;

use super::file_data::Content;

/// Bytes that are taken from a stream at once.
const TAKEN_BYTES: usize = 256 << 10;
/// Shorter runs of zeros are kept like data: each hole costs a [`Piece`] in memory.
const LEAST_HOLE_BYTES: usize = 64 << 10;

/// A part of a file that is stored; what lies between parts are zeros.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Where it begins in the file.
    offset: u64,
    bytes: u64,
    /// Where it begins in the store.
    place: u64,
    store: u32,
}

/// The content of one file.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Stored {
    /// The size of the file.
    pub(super) bytes: u64,
    first: u32,
    pieces: u32,
}

/// A store that contents lie in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoreNumber(u32);

/// The contents of many files.
#[derive(Debug)]
pub(super) struct Contents {
    stores: Vec<(PathBuf, Arc<File>)>,
    pieces: Vec<Piece>,
    folder: PathBuf,
    spool: Option<StoreNumber>,
    spooled_bytes: u64,
}

impl Contents {
    /// Nothing yet. What must be kept goes to a file without a name in `folder`, which is made when it is
    /// first needed.
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            stores: Vec::new(),
            pieces: Vec::new(),
            folder: folder.to_owned(),
            spool: None,
            spooled_bytes: 0,
        }
    }

    /// Bytes that the file without a name has.
    pub(super) const fn spooled_bytes(&self) -> u64 {
        self.spooled_bytes
    }

    /// Bytes of memory for what lies where.
    pub(super) const fn memory_bytes(&self) -> u64 {
        (self.pieces.len() * size_of::<Piece>()) as u64
    }

    /// A file in which contents lie already.
    pub(super) fn add_store(&mut self, path: &Path, file: Arc<File>) -> StoreNumber {
        self.stores.push((path.to_owned(), file));
        StoreNumber(u32::try_from(self.stores.len() - 1).expect("a store for each layer"))
    }

    /// The file that a content lies in, and where, if it lies there in one piece.
    pub(super) fn file_of(&self, content: Stored) -> Option<(Arc<File>, u64)> {
        match self.pieces_of(content) {
            [piece] if piece.offset == 0 && piece.bytes == content.bytes => {
                Some((Arc::clone(&self.stores[piece.store as usize].1), piece.place))
            }
            _ => None,
        }
    }

    /// Keeps a content that comes from here, in memory.
    pub(super) fn keep_bytes(&mut self, bytes: &[u8]) -> io::Result<Stored> {
        let file: File = rustix::fs::memfd_create("headstart", MemfdFlags::CLOEXEC)?.into();
        (&file).write_all(bytes)?;
        let store = self.add_store(Path::new("memory"), Arc::new(file));
        let mut begun = self.begin(bytes.len() as u64)?;
        self.refer(&mut begun, 0, bytes.len() as u64, (store, 0));
        Ok(begun.finish())
    }

    /// Begins the content of a file of `bytes`.
    pub(super) fn begin(&self, bytes: u64) -> Result<Begun, io::Error> {
        let first = u32::try_from(self.pieces.len());
        let first = first.map_err(|_| io::Error::other("its files have more than 4 billion parts"))?;
        Ok(Begun(Stored { bytes, first, pieces: 0 }))
    }

    /// A part of a file that lies in a store already.
    pub(super) fn refer(
        &mut self,
        to: &mut Begun,
        offset: u64,
        bytes: u64,
        (store, place): (StoreNumber, u64),
    ) {
        if bytes == 0 {
            return;
        }
        let Begun(content) = to;
        if content.pieces > 0
            && let Some(last) = self.pieces.last_mut()
            && (last.offset + last.bytes, last.place + last.bytes, last.store) == (offset, place, store.0)
        {
            last.bytes += bytes;
            return;
        }
        self.pieces.push(Piece { offset, bytes, place, store: store.0 });
        content.pieces += 1;
    }

    /// Keeps a part of a file that comes from a stream. Long runs of zeros are not kept.
    pub(super) fn keep(
        &mut self,
        to: &mut Begun,
        offset: u64,
        bytes: u64,
        from: &mut dyn Read,
    ) -> Result<(), KeepError> {
        let mut buffer = vec![0; to_usize(bytes.min(TAKEN_BYTES as u64))];
        let mut done = 0;
        while done < bytes {
            let here = to_usize((bytes - done).min(buffer.len() as u64));
            from.read_exact(&mut buffer[..here]).map_err(KeepError::Read)?;
            for (start, part) in data_in(&buffer[..here]) {
                let store = self.spool().map_err(|error| KeepError::Write(self.folder.clone(), error))?;
                let place = self.spooled_bytes;
                let mut file = &*self.stores[store.0 as usize].1;
                file.write_all(part).map_err(|error| KeepError::Write(self.folder.clone(), error))?;
                self.spooled_bytes += part.len() as u64;
                self.refer(to, offset + done + start as u64, part.len() as u64, (store, place));
            }
            done += here as u64;
        }
        Ok(())
    }

    fn spool(&mut self) -> io::Result<StoreNumber> {
        if let Some(store) = self.spool {
            return Ok(store);
        }
        let file = tempfile::tempfile_in(&self.folder)?;
        let folder = self.folder.clone();
        let store = self.add_store(&folder, Arc::new(file));
        self.spool = Some(store);
        Ok(store)
    }

    fn pieces_of(&self, content: Stored) -> &[Piece] {
        &self.pieces[content.first as usize..][..content.pieces as usize]
    }

    /// Fills `buf` with a part of a file, which lies within its size.
    pub(super) fn read_at(&self, content: Stored, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let pieces = self.pieces_of(content);
        let mut next = pieces.partition_point(|piece| piece.offset + piece.bytes <= offset);
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (hole, here) = match pieces.get(next) {
                None => (rest.len() as u64, None),
                Some(piece) if at < piece.offset => (piece.offset - at, None),
                Some(piece) => (piece.offset + piece.bytes - at, Some(piece)),
            };
            let len = to_usize(hole.min(rest.len() as u64));
            let (part, later) = rest.split_at_mut(len);
            match here {
                None => part.fill(0),
                Some(piece) => {
                    let file = &self.stores[piece.store as usize].1;
                    file.read_exact_at(part, piece.place + (at - piece.offset))?;
                    next += usize::from(at + len as u64 == piece.offset + piece.bytes);
                }
            }
            rest = later;
            at += len as u64;
        }
        Ok(())
    }

    /// The content as something that can be read.
    pub(super) const fn of(&self, content: Stored) -> ContentOf<'_> {
        ContentOf { contents: self, content }
    }
}

/// A content to which parts are added, in ascending order and without overlaps.
#[derive(Debug)]
pub(super) struct Begun(Stored);

impl Begun {
    pub(super) const fn finish(self) -> Stored {
        self.0
    }
}

/// Why a part could not be kept.
#[derive(Debug)]
pub(super) enum KeepError {
    /// The stream failed.
    Read(io::Error),
    /// The file in this folder could not be written.
    Write(PathBuf, io::Error),
}

/// One content of many.
#[derive(Clone, Copy)]
pub(super) struct ContentOf<'a> {
    contents: &'a Contents,
    content: Stored,
}

impl Content for ContentOf<'_> {
    fn next_data(&self, position: u64, _file_bytes: u64) -> Option<(u64, u64)> {
        let pieces = self.contents.pieces_of(self.content);
        let piece = pieces.get(pieces.partition_point(|piece| piece.offset + piece.bytes <= position))?;
        Some((piece.offset.max(position), piece.offset + piece.bytes))
    }

    fn read_part(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.contents.read_at(self.content, offset, buf)
    }
}

/// A content, read from its beginning to its end.
pub(super) struct ContentReader<'a> {
    of: ContentOf<'a>,
    at: u64,
}

impl<'a> ContentReader<'a> {
    pub(super) const fn new(of: ContentOf<'a>) -> Self {
        Self { of, at: 0 }
    }
}

impl Read for ContentReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = to_usize((self.of.content.bytes - self.at).min(buf.len() as u64));
        self.of.read_part(&mut buf[..len], self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

/// What of the bytes is kept, with its place in them.
fn data_in(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let mut parts = Vec::new();
    let (mut start, mut zeros_from) = (0, None);
    for (index, block) in bytes.chunks(to_usize(BLOCK_BYTES)).enumerate() {
        let at = index * to_usize(BLOCK_BYTES);
        if crate::build::is_zero(block) {
            zeros_from.get_or_insert(at);
        } else if let Some(from) = zeros_from.take()
            && at - from >= LEAST_HOLE_BYTES
        {
            if from > start {
                parts.push((start, &bytes[start..from]));
            }
            start = at;
        }
    }
    let end = zeros_from.filter(|from| bytes.len() - from >= LEAST_HOLE_BYTES).unwrap_or(bytes.len());
    if end > start {
        parts.push((start, &bytes[start..end]));
    }
    parts
}

/// What changes when a file is written to.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct FileStamp([i64; 5]);

impl FileStamp {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self([
            metadata.size().cast_signed(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_read_as_they_came_and_long_zeros_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut contents = Contents::new(folder.path());
        let mut bytes = vec![7; 700_000];
        bytes[100_000..100_010].fill(0);
        bytes[200_000..600_000].fill(0);
        let mut begun = contents.begin(800_000).unwrap();
        contents.keep(&mut begun, 0, 700_000, &mut &bytes[..]).unwrap();
        let content = begun.finish();
        assert!((300_000..370_000).contains(&contents.spooled_bytes()), "{}", contents.spooled_bytes());
        bytes.resize(800_000, 0);
        let mut read = Vec::new();
        ContentReader::new(contents.of(content)).read_to_end(&mut read).unwrap();
        assert!(read == bytes);
        let mut part = [1; 10];
        contents.read_at(content, 199_995, &mut part).unwrap();
        assert_eq!(part, [7, 7, 7, 7, 7, 0, 0, 0, 0, 0]);
        assert!(contents.file_of(content).is_none());
    }

    #[test]
    fn a_stream_that_ends_is_an_error_of_the_stream() {
        let mut contents = Contents::new(Path::new("/nonexistent"));
        let mut begun = contents.begin(10).unwrap();
        assert!(matches!(contents.keep(&mut begun, 0, 10, &mut &[1_u8; 9][..]), Err(KeepError::Read(_))));
        let kept = contents.keep(&mut begun, 0, 10, &mut &[1_u8; 10][..]);
        assert!(matches!(kept, Err(KeepError::Write(..))), "{kept:?}");
    }
}
