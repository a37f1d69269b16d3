//! Archives that GNU tar makes become what it unpacks them to.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use hs_build::source::{Source, SourceKind, SourceOptions};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use crate::support::{
    Tar, archive, digest, filter, is_root, open_with, refused, run, source, unpack, write_out,
};

/// Names, kinds and contents that archives have in ways of their own.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("deep").join("d".repeat(200)).join("e".repeat(200))).unwrap();
    let long = root.join("deep").join("d".repeat(200)).join("e".repeat(200)).join("f".repeat(250));
    fs::write(&long, "long").unwrap();
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"not \xff utf-8\n")), "bytes").unwrap();
    symlink("t".repeat(300), root.join("link")).unwrap();
    symlink(&long, root.join("long link")).unwrap();
    fs::write(root.join("first"), vec![7; 70_000]).unwrap();
    fs::hard_link(root.join("first"), root.join("second")).unwrap();
    fs::hard_link(root.join("first"), root.join("deep/third")).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("zeros"), vec![0; 300_000]).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o4751)).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    for at in [0, 1 << 20, (1 << 20) + 12_288, 5 << 20] {
        sparse.write_all_at(b"data", at).unwrap();
    }
    for part in 0..40 {
        sparse.write_all_at(b"part", (8 << 20) + part * 65_536).unwrap();
    }
    sparse.set_len(20_000_001).unwrap();
    File::create(root.join("holes")).unwrap().set_len(3 << 20).unwrap();
    for (name, value) in [("user.note", &b"a=b\nc\0"[..]), ("user.a=b%c", b"x"), ("user.%3D%25", b"y")] {
        rustix::fs::lsetxattr(root.join("first"), name, value, XattrFlags::empty()).unwrap();
    }
    rustix::fs::mkfifoat(CWD, root.join("fifo"), Mode::from_raw_mode(0o600)).unwrap();
    set_access_list(&root.join("second"), "access", 6);
    set_access_list(&root.join("deep"), "access", 7);
    set_access_list(&root.join("deep"), "default", 5);
    set_mtime(&root.join("empty"), 1_700_000_000, 123_456_789);
    set_mtime(&root.join("zeros"), -1_000, 250_000_000);
    set_mtime(&root.join("link"), 8_000_000_000, 0);
}

/// What only root can make.
fn make_owned(root: &Path) {
    let owner = rustix::fs::Uid::from_raw(4_000_000_000);
    let group = rustix::fs::Gid::from_raw(3_000_000);
    rustix::fs::chown(root.join("sparse"), Some(owner), Some(group)).unwrap();
    for (name, kind, major, minor) in
        [("block", FileType::BlockDevice, 8, 300_000), ("null", FileType::CharacterDevice, 1, 3)]
    {
        let device = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(0o660), device).unwrap();
    }
    rustix::fs::lsetxattr(root.join("deep"), "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
}

