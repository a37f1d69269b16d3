//! A tar archive as a tree: recognised by its content, packed or not, from a file or a stream.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hs_ext4::{NodeId, Plan};
use hs_units::to_usize;
use tar_core::Header;

use super::archive_bytes::{ArchiveBytes, FilePart, Packing, peek};
use super::archive_fault::ArchiveFault;
use super::assembly::{Assembled, Assembly, Fault, Payload, file_type};
use super::contents::{Contents, FileStamp, Stored};
use super::entries::{EntryId, EntryTree};
use super::tar::{TarReading, archive_error};
use super::tree_disk::{PlannedTree, TreeDisk, TreeFiles};
use super::{SourceError, SourceOptions, SourceProgress};

/// A header, by which an archive is recognised.
const HEADER_BYTES: usize = 512;
/// Entries between two progress calls.
const PROGRESS_ENTRIES: u64 = 256;

/// An archive that was recognised.
pub(super) struct Archive {
    from: From,
    shown: PathBuf,
}

enum From {
    File(Arc<File>),
    Packed(Arc<File>, Packing),
    Stream(Box<dyn Read>),
}

/// The archive in a regular file, if that is one.
pub(super) fn open_file(path: &Path) -> Result<Option<Archive>, SourceError> {
    let unreadable = |error| SourceError::Unreadable { path: path.to_owned(), error };
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    let file = Arc::new(file);
    let (start, _) = peek(Box::new(whole(&file).map_err(unreadable)?), HEADER_BYTES).map_err(unreadable)?;
    let packing = Packing::of(&start);
    let from = if packing == Packing::Plain {
        is_archive(&start).then(|| From::File(Arc::clone(&file)))
    } else {
        let stream = packing.unpack(Box::new(whole(&file).map_err(unreadable)?));
        // What cannot be unpacked is not recognised either.
        let unpacked = stream.and_then(|stream| peek(stream, HEADER_BYTES)).map(|(start, _)| start);
        unpacked.is_ok_and(|start| is_archive(&start)).then(|| From::Packed(Arc::clone(&file), packing))
    };
    Ok(from.map(|from| Archive { from, shown: path.to_owned() }))
}

/// The archive in a stream.
pub(super) fn open_stream(stream: Box<dyn Read>, shown: &Path) -> Result<Archive, SourceError> {
    let failed = |error| archive_error(shown, None, ArchiveFault::Read(error));
    let (start, stream) = peek(stream, Packing::NEEDED_BYTES).map_err(failed)?;
    if start.is_empty() {
        return Err(SourceError::Empty { path: shown.to_owned() });
    }
    let stream = Packing::of(&start).unpack(stream).map_err(failed)?;
    let (start, stream) = peek(stream, HEADER_BYTES).map_err(failed)?;
    if !is_archive(&start) {
        return Err(archive_error(shown, None, ArchiveFault::NoArchive));
    }
    Ok(Archive { from: From::Stream(stream), shown: shown.to_owned() })
}

fn whole(file: &Arc<File>) -> std::io::Result<FilePart> {
    Ok(FilePart { file: Arc::clone(file), at: 0, end: file.metadata()?.len() })
}

/// Archives begin with a header, which has a checksum of itself.
fn is_archive(start: &[u8]) -> bool {
    let header = start.first_chunk::<HEADER_BYTES>().map(Header::from_bytes);
    header.is_some_and(|header| header.verify_checksum().is_ok())
}

impl Archive {
    /// How it is called in messages.
    pub(super) fn shown(&self) -> &Path {
        &self.shown
    }

    /// Reads the archive.
    pub(super) fn unpack(
        self,
        options: &SourceOptions,
        progress: &dyn Fn(SourceProgress),
    ) -> Result<Unpacked, SourceError> {
        let unreadable = |error| SourceError::Unreadable { path: self.shown.clone(), error };
        let (mut tree, mut contents) = (EntryTree::new(), Contents::new(&options.kept_in()));
        let mut stamps = Vec::new();
        let most_bytes = options.unpack_limit_bytes;
        let from = match self.from {
            From::File(file) => {
                stamps.push((FileStamp::of(&file).map_err(unreadable)?, Arc::clone(&file)));
                let part = whole(&file).map_err(unreadable)?;
                ArchiveBytes::File { part, store: contents.add_store(&self.shown, file) }
            }
            From::Packed(file, packing) => {
                let stream = packing.unpack(Box::new(whole(&file).map_err(unreadable)?));
                ArchiveBytes::Stream { stream: stream.map_err(unreadable)?, most_bytes, place: None }
            }
            From::Stream(stream) => ArchiveBytes::Stream { stream, most_bytes, place: None },
        };
        let mut reading = TarReading {
            tree: &mut tree,
            contents: &mut contents,
            is_layer: false,
            shown: &self.shown,
            progress,
        };
        reading.read(from)?;
        Ok(Unpacked { tree, contents, stamps })
    }
}

