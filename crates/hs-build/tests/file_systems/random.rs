//! Random trees of every kind of entry come back through the kernel as they were planned; what is mounted
//! then is built from again, as a directory and as an archive of GNU tar.
//!
//! `TREES=500` tries so many, `FIRST_TREE=77` begins with another: the number of a tree is its seed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use hs_build::source::{Source, SourceOptions};
use hs_ext4::{DataRun, Kind, Meta, NodeId, Plan, Time};
use hs_units::Prng;
use tempfile::NamedTempFile;

use crate::foreign::Foreign;
use crate::written::{Mount, bytes_at, is_clean, options, read_back, write};

const TREES: u64 = 24;
/// The longest path of a directory, so that calls take what is in it.
const MOST_FOLDER_BYTES: usize = 3500;
/// `cap_net_raw=ep` (`linux/capability.h`, revision 2).
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Each block that is stored has one byte throughout.
#[derive(Clone, Default)]
struct Content {
    bytes: u64,
    blocks: BTreeMap<u32, u8>,
}

/// What an entry must be.
struct Wanted {
    mode: u32,
    owner: (u32, u32),
    modified: Time,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    names: u64,
    device: u64,
    content: Content,
    target: Vec<u8>,
}

struct Tree {
    random: Prng,
    is_deep: bool,
    /// Archives leave them out.
    has_sockets: bool,
    moved_times: u64,
    plan: Plan,
    wanted: Vec<Wanted>,
    directories: Vec<(NodeId, PathBuf)>,
    used: BTreeSet<PathBuf>,
    paths: Vec<(PathBuf, NodeId)>,
}

