//! qcow2 files of qemu-img and qemu-io become the disk that qemu-img reads from them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use hs_build::source::{Source, SourceError, SourceKind, SourceOptions};
use hs_units::Prng;

fn open_with(path: &Path, follow_backing: bool) -> Result<Source, SourceError> {
    Source::open(path, &SourceOptions { follow_backing, ..SourceOptions::default() }, &|_| {})
}

fn open(path: &Path) -> Result<Source, SourceError> {
    open_with(path, false)
}

fn refused(path: &Path) -> String {
    open(path).err().unwrap_or_else(|| panic!("{} was taken", path.display())).to_string()
}

/// Runs a program of QEMU in this folder.
fn qemu(program: &str, folder: &Path, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn img(folder: &Path, arguments: &[&str]) {
    qemu("qemu-img", folder, arguments);
}

/// The disk as this program reads it: in odd pieces, and what lies outside of its ranges must be zeros.
fn disk(source: &Source) -> Vec<u8> {
    let mut bytes = vec![0xff; source.bytes() as usize];
    let mut at = 0;
    while at < bytes.len() {
        let len = (7 * 4096 + 512).min(bytes.len() - at);
        source.read_at(at as u64, &mut bytes[at..at + len]).unwrap();
        at += len;
    }
    let mut outside = bytes.clone();
    for range in source.data_ranges().unwrap() {
        outside[range.offset as usize..range.end() as usize].fill(0);
    }
    assert!(outside.iter().all(|&byte| byte == 0), "data outside of the ranges");
    source.verify_unchanged().unwrap();
    bytes.truncate(source.file_bytes() as usize);
    bytes
}

/// The disk as qemu-img reads it.
fn by_qemu(folder: &Path, name: &str) -> Vec<u8> {
    img(folder, &["convert", "-O", "raw", name, "by-qemu.raw"]);
    fs::read(folder.join("by-qemu.raw")).unwrap()
}

fn assert_same(folder: &Path, name: &str) -> Source {
    let source = open(&folder.join(name)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(source.kind(), SourceKind::Qcow2);
    assert!(disk(&source) == by_qemu(folder, name), "{name} differs");
    source
}

/// A raw disk with data that compresses, noise, and holes.
fn raw(folder: &Path, name: &str, bytes: usize) -> PathBuf {
    let mut disk = vec![0; bytes];
    for (number, part) in disk.chunks_mut(300_000).enumerate() {
        match number % 4 {
            0 => part.fill(number as u8 + 1),
            1 => Prng::new(number as u64).fill(part),
            _ => {}
        }
    }
    fs::write(folder.join(name), disk).unwrap();
    folder.join(name)
}

#[test]
fn every_kind_of_file_is_read_as_qemu_reads_it() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    let expected = fs::read(raw(folder, "raw", 5_000_192)).unwrap();
    for (number, options) in [
        &["-o", "compat=0.10"][..],
        &["-o", "compat=1.1"],
        &["-o", "cluster_size=512"],
        &["-o", "cluster_size=2M"],
        &["-o", "extended_l2=on,cluster_size=128k"],
        &["-o", "extended_l2=on,cluster_size=16k,compression_type=zstd", "-c"],
        &["-c"],
        &["-c", "-o", "compression_type=zstd"],
        &["-c", "-o", "compat=0.10,cluster_size=4k"],
        &["-o", "preallocation=metadata"],
        &["-o", "lazy_refcounts=on,refcount_bits=1"],
    ]
    .iter()
    .enumerate()
    {
        let name = format!("{number}.qcow2");
        let words = [&["convert", "-f", "raw", "-O", "qcow2"], *options, &["raw", &name]].concat();
        img(folder, &words);
        assert!(disk(&assert_same(folder, &name)) == expected, "{options:?}");
    }
}

#[test]
fn zeros_and_parts_of_clusters_are_told_apart() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    raw(folder, "base.raw", 4 << 20);
    for (number, options) in ["cluster_size=64k", "extended_l2=on,cluster_size=64k"].iter().enumerate() {
        let name = format!("{number}.qcow2");
        img(
            folder,
            &["create", "-q", "-f", "qcow2", "-o", options, "-b", "base.raw", "-F", "raw", &name, "6M"],
        );
        let commands = [
            "write -P 1 100k 3k",
            "write -z 128k 64k",
            "write -z 300k 5k",
            "discard 512k 128k",
            "write -P 2 4090k 20k",
            "write -P 3 5900k 4k",
        ];
        let words: Vec<&str> =
            commands.iter().flat_map(|command| ["-c", command]).chain([name.as_str()]).collect();
        qemu("qemu-io", folder, &words);
        let source = assert_same(folder, &name);
        let covered: u64 = source.data_ranges().unwrap().iter().map(|range| range.len).sum();
        assert!(covered < 5 << 20, "{covered} bytes");
    }
    // A large disk with little in it has few ranges, and costs little.
    img(folder, &["create", "-q", "-f", "qcow2", "large.qcow2", "100T"]);
    qemu("qemu-io", folder, &["-c", "write -P 1 50T 64k", "large.qcow2"]);
    let source = open(&folder.join("large.qcow2")).unwrap();
    assert_eq!((source.bytes(), source.data_ranges().unwrap().len()), (100 << 40, 1));
}

