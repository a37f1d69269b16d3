//! The record beside an incomplete file of which blocks are filled. docs/SELF-FILLING.md draws it.
//!
//! ```text
//! 0     header: b"HSFILL2\0" | disk digest 32 | image's name 32 | disk bytes | inode | born s, ns | mtime s,
//! ns | image path | digest 32 4096  page 0: bits of blocks 0..32512, block 0 in the lowest bit of byte 0 |
//! digest 32 8192  page 1: ...
//! ```
//!
//! Numbers are little-endian. The header's digest is of the header before it; a page's of the header's
//! digest, the page's number (8 bytes) and its bits, so that no page stands for another, or for one of
//! another file. Bits are only ever set, and only after their blocks are on the disk; so a page that was torn
//! by a crash, or is missing, costs no more than filling its blocks again.

use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hs_format::{ImageDigest, chunk_digest};
use hs_units::Digest;

use super::blocks::FilledBlocks;

const MAGIC: &[u8; 8] = b"HSFILL2\0";
const PAGE_BYTES: usize = 4096;
const DIGEST_BYTES: usize = 32;
const BODY_BYTES: usize = PAGE_BYTES - DIGEST_BYTES;
/// Blocks whose bits lie in one page: 127 MiB of the disk.
pub(super) const PAGE_BLOCKS: u64 = BODY_BYTES as u64 * 8;
/// Where the path begins, after its length.
const PATH_AT: usize = 114;

/// A time of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanos: u32,
}

/// Which file of which disk a sidecar belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Digest of the disk, as the image claims it.
    pub disk_digest: Digest,
    /// The name of the image that the file was begun from, which is certain.
    pub image_name: ImageDigest,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Inode number of the file.
    pub inode: u64,
    /// When the file was made: inode numbers are used again.
    pub born: FileTime,
    /// The modification time that the file keeps.
    pub mtime: FileTime,
    /// Where the image was when it was attached last.
    pub image: PathBuf,
}

/// Why bytes are not the header of a sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SidecarError {
    /// The file is too short, or no sidecar.
    #[error("it is no record of filled blocks")]
    Foreign,
    /// The header's digest is wrong.
    #[error("its header is damaged")]
    Damaged,
}

impl Header {
    /// As bytes. A path that is too long is left out.
    fn encode(&self) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            page[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(MAGIC);
        put(&self.disk_digest.0);
        put(&self.image_name.0.0);
        put(&self.disk_bytes.to_le_bytes());
        put(&self.inode.to_le_bytes());
        for time in [self.born, self.mtime] {
            put(&time.seconds.to_le_bytes());
            put(&time.nanos.to_le_bytes());
        }
        let path = self.image.as_os_str().as_bytes();
        let path = if path.len() <= BODY_BYTES - PATH_AT { path } else { b"" };
        put(&(path.len() as u16).to_le_bytes());
        put(path);
        let digest = chunk_digest(&page[..BODY_BYTES]);
        page[BODY_BYTES..].copy_from_slice(&digest.0);
        page
    }

    /// From bytes.
    ///
    /// # Errors
    /// When they are none, or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, SidecarError> {
        let page: &[u8; PAGE_BYTES] = bytes.first_chunk().ok_or(SidecarError::Foreign)?;
        if &page[..8] != MAGIC {
            return Err(SidecarError::Foreign);
        }
        if chunk_digest(&page[..BODY_BYTES]).0 != page[BODY_BYTES..] {
            return Err(SidecarError::Damaged);
        }
        let number = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"));
        let time = |at: usize| FileTime {
            seconds: number(at).cast_signed(),
            nanos: u32::from_le_bytes(page[at + 8..at + 12].try_into().expect("four bytes")),
        };
        let length = usize::from(u16::from_le_bytes([page[PATH_AT - 2], page[PATH_AT - 1]]));
        let path = page[..BODY_BYTES].get(PATH_AT..PATH_AT + length).ok_or(SidecarError::Damaged)?;
        Ok(Self {
            disk_digest: Digest(page[8..40].try_into().expect("32 bytes")),
            image_name: ImageDigest(Digest(page[40..72].try_into().expect("32 bytes"))),
            disk_bytes: number(72),
            inode: number(80),
            born: time(88),
            mtime: time(100),
            image: std::ffi::OsString::from_vec(path.to_vec()).into(),
        })
    }
}

