//! Archives that lie, or lead out of their root.

use std::fs;

use hs_build::source::{SourceError, SourceOptions};

use crate::support::{Tar, digest, filter, open_with, refused, source};

#[test]
fn names_that_lead_out_of_the_root_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("a.tar");
    for (tar, words) in [
        (Tar::default().file("a/../../f", b"x"), ["a/../../f", "`..`"]),
        (Tar::default().file("f", b"x").hard_link("h", "../f"), ["../f", "`..`"]),
        (
            Tar::default().hard_link("h", "etc/passwd"),
            ["h: it is a hard link", "not in the archive before it"],
        ),
        (Tar::default().folder("d").hard_link("h", "d"), ["h: it is a hard link", "a directory"]),
        (Tar::default().file("f", b"x").file("f/g", b"x"), ["f/g", "is no directory"]),
        (Tar::default().symlink("l", "l").file("l/g", b"x"), ["l/g", "more than 40 symbolic links"]),
        (Tar::default().symlink("l", ""), ["l:", "without a target"]),
        (Tar::default().file(".", b"x"), [".:", "the root"]),
        (Tar::default().entry(b'M', "m", "", b""), ["m:", "several volumes"]),
        (Tar::default().entry(b'Z', "z", "", b""), ["z:", "of kind 'Z'"]),
        (
            Tar::default().file(&"n".repeat(100), b"x").records(&[("path", &"n".repeat(256))]).file("x", b""),
            ["nnn", "1 to 255 bytes"],
        ),
    ] {
        let tar = tar.write(&path);
        let error = refused(&tar);
        for word in words {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
    }
}

#[test]
fn absolute_names_and_links_stay_inside() {
    let work = tempfile::tempdir().unwrap();
    let inside = Tar::default()
        .symlink("etc", "/real")
        .file("/etc/f", b"x")
        .hard_link("//h", "/etc/f")
        .symlink("out", "../../../..")
        .file("out/top", b"y")
        .write(&work.path().join("inside.tar"));
    let plain = Tar::default()
        .symlink("etc", "/real")
        .file("real/f", b"x")
        .hard_link("h", "real/f")
        .symlink("out", "../../../..")
        .file("top", b"y")
        .write(&work.path().join("plain.tar"));
    assert_eq!(digest(&source(&inside)), digest(&source(&plain)));
}

#[test]
fn of_entries_with_one_name_the_last_counts() {
    let work = tempfile::tempdir().unwrap();
    let twice = Tar::default()
        .file("f", b"first")
        .folder("d")
        .file("d/x", b"x")
        .symlink("s", "f")
        .file("f", b"second")
        .file("d", b"a file now")
        .folder("s")
        .write(&work.path().join("twice.tar"));
    let once = Tar::default()
        .file("f", b"second")
        .file("d", b"a file now")
        .folder("s")
        .write(&work.path().join("once.tar"));
    assert_eq!(digest(&source(&twice)), digest(&source(&once)));
}

#[test]
fn archives_that_are_cut_are_refused_wherever() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("a.tar");
    let whole =
        Tar::default().file("f", &[1; 1500]).records(&[("comment", "x")]).file("g", &[2; 10]).unended();
    for len in (513..whole.len()).step_by(171).chain([512, 2048, whole.len()]) {
        fs::write(&path, &whole[..len]).unwrap();
        let error = refused(&path);
        assert!(error.contains("it may be cut short"), "{len}: {error}");
        for program in ["gzip", "xz"] {
            fs::write(&path, filter(program, &["-c"], &whole[..len])).unwrap();
            assert!(refused(&path).contains("it may be cut short"), "{program} {len}");
        }
    }
    let mut packed = filter("gzip", &["-c"], &Tar::default().file("f", &[1; 1500]).bytes());
    packed.truncate(packed.len() - 5);
    fs::write(&path, packed).unwrap();
    assert!(refused(&path).contains("cannot read it"), "{}", refused(&path));
    // One block of zeros, and then nothing, is an end.
    let mut bytes = whole;
    bytes.resize(bytes.len() + 512, 0);
    fs::write(&path, bytes).unwrap();
    source(&path);
}

