//! Sources against foreign oracles: the kernel's own mount, `e2fsck` and `cp -a`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use hs_build::BuildOptions;
use hs_build::source::{Source, SourceError, SourceKind, SourceOptions};
use hs_format::{FileKind, FsKind};
use hs_image::Image;
use hs_store::FileStore;
use hs_units::ByteRange;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags};

fn open(path: &Path) -> Result<Source, SourceError> {
    Source::open(path, &SourceOptions::default(), &|_| {})
}

/// Whether a test that needs root can run: a visible skip on a person's machine, a failure in CI.
fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        hs_testing::skip(format!("{test} needs root"));
    }
    root
}

/// Copies the disk to a named file through `data_ranges` and `read_at`, holes staying holes.
fn write_out(source: &Source, path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(source.bytes()).unwrap();
    let mut buffer = vec![0; 1 << 20];
    for range in source.data_ranges().unwrap() {
        let mut offset = range.offset;
        while offset < range.end() {
            let len = (range.end() - offset).min(buffer.len() as u64) as usize;
            source.read_at(offset, &mut buffer[..len]).unwrap();
            file.write_all_at(&buffer[..len], offset).unwrap();
            offset += len as u64;
        }
    }
}

/// A digest of every byte of the disk.
fn digest(source: &Source) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < source.bytes() {
        let len = (source.bytes() - offset).min(buffer.len() as u64) as usize;
        source.read_at(offset, &mut buffer[..len]).unwrap();
        hasher.update(&buffer[..len]);
        offset += len as u64;
    }
    hasher.finalize()
}

