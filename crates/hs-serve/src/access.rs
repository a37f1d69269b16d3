//! The users who may read the file that shows a disk.

/// Owner and permission bits of a file that holds a whole disk.
///
/// The raw disk contains data that the permissions of its file system protect, so by default only the user
/// who mounts it may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAccess {
    /// The owner's user id.
    pub uid: u32,
    /// The owner's group id.
    pub gid: u32,
    /// Permission bits, at most `0o777`. Nothing can be written or executed, whatever they say; with one of
    /// those for writing the file can be opened for it, as programs do that map it privately.
    pub mode: u32,
}

impl FileAccess {
    /// Permission bits of a disk that nothing was said about: its owner reads it.
    pub const DEFAULT_MODE: u32 = 0o400;

    /// Whether a user may open the file for writing.
    #[must_use]
    pub const fn opens_for_writing(self) -> bool {
        self.mode & 0o222 != 0
    }

    /// The same file, with this owner.
    #[must_use]
    pub const fn owned_by(self, uid: u32, gid: u32) -> Self {
        Self { uid, gid, ..self }
    }
}

impl Default for FileAccess {
    /// This process's effective user and group, and [`FileAccess::DEFAULT_MODE`].
    fn default() -> Self {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        Self { uid: uid.as_raw(), gid: gid.as_raw(), mode: Self::DEFAULT_MODE }
    }
}