/// A list that gives these permissions to a user and a group without a name, and to root's group.
fn set_access_list(path: &Path, kind: &str, permissions: u16) {
    let none = u32::MAX;
    let entries = [
        (1_u16, 6, none),
        (2, permissions, 70_000),
        (4, 4, none),
        (8, 1, 0),
        (8, permissions, 70_001),
        (16, permissions, none),
        (32, 0, none),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    let name = format!("system.posix_acl_{kind}");
    rustix::fs::lsetxattr(path, name, &list, XattrFlags::empty()).unwrap();
}

fn set_mtime(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Of each format that GNU tar writes: does it keep everything?
const FORMATS: [&[&str]; 8] = [
    &["--format=posix", "--xattrs", "--xattrs-include=*"],
    &["--format=posix", "--xattrs", "--xattrs-include=*", "--sparse"],
    &["--format=posix", "--sparse", "--sparse-version=0.0"],
    &["--format=posix", "--sparse", "--sparse-version=0.1"],
    &["--format=gnu"],
    &["--format=gnu", "--sparse"],
    &["--format=posix", "--hard-dereference"],
    &["--format=posix", "--acls"],
];

#[test]
fn an_archive_becomes_what_tar_unpacks_it_to() {
    let work = tempfile::tempdir().unwrap();
    let root = work.path().join("root");
    fs::create_dir(&root).unwrap();
    make_tree(&root);
    if is_root("an archive with owners and devices") {
        make_owned(&root);
    }
    for (number, format) in FORMATS.iter().enumerate() {
        let tar = work.path().join(format!("{number}.tar"));
        archive(&root, &tar, format);
        // With that word tar does not take lists from attributes.
        let further: &[&str] = if format.contains(&"--acls") { &["--acls"] } else { &[] };
        let unpacked = unpack(&tar, &work.path().join(format!("unpacked{number}")), further);
        let found = source(&tar);
        assert_eq!((found.kind(), found.kept_bytes()), (SourceKind::Archive, 0), "{format:?}");
        assert_eq!(digest(&found), digest(&source(&unpacked)), "{format:?}");
    }
    // It is what was archived, too.
    assert_eq!(digest(&source(&work.path().join("1.tar"))), digest(&source(&root)));
    let disk = work.path().join("disk");
    write_out(&source(&work.path().join("5.tar")), &disk);
    run("e2fsck", ["-fn".as_ref(), disk.as_os_str()]);
}

/// What `--pax-option=KEY=VALUE` gives to all entries; those of an entry itself come before it.
#[test]
fn records_for_all_entries_count_as_tar_counts_them() {
    let work = tempfile::tempdir().unwrap();
    let root = work.path().join("root");
    fs::create_dir_all(root.join("d")).unwrap();
    fs::write(root.join("d/f"), "x").unwrap();
    set_mtime(&root.join("d/f"), 1_700_000_000, 5);
    set_mtime(&root.join("d"), 1_700_000_000, 0);
    set_mtime(&root, 1_700_000_000, 0);
    if !is_root("an archive with owners") {
        return;
    }
    let tar = work.path().join("a.tar");
    archive(&root, &tar, &["--format=posix", "--pax-option=uid=70000,gid=8,mtime=1000.5,comment=x"]);
    let unpacked = unpack(&tar, &work.path().join("unpacked"), &[]);
    assert_eq!(digest(&source(&tar)), digest(&source(&unpacked)));
    assert_ne!(digest(&source(&tar)), digest(&source(&root)));
    let records: [(&[u8], &str); 4] = [
        (b"17 path=/etc/pwd\n", "path"),
        (b"34 SCHILY.xattr.trusted.overlay=y\n", "SCHILY.xattr.trusted.overlay"),
        (b"22 GNU.sparse.size=10\n", "GNU.sparse.size"),
        (b"12 uid=none\n", "its owner is none"),
    ];
    for (list, word) in records {
        let error = refused(&Tar::default().entry(b'g', "all", "", list).file("f", b"x").write(&tar));
        assert!(error.contains(word), "no {word:?} in {error}");
    }
}

/// In the words of libarchive, whose modes have the group's permissions in place of the mask's.
#[test]
fn access_control_lists_of_other_programs_are_attributes() {
    let work = tempfile::tempdir().unwrap();
    let list = "user::rw-,group::r--,other::---,user:x:rw-:70000,group:root:--x:0,group:70001:rw-,mask::rw-";
    let words = Tar::default()
        .records(&[("SCHILY.acl.access", list)])
        .file("f", b"x")
        .records(&[("SCHILY.acl.access", "user::rw-,group::r--,other::r--"), ("SCHILY.acl.default", "")])
        .folder("d")
        .records(&[("SCHILY.acl.access", "user::rw-,user:lisa:rwx,group::r--,mask::rwx,other::r--")])
        .file("named", b"")
        .write(&work.path().join("a.tar"));
    let by_hand = work.path().join("by hand");
    fs::create_dir_all(by_hand.join("d")).unwrap();
    for (name, bytes, mode) in [("f", "x", 0o660), ("named", "", 0o644)] {
        fs::write(by_hand.join(name), bytes).unwrap();
        fs::set_permissions(by_hand.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(by_hand.join("d"), fs::Permissions::from_mode(0o644)).unwrap();
    set_access_list(&by_hand.join("f"), "access", 6);
    for (path, seconds) in [("f", 7), ("d", 7), ("named", 7), ("", 0)] {
        set_mtime(&by_hand.join(path), seconds, 0);
    }
    if is_root("owners of an archive") {
        assert_eq!(digest(&source(&words)), digest(&source(&by_hand)));
    }
}

#[test]
fn packed_archives_and_streams_become_the_same() {
    let work = tempfile::tempdir().unwrap();
    let root = work.path().join("root");
    fs::create_dir(&root).unwrap();
    make_tree(&root);
    let tar = work.path().join("plain");
    archive(&root, &tar, &["--format=posix", "--sparse", "--xattrs", "--xattrs-include=*"]);
    let (bytes, expected) = (fs::read(&tar).unwrap(), digest(&source(&root)));
    for program in ["gzip", "zstd", "xz"] {
        let packed = filter(program, &["-c"], &bytes);
        // The name says nothing.
        let path = work.path().join("packed.raw");
        fs::write(&path, &packed).unwrap();
        let found = source(&path);
        assert!((70_000..350_000).contains(&found.kept_bytes()), "{}", found.kept_bytes());
        assert_eq!(digest(&found), expected, "{program}");
        let options = SourceOptions { keep_in: Some(work.path().to_owned()), ..SourceOptions::default() };
        let stream = Box::new(std::io::Cursor::new(packed));
        let found = Source::open_stream(stream, Path::new("standard input"), &options, &|_| {}).unwrap();
        assert_eq!(digest(&found), expected, "a stream from {program}");
    }
    let names = fs::read_dir(work.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.count(), 3, "nothing is left");
}

#[test]
fn an_archive_that_changes_meanwhile_is_noticed() {
    let work = tempfile::tempdir().unwrap();
    let tar = Tar::default().file("f", &[1; 9000]).write(&work.path().join("a.tar"));
    let found = source(&tar);
    fs::write(&tar, Tar::default().file("f", &[2; 9000]).bytes()).unwrap();
    let error = found.verify_unchanged().unwrap_err().to_string();
    assert!(error.contains("it changed while"), "{error}");
}

#[test]
fn old_archives_and_odd_entries_are_taken() {
    let work = tempfile::tempdir().unwrap();
    let v7 = Tar::default()
        .changed(0, "old/", 0, |header| header[257..265].fill(0))
        .changed(0, "old/f", 0, |header| header[257..265].fill(0))
        .entry(b'V', "a label", "", b"")
        .entry(b'g', "global", "", b"20 comment=whatever\n")
        // A size of a link is not that of anything in the archive.
        .changed(b'1', "old/h", 7, |header| header[157..162].copy_from_slice(b"old/f"))
        .write(&work.path().join("v7.tar"));
    let by_hand = work.path().join("by hand");
    fs::create_dir_all(by_hand.join("old")).unwrap();
    fs::write(by_hand.join("old/f"), "").unwrap();
    fs::hard_link(by_hand.join("old/f"), by_hand.join("old/h")).unwrap();
    for (path, mode, seconds) in [("old/f", 0o644, 7), ("old", 0o644, 7), ("", 0o755, 0)] {
        fs::set_permissions(by_hand.join(path), fs::Permissions::from_mode(mode)).unwrap();
        set_mtime(&by_hand.join(path), seconds, 0);
    }
    if is_root("owners of an old archive") {
        assert_eq!(digest(&source(&v7)), digest(&source(&by_hand)));
    }
}

#[test]
fn a_file_taken_as_raw_is_a_disk_whatever_it_holds() {
    let work = tempfile::tempdir().unwrap();
    let tar = Tar::default().file("f", b"x").write(&work.path().join("a.tar"));
    let raw = SourceOptions { raw: true, ..SourceOptions::default() };
    assert_eq!(open_with(&tar, raw).unwrap().kind(), SourceKind::RawFile);
    let mut bytes = fs::read(&tar).unwrap();
    bytes[0] ^= 1;
    fs::write(&tar, bytes).unwrap();
    assert_eq!(source(&tar).kind(), SourceKind::RawFile, "a header with a wrong checksum is none");
    let stream = Box::new(std::io::Cursor::new(vec![1; 5000]));
    let error = Source::open_stream(stream, Path::new("standard input"), &SourceOptions::default(), &|_| {});
    assert!(error.unwrap_err().to_string().contains("standard input: this is no tar archive"));
    fs::write(&tar, "").unwrap();
    assert!(refused(&tar).contains("empty"));
}
