//! What is large or many, and what is refused.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use hs_ext4::{DataRun, Kind, Layout, LayoutError, Meta, NodeId, Plan, Refusal, RunContent, Time};

use crate::written::{Mount, bytes_at, is_clean, options, write};

const META: Meta<'_> = Meta {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    modified: Time { seconds: 0, nanoseconds: 0 },
    attributes: &[],
};
const EMPTY: Kind<'_> = Kind::File { bytes: 0, runs: &[] };

fn plan() -> Plan {
    Plan::new(&META).unwrap()
}

fn lay_out(plan: Plan) -> Layout {
    plan.lay_out(&[], &options()).unwrap()
}

#[test]
fn directories_of_many_names_have_an_index_that_finds_each() {
    let mut plan = plan();
    let folders = ["files", "folders", "long"];
    let [files, directories, long] =
        folders.map(|name| plan.add(NodeId::ROOT, name.as_bytes(), &Kind::Directory, &META).unwrap());
    for number in 0..60_000 {
        plan.add(files, format!("file {number}").as_bytes(), &EMPTY, &META).unwrap();
    }
    for number in 0..66_000 {
        plan.add(directories, format!("{number}").as_bytes(), &Kind::Directory, &META).unwrap();
    }
    // With 15 names a block, an index of two levels.
    let long_name = |number: u32| format!("{number:0>250}");
    for number in 0..9_000 {
        plan.add(long, long_name(number).as_bytes(), &EMPTY, &META).unwrap();
    }
    let disk = write(&lay_out(plan), |_, _, _| ());
    let at = tempfile::tempdir().unwrap();
    if !is_clean(disk.path()) {
        return;
    }
    let Some(_mount) = Mount::new(disk.path(), at.path()) else { return };
    let exists = |name: String| assert!(fs::symlink_metadata(at.path().join(&name)).is_ok(), "{name}");
    (0..60_000).step_by(7).for_each(|number| exists(format!("files/file {number}")));
    (0..66_000).step_by(11).for_each(|number| exists(format!("folders/{number}")));
    (0..9_000).step_by(3).for_each(|number| exists(format!("long/{}", long_name(number))));
    assert!(fs::symlink_metadata(at.path().join("long/other")).is_err());
    let links = |name: &str| fs::metadata(at.path().join(name)).unwrap().nlink();
    assert_eq!([links(""), links("files"), links("folders")], [5, 2, 1]);
}

/// Two blocks of the index, one of names, and one of inodes. Each lookup is the first of its mount.
#[test]
fn a_cold_lookup_among_200000_names_reads_four_blocks_at_most() {
    let mut plan = plan();
    let directory = plan.add(NodeId::ROOT, b"files", &Kind::Directory, &META).unwrap();
    for number in 0..200_000 {
        plan.add(directory, format!("file {number}").as_bytes(), &EMPTY, &META).unwrap();
    }
    let disk = write(&lay_out(plan), |_, _, _| ());
    let at = tempfile::tempdir().unwrap();
    let mut most = [0; 2];
    for number in (0..220_000).step_by(9_973) {
        // The kernel reads ahead in tables of inodes, 32 blocks if it is not told otherwise.
        let Some(mount) = Mount::with(disk.path(), at.path(), "loop,ro,inode_readahead_blks=0") else {
            return;
        };
        let opened = File::open(at.path().join("files")).unwrap();
        let before = mount.blocks_read();
        let found = fs::symlink_metadata(at.path().join(format!("files/file {number}"))).is_ok();
        assert_eq!(found, number < 200_000, "{number}");
        let blocks = &mut most[usize::from(found)];
        *blocks = mount.blocks_read().saturating_sub(before).max(*blocks);
        drop(opened);
    }
    // A name that is not there has no inode.
    assert_eq!(most, [3, 4]);
}

#[test]
fn a_file_has_65000_names_and_no_more() {
    let mut plan = plan();
    let file = plan.add(NodeId::ROOT, b"0", &EMPTY, &META).unwrap();
    for number in 1..65_000 {
        plan.link(NodeId::ROOT, format!("{number}").as_bytes(), file).unwrap();
    }
    assert_eq!(plan.link(NodeId::ROOT, b"one more", file), Err(Refusal::Links));
    is_clean(write(&lay_out(plan), |_, _, _| ()).path());
}

#[test]
fn extents_fill_trees_of_every_depth() {
    let mut plan = plan();
    let every_second =
        |count: u32| (0..count).map(|n| DataRun { first: 2 * n, blocks: 1 }).collect::<Vec<_>>();
    // In the inode are 4, in four blocks 1360, in two levels 462,400.
    for count in [4, 5, 1_360, 1_361, 462_401] {
        let kind = Kind::File { bytes: u64::from(2 * count) * 4096, runs: &every_second(count) };
        plan.add(NodeId::ROOT, format!("{count}").as_bytes(), &kind, &META).unwrap();
    }
    let whole = [DataRun { first: 0, blocks: 200_000 }];
    plan.add(NodeId::ROOT, b"whole", &Kind::File { bytes: 200_000 * 4096, runs: &whole }, &META).unwrap();
    let sparse = [DataRun { first: u32::MAX - 1, blocks: 1 }];
    let largest = Kind::File { bytes: u64::from(u32::MAX) * 4096, runs: &sparse };
    plan.add(NodeId::ROOT, b"largest", &largest, &META).unwrap();
    let too_large = Kind::File { bytes: u64::from(u32::MAX) * 4096 + 1, runs: &[] };
    assert_eq!(plan.add(NodeId::ROOT, b"too large", &too_large, &META), Err(Refusal::FileSize));
    // Some blocks of each say where they are.
    let layout = lay_out(plan);
    let is_marked = |offset: u64| (offset / 8192).is_multiple_of(1009);
    let disk = write(&layout, |file, offset, block| {
        if is_marked(offset) || file.index() == 7 {
            block[..8].copy_from_slice(&(offset + file.index() as u64).to_le_bytes());
        }
    });
    let at = tempfile::tempdir().unwrap();
    if !is_clean(disk.path()) {
        return;
    }
    let Some(_mount) = Mount::new(disk.path(), at.path()) else { return };
    for (number, name) in (1..).zip(["4", "5", "1360", "1361", "462401", "whole", "largest"]) {
        let file = File::open(at.path().join(name)).unwrap();
        let bytes = file.metadata().unwrap().len();
        let marked = (0..bytes).step_by(8192).take_while(|_| number != 7).filter(|&offset| is_marked(offset));
        for offset in marked.chain((number == 7).then(|| bytes - 4096)) {
            assert_eq!(bytes_at(&file, offset, 8), (offset + number).to_le_bytes(), "{name} at {offset}");
        }
    }
}

