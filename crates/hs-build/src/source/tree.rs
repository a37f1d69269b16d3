//! The walk over a source directory: every entry in the order in which `mkfs.ext4 -d` visits it, what the
//! file system will need for it, and a digest of it all.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::file_data::FileReader;
use super::sizing::Needs;
use super::xattrs::Attributes;
use super::{SourceError, SourceProgress};

/// A point in time as an inode has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Timestamp {
    /// Seconds since 1970, negative before.
    pub(super) seconds: i64,
    /// Nanoseconds within the second.
    pub(super) nanoseconds: u32,
}

/// What `lstat` says of an entry and must still say when it has been copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Status {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) bytes: u64,
    pub(super) modified: Timestamp,
    changed: Timestamp,
    device: u64,
    inode: u64,
    links: u64,
    special_device: u64,
}

impl Status {
    fn of(metadata: &Metadata) -> Self {
        Self {
            mode: metadata.mode(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            bytes: metadata.size(),
            modified: Timestamp {
                seconds: metadata.mtime(),
                nanoseconds: metadata.mtime_nsec().clamp(0, 999_999_999) as u32,
            },
            changed: Timestamp {
                seconds: metadata.ctime(),
                nanoseconds: metadata.ctime_nsec().clamp(0, 999_999_999) as u32,
            },
            device: metadata.dev(),
            inode: metadata.ino(),
            links: metadata.nlink(),
            special_device: metadata.rdev(),
        }
    }

    pub(super) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

/// One name in the tree.
#[derive(Debug)]
pub(super) struct Entry {
    /// Index of the directory that holds it; the root is its own.
    pub(super) parent: usize,
    /// Directories above it; 0 for the root.
    pub(super) depth: usize,
    pub(super) name: OsString,
    pub(super) status: Status,
    /// Number of extended attributes.
    pub(super) xattrs: usize,
}

/// A walked tree.
#[derive(Debug)]
pub(super) struct Tree {
    root: PathBuf,
    /// Depth first, a directory before what is in it, names in byte order: `mkfs.ext4 -d` sorts with
    /// `alphasort` in the C locale, so neither `readdir` order nor inode numbers of the source matter. The
    /// root comes first.
    pub(super) entries: Vec<Entry>,
    /// What the file system needs to hold it.
    pub(super) needs: Needs,
    /// Names, attributes, data; not change and access times, nor inode numbers, nor where holes are.
    pub(super) digest: blake3::Hash,
}

/// Files between two progress calls.
const PROGRESS_ENTRIES: u64 = 256;

impl Tree {
    /// Walks and reads the tree under `root`, an absolute path of a directory.
    pub(super) fn scan(root: &Path, progress: &dyn Fn(SourceProgress)) -> Result<Self, SourceError> {
        let mut scan = Scan {
            tree: Self {
                root: root.to_owned(),
                entries: Vec::new(),
                needs: Needs::default(),
                digest: blake3::Hash::from_bytes([0; 32]),
            },
            names: blake3::Hasher::new(),
            file_reader: FileReader::new(),
            linked: HashMap::new(),
        };
        // What is still to be visited; the next one is at the end.
        let mut pending = vec![(0, 0, OsString::new())];
        while let Some((parent, depth, name)) = pending.pop() {
            let index = scan.tree.entries.len();
            let mut children = scan.visit(Entry {
                parent,
                depth,
                status: Status::of(&lstat(&scan.tree.join(parent, &name))?),
                name,
                xattrs: 0,
            })?;
            children.sort_unstable_by(|a, b| b.cmp(a));
            pending.extend(children.into_iter().map(|name| (index, depth + 1, name)));
            let entries = index as u64 + 1;
            if entries.is_multiple_of(PROGRESS_ENTRIES) || pending.is_empty() {
                progress(SourceProgress::Scanning { entries, bytes: scan.file_reader.bytes() });
            }
        }
        let Scan { mut tree, mut names, file_reader, .. } = scan;
        names.update(file_reader.digest().as_bytes());
        tree.digest = names.finalize();
        Ok(tree)
    }

    /// Fails with the first entry that is no longer as it was when it was scanned. New names in a directory
    /// show in the directory's own times.
    pub(super) fn verify_unchanged(&self) -> Result<(), SourceError> {
        for (index, entry) in self.entries.iter().enumerate() {
            let path = self.path(index);
            match std::fs::symlink_metadata(&path) {
                Ok(metadata) if Status::of(&metadata) == entry.status => {}
                Ok(_) => return Err(SourceError::Changed { path }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(SourceError::Changed { path });
                }
                Err(error) => return Err(SourceError::Unreadable { path, error }),
            }
        }
        Ok(())
    }

    /// The absolute path of an entry.
    pub(super) fn path(&self, index: usize) -> PathBuf {
        let entry = &self.entries[index];
        if index == 0 { self.root.clone() } else { self.join(entry.parent, &entry.name) }
    }

    /// The path of `name` in the directory `parent`; the root's own path for an empty name.
    fn join(&self, parent: usize, name: &OsString) -> PathBuf {
        let mut names = vec![name];
        let mut index = parent;
        while index != 0 {
            names.push(&self.entries[index].name);
            index = self.entries[index].parent;
        }
        let mut path = self.root.clone();
        path.extend(names.iter().rev().filter(|name| !name.is_empty()));
        path
    }
}

/// A walk under way.
struct Scan {
    tree: Tree,
    names: blake3::Hasher,
    file_reader: FileReader,
    /// Files with several names, by device and inode number: the first entry.
    linked: HashMap<(u64, u64), usize>,
}

impl Scan {
    /// Takes up one entry; returns the names in it if it is a directory.
    fn visit(&mut self, mut entry: Entry) -> Result<Vec<OsString>, SourceError> {
        let index = self.tree.entries.len();
        let path = self.tree.join(entry.parent, &entry.name);
        if index != 0 {
            self.tree.needs.add_name(entry.parent, entry.name.len());
        }
        let first = self.first_name_of(index, &entry.status);
        self.hash_entry(&entry, first);
        if first != index {
            self.tree.entries.push(entry);
            return Ok(Vec::new());
        }
        let attributes = Attributes::read(&path)?;
        attributes.hash_into(&mut self.names);
        entry.xattrs = attributes.len();
        self.tree.needs.add_inode();
        self.tree.needs.add_attribute_block(attributes.needs_block(&path)?);
        let children = self.visit_body(index, &entry, &path)?;
        self.tree.entries.push(entry);
        Ok(children)
    }

    /// Reads what an entry has besides its inode: names, a target, data.
    fn visit_body(&mut self, index: usize, entry: &Entry, path: &Path) -> Result<Vec<OsString>, SourceError> {
        match entry.status.file_type() {
            FileType::Directory => {
                self.refuse_kernel_file_system(entry, path)?;
                self.tree.needs.add_directory(index);
                return list_directory(path);
            }
            FileType::Symlink => {
                let target = std::fs::read_link(path).map_err(|error| unreadable(path, error))?;
                let target = target.into_os_string().into_vec();
                self.tree.needs.add_symlink(target.len());
                hash_bytes(&mut self.names, &target);
            }
            FileType::RegularFile => {
                let used = self.file_reader.read(path, entry.status.bytes, &mut self.names)?;
                self.tree.needs.add_file(used);
            }
            _ => {}
        }
        Ok(Vec::new())
    }

    /// The first entry for the same inode, as `mkfs.ext4` finds it: by device and inode number, for anything
    /// but directories and symbolic links. (A symbolic link with two names becomes two.)
    fn first_name_of(&mut self, index: usize, status: &Status) -> usize {
        if status.links < 2 || matches!(status.file_type(), FileType::Directory | FileType::Symlink) {
            return index;
        }
        *self.linked.entry((status.device, status.inode)).or_insert(index)
    }

    fn hash_entry(&mut self, entry: &Entry, first: usize) {
        hash_bytes(&mut self.names, entry.name.as_bytes());
        let status = &entry.status;
        let is_special = matches!(status.file_type(), FileType::CharacterDevice | FileType::BlockDevice);
        let is_file = status.file_type() == FileType::RegularFile;
        for number in [
            entry.depth as u64,
            first as u64,
            u64::from(status.mode),
            u64::from(status.uid),
            u64::from(status.gid),
            // The size of a directory depends on the file system that it lies on.
            if is_file { status.bytes } else { 0 },
            if is_special { status.special_device } else { 0 },
            status.modified.seconds.cast_unsigned(),
            u64::from(status.modified.nanoseconds),
        ] {
            self.names.update(&number.to_le_bytes());
        }
    }

    /// Refuses a mount point of a file system that the kernel invents: its files have no end or no content,
    /// and reading them may act on the machine. A build of `/` would meet `/proc`.
    fn refuse_kernel_file_system(&self, entry: &Entry, path: &Path) -> Result<(), SourceError> {
        let parent = self.tree.entries.get(entry.parent);
        if parent.is_some_and(|parent| parent.status.device == entry.status.device) {
            return Ok(());
        }
        let status = rustix::fs::statfs(path).map_err(|error| unreadable(path, error.into()))?;
        let magic = status.f_type.cast_unsigned() & 0xffff_ffff;
        match KERNEL_FILE_SYSTEMS.iter().find(|(known, _)| *known == magic) {
            Some(&(_, file_system)) => {
                Err(SourceError::KernelFileSystem { path: path.to_owned(), file_system })
            }
            None => Ok(()),
        }
    }
}

/// `f_type` of file systems without files of their own, from the kernel's `include/uapi/linux/magic.h`.
const KERNEL_FILE_SYSTEMS: [(u64, &str); 14] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x1cd1, "devpts"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0xcafe_4a11, "bpf"),
    (0x1980_0202, "mqueue"),
    (0x6265_6570, "configfs"),
    (0x6165_676c, "pstore"),
    (0xde5e_81e4, "efivarfs"),
];

/// Adds bytes with their length, so that no two sequences of calls look the same.
pub(super) fn hash_bytes(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
}

fn lstat(path: &Path) -> Result<Metadata, SourceError> {
    std::fs::symlink_metadata(path).map_err(|error| unreadable(path, error))
}

fn list_directory(path: &Path) -> Result<Vec<OsString>, SourceError> {
    std::fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.file_name())).collect())
        .map_err(|error| unreadable(path, error))
}

/// What a failed call on an entry means: an entry that has just been listed and is gone has changed.
pub(super) fn unreadable(path: &Path, error: io::Error) -> SourceError {
    let path = path.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound => SourceError::Changed { path },
        _ => SourceError::Unreadable { path, error },
    }
}