/// The digest that binds a page to its header.
fn page_digest(header: &Digest, number: u64, bits: &[u8]) -> Digest {
    chunk_digest(&[&header.0[..], &number.to_le_bytes(), bits].concat())
}

/// The file of a sidecar.
#[derive(Debug)]
pub(super) struct Sidecar {
    file: File,
    header: Box<Header>,
    header_digest: Digest,
}

impl Sidecar {
    /// Begins one for a file of which nothing is filled.
    pub(super) fn begin(file: File, header: Header) -> io::Result<Self> {
        file.set_len(0)?;
        let page = header.encode();
        file.write_all_at(&page, 0)?;
        file.sync_all()?;
        let header_digest = Digest(page[BODY_BYTES..].try_into().expect("32 bytes"));
        Ok(Self { file, header: Box::new(header), header_digest })
    }

    /// Reads the sidecar in `file`, when it has a whole header. The caller checks that it belongs to the
    /// right file.
    pub(super) fn read(file: File) -> Result<Self, (File, SidecarError)> {
        let mut page = [0; PAGE_BYTES];
        let header = match file.read_exact_at(&mut page, 0) {
            Ok(()) => Header::decode(&page),
            Err(_) => Err(SidecarError::Foreign),
        };
        match header {
            Ok(header) => {
                let header_digest = Digest(page[BODY_BYTES..].try_into().expect("32 bytes"));
                Ok(Self { file, header: Box::new(header), header_digest })
            }
            Err(error) => Err((file, error)),
        }
    }