fn acl() -> Vec<u8> {
    let mut acl = 2_u32.to_le_bytes().to_vec();
    let entries =
        [(1_u16, 6_u16, u32::MAX), (2, 4, 70_000), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    for (tag, permissions, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

impl Tree {
    fn new(seed: u64) -> Self {
        let plan = Plan::new(&Meta { permissions: 0o755, ..Meta::default() }).unwrap();
        let root = Wanted {
            mode: 0o40_755,
            owner: (0, 0),
            modified: Time::default(),
            attributes: BTreeMap::new(),
            names: 2,
            device: 0,
            content: Content::default(),
            target: Vec::new(),
        };
        let mut tree = Self {
            random: Prng::new(seed),
            is_deep: seed % 8 == 3,
            has_sockets: !is_archived(seed),
            moved_times: 0,
            plan,
            wanted: vec![root],
            directories: vec![(NodeId::ROOT, PathBuf::new())],
            used: BTreeSet::new(),
            paths: vec![(PathBuf::new(), NodeId::ROOT)],
        };
        // Every fourth tree has a directory with an index.
        let entries = if seed.is_multiple_of(4) { 700 } else { tree.random.below(90) };
        (0..entries).for_each(|_| tree.add());
        tree
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.random.fill(&mut bytes);
        bytes
    }

    /// A place where nothing is: arbitrary bytes in one of the last directories.
    fn place(&mut self) -> (NodeId, Vec<u8>, PathBuf) {
        loop {
            let late = self.directories.len() as u64 - 1;
            let usual = if self.is_deep { late } else { late.min(2) };
            let index = if self.below(3) == 0 { self.below(late + 1) } else { usual };
            let (parent, path) = self.directories[index as usize].clone();
            let len = if self.below(20) == 0 { 255 } else { 1 + self.below(24) };
            let name: Vec<u8> = self.bytes(len).into_iter().map(|byte| byte.max(1)).collect();
            let name: Vec<u8> = name.into_iter().map(|byte| if byte == b'/' { b'.' } else { byte }).collect();
            let path = path.join(OsStr::from_bytes(&name));
            let is_short = path.as_os_str().len() < MOST_FOLDER_BYTES;
            if is_short && name != b"." && name != b".." && self.used.insert(path.clone()) {
                return (parent, name, path);
            }
        }
    }

    fn add(&mut self) {
        let (parent, name, path) = self.place();
        let kind = self.below(10);
        let directories: Vec<NodeId> = self.directories.iter().map(|directory| directory.0).collect();
        if kind == 9 && self.paths.len() > 1 {
            // One more name.
            let index = self.below(self.paths.len() as u64) as usize;
            let node = self.paths[index].1;
            // GNU tar takes names of one device for several devices.
            let file_type = self.wanted[node.index()].mode & 0o170_000;
            let is_kept = self.has_sockets || matches!(file_type, 0o100_000 | 0o120_000);
            if is_kept && !directories.contains(&node) {
                self.plan.link(parent, &name, node).unwrap();
                self.wanted[node.index()].names += 1;
                self.paths.push((path, node));
            }
            return;
        }
        let (major, minor) = (self.below(300) as u32, self.below(1 << 20) as u32);
        let content = if matches!(kind, 0..=3) { self.content() } else { Content::default() };
        let runs = runs_of(&content);
        let target_len = if self.below(2) == 0 { 58 + self.below(4) } else { 1 + self.below(4095) };
        let target: Vec<u8> = self.bytes(target_len).into_iter().map(|byte| byte.max(1)).collect();
        let (kind, file_type) = match kind {
            0..=3 => (Kind::File { bytes: content.bytes, runs: &runs }, 0o100_000),
            4 | 9 => (Kind::Directory, 0o40_000),
            5 => (Kind::Symlink(&target), 0o120_000),
            6 => (Kind::CharacterDevice { major, minor }, 0o20_000),
            7 => (Kind::BlockDevice { major, minor: minor % 200 }, 0o60_000),
            8 if major % 2 == 0 || !self.has_sockets => (Kind::Fifo, 0o10_000),
            _ => (Kind::Socket, 0o140_000),
        };
        // GNU tar knows no permissions of links, as Linux does not.
        let permissions = match kind {
            Kind::Symlink(_) if !self.has_sockets => 0o777,
            _ => self.below(1 << 12) as u16,
        };
        let attributes = self.attributes(file_type);
        let listed: Vec<_> = attributes.clone().into_iter().rev().collect();
        let (earliest, latest) = (i64::from(i32::MIN), i64::from(i32::MIN) + (1 << 34) - 1);
        let seconds = match self.below(30) {
            0 => earliest - 1 - self.below(1 << 40).cast_signed(),
            1 => latest + 1 + self.below(1 << 40).cast_signed(),
            _ => earliest + self.below(1 << 34).cast_signed(),
        };
        let nearest = seconds.clamp(earliest, latest);
        self.moved_times += u64::from(nearest != seconds);
        let meta = Meta {
            permissions,
            uid: self.random.next_u64() as u32,
            gid: self.below(70_000) as u32,
            modified: Time { seconds, nanoseconds: self.below(1_000_000_000) as u32 },
            attributes: &listed,
        };
        let node = self.plan.add(parent, &name, &kind, &meta).unwrap();
        assert_eq!(node.index(), self.wanted.len());
        let device = match kind {
            Kind::CharacterDevice { major, minor } | Kind::BlockDevice { major, minor } => {
                rustix::fs::makedev(major, minor)
            }
            _ => 0,
        };
        self.wanted.push(Wanted {
            mode: file_type | u32::from(meta.permissions),
            owner: (meta.uid, meta.gid),
            modified: Time { seconds: nearest, ..meta.modified },
            attributes,
            names: 1,
            device,
            content,
            target: if matches!(kind, Kind::Symlink(_)) { target.clone() } else { Vec::new() },
        });
        if matches!(kind, Kind::Directory) {
            self.wanted[node.index()].names = 2;
            self.wanted[parent.index()].names += 1;
            self.directories.push((node, path.clone()));
        }
        self.paths.push((path, node));
    }

    /// Some blocks with holes between them, and a size that ends in a block or in a hole.
    fn content(&mut self) -> Content {
        let mut content = Content::default();
        let mut at = 0;
        for _ in 0..self.below(12) {
            at += if self.below(4) == 0 { self.below(5_000) as u32 } else { 0 };
            content.blocks.insert(at, 1 + self.below(255) as u8);
            at += 1;
        }
        let end = u64::from(content.blocks.last_key_value().map_or(0, |(block, _)| block + 1)) * 4096;
        content.bytes = match self.below(3) {
            0 => end,
            1 => end.saturating_sub(self.below(4095)),
            _ => end + self.below(1 << 33),
        };
        content
    }

    fn attributes(&mut self, file_type: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut attributes = BTreeMap::new();
        let may_have_all = matches!(file_type, 0o100_000 | 0o40_000);
        let count = if self.below(3) == 0 { 1 + self.below(8) } else { 0 };
        for number in 0..count {
            let mut add = |name: &str, value: Vec<u8>| attributes.insert(name.into(), value);
            match self.below(7) {
                0 if may_have_all => add("system.posix_acl_access", acl()),
                1 if file_type == 0o40_000 => add("system.posix_acl_default", acl()),
                2 if file_type == 0o100_000 => add("security.capability", CAPABILITY.to_vec()),
                3 if may_have_all => {
                    let len = self.below(300);
                    add(&format!("user.{number}{}", "long".repeat(len as usize / 8)), self.bytes(len))
                }
                // Of several, some have no room in a block.
                4 => {
                    let len = if number % 3 == 0 { 65_536 } else { self.below(5_000) };
                    add(&format!("trusted.large.{number}"), vec![(len % 251) as u8; len as usize])
                }
                5 => add("security.selinux", b"system_u:object_r:bin_t:s0\0".to_vec()),
                _ => add(&format!("trusted.{number}"), vec![7; 60]),
            };
        }
        attributes
    }
}

fn runs_of(content: &Content) -> Vec<DataRun> {
    let mut runs: Vec<DataRun> = Vec::new();
    for &block in content.blocks.keys() {
        match runs.last_mut() {
            Some(run) if run.first + run.blocks == block => run.blocks += 1,
            _ => runs.push(DataRun { first: block, blocks: 1 }),
        }
    }
    runs
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 1 << 16];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 1 << 17];
        let len = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]).unwrap();
        (name.to_vec(), value[..len].to_vec())
    };
    names.map(value).collect()
}

