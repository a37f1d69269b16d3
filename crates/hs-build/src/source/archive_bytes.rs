//! The bytes of an archive, unpacked, from wherever they come.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use hs_units::to_usize;

use super::archive_fault::ArchiveFault;
use super::contents::StoreNumber;

/// Bytes that are read ahead.
const WINDOW_BYTES: usize = 64 << 10;
/// Memory that a stream of xz may want: four times what `xz -9` does.
const MOST_XZ_KIB: u32 = 256 << 10;
/// The window of zstd is at most 2^27 bytes, as for its own tool without `--long=31`.
const MOST_ZSTD_WINDOW_LOG: u32 = 27;

/// How a stream is packed, by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zstd,
    Xz,
}

impl Packing {
    /// Bytes that [`Packing::of`] needs.
    pub(super) const NEEDED_BYTES: usize = 6;

    pub(super) fn of(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, 8, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // A skippable frame, which some tools put in front.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            _ => Self::Plain,
        }
    }

    /// What a packed stream unpacks to.
    pub(super) fn unpack<'a>(self, packed: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
        let packed = BufReader::with_capacity(WINDOW_BYTES, packed);
        Ok(match self {
            Self::Plain => Box::new(packed),
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
                decoder.window_log_max(MOST_ZSTD_WINDOW_LOG)?;
                Box::new(decoder)
            }
            Self::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(packed, true, MOST_XZ_KIB)),
        })
    }
}

/// Looks at the first bytes of a stream, and gives them back with the stream as it was.
pub(super) fn peek<'a>(
    mut stream: Box<dyn Read + 'a>,
    bytes: usize,
) -> io::Result<(Vec<u8>, Box<dyn Read + 'a>)> {
    let mut start = Vec::new();
    stream.by_ref().take(bytes as u64).read_to_end(&mut start)?;
    let whole = io::Cursor::new(start.clone()).chain(stream);
    Ok((start, Box::new(whole)))
}

/// A file from one place on, up to another.
#[derive(Debug)]
pub(super) struct FilePart {
    pub(super) file: Arc<File>,
    pub(super) at: u64,
    pub(super) end: u64,
}

impl Read for FilePart {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = to_usize(self.end.saturating_sub(self.at).min(buf.len() as u64));
        let read = self.file.read_at(&mut buf[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Where the bytes of an archive come from.
pub(super) enum ArchiveBytes<'a> {
    /// A stream, and the most bytes that it may have. Where they lie in a store as they are, that place.
    Stream { stream: Box<dyn Read + 'a>, most_bytes: u64, place: Option<(StoreNumber, u64)> },
    /// A file, of which what is not needed is not read.
    File { part: FilePart, store: StoreNumber },
}

/// The bytes of an archive with what was read ahead.
pub(super) struct Window<'a> {
    from: ArchiveBytes<'a>,
    buffer: Vec<u8>,
    /// What of the buffer is still to come.
    start: usize,
    /// Bytes that were taken out of the archive and the buffer.
    at: u64,
    /// Where the first byte of a file lies.
    file_start: u64,
}

impl<'a> Window<'a> {
    pub(super) fn new(from: ArchiveBytes<'a>) -> Self {
        let file_start = if let ArchiveBytes::File { part, .. } = &from { part.at } else { 0 };
        Self { from, buffer: Vec::new(), start: 0, at: 0, file_start }
    }

    /// Bytes that were taken.
    pub(super) const fn position(&self) -> u64 {
        self.at
    }

    /// What comes next, as far as it is there.
    pub(super) fn next_bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Reads on until there are `least` bytes; false when the archive ends before.
    pub(super) fn fill(&mut self, least: usize) -> Result<bool, ArchiveFault> {
        if self.buffer.len() - self.start >= least {
            return Ok(true);
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        // Twice as much each time, as what needs so much is looked at from its beginning again.
        let wanted = least.max(WINDOW_BYTES).max(2 * self.buffer.len());
        let missing = wanted - self.buffer.len();
        let from: &mut dyn Read = match &mut self.from {
            ArchiveBytes::File { part, .. } => part,
            ArchiveBytes::Stream { stream, .. } => stream,
        };
        from.take(missing as u64).read_to_end(&mut self.buffer).map_err(ArchiveFault::Read)?;
        self.check_size()?;
        Ok(self.buffer.len() >= least)
    }

    /// Fails when more has come than may.
    pub(super) fn check_size(&self) -> Result<(), ArchiveFault> {
        let ahead = (self.buffer.len() - self.start) as u64;
        match self.from {
            ArchiveBytes::Stream { most_bytes, .. } if self.at + ahead > most_bytes => {
                Err(ArchiveFault::TooLarge { most_bytes })
            }
            _ => Ok(()),
        }
    }

    /// Takes bytes that are there.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.at += bytes as u64;
    }

    /// Where the next byte lies, if it lies in a store.
    pub(super) fn place(&self) -> Option<(StoreNumber, u64)> {
        match &self.from {
            ArchiveBytes::File { store, .. } => Some((*store, self.file_start + self.at)),
            ArchiveBytes::Stream { place, .. } => place.map(|(store, start)| (store, start + self.at)),
        }
    }

    /// Passes over bytes.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), ArchiveFault> {
        let ahead = (self.buffer.len() - self.start) as u64;
        let buffered = bytes.min(ahead);
        self.consume(to_usize(buffered));
        let rest = bytes - buffered;
        if rest == 0 {
            return Ok(());
        }
        let truncated = ArchiveFault::Truncated { bytes: self.at };
        match &mut self.from {
            ArchiveBytes::File { part, .. } => {
                if part.end - part.at < rest {
                    return Err(truncated);
                }
                part.at += rest;
                self.at += rest;
            }
            ArchiveBytes::Stream { stream, most_bytes, .. } => {
                if rest > most_bytes.saturating_sub(self.at) {
                    return Err(ArchiveFault::TooLarge { most_bytes: *most_bytes });
                }
                let read = io::copy(&mut stream.take(rest), &mut io::sink()).map_err(ArchiveFault::Read)?;
                self.at += read;
                if read < rest {
                    return Err(truncated);
                }
            }
        }
        Ok(())
    }

    /// Reads what is left, so that checksums behind it are checked.
    pub(super) fn drain(&mut self) -> Result<(), ArchiveFault> {
        if matches!(self.from, ArchiveBytes::File { .. }) {
            return Ok(());
        }
        while self.fill(1)? {
            let bytes = self.next_bytes().len();
            self.consume(bytes);
        }
        Ok(())
    }
}

impl Read for Window<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let ahead = self.next_bytes().len();
        let read = if ahead > 0 {
            let len = ahead.min(buf.len());
            buf[..len].copy_from_slice(&self.next_bytes()[..len]);
            self.start += len;
            len
        } else {
            match &mut self.from {
                ArchiveBytes::File { part, .. } => part.read(buf)?,
                ArchiveBytes::Stream { stream, .. } => stream.read(buf)?,
            }
        };
        self.at += read as u64;
        Ok(read)
    }
}
