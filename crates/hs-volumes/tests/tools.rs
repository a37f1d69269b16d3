//! Disks as `sfdisk` and the makers of file systems make them.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the programs that make disks are asked"
)]

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use hs_testing::skip;
use hs_volumes::{Contents, FsKind, Journal, Reader, Scheme, examine};

fn look(path: &Path) -> Contents {
    let file = File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    let mut read = |offset: u64, bytes: &mut [u8]| file.read_exact_at(bytes, offset);
    examine(&mut Reader::new(bytes, &mut read)).unwrap()
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    if !found.status.success() {
        skip(program);
    }
    found.status.success()
}

fn ran(command: &mut Command) {
    let done = command.stdout(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn disk(folder: &Path, name: &str, bytes: u64) -> std::path::PathBuf {
    let path = folder.join(name);
    File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

fn sfdisk(disk: &Path, script: &str) {
    let mut child = Command::new("sfdisk")
        .args(["-q", "--no-reread", "--no-tell-kernel"])
        .arg(disk)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_gpt_and_its_copy_are_read() {
    if !has("sfdisk") || !has("mke2fs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gpt = "label: gpt\n\
        size=4MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=\"esp\"\n\
        size=16MiB, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=\"wurzel ä\"\n";
    let path = disk(folder.path(), "gpt", 64 << 20);
    sfdisk(&path, gpt);
    let table = look(&path).table.unwrap();
    assert_eq!((table.scheme, table.sector_bytes), (Scheme::Gpt, 512));
    let root = table.choose("root").unwrap();
    assert_eq!((root.number, root.label.as_deref()), (2, Some("wurzel ä")), "{table}");
    assert_eq!(root.range.len, 16 << 20);
    let known = Command::new("blkid").args(["-p", "-o", "value", "-s", "PTUUID"]).arg(&path).output();
    assert!(known.is_ok_and(|known| known.status.success()), "sfdisk and blkid come together");
    ran(Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-L", "inner", "-E", &format!("offset={}", root.range.offset)])
        .arg(&path)
        .arg("16M"));
    // The first table is damaged: its copy at the end counts.
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff; 64], 512).unwrap();
    let table = look(&path).table.unwrap();
    assert_eq!(table.scheme, Scheme::Gpt, "the copy: {table}");
    assert_eq!(table.choose("inner").unwrap().number, 2, "{table}");
    assert_eq!(table.likely().unwrap().number, 2);
}

#[test]
fn logical_partitions_are_where_sfdisk_says() {
    if !has("sfdisk") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "mbr", 64 << 20);
    sfdisk(
        &path,
        "label: dos\nlabel-id: 0x12345678\n1 : size=4MiB, type=83\n2 : size=24MiB, type=5\n\
         5 : size=6MiB, type=83\n6 : size=4MiB, type=82\n7 : size=8MiB, type=83\n",
    );
    let said = Command::new("sfdisk").args(["-d"]).arg(&path).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let table = look(&path).table.unwrap();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("start=")).collect();
    assert_eq!(lines.len(), table.partitions.len(), "{said}\n{table}");
    for (line, partition) in lines.iter().zip(&table.partitions) {
        let number = |key: &str| -> u64 {
            let (_, rest) = line.split_once(key).unwrap();
            rest.trim_start().split(',').next().unwrap().trim().parse().unwrap()
        };
        assert!(line.contains(&format!("mbr{} ", partition.number)), "{line}: {partition:?}");
        assert_eq!(partition.range.offset, number("start=") * 512, "{line}");
        assert_eq!(partition.range.len, number("size=") * 512, "{line}");
    }
    assert!(table.partitions.iter().any(|partition| partition.number == 6), "{table}");
    assert_eq!(table.partitions[0].id, "12345678-01");
}

#[test]
fn file_systems_say_what_sectors_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let makers: [(&str, &[&str], u64, FsKind, u32); 7] = [
        ("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "1024"], 64 << 20, FsKind::Ext, 512),
        ("mke2fs", &["-q", "-F", "-t", "ext2", "-b", "2048"], 64 << 20, FsKind::Ext, 512),
        ("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "4096"], 64 << 20, FsKind::Ext, 4096),
        ("mkfs.xfs", &["-q", "-f"], 320 << 20, FsKind::Xfs, 512),
        ("mkfs.xfs", &["-q", "-f", "-s", "size=4096"], 320 << 20, FsKind::Xfs, 4096),
        ("mkfs.vfat", &["-F", "32"], 64 << 20, FsKind::Fat, 512),
        ("mkfs.btrfs", &["-q", "-f"], 128 << 20, FsKind::Btrfs, 4096),
    ];
    for (number, (program, options, bytes, kind, sectors)) in makers.into_iter().enumerate() {
        if !has(program) {
            continue;
        }
        let path = disk(folder.path(), &number.to_string(), bytes);
        ran(Command::new(program).args(options).arg(&path));
        let contents = look(&path);
        let found = contents.file_system.unwrap_or_else(|| panic!("{program}"));
        assert_eq!((found.kind, found.sector_bytes), (kind, sectors), "{program} {options:?}");
        assert_eq!((found.journal, contents.table), (Journal::Clean, None), "{program} {options:?}");
        let known = Command::new("blkid").args(["-p", "-o", "value", "-s", "UUID"]).arg(&path).output();
        if let Ok(known) = known {
            assert_eq!(found.uuid.unwrap_or_default(), String::from_utf8_lossy(&known.stdout).trim());
        }
    }
}
