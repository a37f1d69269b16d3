//! What a raw disk seems to hold, for messages only: a raw image is taken as it is.

use std::fmt;

/// Bytes from the start of a disk that [`DiskContent::detect`] needs to see.
pub(super) const DETECT_BYTES: usize = 0x1_1000;

/// What the first bytes of a disk look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DiskContent {
    /// ext2, ext3 or ext4.
    Ext,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// squashfs.
    Squashfs,
    /// EROFS.
    Erofs,
    /// ISO 9660, also when it is a hybrid with a partition table.
    Iso9660,
    /// A partition table, GPT or MBR (or a boot sector).
    Partitioned,
    /// A qcow2 file, that is, a container of a disk and no raw disk.
    Qcow2,
    /// A VMDK, VDI or VHDX file, that is, a container of a disk and no raw disk.
    VirtualDisk,
    /// A cloop file, that is, a container of a disk and no raw disk.
    Cloop,
    /// A gzip, xz, bzip2 or zstd file.
    Compressed,
    /// Nothing known.
    Unknown,
}

/// Offset, magic bytes and what they mean; the first that fits counts. From the on-disk documentation of
/// each format; ISO 9660 comes before the partition table because hybrid images have both.
const MAGICS: [(usize, &[u8], DiskContent); 17] = [
    (0, b"QFI\xfb", DiskContent::Qcow2),
    (0, b"#!/bin/sh\n#V", DiskContent::Cloop),
    (0, b"KDMV", DiskContent::VirtualDisk),
    (0, b"vhdxfile", DiskContent::VirtualDisk),
    (0x40, &[0x7f, 0x10, 0xda, 0xbe], DiskContent::VirtualDisk),
    (0, &[0x1f, 0x8b, 0x08], DiskContent::Compressed),
    (0, b"\xfd7zXZ\0", DiskContent::Compressed),
    (0, b"BZh", DiskContent::Compressed),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], DiskContent::Compressed),
    (0, b"hsqs", DiskContent::Squashfs),
    (0, b"XFSB", DiskContent::Xfs),
    (0x400, &[0xe2, 0xe1, 0xf5, 0xe0], DiskContent::Erofs),
    (0x438, &[0x53, 0xef], DiskContent::Ext),
    (0x1_0040, b"_BHRfS_M", DiskContent::Btrfs),
    (0x8001, b"CD001", DiskContent::Iso9660),
    (0x200, b"EFI PART", DiskContent::Partitioned),
    (0x1fe, &[0x55, 0xaa], DiskContent::Partitioned),
];

impl DiskContent {
    /// What `start`, the first bytes of a disk (as many as there are, up to [`DETECT_BYTES`]), looks like.
    pub(super) fn detect(start: &[u8]) -> Self {
        MAGICS
            .iter()
            .find(|(offset, magic, _)| start.get(*offset..).is_some_and(|rest| rest.starts_with(magic)))
            .map_or(Self::Unknown, |&(_, _, content)| content)
    }

    /// Whether the bytes are a file format around a disk, so that taking them as the disk itself is
    /// probably a mistake that the user should hear of.
    #[must_use]
    pub const fn is_wrapped(self) -> bool {
        matches!(self, Self::Qcow2 | Self::Cloop | Self::VirtualDisk | Self::Compressed)
    }
}

impl fmt::Display for DiskContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext => "ext2/3/4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Squashfs => "squashfs",
            Self::Erofs => "erofs",
            Self::Iso9660 => "iso9660",
            Self::Partitioned => "partition table",
            Self::Qcow2 => "qcow2",
            Self::Cloop => "cloop",
            Self::VirtualDisk => "virtual disk container",
            Self::Compressed => "compressed file",
            Self::Unknown => "unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hybrid_iso_is_an_iso() {
        let mut disk = vec![0; DETECT_BYTES];
        disk[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(DiskContent::detect(&disk), DiskContent::Partitioned);
        disk[0x8001..0x8006].copy_from_slice(b"CD001");
        assert_eq!(DiskContent::detect(&disk), DiskContent::Iso9660);
    }

    #[test]
    fn short_disks_are_unknown_and_qcow2_is_wrapped() {
        assert_eq!(DiskContent::detect(b"hs"), DiskContent::Unknown);
        assert_eq!(DiskContent::detect(&[]), DiskContent::Unknown);
        assert!(DiskContent::detect(b"QFI\xfb....").is_wrapped());
    }
}
