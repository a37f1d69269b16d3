//! An ext4 of its own for each test, on a loop device, with files that lie scattered.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hs_linux::{FileExtent, file_extents};
use hs_relocate::{FileRun, Options, Outcome, RelocateError, Report, relocate};
use hs_testing::noise;
use hs_units::Prng;
use rustix::fs::{FallocateFlags, XattrFlags, fallocate};

/// Runs a tool that must succeed; gives what it printed.
pub(crate) fn tool(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(name).args(arguments).output().expect("the tool starts");
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} {arguments:?}: {said}");
    said
}

pub(crate) fn machine() -> bool {
    hs_testing::machine_has(&["/dev/loop-control", "mkfs.ext4", "e2fsck", "mount", "umount", "losetup"])
}

/// A mounted ext4. Dropping it unmounts it.
pub(crate) struct Mounted {
    folder: tempfile::TempDir,
    pub(crate) root: PathBuf,
}

impl Mounted {
    pub(crate) fn new(mib: u64, words: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        fs::create_dir(&root).expect("a folder");
        let mounted = Self { folder, root };
        File::create(mounted.image()).and_then(|file| file.set_len(mib << 20)).expect("a file");
        // Small file systems get smaller blocks by themselves; the last word counts.
        tool("mkfs.ext4", &[&["-q", "-F", "-b", "4096"][..], words, &[&mounted.image()]].concat());
        mounted.mount(&[]);
        mounted
    }

    pub(crate) fn image(&self) -> String {
        self.folder.path().join("image").display().to_string()
    }

    pub(crate) fn mount(&self, options: &[&str]) {
        let options = [&["loop"][..], options].concat().join(",");
        tool("mount", &["-o", &options, &self.image(), &self.root.display().to_string()]);
        self.turns(true);
    }

    /// Lets the loop device say whether it is a drive that turns.
    pub(crate) fn turns(&self, turns: bool) {
        let device = fs::metadata(&self.root).expect("mounted").dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let queue = format!("/sys/dev/block/{major}:{minor}/queue/rotational");
        fs::write(queue, if turns { "1" } else { "0" }).expect("written");
    }

    pub(crate) fn unmount(&self) {
        tool("umount", &[&self.root.display().to_string()]);
    }

    /// Unmounts, has it checked, and mounts it again: nothing comes from a cache then.
    pub(crate) fn check(&self) {
        self.unmount();
        tool("e2fsck", &["-fn", &self.image()]);
        self.mount(&[]);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("written");
    }

    /// Files of 1 to 60 KiB that lie apart: others between them have been deleted.
    pub(crate) fn scatter(&self, files: u64, seed: u64) {
        let mut prng = Prng::new(seed);
        for number in 0..files {
            self.write(&name(number), &noise(1 + prng.below(60_000) as usize, seed ^ number));
            self.write(&format!("between/{number}"), &noise(1 + prng.below(40_000) as usize, number));
        }
        tool("sync", &["-f", &self.root.display().to_string()]);
        fs::remove_dir_all(self.path("between")).expect("deleted");
    }

    /// A file of so many MiB, each apart from the next: what lay between them has been cut out.
    pub(crate) fn fragmented(&self, name: &str, mib: u64) {
        self.write(name, &noise((mib << 21) as usize, mib));
        let file = File::options().write(true).open(self.path(name)).expect("there");
        file.sync_all().expect("written");
        for number in 1..mib {
            fallocate(&file, FallocateFlags::COLLAPSE_RANGE, number << 20, 1 << 20).expect("cut out");
        }
        file.set_len(mib << 20).expect("cut");
    }

    /// A run of a file's pages, as a recording has it.
    pub(crate) fn run(&self, name: &str, first_page: u64, pages: u64) -> FileRun {
        let inode = fs::metadata(self.path(name)).expect("there").ino();
        FileRun { path: format!("/{name}"), identity: None, inode, first_page, pages }
    }

    /// All files of `scatter` from their first page to the last, in an order that the seed draws.
    pub(crate) fn start(&self, files: u64, seed: u64) -> Vec<FileRun> {
        let mut prng = Prng::new(seed);
        let mut order: Vec<u64> = (0..files).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, prng.below(at as u64 + 1) as usize);
        }
        order.into_iter().map(|number| self.run(&name(number), 0, 15)).collect()
    }

    pub(crate) fn relocate(&self, wanted: &[FileRun]) -> Result<Report, RelocateError> {
        relocate(&self.root, wanted, Options::default(), &mut |_| std::ops::ControlFlow::Continue(()))
    }

    /// Relocates, and it must have moved.
    pub(crate) fn moved(&self, wanted: &[FileRun]) -> Report {
        let report = self.relocate(wanted).expect("relocated");
        assert_eq!(report.outcome, Outcome::Moved, "{report:?}");
        report
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        tool("sync", &["-f", &self.root.display().to_string()]);
        let space = rustix::fs::statvfs(&self.root).expect("mounted");
        space.f_bavail * space.f_frsize
    }

    /// The bytes of the device.
    pub(crate) fn bytes(&self) -> u64 {
        fs::metadata(self.image()).expect("there").len()
    }

    pub(crate) fn extents(&self, name: &str) -> Vec<FileExtent> {
        let file = File::open(self.path(name)).expect("there");
        file_extents(&file, true).expect("extents")
    }

    pub(crate) fn fragments(&self, name: &str) -> u64 {
        let extents = self.extents(name);
        let apart = extents.windows(2).filter(|pair| pair[0].physical + pair[0].length != pair[1].physical);
        extents.len().min(1) as u64 + apart.count() as u64
    }

    /// Where a file begins on the disk.
    pub(crate) fn first_block(&self, path: &Path) -> u64 {
        let file = File::open(path).expect("there");
        file_extents(&file, true).expect("extents").first().expect("an extent").physical
    }

    /// Everything that must stay as it is, of each file.
    pub(crate) fn facts(&self) -> BTreeMap<PathBuf, Facts> {
        let mut facts = BTreeMap::new();
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("read") {
                let path = entry.expect("read").path();
                let kind = fs::symlink_metadata(&path).expect("there").file_type();
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    facts.insert(path.clone(), Facts::of(&path));
                }
            }
        }
        facts
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.root).output();
    }
}

pub(crate) fn name(number: u64) -> String {
    format!("files/{}/{number}", number % 7)
}

/// What a file is to those that read it.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    digest: blake3::Hash,
    bytes: u64,
    inode: u64,
    mode: u32,
    links: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    attributes: Vec<u8>,
}

impl Facts {
    fn of(path: &Path) -> Self {
        let found = fs::metadata(path).expect("there");
        let mut attributes = vec![0; 256];
        let length = rustix::fs::getxattr(path, "user.told", &mut attributes[..]).unwrap_or(0);
        attributes.truncate(length);
        Self {
            digest: blake3::hash(&fs::read(path).expect("read")),
            bytes: found.len(),
            inode: found.ino(),
            mode: found.mode(),
            links: found.nlink(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
            attributes,
        }
    }
}

/// Gives a file an extended attribute.
pub(crate) fn tell(path: &Path, told: &[u8]) {
    rustix::fs::setxattr(path, "user.told", told, XattrFlags::empty()).expect("an attribute");
}
