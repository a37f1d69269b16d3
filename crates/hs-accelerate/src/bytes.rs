//! The bytes of a list, which are not trusted: a list is a file on a disk that others may have had.
//!
//! ```text
//! offset  bytes
//!      0      8  "HSPAGES1"
//!      8     32  BLAKE3 of everything behind it
//!     40     16  UUID of the file system
//!     56      …  numbers as LEB128: subvolume, starts, files, runs
//!             …  each file: kind + 2^31, bytes of the handle, the handle, inode, bytes of the path, the path
//!             …  each run: file + 1 or 0, step of page, pages, step of place, step of time, unused starts
//! ```
//!
//! Steps are from the run before, signed for page and place. Nothing follows the last run. All memory that
//! is asked for is in proportion to the bytes that are there.

use hs_trace::{Syntax, varint};

use crate::list::{FileIdentity, FsIdentity, ListedFile, ListedRun, PageList};

/// Bytes of a list at most; a longer one is refused before it is read.
pub const MAX_LIST_BYTES: u64 = 32 << 20;

/// What a list begins with.
pub const MAGIC: &[u8; 8] = b"HSPAGES1";
const DIGEST_BYTES: usize = 32;
/// Pages of a file or device: 2^64 bytes.
const MAX_PAGE: u64 = 1 << 52;
/// A file takes at least five bytes, and a run six.
const LEAST_FILE_BYTES: usize = 5;
const LEAST_RUN_BYTES: usize = 6;
/// Kinds of handles are signed.
const KIND_SHIFT: i64 = 1 << 31;

/// Why bytes are no list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// The first bytes are others.
    #[error("it is not a list of pages, or of another version")]
    Magic,
    /// It is not what was written.
    #[error("it is cut or damaged")]
    Digest,
    /// The digest is right and the content is not: it was not written by this program.
    #[error("it is malformed: it {0}")]
    Syntax(Syntax),
}

impl From<Syntax> for ListError {
    fn from(syntax: Syntax) -> Self {
        Self::Syntax(syntax)
    }
}

impl PageList {
    /// The list as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.identity.uuid.to_vec();
        for number in
            [self.identity.subvolume, u64::from(self.starts), self.files.len() as u64, self.runs.len() as u64]
        {
            varint::put(&mut body, number);
        }
        for file in &self.files {
            varint::put(&mut body, (i64::from(file.identity.kind) + KIND_SHIFT).cast_unsigned());
            put_bytes(&mut body, &file.identity.handle);
            varint::put(&mut body, file.inode);
            put_bytes(&mut body, file.path.as_bytes());
        }
        let (mut page, mut place, mut at_ms) = (0, 0, 0);
        for run in &self.runs {
            varint::put(&mut body, run.file.map_or(0, |file| u64::from(file) + 1));
            varint::put_step(&mut body, page, run.page);
            varint::put(&mut body, u64::from(run.pages));
            varint::put_step(&mut body, place, run.place);
            varint::put_step(&mut body, at_ms, u64::from(run.at_ms));
            varint::put(&mut body, u64::from(run.unused_starts));
            (page, place, at_ms) = (run.page, run.place, u64::from(run.at_ms));
        }
        [MAGIC.as_slice(), blake3::hash(&body).as_bytes(), &body].concat()
    }

    /// The list that `bytes` are.
    ///
    /// # Errors
    /// [`ListError`] when they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, ListError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(ListError::Magic)?;
        let (digest, body) = rest.split_at_checked(DIGEST_BYTES).ok_or(ListError::Digest)?;
        if blake3::hash(body).as_bytes() != digest {
            return Err(ListError::Digest);
        }
        let (uuid, mut body) = body.split_first_chunk::<16>().ok_or(Syntax::Short)?;
        let identity = FsIdentity { uuid: *uuid, subvolume: varint::take(&mut body)? };
        let starts = number(&mut body, u64::from(u32::MAX))? as u32;
        let (files, runs) = (varint::take(&mut body)?, varint::take(&mut body)?);
        let count = |count: u64, least_bytes: usize, there: usize| {
            usize::try_from(count).ok().filter(|count| *count <= there / least_bytes).ok_or(Syntax::Short)
        };
        let file_count = count(files, LEAST_FILE_BYTES, body.len())?;
        let files = (0..file_count).map(|_| file(&mut body)).collect::<Result<Vec<_>, _>>()?;
        let run_count = count(runs, LEAST_RUN_BYTES, body.len())?;
        let mut taken: Vec<ListedRun> = Vec::with_capacity(run_count);
        for _ in 0..run_count {
            let before = taken.last().copied();
            taken.push(run(&mut body, before, files.len())?);
        }
        if !body.is_empty() {
            return Err(Syntax::Long.into());
        }
        Ok(Self { identity, starts, files, runs: taken })
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A number that is at most `most`.
fn number(body: &mut &[u8], most: u64) -> Result<u64, Syntax> {
    let number = varint::take(body)?;
    if number <= most { Ok(number) } else { Err(Syntax::Range) }
}

