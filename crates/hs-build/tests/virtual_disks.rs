//! VMDK, VDI, VHD and VHDX files of qemu-img and qemu-io become the disk that qemu-img reads from them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hs_build::source::{Source, SourceError, SourceKind, SourceOptions};
use hs_units::Prng;

fn open(path: &Path) -> Result<Source, SourceError> {
    Source::open(path, &SourceOptions::default(), &|_| {})
}

fn refused(path: &Path) -> String {
    let read = open(path).and_then(|source| {
        let mut start = vec![0; 1 << 20];
        let len = start.len().min(source.bytes() as usize);
        source.read_at(0, &mut start[..len]).map(|()| source.kind())
    });
    read.err().map_or_else(|| format!("{} was taken", path.display()), |error| error.to_string())
}

/// Runs a program of QEMU in this folder.
fn qemu(program: &str, folder: &Path, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A raw disk with data that compresses, noise, and holes.
fn raw(folder: &Path, bytes: usize) {
    let mut disk = vec![0; bytes];
    for (number, part) in disk.chunks_mut(300_000).enumerate() {
        match number % 4 {
            0 => part.fill(number as u8 + 1),
            1 => Prng::new(number as u64).fill(part),
            _ => {}
        }
    }
    fs::write(folder.join("raw"), disk).unwrap();
}

/// The disk as this program reads it, in odd pieces, must be that of qemu-img; what lies outside of its
/// ranges must be zeros.
fn assert_same(folder: &Path, format: &str, name: &str) -> Source {
    let source = open(&folder.join(name)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(source.kind(), SourceKind::VirtualDisk, "{name}");
    qemu("qemu-img", folder, &["convert", "-f", format, "-O", "raw", name, "by-qemu.raw"]);
    let expected = fs::read(folder.join("by-qemu.raw")).unwrap();
    assert_eq!(source.file_bytes(), expected.len() as u64, "{name}");
    let mut bytes = vec![0xff; source.bytes() as usize];
    for part in 0..bytes.len().div_ceil(7 * 4096 + 512) {
        let at = part * (7 * 4096 + 512);
        let end = bytes.len().min(at + 7 * 4096 + 512);
        source.read_at(at as u64, &mut bytes[at..end]).unwrap();
    }
    assert!(bytes[..expected.len()] == expected, "{name} differs");
    let mut outside = bytes;
    for range in source.data_ranges().unwrap() {
        outside[range.offset as usize..range.end() as usize].fill(0);
    }
    assert!(outside.iter().all(|&byte| byte == 0), "{name}: data outside of the ranges");
    source.verify_unchanged().unwrap();
    source
}

/// Each kind of file that is read: the format's name in QEMU, and options.
const KINDS: [(&str, &str); 14] = [
    ("vmdk", "subformat=monolithicSparse"),
    ("vmdk", "subformat=monolithicFlat"),
    ("vmdk", "subformat=twoGbMaxExtentFlat"),
    ("vmdk", "subformat=twoGbMaxExtentSparse"),
    ("vmdk", "subformat=monolithicSparse,zeroed_grain=on"),
    ("vmdk", "subformat=streamOptimized"),
    ("vdi", "static=off"),
    ("vdi", "static=on"),
    ("vpc", "subformat=dynamic"),
    ("vpc", "subformat=dynamic,force_size=on"),
    ("vpc", "subformat=fixed"),
    ("vhdx", "subformat=dynamic"),
    ("vhdx", "subformat=dynamic,block_size=1M"),
    ("vhdx", "subformat=fixed"),
];

#[test]
fn every_kind_of_file_is_read_as_qemu_reads_it() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    raw(folder, 5_000_192);
    for (number, (format, options)) in KINDS.iter().enumerate() {
        let name = format!("{number}.disk");
        let words = ["convert", "-f", "raw", "-O", format, "-o", options, "raw", &name];
        qemu("qemu-img", folder, &words);
        assert_same(folder, format, &name);
        if options.contains("streamOptimized") {
            footed(folder, &name, "footed");
            assert_same(folder, format, "footed");
            continue;
        }
        let words = ["-f", format, "-c", "write -P 9 700k 100k", "-c", "write -z 1M 128k", &name];
        qemu("qemu-io", folder, &words);
        assert_same(folder, format, &name);
    }
    for (disk, file) in [("6.disk", "6.disk"), ("1.disk", "1-flat.disk")] {
        let source = open(&folder.join(disk)).unwrap();
        File::options().write(true).open(folder.join(file)).unwrap().write_all_at(b"x", 0).unwrap();
        assert!(source.verify_unchanged().unwrap_err().to_string().contains("it changed"));
    }
}

#[test]
fn large_disks_with_little_in_them_cost_little() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    // In VHDX one entry of the table is left out after 4 GiB.
    let kinds = [
        ("vmdk", "subformat=monolithicSparse"),
        ("vmdk", "subformat=twoGbMaxExtentSparse"),
        ("vdi", "static=off"),
        ("vpc", "subformat=dynamic,force_size=on"),
        ("vhdx", "block_size=1M"),
    ];
    for (format, options) in kinds {
        qemu("qemu-img", folder, &["create", "-q", "-f", format, "-o", options, format, "100G"]);
        let words = ["-f", format, "-c", "write -P 5 4097M 64k", "-c", "write -P 7 99G 4k", format];
        qemu("qemu-io", folder, &words);
        let source = open(&folder.join(format)).unwrap();
        assert_eq!((source.bytes(), source.data_ranges().unwrap().len()), (100 << 30, 2), "{format}");
        let mut block = [0; 8192];
        for (at, expected) in [(4097 << 20, [5, 5]), (99 << 30, [7, 0]), (4096 << 20, [0, 0])] {
            source.read_at(at, &mut block).unwrap();
            assert_eq!([block[0], block[4096]], expected, "{format} at {at}");
        }
    }
}