fn run(program: &str, arguments: &[&OsStr]) {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin")
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn assert_clean(image: &Path) {
    run("e2fsck", &["-fn".as_ref(), image.as_ref()]);
}

/// A mount that goes away with the value.
struct Mount(PathBuf);

impl Mount {
    fn image(image: &Path, at: &Path) -> Self {
        run("mount", &["-o".as_ref(), "loop,ro".as_ref(), image.as_ref(), at.as_ref()]);
        Self(at.to_owned())
    }

    fn tmpfs(options: &str, at: &Path) -> Self {
        let [t, kind, o] = ["-t", "tmpfs", "-o"].map(OsStr::new);
        run("mount", &[t, kind, o, options.as_ref(), kind, at.as_ref()]);
        Self(at.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|error| panic!("{} of {}: {error}", name, path.display()));
}

fn set_mtime(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: Timespec { tv_sec: 1, tv_nsec: 1 }, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// A POSIX ACL as `setxattr` takes it (`linux/posix_acl_xattr.h`): `user::rw-, user:1000:r--, group::r--,
/// mask::r--, other::---`.
fn acl() -> Vec<u8> {
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1_u16, 6_u16, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
    {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

/// `cap_net_raw=ep` (`linux/capability.h`, revision 2).
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Attributes that do not all fit in an inode, so that their order decides which go to a block.
const ATTRIBUTES: [(&str, &[u8]); 4] = [
    ("user.zebra", b"first in the inode if it comes first"),
    ("user.b", b"short"),
    ("user.a-long-name-that-takes-room", &[7; 60]),
    ("user.empty", b""),
];

/// One way of making an entry of the test tree.
type Make = fn(&Path, bool);

fn in_order<T>(mut items: Vec<T>, backwards: bool) -> Vec<T> {
    if backwards {
        items.reverse();
    }
    items
}

/// What only root can make.
const ROOT_PARTS: [Make; 4] = [
    |root, _| {
        for (name, kind, major, minor) in
            [("null", FileType::CharacterDevice, 1, 3), ("disk", FileType::BlockDevice, 259, 70_000)]
        {
            let device = rustix::fs::makedev(major, minor);
            rustix::fs::mknodat(CWD, root.join(name), kind, Mode::from(0o666), device).unwrap();
        }
    },
    |root, _| {
        let path = root.join("owned");
        fs::write(&path, "o").unwrap();
        std::os::unix::fs::chown(&path, Some(3_000_000_000), Some(70_000)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
        set_xattr(&path, "security.capability", &CAPABILITY);
    },
    |root, backwards| {
        let path = root.join("acl");
        fs::create_dir(&path).unwrap();
        let names = vec!["system.posix_acl_access", "system.posix_acl_default"];
        for name in in_order(names, backwards) {
            set_xattr(&path, name, &acl());
        }
        set_xattr(&path, "trusted.overlay.opaque", b"y");
    },
    |root, _| {
        std::os::unix::fs::chown(root, Some(12), Some(34)).unwrap();
        fs::set_permissions(root, fs::Permissions::from_mode(0o1751)).unwrap();
    },
];

/// Makes a tree of everything that a directory can hold; `backwards` makes names and attributes in the
/// opposite order, which changes inode numbers, `readdir` order and the order of attributes. As another user
/// than root it leaves out what only root can make.
fn populate(root: &Path, backwards: bool) {
    let mut parts: Vec<Make> = vec![
        |root, _| fs::create_dir_all(root.join("empty directory")).unwrap(),
        |root, _| fs::create_dir_all(root.join("lost+found/found")).unwrap(),
        |root, _| fs::write(root.join("name with\nnewline"), "x").unwrap(),
        |root, _| fs::write(root.join(OsStr::from_bytes(b"not-utf8-\xff\xfe")), "y").unwrap(),
        |root, _| symlink("short target", root.join("short")).unwrap(),
        |root, _| symlink("t".repeat(59), root.join("longest in the inode")).unwrap(),
        |root, _| symlink("t".repeat(60), root.join("shortest in a block")).unwrap(),
        |root, _| {
            symlink("/long".repeat(400), root.join("long")).unwrap();
            fs::hard_link(root.join("long"), root.join("the same link")).unwrap();
        },
        |root, backwards| {
            fs::create_dir(root.join("many")).unwrap();
            for number in in_order((0..700).collect(), backwards) {
                let name = format!("a file whose name is rather long so that directories grow {number}");
                fs::write(root.join("many").join(name), format!("{number}")).unwrap();
            }
        },
        |root, _| {
            let file = File::create(root.join("sparse")).unwrap();
            file.set_len(3 << 30).unwrap();
            file.write_all_at(&[1; 10_000], 5_000).unwrap();
            file.write_all_at(b"middle", 1 << 30).unwrap();
            file.write_all_at(b"end", (3 << 30) - 3).unwrap();
        },
        |root, backwards| {
            // The same bytes, with holes in one tree and with zeros in the other.
            let file = File::create(root.join("zeros")).unwrap();
            file.set_len(100_000).unwrap();
            if backwards {
                file.write_all_at(&[0; 100_000], 0).unwrap();
            }
            file.write_all_at(b"x", 50_000).unwrap();
        },
        |root, _| {
            let data: Vec<u8> =
                (0..3_000_001_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            fs::write(root.join("big"), data).unwrap();
            fs::create_dir_all(root.join("nested/deeper/deepest")).unwrap();
            fs::hard_link(root.join("big"), root.join("nested/deeper/same as big")).unwrap();
        },
        |root, backwards| {
            let path = root.join("attributes");
            fs::write(&path, "a").unwrap();
            for (name, value) in in_order(ATTRIBUTES.to_vec(), backwards) {
                set_xattr(&path, name, value);
            }
        },
        |root, _| rustix::fs::mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from(0o640), 0).unwrap(),
        |root, _| drop(std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap()),
    ];
    if rustix::process::geteuid().is_root() {
        parts.extend(ROOT_PARTS);
    }
    for part in in_order(parts, backwards) {
        part(root, backwards);
    }
    // Times last, for making a name changes its directory's time.
    let mut paths = walk(root);
    paths.reverse();
    for (index, path) in paths.iter().enumerate() {
        set_mtime(&root.join(path), 1_000_000_000 + index as i64, index as i64 * 1_000 + 1);
    }
    set_mtime(&root.join("short"), -86_400, 999_999_999);
    set_mtime(&root.join("big"), 4_102_444_800, 5);
}

/// Relative paths of everything below `root`, itself included, sorted.
fn walk(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        if fs::symlink_metadata(root.join(&path)).unwrap().is_dir() {
            for entry in fs::read_dir(root.join(&path)).unwrap() {
                pending.push(path.join(entry.unwrap().file_name()));
            }
        }
        found.push(path);
    }
    found.sort();
    found
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 65_536];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let mut found = BTreeMap::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 65_536];
        let len = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]).unwrap();
        found.insert(name.to_vec(), value[..len].to_vec());
    }
    found
}

