//! The list in its file, which is believed only when root alone can have written it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use hs_accelerate::{MAX_LIST_BYTES, PageList};
use hs_linux::LinuxError;
use rustix::fs::{Mode, OFlags};

use crate::places::look_again;
use crate::{EarlyError, Root};

/// Where lists are kept, on the file system that they are of.
pub(crate) const FOLDER: &str = "var/lib/headstart/accelerate";
/// Bits of a mode by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// The place of a list.
#[derive(Clone, Debug)]
pub struct KeptList {
    /// The file.
    pub path: PathBuf,
}

impl KeptList {
    /// The list of a file system, in its usual place there.
    #[must_use]
    pub fn of(root: &Root) -> Self {
        Self { path: root.path.join(FOLDER).join(format!("{}.pages", root.name())) }
    }

    /// The list that a recording is taken into. A damaged one is made anew, with a warning, and so is the
    /// file system's own list when it is of another one. A list that a user has `named` may be needed there.
    ///
    /// # Errors
    /// [`EarlyError::NotTrusted`], [`EarlyError::OfAnother`], and those of reading.
    pub fn begin(&self, root: &Root, named: bool) -> Result<PageList, EarlyError> {
        match self.read(root) {
            Ok(list) => return Ok(list.unwrap_or_else(|| PageList::empty(root.identity))),
            Err(EarlyError::OfAnother { .. }) if !named => {}
            Err(error @ EarlyError::List { .. }) => log::warn!("{error}"),
            Err(error) => return Err(error),
        }
        Ok(PageList::empty(root.identity))
    }

    /// Reads the list; `None` when there is none.
    ///
    /// # Errors
    /// [`EarlyError::NotTrusted`], [`EarlyError::List`], [`EarlyError::OfAnother`], and those of reading.
    pub fn read(&self, root: &Root) -> Result<Option<PageList>, EarlyError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(LinuxError::io("open", &self.path)(errno).into()),
        };
        self.check(&file)?;
        let mut bytes = Vec::new();
        file.take(MAX_LIST_BYTES).read_to_end(&mut bytes).map_err(LinuxError::io("read", &self.path))?;
        let list = PageList::decode(&bytes)
            .map_err(|source| EarlyError::List { path: self.path.clone(), source })?;
        if list.identity != root.identity {
            return Err(EarlyError::OfAnother { path: self.path.clone() });
        }
        Ok(Some(list))
    }

    /// Only root may have written it: neither its owner nor its folder's may be another user, who could put a
    /// file of root's there.
    fn check(&self, file: &File) -> Result<(), EarlyError> {
        let distrust = |fault| Err(EarlyError::NotTrusted { path: self.path.clone(), fault });
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let own = file.metadata().map_err(LinuxError::io("look at", &self.path))?;
        let above = folder.metadata().map_err(LinuxError::io("look at", folder))?;
        if !own.is_file() {
            return distrust("it is not a file");
        }
        if own.uid() != 0 || above.uid() != 0 {
            return distrust("it or its folder belongs to another user than root");
        }
        // In a folder such as /tmp others cannot replace what is root's.
        let is_sticky = above.mode() & 0o1000 != 0;
        if own.mode() & OTHERS_WRITE != 0 || (above.mode() & OTHERS_WRITE != 0 && !is_sticky) {
            return distrust("others than root may write to it or to its folder");
        }
        Ok(())
    }

    /// Writes the list: the old one stays until the new one is whole.
    ///
    /// # Errors
    /// Those of writing, such as a full disk.
    pub fn write(&self, list: &PageList) -> Result<(), EarlyError> {
        write_private(&self.path, &list.encode())
    }

    /// Looks where the pages of the list lie now, and keeps that: the old list stays until the new one is
    /// whole. A list that is not there, also one that goes meanwhile, stays away. Gives whether it changed.
    ///
    /// # Errors
    /// Those of [`read`](Self::read) and [`write`](Self::write).
    pub fn update_places(&self, root: &Root) -> Result<bool, EarlyError> {
        let Some(mut list) = self.read(root)? else { return Ok(false) };
        if !look_again(root, &mut list) || !self.path.exists() {
            return Ok(false);
        }
        self.write(&list)?;
        Ok(true)
    }

    /// Removes it.
    ///
    /// # Errors
    /// Those of the file system, but for a list that is not there.
    pub fn remove(&self) -> Result<(), EarlyError> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(LinuxError::io("remove", &self.path)(error).into())
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), EarlyError> {
    // What lies above the folders of this program, such as /var/lib, can be entered by other users.
    if let Some(above) = path.ancestors().nth(3).filter(|above| !above.as_os_str().is_empty()) {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(above);
        made.map_err(LinuxError::io("make", above))?;
    }
    let failed = |error: anyhow::Error| {
        let source = error.downcast::<std::io::Error>().unwrap_or_else(std::io::Error::other);
        LinuxError::io("write", path)(source).into()
    };
    hs_output::whole_file::write_private(path, bytes).map_err(failed)
}