/// Each block of such a disk is its first one.
#[test]
fn a_small_file_has_no_disk_without_end() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    let mut noise = vec![0; 64 << 10];
    Prng::new(1).fill(&mut noise);
    fs::write(folder.join("raw"), noise).unwrap();
    File::options().write(true).open(folder.join("raw")).unwrap().set_len(1 << 30).unwrap();
    // Entries, the bytes of one, and where the table lies; of VMDK the file says where the first one does.
    for (format, options, entries, entry_bytes, table_at) in [
        ("vpc", "subformat=dynamic,force_size=on", 512, 4, Some(1536)),
        ("vdi", "static=off", 1024, 4, Some(512)),
        ("vhdx", "block_size=1M", 1024, 8, Some(2 << 20)),
        ("vmdk", "subformat=monolithicSparse", 32 * 512, 4, None),
        ("vmdk", "subformat=streamOptimized", 32 * 512, 4, None),
    ] {
        qemu("qemu-img", folder, &["convert", "-f", "raw", "-O", format, "-o", options, "raw", "disk"]);
        assert_eq!(open(&folder.join("disk")).unwrap().bytes(), 1 << 30, "{options}");
        let file = fs::read(folder.join("disk")).unwrap();
        let sector = |at: usize| 512 * u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
        let at = table_at.unwrap_or_else(|| sector(sector(56)));
        let table = file[at..at + entry_bytes].repeat(entries);
        let error = refused(&changed(folder, "disk", at as i64, &table));
        assert!(error.contains("they name some of them twice"), "{options}: {error}");
    }
}

/// Writes the text of a disk in three parts: of `a`, nothing, and of `b`.
fn in_parts(folder: &Path, lines: &str) -> PathBuf {
    let path = folder.join("parts");
    fs::write(&path, format!("# Disk DescriptorFile\nversion=1\nparentCID=ffffffff\n{lines}")).unwrap();
    path
}

#[test]
fn parts_of_a_disk_may_begin_anywhere() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    let bytes = |seed: u64, len: usize| {
        let mut bytes = vec![0; len];
        Prng::new(seed).fill(&mut bytes);
        bytes
    };
    let (a, b) = (bytes(1, 10_752), bytes(2, 9_000));
    fs::write(folder.join("the a"), &a).unwrap();
    fs::write(folder.join("b"), &b).unwrap();
    let disk = in_parts(folder, "RW 21 FLAT \"the a\" 0\nRW 40 ZERO\nRW 11 FLAT \"b\" 5\n");
    let source = open(&disk).unwrap();
    let expected = [&a[..], &[0; 20_480], &b[2560..8192]].concat();
    assert_eq!(source.file_bytes(), expected.len() as u64);
    let mut read = vec![0xff; source.bytes() as usize];
    for (at, piece) in (0..).step_by(4096 + 512).zip(read.chunks_mut(4096 + 512)) {
        source.read_at(at, piece).unwrap();
    }
    assert!(read[..expected.len()] == expected && read[expected.len()..].iter().all(|&byte| byte == 0));
    let ranges: Vec<_> =
        source.data_ranges().unwrap().iter().map(|range| (range.offset, range.len)).collect();
    assert_eq!(ranges, [(0, 12_288), (28_672, 8_192)]);
}