/// Compares two trees as the kernel shows them; the second is the one that was made.
fn assert_same_tree(expected: &Path, made: &Path) {
    let paths = walk(expected);
    assert_eq!(paths, walk(made));
    let mut linked = BTreeMap::new();
    for path in &paths {
        let (from, to) = (expected.join(path), made.join(path));
        let (a, b) = (fs::symlink_metadata(&from).unwrap(), fs::symlink_metadata(&to).unwrap());
        let what = path.display();
        assert_eq!((a.mode(), a.uid(), a.gid(), a.rdev()), (b.mode(), b.uid(), b.gid(), b.rdev()), "{what}");
        assert_eq!((a.mtime(), a.mtime_nsec()), (b.mtime(), b.mtime_nsec()), "{what}");
        let mtime = (b.mtime(), b.mtime_nsec());
        assert_eq!(mtime, (b.ctime(), b.ctime_nsec()), "change time of {what}");
        assert_eq!(mtime, (b.atime(), b.atime_nsec()), "access time of {what}");
        assert_eq!(xattrs(&from), xattrs(&to), "{what}");
        if !a.is_dir() {
            assert_eq!((a.len(), a.nlink()), (b.len(), b.nlink()), "{what}");
            assert_eq!(*linked.entry(a.ino()).or_insert(b.ino()), b.ino(), "{what}");
        }
        if a.is_symlink() {
            assert_eq!(fs::read_link(&from).unwrap(), fs::read_link(&to).unwrap());
        } else if a.is_file() {
            run("cmp", &[from.as_ref(), to.as_ref()]);
        }
    }
}

#[test]
fn a_directory_comes_back_through_the_kernel() {
    if !is_root("a_directory_comes_back_through_the_kernel") {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let [tree, at] = ["tree", "at"].map(|name| work.path().join(name));
    [&tree, &at].into_iter().for_each(|path| fs::create_dir(path).unwrap());
    populate(&tree, false);
    let options =
        SourceOptions { volume_label: Some("headstart test".to_owned()), ..SourceOptions::default() };
    let source = Source::open(&tree, &options, &|_| {}).unwrap();
    assert_eq!((source.kind(), source.content()), (SourceKind::Directory, FileKind::Disk(FsKind::Ext)));
    let image = work.path().join("image");
    write_out(&source, &image);
    assert_clean(&image);
    let _mount = Mount::image(&image, &at);
    assert_same_tree(&tree, &at);
}

#[test]
fn equal_trees_give_equal_bytes() {
    let work = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "the other, by another path"].map(|name| work.path().join(name));
    [&one, &other].into_iter().for_each(|path| fs::create_dir(path).unwrap());
    populate(&one, false);
    populate(&other, true);
    let first = digest(&open(&one).unwrap());
    assert_eq!(first, digest(&open(&other).unwrap()), "made in the opposite order");

    let copy = work.path().join("copy");
    run("cp", &["-a".as_ref(), one.as_ref(), copy.as_ref()]);
    assert_eq!(first, digest(&open(&copy).unwrap()), "copied by cp -a");

    if is_root("the part of equal_trees_give_equal_bytes on tmpfs") {
        let memory = work.path().join("memory");
        fs::create_dir(&memory).unwrap();
        let _mount = Mount::tmpfs("size=64m", &memory);
        run("cp", &["-a".as_ref(), one.as_ref(), memory.join("copy").as_ref()]);
        assert_eq!(first, digest(&open(&memory.join("copy")).unwrap()), "copied to tmpfs");
    }

    fs::write(copy.join("zeros"), [1; 100_000]).unwrap();
    set_mtime(&copy.join("zeros"), fs::metadata(one.join("zeros")).unwrap().mtime(), 0);
    assert_ne!(first, digest(&open(&copy).unwrap()), "different data");
}

