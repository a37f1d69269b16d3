//! What a file is, by its first bytes: for messages, and to refuse a file that is something else.

use std::fmt;

use hs_volumes::FsKind::{
    self, Btrfs, Erofs, Exfat, Ext, F2fs, Fat, Iso9660, Jfs, Luks, Lvm, Ntfs, Reiserfs, Squashfs, Swap, Udf,
    Xfs,
};

use crate::wire::{PACK_MAGIC, SUPERBLOCK_MAGIC};

/// The kind of a file, as far as its first bytes tell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FileKind {
    /// A headstart image.
    Image,
    /// A pack: the hot region of a disk that lies in another file.
    Pack,
    /// A profile: the record of one start.
    Profile,
    /// An overlay: what was written to the disk of an image.
    Overlay,
    /// A raw disk, with what was found in it.
    Disk(FsKind),
    /// A raw disk with a partition table, GPT or MBR, or a boot sector of no known file system.
    Partitioned,
    /// A qcow2 file: a container of a disk.
    Qcow2,
    /// A VMDK, VDI, VHD or VHDX file: a container of a disk.
    VirtualDisk,
    /// A cloop file: a container of a disk.
    Cloop,
    /// A gzip, xz, bzip2 or zstd file, with the name of its format.
    Compressed(&'static str),
    /// A tar archive.
    Tar,
    /// A zip archive.
    Zip,
    /// A program or library.
    Elf,
    /// Text of any kind.
    Text,
    /// It begins with zeros.
    Zeros,
    /// It has no bytes.
    Empty,
    /// Nothing known.
    Unknown,
}

/// Offset, magic bytes and what they mean; the first that fits counts. From the documentation of each format.
/// Formats that begin at byte 0 come first; ISO 9660 comes before the partition table, because hybrid images
/// have both.
const MAGICS: [(usize, &[u8], FileKind); 35] = [
    (0, &SUPERBLOCK_MAGIC, FileKind::Image),
    (0, &PACK_MAGIC, FileKind::Pack),
    (0, b"HSPROF\0\0", FileKind::Profile),
    (0, b"HSKEEP\0\0", FileKind::Overlay),
    (0, b"QFI\xfb", FileKind::Qcow2),
    (0, b"#!/bin/sh\n#V", FileKind::Cloop),
    (0, b"KDMV", FileKind::VirtualDisk),
    (0, b"# Disk DescriptorFile", FileKind::VirtualDisk),
    (0, b"vhdxfile", FileKind::VirtualDisk),
    (0, b"conectix", FileKind::VirtualDisk),
    (0x40, &[0x7f, 0x10, 0xda, 0xbe], FileKind::VirtualDisk),
    (0, &[0x1f, 0x8b, 0x08], FileKind::Compressed("gzip")),
    (0, b"\xfd7zXZ\0", FileKind::Compressed("xz")),
    (0, b"BZh", FileKind::Compressed("bzip2")),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], FileKind::Compressed("zstd")),
    (0, b"PK\x03\x04", FileKind::Zip),
    (0, b"\x7fELF", FileKind::Elf),
    (0, b"hsqs", FileKind::Disk(Squashfs)),
    (0, b"XFSB", FileKind::Disk(Xfs)),
    (0, b"LUKS\xba\xbe", FileKind::Disk(Luks)),
    (257, b"ustar", FileKind::Tar),
    (0x200, b"LABELONE", FileKind::Disk(Lvm)),
    (0x400, &[0xe2, 0xe1, 0xf5, 0xe0], FileKind::Disk(Erofs)),
    (0x400, &[0x10, 0x20, 0xf5, 0xf2], FileKind::Disk(F2fs)),
    (0x438, &[0x53, 0xef], FileKind::Disk(Ext)),
    (4086, b"SWAPSPACE2", FileKind::Disk(Swap)),
    (0x8000, b"JFS1", FileKind::Disk(Jfs)),
    (0x1_0034, b"ReIsEr", FileKind::Disk(Reiserfs)),
    (0x1_0040, b"_BHRfS_M", FileKind::Disk(Btrfs)),
    (0x8001, b"CD001", FileKind::Disk(Iso9660)),
    (0x8001, b"BEA01", FileKind::Disk(Udf)),
    (3, b"NTFS    ", FileKind::Disk(Ntfs)),
    (3, b"EXFAT   ", FileKind::Disk(Exfat)),
    (0x200, b"EFI PART", FileKind::Partitioned),
    (0x1fe, &[0x55, 0xaa], FileKind::Partitioned),
];

/// So many bytes of text are proof enough.
const TEXT_BYTES: usize = 4096;

impl FileKind {
    /// Bytes from the start of a file that [`FileKind::of`] needs to see.
    pub const NEEDED_BYTES: usize = 0x1_1000;