#[test]
fn backing_files_are_opened_in_the_folder_only() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path().join("folder");
    fs::create_dir(&folder).unwrap();
    raw(&folder, "base.raw", 1 << 20);
    raw(work.path(), "outside.raw", 1 << 20);
    let create = |base: &str, format: &str, name: &str| {
        img(&folder, &["create", "-q", "-u", "-f", "qcow2", "-b", base, "-F", format, name, "2M"]);
    };
    create("base.raw", "raw", "one.qcow2");
    qemu("qemu-io", &folder, &["-c", "write -P 9 64k 128k", "one.qcow2"]);
    create("one.qcow2", "qcow2", "two.qcow2");
    qemu("qemu-io", &folder, &["-c", "write -P 8 128k 64k", "two.qcow2"]);
    assert_same(&folder, "one.qcow2");
    let two = assert_same(&folder, "two.qcow2");
    fs::write(folder.join("base.raw"), "other").unwrap();
    assert!(two.verify_unchanged().unwrap_err().to_string().contains("base.raw: it changed"));
    // The header may leave out what the backing file is.
    let mut header = fs::read(folder.join("two.qcow2")).unwrap();
    let at = header.windows(4).position(|four| four == [0xe2, 0x79, 0x2a, 0xca]).unwrap();
    header[at..at + 4].copy_from_slice(b"none");
    fs::write(folder.join("unsaid.qcow2"), header).unwrap();
    open(&folder.join("unsaid.qcow2")).unwrap();

    let outside = work.path().join("outside.raw");
    symlink(&outside, folder.join("link.raw")).unwrap();
    for base in [outside.to_str().unwrap(), "../outside.raw", "link.raw"] {
        create(base, "raw", "out.qcow2");
        let error = refused(&folder.join("out.qcow2"));
        assert!(error.contains("--follow-backing") && error.contains(base), "{error}");
        assert!(open_with(&folder.join("out.qcow2"), true).is_ok(), "{base}");
    }
    for (base, format, word) in [
        ("json:{\"driver\":\"raw\"}", "raw", "no file"),
        ("nbd://localhost/x", "raw", "no file"),
        ("gone.raw", "raw", "cannot be opened"),
        ("base.raw", "vmdk", "of the format vmdk"),
        ("base.raw", "qcow2", "base.raw: its qcow2 header is damaged"),
        ("./self.qcow2", "qcow2", "leads back"),
        (".", "raw", "no regular file"),
    ] {
        create(base, format, "self.qcow2");
        for follow in [false, true] {
            let error = open_with(&folder.join("self.qcow2"), follow).unwrap_err().to_string();
            assert!(error.contains(word), "{base}: no {word:?} in {error}");
        }
    }
    create("b.qcow2", "qcow2", "a.qcow2");
    create("a.qcow2", "qcow2", "b.qcow2");
    assert!(refused(&folder.join("a.qcow2")).contains("leads back"));
}

/// Writes a number into a copy of a file.
fn changed(folder: &Path, from: &str, at: usize, bytes: &[u8]) -> PathBuf {
    let mut file = fs::read(folder.join(from)).unwrap();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    let path = folder.join("changed.qcow2");
    fs::write(&path, file).unwrap();
    path
}