#[test]
fn awkward_trees_are_clean() {
    let work = tempfile::tempdir().unwrap();
    let image = work.path().join("image");
    let check = |name: &str, make: &dyn Fn(&Path)| {
        let tree = work.path().join(name);
        fs::create_dir(&tree).unwrap();
        make(&tree);
        write_out(&open(&tree).unwrap_or_else(|error| panic!("{name}: {error}")), &image);
        assert_clean(&image);
    };
    check("nothing at all", &|_| {});
    check("every second block is a hole", &|tree| {
        let file = File::create(tree.join("file")).unwrap();
        (0..8_000_u64).for_each(|n| file.write_all_at(b"x", n * 8192).unwrap());
    });
    check("links in blocks", &|tree| {
        (0..3_000).for_each(|n| symlink("x".repeat(100), tree.join(format!("{n}"))).unwrap());
    });
    check("attributes in blocks", &|tree| {
        for n in 0..2_000 {
            let path = tree.join(format!("{n}"));
            fs::write(&path, "").unwrap();
            set_xattr(&path, "user.large", &[1; 200]);
        }
    });
    check("directories", &|tree| (0..3_000).for_each(|n| fs::create_dir(tree.join(format!("{n}"))).unwrap()));
    check("more empty files than a group of inodes has", &|tree| {
        for directory in 0..80 {
            fs::create_dir(tree.join(format!("{directory}"))).unwrap();
            for n in 0..400 {
                drop(File::create(tree.join(format!("{directory}/{n}"))).unwrap());
            }
        }
    });
    check("deep", &|tree| fs::create_dir_all(tree.join("d/".repeat(900))).unwrap());
}

#[test]
fn free_bytes_are_free_and_the_uuid_is_taken() {
    if !is_root("free_bytes_are_free_and_the_uuid_is_taken") {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let [tree, at] = ["tree", "at"].map(|name| work.path().join(name));
    [&tree, &at].into_iter().for_each(|path| fs::create_dir(path).unwrap());
    fs::write(tree.join("file"), "data").unwrap();
    let uuid = [0xab; 16];
    let options = SourceOptions { free_bytes: 300 << 20, uuid: Some(uuid), ..SourceOptions::default() };
    let source = Source::open(&tree, &options, &|_| {}).unwrap();
    let mut superblock = [0; 4096];
    source.read_at(0, &mut superblock).unwrap();
    assert_eq!(superblock[1024 + 0x68..][..16], uuid);
    let stored: u64 = source.data_ranges().unwrap().iter().map(|range| range.len).sum();
    assert!(stored < 16 << 20, "free space is holes, yet {stored} bytes are stored");
    let image = work.path().join("image");
    write_out(&source, &image);
    let _mount = Mount::image(&image, &at);
    let status = rustix::fs::statvfs(&at).unwrap();
    assert!(status.f_bavail * status.f_frsize >= 300 << 20, "{} blocks", status.f_bavail);
    assert!(status.f_ffree >= 300 * 64, "{} inodes", status.f_ffree);
}

#[test]
fn a_raw_file_is_read_as_it_is_and_padded() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("disk");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"QFI\xfbanything").unwrap();
    file.write_all_at(b"tail", (1 << 20) + 1).unwrap();
    let options = SourceOptions { raw: true, ..SourceOptions::default() };
    let source = Source::open(&path, &options, &|_| {}).unwrap();
    assert_eq!((source.kind(), source.content()), (SourceKind::RawFile, FileKind::Qcow2));
    assert_eq!(source.bytes(), (1 << 20) + 4096);
    let mut block = [0xff; 4096];
    source.read_at(1 << 20, &mut block).unwrap();
    assert_eq!((&block[..5], block[5..].iter().all(|byte| *byte == 0)), (&b"\0tail"[..], true));
    let mut across = [0xff; 8];
    source.read_at(source.bytes() - 8, &mut across).unwrap();
    assert_eq!(across, [0; 8], "wholly in the padding");

    let ranges = source.data_ranges().unwrap();
    assert!(ranges.iter().all(|range| range.offset.is_multiple_of(4096) && range.len.is_multiple_of(4096)));
    assert!(ranges.windows(2).all(|pair| pair[0].end() < pair[1].offset));
    for offset in [0, 1 << 20] {
        assert!(ranges.iter().any(|range| range.offset <= offset && offset < range.end()), "{ranges:?}");
    }
    for (offset, len) in [(source.bytes(), 1), (u64::MAX, 4096), (0, source.bytes() as usize + 1)] {
        let result = source.read_at(offset, &mut vec![0; len]);
        assert!(matches!(result, Err(SourceError::OutOfRange { .. })), "{offset}+{len}: {result:?}");
    }
    source.verify_unchanged().unwrap();
    file.set_len(4096).unwrap();
    assert!(matches!(source.verify_unchanged(), Err(SourceError::Changed { .. })));
    assert!(matches!(source.read_at(8192, &mut block), Err(SourceError::Changed { .. })));
}

