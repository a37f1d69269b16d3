//! The kept list.

/// Which file system a list is of. Another one, or another subvolume, makes the list mean nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FsIdentity {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Btrfs: the number of the subvolume that is mounted. Elsewhere zero.
    pub subvolume: u64,
}

/// A file as the kernel names it across restarts: a file handle, which holds its inode number and generation
/// (name_to_handle_at(2)). A file that takes the place of another one has another handle.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileIdentity {
    /// The type of the handle.
    pub kind: i32,
    /// The handle.
    pub handle: Vec<u8>,
}

impl FileIdentity {
    /// Bytes that a handle has at most here. ext4 has 8, XFS 12, Btrfs 20 (or twice as many with a parent).
    pub const MAX_HANDLE_BYTES: usize = 64;
}

/// A file of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedFile {
    /// Which one.
    pub identity: FileIdentity,
    /// Its inode number, for programs and people; it is not opened by that.
    pub inode: u64,
    /// Its path from the root of the file system when it was recorded, for people; may be empty.
    pub path: String,
}

impl ListedFile {
    /// Bytes of a path at most.
    pub const MAX_PATH_BYTES: usize = 4096;
}

/// Consecutive pages of a file, or of the block device, that were first used together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedRun {
    /// The place of the file in [`PageList::files`]; `None`: pages of the block device.
    pub file: Option<u32>,
    /// The first page, in units of 4 KiB.
    pub page: u64,
    /// How many; at least one.
    pub pages: u32,
    /// The page of the block device where the first one lies, and the others behind it; zero: not known. It
    /// decides the order of requests only.
    pub place: u64,
    /// Milliseconds from the beginning of the recording to the first use.
    pub at_ms: u32,
    /// Starts since the pages were used last.
    pub unused_starts: u8,
}

/// Pages that starts needed, in the order of first use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageList {
    /// The file system that they are pages of.
    pub identity: FsIdentity,
    /// Starts that were recorded.
    pub starts: u32,
    /// The files.
    pub files: Vec<ListedFile>,
    /// Their pages and those of the device, by [`ListedRun::at_ms`].
    pub runs: Vec<ListedRun>,
}

impl PageList {
    /// A list of nothing.
    #[must_use]
    pub fn empty(identity: FsIdentity) -> Self {
        Self { identity, starts: 0, files: Vec::new(), runs: Vec::new() }
    }

    /// How many pages there are.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.pages)).sum()
    }
}
