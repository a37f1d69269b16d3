//! File systems of `mkfs.ext4`, with `debugfs` as the foreign oracle.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::*;

const DISK_BYTES: u64 = 160 << 20;
/// Beyond what two levels of pointers reach with blocks of 1 KiB: 64 MiB.
const FAR: u64 = 70 << 20;

/// What is in a file system, by paths.
#[derive(Debug, PartialEq, Eq)]
enum Thing {
    Directory,
    File(Vec<u8>),
    Link(Vec<u8>),
}

fn tool(name: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(name).args(arguments).stdin(Stdio::null()).output();
    if output.is_err() {
        assert!(std::env::var_os("CI").is_none(), "{name} is missing");
        eprintln!("SKIPPED: {name} is missing");
    }
    let output = output.ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A tree with everything that is read in its own way.
fn tree(root: &Path) {
    fs::create_dir_all(root.join("deep/er")).unwrap();
    fs::create_dir(root.join("many")).unwrap();
    for number in 0..600 {
        fs::write(root.join(format!("many/a-file-with-a-name-{number:04}")), format!("{number}")).unwrap();
    }
    let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(root.join("deep/er/large"), &bytes).unwrap();
    fs::write(root.join("empty"), []).unwrap();
    fs::write(root.join("tiny"), "a few bytes").unwrap();
    // Inline data goes on in an attribute.
    fs::write(root.join("small"), [b's'; 100]).unwrap();
    let holes = File::create(root.join("holes")).unwrap();
    for at in [0, 20 << 10, 300 << 10, 1 << 20, FAR] {
        holes.write_all_at(&bytes[..5000], at).unwrap();
    }
    symlink("deep/er/large", root.join("short-link")).unwrap();
    symlink(format!("{}deep", "deep/../".repeat(40)), root.join("long-link")).unwrap();
}

fn things_of(root: &Path) -> BTreeMap<PathBuf, Thing> {
    let mut things = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let thing = if kind.is_dir() {
                folders.push(path.clone());
                Thing::Directory
            } else if kind.is_symlink() {
                Thing::Link(fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
            } else {
                Thing::File(fs::read(&path).unwrap())
            };
            things.insert(path.strip_prefix(root).unwrap().to_owned(), thing);
        }
    }
    things
}

/// What the reader finds, with the inodes; without what `mkfs.ext4` makes itself.
fn things_in(ext4: &mut Ext4<'_>) -> Result<BTreeMap<PathBuf, (u32, Thing)>, Ext4Error> {
    let mut things = BTreeMap::new();
    let mut folders = vec![(PathBuf::new(), ROOT_INODE)];
    while let Some((folder, number)) = folders.pop() {
        let directory = ext4.inode(number)?;
        let mut names = Vec::new();
        ext4.names(&directory, &mut |name, number| {
            names.push((name.to_vec(), number));
            true
        })?;
        for (name, number) in names {
            if [&b"."[..], b"..", b"lost+found"].contains(&&name[..]) {
                continue;
            }
            let path = folder.join(std::ffi::OsStr::from_bytes(&name));
            let inode = ext4.inode(number)?;
            assert_eq!(ext4.find_name(&directory, &name)?, Some(number));
            let thing = match inode.kind() {
                FileKind::Directory => {
                    folders.push((path.clone(), number));
                    Thing::Directory
                }
                FileKind::Link => Thing::Link(ext4.link_target(&inode)?),
                _ => {
                    ext4.walk(&inode)?;
                    Thing::File(ext4.content(&inode, DISK_BYTES)?)
                }
            };
            things.insert(path, (number, thing));
        }
    }
    Ok(things)
}

fn on_file(file: &File) -> ReadDisk<'_> {
    ReadDisk::new(file.metadata().unwrap().len(), |offset, bytes| file.read_exact_at(bytes, offset))
}

/// A file system of this tree, made with these options; its directories have an index when asked.
fn make(root: &Path, disk: &Path, options: &[&str], has_index: bool) -> Option<File> {
    let file = File::options().create(true).truncate(true).write(true).read(true).open(disk).unwrap();
    file.set_len(DISK_BYTES).unwrap();
    let (root, disk) = (root.to_str().unwrap(), disk.to_str().unwrap());
    tool("mkfs.ext4", &[&["-q", "-F"], options, &["-d", root, disk]].concat())?;
    if has_index {
        tool("e2fsck", &["-fyD", disk])?;
    }
    Some(file)
}

