//! File systems as the reader of the crate `mkext4` sees them. It is a stranger to our writer: it computes
//! each checksum anew, and says whether a directory's index finds its names where they lie.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use mkext4::reader::Fs;
use mkext4::spec::{self, Inode};

/// An open file system.
pub(crate) struct Foreign(Fs<File>);

/// An entry: its inode's number, and the inode.
pub(crate) struct Entry<'a> {
    system: &'a Fs<File>,
    number: u32,
    pub(crate) inode: Inode,
}

impl Foreign {
    /// Opens a file system and fails with what is wrong in it. Nothing where it has attributes in inodes of
    /// their own, which this reader does not know.
    pub(crate) fn open(disk: &Path) -> Option<Self> {
        let system = match Fs::open(File::open(disk).unwrap()) {
            Err(mkext4::Error::Unsupported(what)) if what == "incompat features 0x400" => return None,
            opened => opened.unwrap(),
        };
        let issues: Vec<_> =
            system.verify().unwrap().into_iter().filter(|issue| counts(&issue.what)).collect();
        assert!(issues.is_empty(), "{issues:?}");
        Some(Self(system))
    }

    /// What is at a path below the root.
    pub(crate) fn at(&self, path: &Path) -> Entry<'_> {
        let number = path.components().fold(spec::ROOT_INO, |directory, part| {
            let Component::Normal(name) = part else { panic!("{}", path.display()) };
            self.0.lookup(directory, name.as_bytes()).unwrap().expect("an entry")
        });
        Entry { system: &self.0, number, inode: self.0.inode(number).unwrap() }
    }
}

/// Whether it is an issue for other readers too. This one takes each descriptor for one of 32 bytes, where
/// ours have 64, and wants checksums of the reserved inodes, which are empty.
fn counts(issue: &str) -> bool {
    let is_reserved = |rest: &str| {
        let number = rest.split(':').next().and_then(|number| number.parse::<u32>().ok());
        number.is_some_and(|number| number <= 10 && number != spec::ROOT_INO)
    };
    !issue.contains(": desc checksum") && !issue.strip_prefix("inode ").is_some_and(is_reserved)
}

impl Entry<'_> {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn target(&self) -> Vec<u8> {
        self.system.symlink_target(self.number).unwrap()
    }

    /// The bytes at a place of a file.
    pub(crate) fn bytes_at(&self, offset: u64, len: usize) -> Vec<u8> {
        let extents = self.system.extents(self.number, &self.inode).unwrap();
        let mut bytes = vec![0; len];
        assert_eq!(self.system.read_file_at(&self.inode, &extents, offset, &mut bytes).unwrap(), len);
        bytes
    }

    /// How many attributes it has.
    pub(crate) fn attributes(&self) -> usize {
        self.system.xattrs(self.number).unwrap().len()
    }
}