fn check_content(path: &Path, content: &Content) {
    let file = File::open(path).unwrap();
    for (&block, &byte) in &content.blocks {
        let at = u64::from(block) * 4096;
        let len = (content.bytes - at).min(4096) as usize;
        assert!(bytes_at(&file, at, len) == vec![byte; len], "{} at {at}", path.display());
        let next = at + 4096;
        if !content.blocks.contains_key(&(block + 1)) && next < content.bytes {
            let len = (content.bytes - next).min(4096) as usize;
            assert!(bytes_at(&file, next, len) == vec![0; len], "{}: a hole at {next}", path.display());
        }
    }
}

fn check(path: &Path, found: &Metadata, wanted: &Wanted) {
    let what = path.display();
    assert_eq!((found.mode(), found.nlink()), (wanted.mode, wanted.names), "{what}");
    assert_eq!((found.uid(), found.gid()), wanted.owner, "{what}");
    let modified = (wanted.modified.seconds, i64::from(wanted.modified.nanoseconds));
    for time in [
        (found.mtime(), found.mtime_nsec()),
        (found.atime(), found.atime_nsec()),
        (found.ctime(), found.ctime_nsec()),
    ] {
        assert_eq!(time, modified, "{what}");
    }
    assert_eq!(found.rdev(), wanted.device, "{what}");
    assert_eq!(xattrs(path), wanted.attributes, "{what}");
    if found.is_symlink() {
        assert_eq!(fs::read_link(path).unwrap().as_os_str().as_bytes(), wanted.target, "{what}");
    } else if found.is_file() {
        assert_eq!(found.len(), wanted.content.bytes, "{what}");
        check_content(path, &wanted.content);
    }
}

fn paths_below(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::from([PathBuf::new()]);
    let mut pending = vec![PathBuf::new()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap().map(Result::unwrap) {
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                pending.push(path.clone());
            }
            assert!(found.insert(path), "a name comes once");
        }
    }
    found
}

/// Whether this tree is archived too.
fn is_archived(seed: u64) -> bool {
    seed.is_multiple_of(3)
}

/// Fails unless the mounted file system has these entries, and nothing else.
fn check_mounted(at: &Path, paths: &[(PathBuf, NodeId)], wanted: &[Wanted]) {
    let listed: BTreeSet<PathBuf> = paths.iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(paths_below(at), listed);
    let mut inodes = BTreeMap::new();
    for (path, node) in paths {
        let path = at.join(path);
        let found = fs::symlink_metadata(&path).unwrap();
        check(&path, &found, &wanted[node.index()]);
        assert_eq!(*inodes.entry(*node).or_insert(found.ino()), found.ino(), "{}", path.display());
    }
}

