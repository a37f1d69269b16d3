//! Bytes as an ext4 file system, in which a path is looked up, files are read and inode tables are found.
//! Most of them change a small one that is right, since the fuzzer would rarely find one: the first byte
//! chooses.

use hs_build::ext4::{Ext4, Ext4Error, FileKind, ROOT_INODE, ReadDisk};

const BLOCK: usize = 1024;
const DISK_BYTES: usize = 64 * BLOCK;
const INODE_TABLE: usize = 5 * BLOCK;
const INODE_BYTES: usize = 256;
/// All that a disk of 64 KiB may have.
const MOST_FILE_BYTES: u64 = DISK_BYTES as u64;

/// Whether all of the file system could be read; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Some((&choice, bytes)) = data.split_first() else { return false };
    let disk = if choice % 4 == 0 { bytes.to_vec() } else { changed(bytes) };
    read(&disk).is_ok()
}

fn read(disk: &[u8]) -> Result<(), Ext4Error> {
    let mut ext4 = Ext4::open(ReadDisk::new(disk.len() as u64, |offset, bytes| {
        assert!(bytes.len() <= 1 << 20, "{} bytes at once", bytes.len());
        let found = usize::try_from(offset).ok().and_then(|from| disk.get(from..)?.get(..bytes.len()));
        bytes.copy_from_slice(found.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }))?;
    assert!(ext4.groups() <= disk.len() as u64 / BLOCK as u64);
    for group in 0..ext4.groups() {
        ext4.inode_table(group)?;
    }
    let top = ext4.inode(ROOT_INODE)?;
    let mut numbers = Vec::new();
    ext4.names(&top, &mut |_, number| {
        numbers.push(number);
        numbers.len() < 64
    })?;
    for number in numbers {
        let inode = ext4.inode(number)?;
        ext4.walk(&inode)?;
        match inode.kind() {
            FileKind::Regular => {
                let content = ext4.content(&inode, MOST_FILE_BYTES)?;
                assert!(content.len() as u64 == inode.size() && content.len() <= disk.len());
            }
            FileKind::Link => assert!(ext4.link_target(&inode)?.len() as u64 == inode.size()),
            FileKind::Directory => {
                ext4.find_name(&inode, b"file")?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// A file system with bytes changed: three of `changes` are a place of 16 bits and what is there.
fn changed(changes: &[u8]) -> Vec<u8> {
    let mut disk = whole();
    for change in changes.chunks_exact(3) {
        disk[usize::from(u16::from_le_bytes([change[0], change[1]]))] = change[2];
    }
    disk
}

/// One group with blocks of 1 KiB: a file of extents, one of single blocks, one in its inode, a link, a
/// directory.
fn whole() -> Vec<u8> {
    let mut disk = vec![0; DISK_BYTES];
    let mut put = |at: usize, bytes: &[u8]| disk[at..at + bytes.len()].copy_from_slice(bytes);
    let fields: [(usize, u32); 10] = [
        (0x0, 16),      // inodes
        (0x4, 64),      // blocks
        (0x14, 1),      // the first data block
        (0x20, 8192),   // blocks in a group
        (0x28, 16),     // inodes in a group
        (0x38, 0xef53), // magic number
        (0x4c, 1),      // revision
        (0x58, 256),    // bytes of an inode
        (0x60, 0x82c2), // filetype, extents, 64bit, flex_bg, inline_data
        (0xfe, 64),     // bytes of a descriptor
    ];
    for (at, value) in fields {
        put(1024 + at, &value.to_le_bytes());
    }
    put(2 * BLOCK + 0x8, &5_u32.to_le_bytes());
    let mut inode = |number: usize, mode: u16, size: u32, flags: u32, map: &[u8]| {
        let at = INODE_TABLE + (number - 1) * INODE_BYTES;
        put(at, &mode.to_le_bytes());
        put(at + 0x4, &size.to_le_bytes());
        put(at + 0x20, &flags.to_le_bytes());
        put(at + 0x28, map);
        put(at + 0x80, &32_u16.to_le_bytes());
    };
    let extent = |block: u8, count: u8| {
        [0x0a, 0xf3, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, count, 0, 0, 0, block, 0, 0, 0]
    };
    inode(2, 0x41ed, 1024, 0x8_0000, &extent(20, 1));
    inode(12, 0x81a4, 3000, 0x8_0000, &extent(21, 3));
    inode(13, 0x81a4, 14_000, 0, &[22, 0, 0, 0, 23, 0, 0, 0]);
    inode(14, 0x81a4, 20, 0x1000_0000, b"twenty bytes, inline");
    inode(15, 0xa1ff, 4, 0, b"file");
    inode(16, 0x41ed, 1024, 0x8_0000, &extent(25, 1));
    let names: [(u32, &[u8]); 7] =
        [(2, b"."), (2, b".."), (12, b"file"), (13, b"old"), (14, b"tiny"), (15, b"link"), (16, b"deep")];
    for block in [20, 25] {
        for (place, (number, name)) in names.iter().enumerate() {
            let at = block * BLOCK + place * 16;
            let rest = if place + 1 == names.len() { BLOCK - place * 16 } else { 16 };
            put(at, &number.to_le_bytes());
            put(at + 4, &(rest as u16).to_le_bytes());
            put(at + 6, &[name.len() as u8, 1]);
            put(at + 8, name);
        }
    }
    disk
}