#[test]
fn headers_and_tables_that_lie_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    raw(folder, "raw", 3 << 20);
    img(folder, &["convert", "-O", "qcow2", "-c", "raw", "good.qcow2"]);
    for (at, bytes, word) in [
        (4, &4_u32.to_be_bytes()[..], "qcow2 of version 4"),
        (20, &8_u32.to_be_bytes(), "no size that is allowed"),
        (20, &22_u32.to_be_bytes(), "no size that is allowed"),
        (24, &u64::MAX.to_be_bytes(), "too large"),
        (24, &(1_u64 << 60).to_be_bytes(), "more than 32 MiB"),
        (24, &(1_u64 << 40).to_be_bytes(), "too short for the disk"),
        (32, &1_u32.to_be_bytes(), "has encryption"),
        (40, &u64::MAX.to_be_bytes(), "the first table at"),
        (40, &(1_u64 << 40).to_be_bytes(), "it may be cut short"),
        (72, &2_u64.to_be_bytes(), "damaged; `qemu-img check"),
        (72, &4_u64.to_be_bytes(), "an external data file"),
        (72, &32_u64.to_be_bytes(), "a feature of a later version"),
        (72, &8_u64.to_be_bytes(), "another compression"),
        (100, &u32::MAX.to_be_bytes(), "no size that is allowed"),
        (100, &72_u32.to_be_bytes(), "no size that is allowed"),
    ] {
        let error = refused(&changed(folder, "good.qcow2", at, bytes));
        assert!(error.contains(word), "{at}: no {word:?} in {error}");
    }
    img(folder, &["create", "-q", "-f", "qcow2", "-b", "raw", "-F", "raw", "named.qcow2"]);
    let error = refused(&changed(folder, "named.qcow2", 16, &2000_u32.to_be_bytes()));
    assert!(error.contains("too long"), "{error}");
    let error = refused(&changed(folder, "named.qcow2", 8, &(1_u64 << 50).to_be_bytes()));
    assert!(error.contains("the name of the backing file"), "{error}");

    let good = fs::read(folder.join("good.qcow2")).unwrap();
    let l1_at = u64::from_be_bytes(good[40..48].try_into().unwrap()) as usize;
    let error = refused(&changed(folder, "good.qcow2", l1_at, &(1_u64 << 50).to_be_bytes()));
    assert!(error.contains("a second table at"), "{error}");
    // With small clusters the disk has several second tables.
    img(folder, &["convert", "-O", "qcow2", "-o", "cluster_size=4k", "raw", "small.qcow2"]);
    let small = fs::read(folder.join("small.qcow2")).unwrap();
    let l1_at = u64::from_be_bytes(small[40..48].try_into().unwrap()) as usize;
    let error = refused(&changed(folder, "small.qcow2", l1_at + 8, &small[l1_at..l1_at + 8]));
    assert!(error.contains("twice"), "{error}");
    let table = |bytes: &[u8]| {
        let at = u64::from_be_bytes(bytes[40..48].try_into().unwrap()) as usize;
        (u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap()) & 0x00ff_ffff_ffff_fe00) as usize
    };
    // With the largest clusters one table is for 512 GiB of disk.
    for (options, word) in [(&["-c"][..], "compressed"), (&[], "stored")] {
        let words = [&["convert", "-O", "qcow2", "-o", "cluster_size=2M"], options, &["raw", "big.qcow2"]];
        img(folder, &words.concat());
        img(folder, &["resize", "-q", "big.qcow2", "512G"]);
        let big = fs::read(folder.join("big.qcow2")).unwrap();
        let entries = big[table(&big)..table(&big) + 8].repeat(1 << 18);
        let opened = open(&changed(folder, "big.qcow2", table(&big), &entries));
        let error = opened.and_then(|source| source.data_ranges()).unwrap_err().to_string();
        assert!(error.contains("they name some of them twice"), "{word}: {error}");
    }
    // A cluster that is damaged, or lies nowhere, is an error of the read that needs it.
    let mut block = [0; 4096];
    for entry in [1_u64 << 62 | 1 << 40, 1 << 40, 1 << 62 | 8] {
        let opened = open(&changed(folder, "good.qcow2", table(&good), &entry.to_be_bytes()));
        let error = opened.and_then(|source| source.read_at(0, &mut block)).unwrap_err().to_string();
        assert!(error.contains("it may be cut short") || error.contains("is damaged"), "{error}");
    }
}