#[test]
fn sizes_that_lie_are_noticed() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("a.tar");
    let huge = |bytes: u64| {
        Tar::default().changed(b'0', "f", 0, |header| {
            header[124] = 0x80;
            header[128..136].copy_from_slice(&bytes.to_be_bytes());
        })
    };
    for bytes in [1 << 20, 1 << 50, u64::MAX - 5, u64::MAX] {
        let tar = huge(bytes).write(&path);
        let error = refused(&tar);
        assert!(
            ["cut short", "no file can have", "invalid entry size"].iter().any(|word| error.contains(word)),
            "{bytes}: {error}"
        );
        let packed = filter("gzip", &["-c"], &fs::read(&tar).unwrap());
        fs::write(&path, packed).unwrap();
        let error = refused(&path);
        assert!(
            ["cut short", "no file can", "--unpack-limit", "header"].iter().any(|word| error.contains(word)),
            "{error}"
        );
    }
    for (records, word) in [
        (&[("size", "-1")][..], "its size is -1"),
        (&[("uid", "4294967296")], "its owner is 4294967296"),
        (&[("gid", "x")], "its group is x"),
        (&[("mtime", "yesterday")], "its time is yesterday"),
        (&[("SCHILY.devmajor", "99999999999")], "its device is 99999999999"),
    ] {
        let tar = Tar::default().records(records).entry(b'3', "f", "", b"").write(&path);
        assert!(refused(&tar).contains(word), "{}", refused(&tar));
    }
    let device =
        Tar::default().records(&[("SCHILY.devmajor", "4096")]).entry(b'3', "dev", "", b"").write(&path);
    assert!(refused(&device).contains("dev: ext4 cannot hold it"), "{}", refused(&device));
}

#[test]
fn records_that_end_early_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("a.tar");
    for list in [&b"9 uid=70\n-5 path=g\n"[..], b"99999999999999999999 path=g\n", b"9 uid=70\nx"] {
        for kind in [b'x', b'g'] {
            let tar = Tar::default().entry(kind, "list", "", list).file("f", b"x");
            let error = refused(&tar.write(&path));
            assert!(error.contains("its records are damaged"), "{error}");
        }
    }
}

#[test]
fn maps_of_holes_that_lie_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("a.tar");
    let sparse = |map: &str, size: &str| {
        let records = [("GNU.sparse.map", map), ("GNU.sparse.size", size)];
        Tar::default().records(&records).file("s", &[1; 10])
    };
    source(&sparse("0,4,100,6", "1000").write(&path));
    for (map, size) in
        [("0,4,100,6", "105"), ("0,6,4,4", "1000"), ("0,4,100,7", "1000"), ("18446744073709551615,10", "9")]
    {
        let error = refused(&sparse(map, size).write(&path));
        assert!(error.contains("the list of its holes is wrong"), "{map}: {error}");
    }
    // In the format that has the list before the content: one with many parts, one that is damaged, and one
    // without an end.
    let listed = |list: &str, content: usize| {
        let records =
            [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "99999999")];
        let mut bytes = list.as_bytes().to_vec();
        bytes.resize(bytes.len().next_multiple_of(512) + content, 7);
        Tar::default().records(&records).file("s", &bytes)
    };
    let many: String = (0..20_000).map(|part| format!("{}\n1\n", part * 100)).collect();
    source(&listed(&format!("20000\n{many}"), 20_000).write(&path));
    let error = refused(&listed("1\n0\n1", 1000).write(&path));
    assert!(error.contains("header cannot be read") || error.contains("cut short"), "{error}");
    let error = refused(&listed(&"1".repeat(70 << 20), 0).write(&path));
    assert!(error.contains("longer than any"), "{error}");
    // A list that is not understood is no content.
    for records in [
        &[("GNU.sparse.major", "2"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "9")][..],
        &[("GNU.sparse.major", "1"), ("GNU.sparse.minor", "x"), ("GNU.sparse.realsize", "9")],
        &[("GNU.sparse.size", "9"), ("GNU.sparse.offset", "x"), ("GNU.sparse.numbytes", "10")],
        &[("GNU.sparse.size", "x"), ("GNU.sparse.map", "0,10")],
        &[("GNU.sparse.size", "9")],
    ] {
        let error = refused(&Tar::default().records(records).file("s", &[1; 10]).write(&path));
        assert!(error.contains("s: ") && error.contains("list of"), "{records:?}: {error}");
    }
    // A hole costs nothing, and a file may be no larger than ext4 has it.
    let error = refused(&sparse("0,10", "99999999999999999").write(&path));
    assert!(error.contains("larger than 16 TiB"), "{error}");
    assert!(source(&sparse("0,10", "9999999999999").write(&path)).bytes() < 64 << 20);
}

#[test]
fn what_unpacks_to_more_than_allowed_is_refused_and_zeros_are_not_kept() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("bomb");
    let bytes = Tar::default().file("f", &vec![0; 8 << 20]).bytes();
    fs::write(&path, filter("gzip", &["-c"], &bytes)).unwrap();
    assert_eq!(source(&path).kept_bytes(), 0);
    let limited = |unpack_limit_bytes| {
        open_with(&path, SourceOptions { unpack_limit_bytes, ..SourceOptions::default() })
    };
    limited(bytes.len() as u64).unwrap();
    let error = limited(8 << 20).unwrap_err();
    assert!(
        matches!(error, SourceError::Archive { .. }) && error.to_string().contains("--unpack-limit"),
        "{error}"
    );
    // What comes behind the end of an archive counts as well.
    let mut bytes = Tar::default().file("f", b"x").bytes();
    bytes.resize(9 << 20, 0);
    fs::write(&path, filter("gzip", &["-c"], &bytes)).unwrap();
    assert!(limited(8 << 20).unwrap_err().to_string().contains("--unpack-limit"));
}