#[test]
fn free_space_is_free_and_takes_no_blocks() {
    let mut options = options();
    (options.free_bytes, options.free_inodes) = (3 << 40, 100_000);
    let layout = plan().lay_out(&[], &options).unwrap();
    let written = layout.runs().filter(|run| run.content != RunContent::Zeros);
    let written: u64 = written.map(|run| run.blocks).sum();
    assert!(written < 500, "{written} blocks");
    let disk = write(&layout, |_, _, _| ());
    let at = tempfile::tempdir().unwrap();
    if !is_clean(disk.path()) {
        return;
    }
    let Some(_mount) = Mount::new(disk.path(), at.path()) else { return };
    let status = rustix::fs::statvfs(at.path()).unwrap();
    let (bytes, inodes) = (status.f_bavail * status.f_frsize, status.f_ffree);
    assert!(bytes >= 3 << 40 && inodes >= 100_000, "{bytes} bytes, {inodes} inodes");
}

#[test]
fn equal_attributes_share_blocks_and_equal_files_data() {
    let mut plan = plan();
    let attributes = [(b"user.large".to_vec(), vec![5; 500])];
    for number in 0..2_500 {
        let meta = Meta { attributes: &attributes, ..META };
        plan.add(NodeId::ROOT, format!("{number}").as_bytes(), &EMPTY, &meta).unwrap();
    }
    let runs = [DataRun { first: 0, blocks: 2 }, DataRun { first: 9, blocks: 1 }];
    let equal = Kind::File { bytes: 10 * 4096, runs: &runs };
    let [one, other] = [b"one", b"two"].map(|name| plan.add(NodeId::ROOT, name, &equal, &META).unwrap());
    plan.share(other, one);
    let layout = lay_out(plan);
    let mut written = 0;
    let disk = write(&layout, |_, offset, block| {
        written += 1;
        block[..8].copy_from_slice(&(offset + 1).to_le_bytes());
    });
    assert_eq!(written, 3, "once for both");
    // The names take 12 blocks, the sets 3: of 1024, 1024 and 452.
    let at = tempfile::tempdir().unwrap();
    if !is_clean(disk.path()) {
        return;
    }
    let Some(_mount) = Mount::new(disk.path(), at.path()) else { return };
    for name in ["one", "two"] {
        let file = File::open(at.path().join(name)).unwrap();
        assert_eq!(bytes_at(&file, 9 * 4096, 8), (9_u64 * 4096 + 1).to_le_bytes());
    }
    let mut value = [0; 600];
    let path = at.path().join("2400");
    assert_eq!(rustix::fs::lgetxattr(&path, "user.large", &mut value[..]), Ok(500));
}

#[test]
fn what_ext4_cannot_hold_is_refused() {
    let mut plan = plan();
    let mut add =
        |name: &[u8], kind: Kind<'_>, meta: &Meta<'_>| plan.add(NodeId::ROOT, name, &kind, meta).err();
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
        assert_eq!(add(name, EMPTY, &META), Some(Refusal::Name), "{name:?}");
    }
    assert_eq!(add(b"a", Kind::Symlink(b""), &META), Some(Refusal::Target));
    assert_eq!(add(b"a", Kind::Symlink(&[b'x'; 4096]), &META), Some(Refusal::Target));
    let device = Kind::BlockDevice { major: 4096, minor: 0 };
    assert_eq!(add(b"a", device, &META), Some(Refusal::DeviceNumber));
    for (name, value, refusal) in [
        ("user.large", vec![0; 65_537], Refusal::AttributeValue),
        ("system.posix_acl_access", vec![1; 20], Refusal::AccessList),
    ] {
        let attributes = [(name.into(), value)];
        assert_eq!(add(b"a", EMPTY, &Meta { attributes: &attributes, ..META }), Some(refusal));
    }
    let named = |number: u32| (format!("user.{number:0240}").into_bytes(), vec![0; 65_536]);
    let names: Vec<_> = (0..16).map(named).collect();
    assert_eq!(add(b"a", EMPTY, &Meta { attributes: &names, ..META }), Some(Refusal::Attributes));
    assert_eq!(add(b"a", EMPTY, &META), None, "nothing of the others is left");
    assert_eq!(add(b"a", EMPTY, &META), None);
    let twice = plan.lay_out(&[], &options()).unwrap_err();
    assert!(matches!(twice, LayoutError::SameName { .. }), "{twice}");
}