    pub(super) const fn header(&self) -> &Header {
        &self.header
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn into_file(self) -> File {
        self.file
    }

    /// The filled blocks, from the pages of the sidecar that are whole; and the number of damaged pages.
    pub(super) fn filled(&self) -> io::Result<(FilledBlocks, u64)> {
        let mut filled = FilledBlocks::none(self.header.disk_bytes);
        let pages = filled.count().div_ceil(PAGE_BLOCKS);
        let mut damaged = 0;
        for number in 0..pages {
            let mut page = [0; PAGE_BYTES];
            match self.file.read_exact_at(&mut page, (number + 1) * PAGE_BYTES as u64) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
            // A hole between pages: none of its blocks has ever been filled.
            if page == [0; PAGE_BYTES] {
                continue;
            }
            let (bits, digest) = page.split_at(BODY_BYTES);
            let is_whole = page_digest(&self.header_digest, number, bits).0 == digest;
            if !is_whole || !filled.copy_from(number * PAGE_BLOCKS, bits) {
                damaged += 1;
            }
        }
        Ok((filled, damaged))
    }

    /// Writes pages of bits and syncs them. The bits must be taken before their blocks are synced.
    pub(super) fn write(&self, pages: &[(u64, Vec<u8>)]) -> io::Result<()> {
        for (number, bits) in pages {
            let digest = page_digest(&self.header_digest, *number, bits);
            let page = [bits, &digest.0[..]].concat();
            self.file.write_all_at(&page, (number + 1) * PAGE_BYTES as u64)?;
        }
        self.file.sync_data()
    }

    /// The bits of a page.
    pub(super) fn page_of(filled: &FilledBlocks, number: u64) -> (u64, Vec<u8>) {
        let mut bits = vec![0; BODY_BYTES];
        filled.copy_to(number * PAGE_BLOCKS, &mut bits);
        (number, bits)
    }
}

/// Where the sidecar of `file` lies.
#[must_use]
pub fn sidecar_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".headstart");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            disk_digest: Digest([7; 32]),
            image_name: ImageDigest(Digest([8; 32])),
            disk_bytes: (3 * PAGE_BLOCKS + 5) * 4096 - 9,
            inode: 12,
            born: FileTime { seconds: -5, nanos: 999_999_999 },
            mtime: FileTime { seconds: 1 << 40, nanos: 1 },
            image: "/srv/a.hsi".into(),
        }
    }

    fn begun() -> Sidecar {
        Sidecar::begin(tempfile::tempfile().expect("a file"), header()).expect("begun")
    }

    fn again(sidecar: Sidecar) -> Sidecar {
        Sidecar::read(sidecar.file).expect("whole")
    }

    #[test]
    fn headers_round_trip_and_every_changed_byte_is_seen() {
        let page = header().encode();
        assert_eq!(Header::decode(&page), Ok(header()));
        for at in 0..PAGE_BYTES {
            let mut changed = page;
            changed[at] ^= 0x40;
            assert!(Header::decode(&changed).is_err(), "byte {at}");
        }
        assert_eq!(Header::decode(&page[..4095]), Err(SidecarError::Foreign));
        let long = Header { image: "x".repeat(5000).into(), ..header() };
        assert_eq!(Header::decode(&long.encode()).expect("whole").image, Path::new(""));
        let longest = Header { image: "x".repeat(BODY_BYTES - PATH_AT).into(), ..header() };
        assert_eq!(Header::decode(&longest.encode()), Ok(longest));
    }

    #[test]
    fn what_was_filled_is_found_again_page_by_page() {
        let sidecar = begun();
        let mut filled = FilledBlocks::none(header().disk_bytes);
        filled.fill(5..70);
        filled.fill(3 * PAGE_BLOCKS..3 * PAGE_BLOCKS + 5);
        // The two pages between are a hole.
        let pages = [0, 3].map(|number| Sidecar::page_of(&filled, number));
        sidecar.write(&pages).expect("written");
        let sidecar = again(sidecar);
        assert_eq!(sidecar.header(), &header());
        assert_eq!(sidecar.filled().expect("read"), (filled.clone(), 0));
        // A torn page loses its own bits, and nothing else.
        sidecar.file.write_all_at(&[0xff], 4096 + 9).expect("written");
        let mut rest = FilledBlocks::none(header().disk_bytes);
        rest.fill(3 * PAGE_BLOCKS..3 * PAGE_BLOCKS + 5);
        assert_eq!(sidecar.filled().expect("read"), (rest, 1));
    }

    #[test]
    fn pages_of_another_place_or_another_file_count_for_nothing() {
        let sidecar = begun();
        let mut filled = FilledBlocks::none(header().disk_bytes);
        filled.fill(0..PAGE_BLOCKS);
        sidecar.write(&[Sidecar::page_of(&filled, 0)]).expect("written");
        let mut page = vec![0; PAGE_BYTES];
        sidecar.file.read_exact_at(&mut page, 4096).expect("read");
        sidecar.file.write_all_at(&page, 8192).expect("written");
        assert_eq!(sidecar.filled().expect("read"), (filled, 1));
        let other = Header { inode: 13, ..header() };
        sidecar.file.write_all_at(&other.encode(), 0).expect("written");
        assert_eq!(again(sidecar).filled().expect("read").0.filled(), 0);
    }

    #[test]
    fn a_file_that_ends_early_has_what_it_has() {
        let sidecar = begun();
        let mut filled = FilledBlocks::none(header().disk_bytes);
        filled.fill(0..9);
        sidecar.write(&[Sidecar::page_of(&filled, 0)]).expect("written");
        sidecar.file.set_len(8191).expect("cut");
        assert_eq!(again(sidecar).filled().expect("read").0.filled(), 0);
        let short = tempfile::tempfile().expect("a file");
        short.write_all_at(MAGIC, 0).expect("written");
        assert!(matches!(Sidecar::read(short), Err((_, SidecarError::Foreign))));
    }
}