#[test]
fn every_kind_of_file_system_reads_as_debugfs_and_the_source_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let (root, disk) = (folder.path().join("root"), folder.path().join("disk"));
    tree(&root);
    let wanted = things_of(&root);
    let kinds: [(&[&str], bool); 8] = [
        (&[], true),
        (&["-b", "1024", "-I", "128", "-N", "2000"], true),
        (&["-b", "1024", "-O", "^extent,^64bit,^flex_bg"], false),
        (&["-b", "1024", "-O", "meta_bg,^resize_inode"], false),
        (&["-b", "1024", "-O", "meta_bg,^resize_inode,^sparse_super"], false),
        (&["-b", "2048", "-O", "inline_data,sparse_super2"], false),
        (&["-b", "4096", "-O", "bigalloc", "-C", "16384"], false),
        (&["-b", "65536", "-O", "^metadata_csum"], false),
    ];
    for (options, has_index) in kinds {
        let Some(file) = make(&root, &disk, options, has_index) else { return };
        let mut ext4 = Ext4::open(on_file(&file)).unwrap();
        let found = things_in(&mut ext4).unwrap();
        let same = found.len() == wanted.len()
            && found.iter().zip(&wanted).all(|((path, (_, thing)), (other, wanted))| {
                path == other && (thing == wanted || panic!("{options:?}: {}", path.display()))
            });
        assert!(same, "{options:?}: {} of {}", found.len(), wanted.len());
        for path in ["deep/er/large", "holes", "short-link", "many", "many/a-file-with-a-name-0599"] {
            let asked = format!("stat /{path}");
            let Some(said) = tool("debugfs", &["-R", &asked, disk.to_str().unwrap()]) else { return };
            let number = found[Path::new(path)].0;
            assert!(said.contains(&format!("Inode: {number} ")), "{options:?} {path} {number}: {said}");
        }
        let Some(said) = tool("dumpe2fs", &[disk.to_str().unwrap()]) else { return };
        for group in 0..ext4.groups() {
            let (first, count) = ext4.inode_table(group).unwrap();
            let place = format!("Inode table at {first}-{}", first + count - 1);
            assert!(said.contains(&place), "{options:?}: {place} in {said}");
        }
    }
}

#[test]
fn a_file_that_claims_more_than_its_disk_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (root, disk) = (folder.path().join("root"), folder.path().join("disk"));
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), "content").unwrap();
    let Some(file) = make(&root, &disk, &["-O", "^metadata_csum"], false) else { return };
    let mut ext4 = Ext4::open(on_file(&file)).unwrap();
    let top = ext4.inode(ROOT_INODE).unwrap();
    let number = ext4.find_name(&top, b"file").unwrap().unwrap();
    let inode = ext4.inode(number).unwrap();
    assert_eq!(ext4.content(&inode, 7).unwrap(), b"content");
    assert!(matches!(ext4.content(&inode, 6), Err(Ext4Error::TooLong { found: 7, limit: 6, .. })));
    assert!(matches!(ext4.link_target(&inode), Err(Ext4Error::Kind { .. })));
    let offset = ext4.inode_offset(number).unwrap();
    file.write_all_at(&1_u32.to_le_bytes(), offset + 0x6c).unwrap();
    let inode = ext4.inode(number).unwrap();
    assert!(matches!(ext4.content(&inode, u64::MAX), Err(Ext4Error::TooLong { limit: DISK_BYTES, .. })));
    ext4.walk(&inode).unwrap_err();
}

#[test]
fn metadata_that_never_ends_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let (root, disk) = (folder.path().join("root"), folder.path().join("disk"));
    fs::create_dir(&root).unwrap();
    let Some(file) = make(&root, &disk, &[], false) else { return };
    let mut ext4 = Ext4::open(on_file(&file)).unwrap();
    ext4.metadata_bytes_left = 1 << 20;
    let error = (0..10_000).find_map(|_| ext4.inode(ROOT_INODE).err()).unwrap();
    assert!(matches!(error, Ext4Error::TooMuchMetadata { .. }), "{error}");
}