/// Fails unless a foreign reader finds these entries in the disk. Says whether it knows all that is there.
fn check_foreign(disk: &Path, paths: &[(PathBuf, NodeId)], wanted: &[Wanted]) -> bool {
    let Some(system) = Foreign::open(disk) else { return false };
    for (path, node) in paths {
        let (found, wanted, what) = (system.at(path), &wanted[node.index()], path.display());
        assert_eq!((found.number(), u32::from(found.inode.mode)), (node.inode(), wanted.mode), "{what}");
        assert_eq!((found.inode.uid, found.inode.gid), wanted.owner, "{what}");
        assert_eq!(found.attributes(), wanted.attributes.len(), "{what}");
        if !wanted.target.is_empty() && wanted.target.len() < 4095 {
            assert_eq!(found.target(), wanted.target, "{what}");
        }
        for (&block, &byte) in &wanted.content.blocks {
            let at = u64::from(block) * 4096;
            let len = (wanted.content.bytes - at).min(4096) as usize;
            assert!(found.bytes_at(at, len) == vec![byte; len], "{what} at {at}");
        }
    }
    true
}

fn check_disk(disk: &NamedTempFile, at: &Path, paths: &[(PathBuf, NodeId)], wanted: &[Wanted]) {
    assert!(is_clean(disk.path()));
    let _mount = Mount::new(disk.path(), at).expect("as the first");
    check_mounted(at, paths, wanted);
}

/// The file system of a directory or archive, in a file.
fn built_from(path: &Path) -> NamedTempFile {
    let source = Source::open(path, &SourceOptions::default(), &|_| {}).unwrap();
    let disk = NamedTempFile::new().unwrap();
    disk.as_file().set_len(source.bytes()).unwrap();
    let mut buffer = vec![0; 1 << 20];
    for range in source.data_ranges().unwrap() {
        for offset in (range.offset..range.end()).step_by(buffer.len()) {
            let part = &mut buffer[..(range.end() - offset).min(1 << 20) as usize];
            source.read_at(offset, part).unwrap();
            disk.as_file().write_all_at(part, offset).unwrap();
        }
    }
    source.verify_unchanged().unwrap();
    disk
}

/// The file system of the archive that GNU tar makes of a directory.
fn built_from_archive_of(directory: &Path) -> NamedTempFile {
    let archive = NamedTempFile::new().unwrap();
    let mut tar = Command::new("tar");
    tar.args(["--format=posix", "--sparse", "--acls", "--xattrs", "--xattrs-include=*", "-cf"]);
    let output = tar.arg(archive.path()).arg("-C").arg(directory).arg(".").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    built_from(archive.path())
}

fn number_in(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}

#[test]
fn random_trees_come_back_through_the_kernel() {
    let (at, again) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first_seed, trees) = (number_in("FIRST_TREE", 0), number_in("TREES", TREES));
    let mut known = 0;
    for seed in first_seed..first_seed + trees {
        // Shown when it fails.
        eprintln!("tree {seed}");
        let Tree { plan, wanted, paths, mut random, moved_times, .. } = Tree::new(seed);
        assert_eq!(plan.moved_times(), moved_times);
        let mut options = options();
        options.uuid = [seed as u8; 16];
        options.free_bytes = if seed % 5 == 1 { 200 << 20 } else { 0 };
        options.chunk_blocks = [1, 4, 32][seed as usize % 3];
        let first: Vec<NodeId> = (0..3).map(|_| paths[random.below(paths.len() as u64) as usize].1).collect();
        let layout = plan.lay_out(&first, &options).unwrap();
        let disk = write(&layout, |file, offset, block| {
            let content = &wanted[file.index()].content;
            let fill = content.blocks[&((offset / 4096) as u32)];
            let len = (content.bytes - offset).min(4096) as usize;
            block[..len].fill(fill);
        });
        if !is_clean(disk.path()) {
            return;
        }
        known += u64::from(check_foreign(disk.path(), &paths, &wanted));
        let read = read_back(disk.as_file());
        assert!(read.keys().eq(paths.iter().map(|(path, _)| path).collect::<BTreeSet<_>>()));
        paths.iter().for_each(|(path, node)| assert_eq!(read[path].number(), node.inode()));
        let Some(_mount) = Mount::new(disk.path(), at.path()) else { continue };
        check_mounted(at.path(), &paths, &wanted);
        let built = built_from(at.path());
        check_disk(&built, again.path(), &paths, &wanted);
        if is_archived(seed) {
            let archived = built_from_archive_of(at.path());
            check_disk(&archived, again.path(), &paths, &wanted);
            assert!(fs::read(archived.path()).unwrap() == fs::read(built.path()).unwrap());
        }
    }
    assert!(known > 0 || trees < TREES, "no tree is one that the foreign reader knows");
}