#[test]
fn a_file_of_holes_has_no_data() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("disk");
    File::create(&path).unwrap().set_len(1 << 30).unwrap();
    assert_eq!(open(&path).unwrap().data_ranges().unwrap(), []);
}

#[test]
fn a_block_device_has_the_size_it_has() {
    if !is_root("a_block_device_has_the_size_it_has") {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("disk");
    fs::write(&path, vec![5; 1 << 20]).unwrap();
    let output = Command::new("/sbin/losetup").args(["--show", "-rf"]).arg(&path).output().unwrap();
    let device = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    assert!(fs::metadata(&device).unwrap().file_type().is_block_device());
    let source = open(&device);
    let ranges = source.as_ref().map(|source| source.data_ranges());
    run("/sbin/losetup", &["-d".as_ref(), device.as_ref()]);
    let source = source.as_ref().unwrap();
    assert_eq!((source.kind(), source.bytes()), (SourceKind::BlockDevice, 1 << 20));
    assert_eq!(ranges.unwrap().unwrap(), [ByteRange::new(0, 1 << 20)]);
}

#[test]
fn what_is_no_source_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name);
    assert!(matches!(open(&path("missing")), Err(SourceError::Unreadable { .. })));
    File::create(path("empty")).unwrap();
    assert!(matches!(open(&path("empty")), Err(SourceError::Empty { .. })));
    rustix::fs::mknodat(CWD, path("fifo"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    assert!(matches!(open(&path("fifo")), Err(SourceError::NotASource { kind: "FIFO", .. })));
    assert!(matches!(open(Path::new("/dev/zero")), Err(SourceError::NotASource { .. })));
    let error = open(Path::new("/proc")).unwrap_err();
    assert!(matches!(error, SourceError::KernelFileSystem { file_system: "proc", .. }), "{error}");
}

#[test]
fn options_that_cannot_be_met_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let tree = work.path().join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("file"), vec![1; 5 << 20]).unwrap();
    let open = |options: SourceOptions| Source::open(&tree, &options, &|_| {}).unwrap_err();
    let output = Some(tree.join("sub/out.hsi"));
    let error = open(SourceOptions { output, ..SourceOptions::default() });
    assert!(matches!(error, SourceError::OutputInside { .. }), "{error}");
    let volume_label = Some("seventeen letters".to_owned());
    let error = open(SourceOptions { volume_label, ..SourceOptions::default() });
    assert!(matches!(error, SourceError::LabelTooLong { .. }), "{error}");
    set_xattr_too_large_is_told(&tree);
}

/// Attributes that together take more than a block can only be set on some file systems, such as tmpfs.
fn set_xattr_too_large_is_told(tree: &Path) {
    let path = tree.join("sub");
    let set = |name: &str| {
        rustix::fs::lsetxattr(&path, name, &[1; 3000], XattrFlags::empty())
            .map_err(|error| error.raw_os_error())
    };
    if set("user.one").is_ok() && set("user.two").is_ok() {
        let error = open(tree).unwrap_err();
        assert!(matches!(&error, SourceError::Unsupported { path: at, .. } if *at == path), "{error}");
    }
    for name in ["user.one", "user.two"] {
        let _ = rustix::fs::removexattr(&path, name);
    }
}