/// Files that contents are read from where they lie, as they were.
pub(super) type Stamps = Vec<(FileStamp, Arc<File>)>;

/// What was in archives.
pub(super) struct Unpacked {
    pub(super) tree: EntryTree,
    pub(super) contents: Contents,
    pub(super) stamps: Stamps,
}

impl Unpacked {
    /// Plans the file system of the tree. Also gives the bytes that are kept.
    pub(super) fn plan(
        self,
        shown: &Path,
        options: &SourceOptions,
        progress: &dyn Fn(SourceProgress),
    ) -> Result<(TreeDisk, u64), SourceError> {
        let Self { tree, contents, stamps } = self;
        let has_contents = options.like.is_some();
        let (assembled, files) = assemble(&tree, &contents, has_contents, shown, progress)?;
        drop(tree);
        let kept_bytes = contents.spooled_bytes();
        let files = StoredFiles { contents, files, shown: shown.to_owned(), stamps };
        let tree = PlannedTree { assembled, files: Box::new(files) };
        Ok((TreeDisk::of(shown, shown, tree, options)?, kept_bytes))
    }
}

/// A tree, and the content of each node.
fn assemble(
    tree: &EntryTree,
    contents: &Contents,
    has_contents: bool,
    shown: &Path,
    progress: &dyn Fn(SourceProgress),
) -> Result<(Assembled, Vec<Stored>), SourceError> {
    let failed = |plan: Option<(&Plan, NodeId)>, name: &[u8], fault: Fault| {
        let above = plan.map(|(plan, folder)| plan.path(folder)).unwrap_or_default();
        let path = shown.join(OsStr::from_bytes(&above)).join(OsStr::from_bytes(name));
        match fault {
            Fault::Refused(refusal) => SourceError::Unsupported { path, reason: refusal.to_string() },
            Fault::Unreadable(error) => SourceError::Unreadable { path, error },
        }
    };
    let assembly = Assembly::new(&tree.status(EntryId::ROOT), tree.attributes(EntryId::ROOT), has_contents);
    let mut assembly = assembly.map_err(|refusal| failed(None, b"", refusal.into()))?;
    let mut files = vec![Stored::default()];
    // Where each entry has its first name.
    let mut first_names: Vec<Option<NodeId>> = vec![None; to_usize(tree.len())];
    let mut pending = vec![(NodeId::ROOT, EntryId::ROOT)];
    while let Some((folder, entries)) = pending.pop() {
        let above = pending.len();
        for (name, entry) in tree.names(entries) {
            let status = tree.status(entry);
            let refused = |assembly: &Assembly, fault| failed(Some((assembly.plan(), folder)), name, fault);
            if let Some(first) = first_names[entry.index()] {
                let linked = assembly.link(folder, name, &status, first);
                linked.map_err(|refusal| refused(&assembly, refusal.into()))?;
                continue;
            }
            let content = tree.content(entry);
            let readable = content.map(|content| contents.of(content));
            let payload = match (&readable, tree.target(entry)) {
                (Some(content), _) => Payload::File(content),
                (None, Some(target)) => Payload::Symlink(target),
                (None, None) => Payload::Nothing,
            };
            let added = assembly.add(folder, name, &status, tree.attributes(entry), &payload);
            let node = added.map_err(|fault| refused(&assembly, fault))?;
            first_names[entry.index()] = Some(node);
            files.push(content.unwrap_or_default());
            if status.is(file_type::DIRECTORY) {
                pending.push((node, entry));
            }
            let (entries, bytes) = assembly.done();
            if entries.is_multiple_of(PROGRESS_ENTRIES) {
                progress(SourceProgress::Scanning { entries, bytes });
            }
        }
        pending[above..].reverse();
    }
    let (entries, bytes) = assembly.done();
    progress(SourceProgress::Scanning { entries, bytes });
    Ok((assembly.finish(shown), files))
}

/// The files of an archive.
#[derive(Debug)]
struct StoredFiles {
    contents: Contents,
    /// By node.
    files: Vec<Stored>,
    shown: PathBuf,
    stamps: Stamps,
}

impl TreeFiles for StoredFiles {
    fn read_at(&mut self, plan: &Plan, node: NodeId, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let read = self.contents.read_at(self.files[node.index()], offset, buf);
        read.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => SourceError::Changed { path: self.shown.clone() },
            _ => {
                SourceError::Unreadable { path: self.shown.join(OsStr::from_bytes(&plan.path(node))), error }
            }
        })
    }

    fn verify_unchanged(&mut self, _plan: &Plan) -> Result<(), SourceError> {
        for (stamp, file) in &self.stamps {
            let now = FileStamp::of(file);
            let now = now.map_err(|error| SourceError::Unreadable { path: self.shown.clone(), error })?;
            if now != *stamp {
                return Err(SourceError::Changed { path: self.shown.clone() });
            }
        }
        Ok(())
    }
}