#[test]
fn only_files_of_the_folder_are_parts_of_a_disk() {
    let work = tempfile::tempdir().unwrap();
    let folder = &work.path().join("folder");
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("a"), [1; 4096]).unwrap();
    fs::write(work.path().join("secret"), [2; 4096]).unwrap();
    fs::hard_link(folder.join("a"), folder.join("again")).unwrap();
    std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
    std::os::unix::fs::symlink("a", folder.join("inside")).unwrap();
    fs::create_dir(folder.join("d")).unwrap();
    assert!(open(&in_parts(folder, "RW 8 FLAT \"inside\" 0\n")).is_ok());
    for (lines, word) in [
        ("RW 8 FLAT \"../secret\" 0", "no name of a file in its folder"),
        ("RW 8 FLAT \"/etc/passwd\" 0", "no name of a file in its folder"),
        ("RW 8 FLAT \"..\" 0", "no name of a file in its folder"),
        ("RW 8 FLAT \"link\" 0", "link, which does not lie in its folder"),
        ("RW 8 FLAT \"d\" 0", "d, which is no regular file"),
        ("RW 8 FLAT \"none\" 0", "none, which cannot be opened: No such file"),
        ("RW 8 FLAT \"a\" 0\nRW 8 FLAT \"again\" 0", "again, which has another one too"),
        ("RW 1 FLAT \"parts\" 0", "parts, which has another one too"),
        ("RW 9 FLAT \"a\" 0", "its part a: its end at 4608"),
        ("RW 8 SPARSE \"a\"", "its part a: its VMDK header is damaged"),
        ("createType=\"monolithicFlat\"", "its descriptor is damaged"),
    ] {
        let error = refused(&in_parts(folder, lines));
        assert!(error.contains(word), "{lines}: no {word:?} in {error}");
    }
    let child = folder.join("child");
    fs::write(&child, "# Disk DescriptorFile\nparentCID=1234\nRW 8 FLAT \"a\" 0\n").unwrap();
    assert!(refused(&child).contains("differs from another disk"));
}

/// A VHDX file as a machine leaves it that was killed: an entry of the log waits, here without changes.
fn unclosed(file: &mut [u8]) {
    let sum = |bytes: &mut [u8]| {
        bytes[4..8].fill(0);
        let sum = crc32c::crc32c(bytes);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    };
    let log = u64::from_le_bytes(file[0x10000 + 72..][..8].try_into().unwrap()) as usize;
    let len = file.len() as u64;
    for header in [0x10000, 0x20000] {
        let header = &mut file[header..][..4096];
        header[48..64].fill(7);
        sum(header);
    }
    let entry = &mut file[log..][..4096];
    entry.fill(0);
    entry[..4].copy_from_slice(b"loge");
    entry[8..12].copy_from_slice(&4096_u32.to_le_bytes());
    entry[16..24].copy_from_slice(&1_u64.to_le_bytes());
    entry[32..48].fill(7);
    entry[48..56].copy_from_slice(&len.to_le_bytes());
    entry[56..64].copy_from_slice(&len.to_le_bytes());
    sum(entry);
}

#[test]
fn a_vhdx_file_that_was_not_closed_is_read_after_what_the_message_says() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    raw(folder, 3 << 20);
    qemu("qemu-img", folder, &["convert", "-f", "raw", "-O", "vhdx", "raw", "vhdx"]);
    let mut file = fs::read(folder.join("vhdx")).unwrap();
    unclosed(&mut file);
    fs::write(folder.join("vhdx"), file).unwrap();
    let error = refused(&folder.join("vhdx"));
    assert!(error.contains("was not closed") && error.contains("`qemu-img check -r all`"), "{error}");
    let check = Command::new("qemu-img").args(["check", "-r", "all", "vhdx"]).current_dir(folder).output();
    assert!(check.unwrap().status.success());
    assert_same(folder, "vhdx", "vhdx");
}

/// A streamOptimized file as programs write it that do not know where the tables will be: the header that
/// says so comes at the end.
fn footed(folder: &Path, from: &str, to: &str) {
    let mut file = fs::read(folder.join(from)).unwrap();
    let header = file[..512].to_vec();
    file[56..64].fill(0xff);
    let mut marker = vec![0; 512];
    (marker[0], marker[12]) = (1, 3);
    fs::write(folder.join(to), [file, marker, header, vec![0; 512]].concat()).unwrap();
}