#[test]
fn a_source_that_changes_is_told() {
    let work = tempfile::tempdir().unwrap();
    let grows = work.path().join("grows");
    for is_read in [false, true] {
        fs::write(&grows, "short").unwrap();
        let source = open(work.path()).unwrap();
        source.verify_unchanged().unwrap();
        File::options().append(true).open(&grows).unwrap().write_all(b"more").unwrap();
        let mut disk = vec![0; source.bytes() as usize];
        let told = if is_read { source.read_at(0, &mut disk) } else { source.verify_unchanged() };
        match told {
            Err(SourceError::Changed { path }) => assert_eq!(path, grows.canonicalize().unwrap()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_folder_that_changes_while_the_tree_is_walked_is_told() {
    let work = tempfile::tempdir().unwrap();
    // The walk reports after 256 entries. It has then seen this folder, and not yet opened it.
    let folder = work.path().join("!");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), "x").unwrap();
    set_mtime(&folder, 1_000_000_000, 0);
    (0..300).for_each(|number| fs::write(work.path().join(format!("{number:03}")), "x").unwrap());
    let done = Cell::new(false);
    let result = Source::open(work.path(), &SourceOptions::default(), &|_| {
        if !done.replace(true) {
            fs::remove_file(folder.join("file")).unwrap();
        }
    });
    let folder = folder.canonicalize().unwrap();
    assert!(matches!(&result, Err(SourceError::Changed { path }) if *path == folder), "{result:?}");
}

#[test]
fn a_link_that_takes_the_place_of_a_folder_is_not_followed() {
    let work = tempfile::tempdir().unwrap();
    let [tree, secret] = ["tree", "secret"].map(|name| work.path().join(name));
    // More folders than are kept open, so that the first one is opened again.
    let folders = (0..40).map(|number| tree.join(format!("{number:02}")));
    for folder in folders.chain([secret.clone()]) {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), "x".repeat(5000)).unwrap();
    }
    let source = open(&tree).unwrap();
    fs::rename(tree.join("00"), work.path().join("away")).unwrap();
    symlink(&secret, tree.join("00")).unwrap();
    let result = source.read_at(0, &mut vec![0; source.bytes() as usize]);
    let folder = tree.canonicalize().unwrap().join("00");
    assert!(matches!(&result, Err(SourceError::Changed { path }) if *path == folder), "{result:?}");
}

#[test]
fn a_path_may_be_longer_than_the_kernel_takes() {
    let work = tempfile::tempdir().unwrap();
    let name = "n".repeat(200);
    let mut folder = File::open(work.path()).unwrap();
    for _ in 0..30 {
        rustix::fs::mkdirat(&folder, &name, Mode::from(0o755)).unwrap();
        folder = rustix::fs::openat(&folder, &name, OFlags::DIRECTORY, Mode::empty()).unwrap().into();
    }
    let file =
        rustix::fs::openat(&folder, "file", OFlags::CREATE | OFlags::WRONLY, Mode::from(0o644)).unwrap();
    File::from(file).write_all(b"deep").unwrap();
    let source = open(work.path()).unwrap();
    let mut disk = vec![0; source.bytes() as usize];
    source.read_at(0, &mut disk).unwrap();
    source.verify_unchanged().unwrap();
    assert!(disk.chunks(4096).any(|block| block.starts_with(b"deep")));
}

#[test]
fn too_many_names_of_one_file_are_refused_by_name() {
    let work = tempfile::tempdir().unwrap();
    // tmpfs has no limit of its own.
    if !is_root("too_many_names_of_one_file_are_refused_by_name") {
        return;
    }
    let _mount = Mount::tmpfs("size=64m,nr_inodes=200000", work.path());
    let first = work.path().join("00000");
    fs::write(&first, "x").unwrap();
    (1..70_000).for_each(|number| fs::hard_link(&first, work.path().join(format!("{number:05}"))).unwrap());
    let error = open(work.path()).unwrap_err();
    let refused = work.path().canonicalize().unwrap().join("65000");
    assert!(matches!(&error, SourceError::Unsupported { path, .. } if *path == refused), "{error}");
}