    /// What `start`, the first bytes of a file (as many as there are, up to [`FileKind::NEEDED_BYTES`]),
    /// looks like.
    #[must_use]
    pub fn of(start: &[u8]) -> Self {
        let fits =
            |offset: usize, magic: &[u8]| start.get(offset..).is_some_and(|rest| rest.starts_with(magic));
        if start.is_empty() {
            return Self::Empty;
        }
        if let Some((_, _, kind)) = MAGICS.iter().find(|(offset, magic, _)| fits(*offset, magic)) {
            return if *kind == Self::Partitioned && is_fat(start) { Self::Disk(Fat) } else { *kind };
        }
        match start {
            _ if is_text(&start[..start.len().min(TEXT_BYTES)]) => Self::Text,
            _ if start.iter().all(|byte| *byte == 0) => Self::Zeros,
            _ => Self::Unknown,
        }
    }

    /// Whether it is a raw disk.
    #[must_use]
    pub const fn is_disk(self) -> bool {
        matches!(self, Self::Disk(_) | Self::Partitioned)
    }
}

/// Whether the boot sector has the parameters of a FAT: a jump over them, sectors, clusters and tables of
/// possible sizes, and the number that the first byte of the table repeats.
fn is_fat(start: &[u8]) -> bool {
    let number = |at: usize| u16::from_le_bytes([start[at], start[at + 1]]);
    matches!(start[0], 0xeb | 0xe9)
        && matches!(number(11), 512 | 1024 | 2048 | 4096)
        && start[13].is_power_of_two()
        && number(14) != 0
        && matches!(start[16], 1 | 2)
        && matches!(start[21], 0xf0 | 0xf8..)
}

/// Text as people write it: UTF-8, which may be cut in the last character, without control characters that no
/// text has.
fn is_text(bytes: &[u8]) -> bool {
    let is_cut = |error: std::str::Utf8Error| error.error_len().is_none() && error.valid_up_to() > 0;
    std::str::from_utf8(bytes).map_or_else(is_cut, |_| true)
        && !bytes.iter().any(|byte| matches!(byte, 0..=8 | 14..=26 | 28..=31 | 127))
}

/// With its article, as in "this is a qcow2 file".
impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image => f.write_str("a headstart image"),
            Self::Pack => f.write_str("a pack"),
            Self::Profile => f.write_str("a profile"),
            Self::Overlay => f.write_str("an overlay (--keep)"),
            Self::Disk(Iso9660) => f.write_str("an ISO 9660 disc"),
            Self::Partitioned => f.write_str("a raw disk with a partition table"),
            Self::Disk(content) => write!(f, "a raw disk with {content}"),
            Self::Qcow2 => f.write_str("a qcow2 file"),
            Self::VirtualDisk => f.write_str("a virtual disk (VMDK, VDI, VHD or VHDX)"),
            Self::Cloop => f.write_str("a cloop file"),
            Self::Compressed(format) => write!(f, "a file compressed with {format}"),
            Self::Tar => f.write_str("a tar archive"),
            Self::Zip => f.write_str("a zip archive"),
            Self::Elf => f.write_str("a program or library (ELF)"),
            Self::Text => f.write_str("a text file"),
            Self::Zeros => f.write_str("a file that begins with zeros"),
            Self::Empty => f.write_str("an empty file"),
            Self::Unknown => f.write_str("a file of no known kind"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_magic_is_found_alone() {
        for (offset, magic, kind) in MAGICS {
            let mut start = vec![0; FileKind::NEEDED_BYTES];
            start[offset..offset + magic.len()].copy_from_slice(magic);
            assert_eq!(FileKind::of(&start), kind, "{magic:?} at {offset}");
        }
    }

    #[test]
    fn a_boot_sector_of_fat_is_no_partition_table() {
        let mut disk = vec![0; FileKind::NEEDED_BYTES];
        disk[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
        disk[..26].copy_from_slice(b"\xeb\x3c\x90mkfs.fat\0\x02\x04\x01\0\x02\0\x02\0\x80\xf8\x20\0\x10\0");
        assert_eq!(FileKind::of(&disk), FileKind::Disk(Fat));
        disk[11..13].fill(0);
        assert_eq!(FileKind::of(&disk), FileKind::Partitioned);
        assert_eq!(FileKind::of(&disk[..512]), FileKind::Partitioned);
    }

    #[test]
    fn a_hybrid_iso_is_an_iso() {
        let mut disk = vec![0; FileKind::NEEDED_BYTES];
        disk[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(FileKind::of(&disk), FileKind::Partitioned);
        disk[0x8001..0x8006].copy_from_slice(b"CD001");
        assert_eq!(FileKind::of(&disk), FileKind::Disk(Iso9660));
    }

    #[test]
    fn short_files_have_a_kind_too() {
        assert_eq!(FileKind::of(&[]), FileKind::Empty);
        assert_eq!(FileKind::of(&[0]), FileKind::Zeros);
        assert_eq!(FileKind::of(b"QFI\xfb...."), FileKind::Qcow2);
        assert_eq!(FileKind::of("root:x:0:0\n\tä".as_bytes()), FileKind::Text);
        assert_eq!(FileKind::of(b"<html>\xc3"), FileKind::Text, "cut in a character");
        assert_eq!(FileKind::of(b"ab\0cd"), FileKind::Unknown);
        assert_eq!(FileKind::of(&[0xff, 0xfe]), FileKind::Unknown);
    }
}