/// A copy of a file with other bytes at a place; negative places count from the end.
fn changed(folder: &Path, from: &str, at: i64, bytes: &[u8]) -> PathBuf {
    let path = folder.join("changed");
    fs::copy(folder.join(from), &path).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let at = if at < 0 { file.metadata().unwrap().len().wrapping_add_signed(at) } else { at as u64 };
    file.write_all_at(bytes, at).unwrap();
    path
}

#[test]
fn what_is_not_read_or_damaged_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    raw(folder, 3 << 20);
    for (format, options, name) in [
        ("vmdk", "subformat=monolithicSparse", "vmdk"),
        ("vmdk", "subformat=streamOptimized", "packed"),
        ("vmdk", "subformat=twoGbMaxExtentSparse", "split"),
        ("vdi", "static=off", "vdi"),
        ("vpc", "subformat=dynamic", "vhd"),
        ("vhdx", "block_size=1M", "vhdx"),
    ] {
        qemu("qemu-img", folder, &["convert", "-f", "raw", "-O", format, "-o", options, "raw", name]);
    }
    qemu("qemu-img", folder, &["create", "-q", "-f", "vmdk", "-b", "vmdk", "-F", "vmdk", "child"]);
    assert!(refused(&folder.join("child")).contains("differs from another disk"));
    assert!(refused(&folder.join("split-s001")).contains("several files"));
    footed(folder, "packed", "footed");
    let long = u64::MAX.to_le_bytes();
    let far = (1_u32 << 30).to_le_bytes();
    let vmdk = fs::read(folder.join("vmdk")).unwrap();
    let first_at = i64::from_le_bytes(vmdk[56..64].try_into().unwrap()) * 512;
    let second = vmdk[first_at as usize..][..4].try_into().unwrap();
    let second_at = i64::from(u32::from_le_bytes(second)) * 512;
    let cases: [(&str, i64, &[u8], &str); 22] = [
        ("vmdk", 4, &far, "a later version"),
        ("vmdk", 12, &long, "header is damaged"),
        ("vmdk", 12, &(1_u64 << 50).to_le_bytes(), "too many"),
        ("vmdk", 20, &3_u64.to_le_bytes(), "size of parts"),
        ("vmdk", 44, &far, "header is damaged"),
        ("vmdk", 56, &far, "its first table"),
        ("vmdk", 28, &far, "descriptor is damaged"),
        ("vmdk", first_at, &far, "a second table"),
        ("vmdk", second_at, &far, "cut short"),
        ("packed", 77, &[2], "another compression"),
        ("footed", -1024, b"x", "header is damaged"),
        ("footed", -1024 + 12, &(1_u64 << 50).to_le_bytes(), "too many"),
        ("vdi", 0x44, &far, "another version"),
        ("vdi", 0x4c, &[4], "differs from another disk"),
        ("vdi", 0x170, &long, "too many"),
        ("vdi", 0x178, &[1], "size of parts"),
        ("vdi", 0x154, &far, "its table"),
        ("vdi", 0x180, &[0, 0], "header is damaged"),
        ("vhd", -512 + 48, &[1], "footer is damaged"),
        ("vhdx", 0x10000, b"x", ""),
        ("vhdx", 0x20000 + 48, b"x", ""),
        ("vhdx", 0x30000, b"x", ""),
    ];
    for (name, at, bytes, word) in cases {
        let path = changed(folder, name, at, bytes);
        if word.is_empty() {
            // The second copy is taken.
            assert!(open(&path).is_ok(), "{name} at {at}");
            continue;
        }
        let error = refused(&path);
        assert!(error.contains(word), "{name} at {at}: no {word:?} in {error}");
    }
    for (name, table) in [("vhdx", 0x10000), ("vhdx", 0x30000)] {
        let file = fs::read(changed(folder, name, table, b"x")).unwrap();
        fs::write(folder.join("once"), file).unwrap();
        assert!(refused(&changed(folder, "once", table + 0x10000, b"x")).contains("damaged"));
    }
    // A grain that does not unpack.
    let grain = fs::read(folder.join("packed")).unwrap();
    let at = grain.windows(2).position(|two| two == [0x78, 0x9c]).unwrap() as i64;
    assert!(refused(&changed(folder, "packed", at, b"xx")).contains("compressed part"));
    assert!(refused(&changed(folder, "packed", at - 4, &far)).contains("compressed part"));
}
