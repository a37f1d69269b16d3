//! A file that is written as a whole, and takes the place of another one when all of it lasts.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::time::Instant;

use hs_overlay::{Overlay, Refusal};
use hs_units::{BLOCK_BYTES, Digest};

use crate::error::KeepError;
use crate::file::{KeepFile, OpenedAs};

/// An overlay that is written beside the file whose place it takes. Dropped before, it is removed.
pub struct NewFile {
    /// Locked until the new file is in its place, so that no other process uses either.
    old: KeepFile,
    /// Where that is: the end of links.
    place: PathBuf,
    /// Where the new file lies.
    beside: PathBuf,
    file: Option<KeepFile>,
    overlay: Overlay,
}

impl NewFile {
    /// An overlay for this disk, which is to take the place of `old`.
    ///
    /// # Errors
    /// When there is no room for it beside that file.
    pub fn instead_of(old: KeepFile, disk: (Digest, u64)) -> Result<Self, KeepError> {
        let place = fs::canonicalize(old.path()).map_err(KeepError::io("look at", old.path()))?;
        let beside = beside(&place);
        remove_left(&beside)?;
        let file = KeepFile::locked(&beside, OpenedAs::Keeping, Instant::now())?;
        let overlay = match file.overlay(Some(disk), true) {
            Ok(overlay) => overlay,
            Err(error) => {
                let _ = fs::remove_file(&beside);
                return Err(error);
            }
        };
        Ok(Self { old, place, beside, file: Some(file), overlay })
    }

    /// The file whose place it takes.
    #[must_use]
    pub const fn old(&self) -> &KeepFile {
        &self.old
    }

    /// Writes whole blocks, from the block `start` of the disk on.
    ///
    /// # Errors
    /// When they cannot be written, or do not lie in the disk.
    pub fn write(&mut self, start: u64, bytes: &[u8]) -> Result<(), KeepError> {
        self.put(bytes.len() as u64 / BLOCK_BYTES, |overlay| overlay.handle_write(start, bytes))
    }

    /// So many blocks, from `start` on, are zero.
    ///
    /// # Errors
    /// When they do not lie in the disk.
    pub fn zero(&mut self, start: u64, blocks: u64, discard: bool) -> Result<(), KeepError> {
        self.put(0, |overlay| overlay.handle_zero(start, blocks, discard))
    }

    /// Makes a change, and room for it where that is needed.
    fn put(
        &mut self,
        data: u64,
        mut change: impl FnMut(&mut Overlay) -> Result<(), Refusal>,
    ) -> Result<(), KeepError> {
        let Some(file) = &self.file else { return Ok(()) };
        loop {
            match change(&mut self.overlay) {
                Ok(()) => return Ok(()),
                Err(Refusal::NeedsSpace) => file.take_space(&mut self.overlay, data)?,
                Err(refusal @ (Refusal::OutsideDisk | Refusal::ReadOnly)) => {
                    let error = io::Error::other(refusal);
                    return Err(KeepError::io("write", file.path())(error));
                }
                Err(_) => file.run_alone(&mut self.overlay)?,
            }
        }
    }

    /// Keeps the disk as it is, under this name.
    ///
    /// # Errors
    /// When the name cannot be given, or the file cannot be written.
    pub fn take_snapshot(&mut self, name: &str, now_s: u64) -> Result<(), KeepError> {
        self.write_all()?;
        self.overlay.take_snapshot(name, now_s).map_err(KeepError::overlay(self.old.path()))?;
        self.write_all()
    }

    fn write_all(&mut self) -> Result<(), KeepError> {
        self.overlay.handle_close();
        self.file.as_ref().map_or(Ok(()), |file| file.run_alone(&mut self.overlay))
    }

    /// Puts the file into its place, where it is locked as the other one was. All of it is on the medium.
    ///
    /// # Errors
    /// When that fails: the old file stays then.
    pub fn finish(mut self) -> Result<KeepFile, KeepError> {
        self.write_all()?;
        let about = fs::metadata(&self.place).map_err(KeepError::io("look at", &self.place))?;
        self.set_up_like(&about).map_err(KeepError::io("set up", &self.beside))?;
        fs::rename(&self.beside, &self.place).map_err(KeepError::io("replace", &self.place))?;
        let Some(file) = self.file.take() else { unreachable!("it is taken once") };
        let folder = self.place.parent().unwrap_or(Path::new("/"));
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(file.moved_to(self.old.path()))
    }

    /// Gives the new file owner and mode of the old one.
    fn set_up_like(&self, about: &Metadata) -> io::Result<()> {
        let own = fs::metadata(&self.beside)?;
        if (own.uid(), own.gid()) != (about.uid(), about.gid()) {
            chown(&self.beside, Some(about.uid()), Some(about.gid()))?;
        }
        fs::set_permissions(&self.beside, about.permissions())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.beside);
        }
    }
}

/// Removes what an attempt that was killed has left, and no other file.
fn remove_left(beside: &Path) -> Result<(), KeepError> {
    let mut magic = [0; hs_overlay::MAGIC.len()];
    let is_ours = match File::open(beside) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(KeepError::io("read", beside)(error)),
        // It may have ended before the first block.
        Ok(file) => match file.read_at(&mut magic, 0) {
            Ok(0) => true,
            read => read.is_ok() && (magic == *hs_overlay::MAGIC || magic == [0; 8]),
        },
    };
    if !is_ours {
        let another = io::Error::new(ErrorKind::AlreadyExists, "another file is there; move it away");
        return Err(KeepError::io("write", beside)(another));
    }
    fs::remove_file(beside).map_err(KeepError::io("remove", beside))
}

/// Where the new file is written. A name that would be too long is a hash of the old one instead.
fn beside(path: &Path) -> PathBuf {
    const SUFFIX: &[u8] = b".unfinished";
    let mut name = path.file_name().unwrap_or_default().as_bytes().to_vec();
    if name.len() + SUFFIX.len() > libc::NAME_MAX as usize {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        name = format!("{:016x}", hasher.finish()).into_bytes();
    }
    name.extend(SUFFIX);
    path.with_file_name(OsStr::from_bytes(&name))
}
