//! The blobs of an image: in a folder, in an archive, or wherever else they come from.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use hs_units::to_usize;
use ring::digest::{Context, SHA256};
use rustix::fs::{CWD, Mode, OFlags};

use super::documents::MOST_DOCUMENT_BYTES;
use super::fault::ContainerFault;
use crate::source::archive_bytes::FilePart;
use crate::source::contents::{ContentReader, Contents};
use crate::source::entries::EntryTree;

/// Gives the blobs of an image by their digests.
pub trait Blobs {
    /// A blob from its beginning, as it is stored: its digest is checked by the caller.
    ///
    /// # Errors
    /// [`ContainerFault::Missing`], [`ContainerFault::Read`].
    fn open(&mut self, digest: &str, bytes: u64) -> Result<Blob<'_>, ContainerFault>;

    /// A manifest, which registries have at another place than blobs.
    ///
    /// # Errors
    /// As for [`Blobs::open`].
    fn open_manifest(&mut self, digest: &str, bytes: u64) -> Result<Blob<'_>, ContainerFault> {
        self.open(digest, bytes)
    }
}

/// The bytes of a blob.
pub struct Blob<'a> {
    pub(super) stream: Box<dyn Read + 'a>,
    /// The file that it lies in, and where: contents of an unpacked layer can be read from there.
    pub(super) place: Option<(Arc<File>, u64)>,
}

impl<'a> Blob<'a> {
    /// A blob that comes from a stream.
    #[must_use]
    pub fn of_stream(stream: Box<dyn Read + 'a>) -> Self {
        Self { stream, place: None }
    }
}

/// Files by their paths: what a layout and what `docker save` wrote are made of.
pub(in super::super) trait Files {
    /// The file of this path.
    fn file(&mut self, path: &str) -> Result<Option<Blob<'_>>, ContainerFault>;
}

/// A folder.
pub(super) struct FolderFiles {
    pub(super) path: PathBuf,
}

impl Files for FolderFiles {
    fn file(&mut self, path: &str) -> Result<Option<Blob<'_>>, ContainerFault> {
        let failed = |error| ContainerFault::Read { name: path.to_owned(), error };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File = match rustix::fs::openat(CWD, self.path.join(path), flags, Mode::empty()) {
            Ok(descriptor) => descriptor.into(),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(failed(error.into())),
        };
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::other("it is no regular file")));
        }
        let file = Arc::new(file);
        let part = FilePart { file: Arc::clone(&file), at: 0, end: metadata.len() };
        Ok(Some(Blob { stream: Box::new(part), place: Some((file, 0)) }))
    }
}

/// An archive that was read.
pub(super) struct ArchivedFiles<'a> {
    pub(super) tree: &'a EntryTree,
    pub(super) contents: &'a Contents,
}

impl Files for ArchivedFiles<'_> {
    fn file(&mut self, path: &str) -> Result<Option<Blob<'_>>, ContainerFault> {
        let failed = |error: io::Error| ContainerFault::Read { name: path.to_owned(), error };
        let found = self.tree.find(path.as_bytes()).map_err(|fault| failed(io::Error::other(fault)))?;
        let Some(content) = found.and_then(|entry| self.tree.content(entry)) else { return Ok(None) };
        let stream = Box::new(ContentReader::new(self.contents.of(content)));
        Ok(Some(Blob { stream, place: self.contents.file_of(content) }))
    }
}

/// Blobs that are files of their digests, as in a layout.
pub(super) struct LayoutBlobs<'a>(pub(super) &'a mut dyn Files);

impl Blobs for LayoutBlobs<'_> {
    fn open(&mut self, digest: &str, _bytes: u64) -> Result<Blob<'_>, ContainerFault> {
        let digits = Sha256::digits(digest)?;
        let file = self.0.file(&format!("blobs/sha256/{digits}"))?;
        file.ok_or_else(|| ContainerFault::Missing { name: digest.to_owned() })
    }
}

/// SHA-256 digests as they are written.
pub(super) struct Sha256;

impl Sha256 {
    /// The digest of these bytes.
    pub(super) fn of(bytes: &[u8]) -> String {
        Self::written(ring::digest::digest(&SHA256, bytes).as_ref())
    }

    fn written(digest: &[u8]) -> String {
        digest.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }

    /// The digits of a digest.
    pub(super) fn digits(digest: &str) -> Result<&str, ContainerFault> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let digits = digest.strip_prefix("sha256:").filter(|digits| Self::are_digits(digits, is_digit));
        digits.ok_or_else(|| ContainerFault::UnknownDigest { digest: digest.to_owned() })
    }

    fn are_digits(digits: &str, is_digit: impl Fn(u8) -> bool) -> bool {
        digits.len() == 64 && digits.bytes().all(is_digit)
    }

    /// The digest in the name of a file, if it has one: `docker save` names configurations so.
    pub(super) fn of_name(path: &str) -> Option<String> {
        let name = Path::new(path).file_name()?.to_str()?;
        let digest = format!("sha256:{}", name.strip_suffix(".json").unwrap_or(name));
        Self::digits(&digest).is_ok().then_some(digest)
    }
}

/// A digest of what passes.
#[derive(Clone)]
pub(super) struct Passing(Rc<RefCell<(Context, u64)>>);

impl Passing {
    pub(super) fn new() -> Self {
        Self(Rc::new(RefCell::new((Context::new(&SHA256), 0))))
    }

    /// The same stream, whose bytes are counted here.
    pub(super) fn through<'a>(&self, stream: Box<dyn Read + 'a>) -> Box<dyn Read + 'a> {
        Box::new(PassingReader { stream, passing: self.clone() })
    }

    /// Bytes that have passed.
    pub(super) fn bytes(&self) -> u64 {
        self.0.borrow().1
    }

    /// Fails unless what has passed has this digest.
    pub(super) fn check(&self, name: &str, expected: &str) -> Result<(), ContainerFault> {
        Sha256::digits(expected)?;
        let found = Sha256::written(self.0.borrow().0.clone().finish().as_ref());
        if found == expected {
            return Ok(());
        }
        Err(ContainerFault::Digest { name: name.to_owned(), expected: expected.to_owned(), found })
    }
}

struct PassingReader<'a> {
    stream: Box<dyn Read + 'a>,
    passing: Passing,
}

impl Read for PassingReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buf)?;
        let (context, bytes) = &mut *self.passing.0.borrow_mut();
        context.update(&buf[..read]);
        *bytes += read as u64;
        Ok(read)
    }
}

/// All of a document, whose size is not known.
pub(super) fn read_document(what: &'static str, stream: &mut dyn Read) -> Result<Vec<u8>, ContainerFault> {
    let mut json = Vec::new();
    let read = stream.take(MOST_DOCUMENT_BYTES + 1).read_to_end(&mut json);
    read.map_err(|error| ContainerFault::Read { name: what.to_owned(), error })?;
    if json.len() > to_usize(MOST_DOCUMENT_BYTES) {
        let (bytes, most_bytes) = (json.len() as u64, MOST_DOCUMENT_BYTES);
        return Err(ContainerFault::LargeDocument { what, bytes, most_bytes });
    }
    Ok(json)
}