#[test]
fn a_file_that_the_user_may_not_read_is_named() {
    let work = tempfile::tempdir().unwrap();
    fs::set_permissions(work.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let secret = work.path().join("secret");
    fs::write(&secret, "s").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let path = work.path().to_owned();
    let result = std::thread::spawn(move || {
        // Only this thread becomes another user.
        if rustix::process::geteuid().is_root() {
            let nobody = rustix::fs::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        open(&path)
    })
    .join()
    .unwrap();
    match result {
        Err(SourceError::Unreadable { path, .. }) => assert_eq!(path, secret.canonicalize().unwrap()),
        other => panic!("{other:?}"),
    }
}

/// The block that holds only this byte.
fn block_of(source: &Source, byte: u8) -> u64 {
    let mut block = [0; 4096];
    let mut holds = |number: &u64| {
        source.read_at(number * 4096, &mut block).unwrap();
        block == [byte; 4096]
    };
    (0..source.bytes() / 4096).find(|number| holds(number)).expect("a block")
}

#[test]
fn files_that_are_first_lie_first_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    for (name, byte) in [("d/a", 1), ("b", 2), ("c", 3)] {
        fs::write(folder.path().join(name), [byte; 4096]).unwrap();
    }
    // A name that comes before the one that was recorded.
    fs::hard_link(folder.path().join("c"), folder.path().join("a")).unwrap();
    let first_files = ["/c", "/gone", "/d", "/d/a", "/c", "/a"].map(str::to_owned).to_vec();
    let options = SourceOptions { first_files, ..SourceOptions::default() };
    let ordered = Source::open(folder.path(), &options, &|_| {}).unwrap();
    let plain = open(folder.path()).unwrap();
    let places = |source: &Source| [3, 1, 2].map(|byte| block_of(source, byte));
    assert!(places(&ordered).is_sorted(), "{:?}", places(&ordered));
    assert!(!places(&plain).is_sorted(), "{:?}", places(&plain));
}

#[test]
fn libraries_that_many_programs_need_lie_behind_the_tables() {
    // It needs ld-linux-x86-64.so.2, libselinux.so.1 and libc.so.6.
    let program = include_bytes!("../../../fuzz/corpus/elf_needs/program64");
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    // The headers alone, then blocks of one byte.
    let library = |byte: u8| [&program[..64 + 56], &[0; 3976], &[byte; 4096]].concat();
    let mut headers = library(5);
    headers[56] = 0;
    fs::write(root.join("a-file"), [4; 40960]).unwrap();
    fs::write(root.join("libc-2.36.so"), headers).unwrap();
    symlink("libc-2.36.so", root.join("libc.so.6")).unwrap();
    let tables_alone = open(root).unwrap().table_blocks();
    assert!(block_of(&open(root).unwrap(), 5) >= tables_alone);
    fs::write(root.join("program"), program).unwrap();
    let source = open(root).unwrap();
    let early = |source: &Source| [5, 4].map(|byte| block_of(source, byte) < source.table_blocks());
    assert_eq!(early(&source), [true, false]);
    // Also where a recorded start has its files first.
    let options = SourceOptions { first_files: vec!["/a-file".to_owned()], ..SourceOptions::default() };
    assert_eq!(early(&Source::open(root, &options, &|_| {}).unwrap()), [true, false]);
    // And where it is laid out like an image that has it there.
    let image = root.with_extension("hsi");
    hs_build::build(&source, &image, &BuildOptions::default(), &|_| {}).unwrap();
    fs::write(root.join("b-file"), [6; 8192]).unwrap();
    let like = Arc::new(Image::open(Arc::new(FileStore::open(&image).unwrap())).unwrap());
    let options = SourceOptions { like: Some(like), ..SourceOptions::default() };
    assert_eq!(early(&Source::open(root, &options, &|_| {}).unwrap()), [true, false]);
}