fn take_bytes<'a>(body: &mut &'a [u8], most: usize) -> Result<&'a [u8], Syntax> {
    let length = number(body, most as u64)? as usize;
    let (bytes, rest) = body.split_at_checked(length).ok_or(Syntax::Short)?;
    *body = rest;
    Ok(bytes)
}

fn file(body: &mut &[u8]) -> Result<ListedFile, Syntax> {
    let kind = number(body, u64::from(u32::MAX))?.cast_signed() - KIND_SHIFT;
    let handle = take_bytes(body, FileIdentity::MAX_HANDLE_BYTES)?.to_vec();
    let inode = varint::take(body)?;
    let path = take_bytes(body, ListedFile::MAX_PATH_BYTES)?;
    let path = std::str::from_utf8(path).map_err(|_| Syntax::Utf8)?.to_owned();
    let kind = i32::try_from(kind).map_err(|_| Syntax::Range)?;
    Ok(ListedFile { identity: FileIdentity { kind, handle }, inode, path })
}

fn run(body: &mut &[u8], before: Option<ListedRun>, files: usize) -> Result<ListedRun, Syntax> {
    let (page, place, at_ms) =
        before.map_or((0, 0, 0), |before| (before.page, before.place, u64::from(before.at_ms)));
    let file = number(body, files as u64)?.checked_sub(1).map(|file| file as u32);
    let page = varint::take_step(body, page)?;
    let pages = number(body, u64::from(u32::MAX))?;
    let place = varint::take_step(body, place)?;
    let at_ms = u32::try_from(varint::take_step(body, at_ms)?).map_err(|_| Syntax::Range)?;
    let unused_starts = number(body, u64::from(u8::MAX))? as u8;
    if pages == 0 || page > MAX_PAGE - pages || place > MAX_PAGE - pages {
        return Err(Syntax::Range);
    }
    Ok(ListedRun { file, page, pages: pages as u32, place, at_ms, unused_starts })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list() -> impl Strategy<Value = PageList> {
        let file = (any::<i32>(), prop::collection::vec(any::<u8>(), 0..64), any::<u64>(), ".{0,20}");
        let files = prop::collection::vec(file, 0..5);
        let run = (any::<u32>(), 0..1_u64 << 40, 1..1_u32 << 20, 0..1_u64 << 40, any::<u32>(), any::<u8>());
        let runs = prop::collection::vec(run, 0..20);
        (any::<[u8; 16]>(), any::<u64>(), any::<u32>(), files, runs).prop_map(
            |(uuid, subvolume, starts, files, runs)| PageList {
                identity: FsIdentity { uuid, subvolume },
                starts,
                runs: runs
                    .into_iter()
                    .map(|(file, page, pages, place, at_ms, unused_starts)| ListedRun {
                        file: (file % (files.len() as u32 + 1)).checked_sub(1),
                        page,
                        pages,
                        place,
                        at_ms,
                        unused_starts,
                    })
                    .collect(),
                files: files
                    .into_iter()
                    .map(|(kind, handle, inode, path)| ListedFile {
                        identity: FileIdentity { kind, handle },
                        inode,
                        path,
                    })
                    .collect(),
            },
        )
    }

    /// The bytes of a body with the digest that they need.
    fn signed(body: &[u8]) -> Vec<u8> {
        [MAGIC.as_slice(), blake3::hash(body).as_bytes(), body].concat()
    }

    proptest! {
        #[test]
        fn lists_come_back(list in list()) {
            prop_assert_eq!(PageList::decode(&list.encode()), Ok(list));
        }

        #[test]
        fn changed_and_cut_bytes_are_refused(list in list(), at: prop::sample::Index, bit in 0..8_u8) {
            let mut bytes = list.encode();
            let at = at.index(bytes.len());
            prop_assert!(PageList::decode(&bytes[..at]).is_err());
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(PageList::decode(&bytes).is_err());
        }

        #[test]
        fn hostile_bodies_are_survived(body: Vec<u8>, list in list(), at: prop::sample::Index, byte: u8) {
            let _ = PageList::decode(&signed(&body));
            let mut body = list.encode().split_off(MAGIC.len() + DIGEST_BYTES);
            let at = at.index(body.len());
            body[at] = byte;
            // What is taken is within the limits.
            if let Ok(taken) = PageList::decode(&signed(&body)) {
                for run in taken.runs {
                    prop_assert!(run.file.is_none_or(|file| (file as usize) < taken.files.len()));
                    prop_assert!(run.pages > 0 && run.page + u64::from(run.pages) <= MAX_PAGE);
                }
            }
        }
    }

    #[test]
    fn absurd_counts_ask_for_no_memory() {
        for at in 0..2 {
            let mut body = vec![0; 16];
            varint::put(&mut body, 0);
            varint::put(&mut body, 0);
            for count in 0..2 {
                varint::put(&mut body, if count == at { u64::MAX } else { 0 });
            }
            assert_eq!(PageList::decode(&signed(&body)), Err(ListError::Syntax(Syntax::Short)));
        }
        assert_eq!(PageList::decode(b"HSPAGES2"), Err(ListError::Magic));
        assert_eq!(PageList::decode(b"HSPAGES1"), Err(ListError::Digest));
    }
}
