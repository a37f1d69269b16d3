//! File systems, and what else fills a disk or a partition: recognised by their superblocks.

use std::fmt;

use crate::reader::{Reader, array, be16, be32, be64, le16, le32, le64};
use crate::{Guid, xfs_log};

/// What a disk or a partition holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FsKind {
    /// ext2, ext3 or ext4.
    Ext,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// squashfs.
    Squashfs,
    /// EROFS.
    Erofs,
    /// ISO 9660.
    Iso9660,
    /// FAT of 12, 16 or 32 bits.
    Fat,
    /// exFAT.
    Exfat,
    /// NTFS.
    Ntfs,
    /// F2FS.
    F2fs,
    /// JFS.
    Jfs,
    /// ReiserFS.
    Reiserfs,
    /// UDF.
    Udf,
    /// Swap space.
    Swap,
    /// A volume that LUKS encrypts.
    Luks,
    /// A physical volume of LVM.
    Lvm,
}

impl FsKind {
    /// Whether its first sector ends as an MBR does.
    pub(crate) fn begins_with_boot_sector(self) -> bool {
        matches!(self, Self::Fat | Self::Exfat | Self::Ntfs)
    }
}

impl fmt::Display for FsKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext => "ext2/3/4",
            Self::Xfs => "XFS",
            Self::Btrfs => "btrfs",
            Self::Squashfs => "squashfs",
            Self::Erofs => "EROFS",
            Self::Iso9660 => "ISO 9660",
            Self::Fat => "FAT",
            Self::Exfat => "exFAT",
            Self::Ntfs => "NTFS",
            Self::F2fs => "F2FS",
            Self::Jfs => "JFS",
            Self::Reiserfs => "ReiserFS",
            Self::Udf => "UDF",
            Self::Swap => "swap space",
            Self::Luks => "LUKS encryption",
            Self::Lvm => "an LVM volume",
        })
    }
}

/// Whether a file system was left with changes that its journal alone holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Journal {
    /// All changes are in place, or there is no journal.
    Clean,
    /// It must be replayed first: without that, recent changes are not seen.
    NeedsReplay,
    /// Not known here.
    Unknown,
}

/// A file system, by its superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// What it is.
    pub kind: FsKind,
    /// The name of the volume.
    pub label: Option<String>,
    /// Its identifier, as `blkid` shows it.
    pub uuid: Option<String>,
    /// Bytes of its blocks, where the superblock says that.
    pub block_bytes: Option<u32>,
    /// How large it is, where the superblock says that: the disk may have been cut short.
    pub bytes: Option<u64>,
    /// The largest sectors that a device may have for it, 512 to 4096.
    pub sector_bytes: u32,
    /// Whether its journal must be replayed.
    pub journal: Journal,
    /// Whether an ext4 says that the kernel has found errors in it.
    pub has_errors: bool,
}

impl FileSystem {
    fn of(kind: FsKind) -> Self {
        Self {
            kind,
            label: None,
            uuid: None,
            block_bytes: None,
            bytes: None,
            sector_bytes: 4096,
            journal: Journal::Clean,
            has_errors: false,
        }
    }

    /// Of so many blocks, whose size is known.
    fn of_blocks(mut self, blocks: u64) -> Self {
        self.bytes = self.block_bytes.and_then(|bytes| blocks.checked_mul(bytes.into()));
        self
    }

    /// With blocks of so many bytes, which no sector may be larger than.
    fn with_blocks(mut self, bytes: u32) -> Self {
        self.block_bytes = Some(bytes);
        self.with_sectors(bytes)
    }

    fn with_sectors(mut self, bytes: u32) -> Self {
        // Two sizes of sectors exist in practice.
        self.sector_bytes = if bytes < 4096 { 512 } else { 4096 };
        self
    }

    fn named(mut self, label: &[u8], uuid: Option<String>) -> Self {
        let label: &[u8] = label.split(|byte| *byte == 0).next().unwrap_or_default();
        let label = String::from_utf8_lossy(label).trim_end().to_owned();
        (self.label, self.uuid) = ((!label.is_empty()).then_some(label), uuid);
        self
    }

    /// The one that begins where the disk or the part begins.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn find<E>(disk: &mut Reader<'_, E>) -> Result<Option<Self>, E> {
        // ISO 9660 comes first, because hybrid discs are also other things.
        let volume = disk.read_some(0x8000, 2048)?;
        if volume.get(1..6) == Some(b"CD001") {
            let iso = Self::of(FsKind::Iso9660).with_sectors(512);
            return Ok(Some(iso.named(volume.get(40..72).unwrap_or_default(), None)));
        }
        let start = disk.read_some(0, 4096)?;
        if let Some(found) = by_start(&start) {
            return Ok(Some(match found.kind {
                FsKind::Xfs => Self { journal: xfs_log::journal(disk, &start)?, ..found },
                _ => found,
            }));
        }
        if volume.starts_with(b"JFS1") {
            return Ok(Some(Self::of(FsKind::Jfs)));
        }
        if volume.get(1..6) == Some(b"BEA01") {
            return Ok(Some(Self::of(FsKind::Udf)));
        }
        let far = disk.read_some(0x1_0000, 4096)?;
        Ok(by_far_superblock(&far).or_else(|| boot_sector(&start)))
    }
}

/// Those with a superblock in the first 4 KiB.
fn by_start(start: &[u8]) -> Option<FileSystem> {
    let has = |at: usize, magic: &[u8]| start.get(at..).is_some_and(|rest| rest.starts_with(magic));
    let uuid_at = |at: usize| uuid(array(start, at));
    let slice = |at: usize, len: usize| start.get(at..at + len).unwrap_or_default();
    // The copies that stand in later groups say in which, and are no beginning.
    if has(0x438, &[0x53, 0xef]) && le16(start, 0x45a) == 0 {
        return Some(ext(&start[0x400..]));
    }
    if has(0, b"hsqs") {
        return Some(FileSystem { bytes: Some(le64(start, 40)), ..FileSystem::of(FsKind::Squashfs) });
    }
    if has(0x400, &[0xe2, 0xe1, 0xf5, 0xe0]) {
        let shift = u32::from(start[0x40c]);
        let found = FileSystem::of(FsKind::Erofs).with_blocks(1_u32.checked_shl(shift).unwrap_or(0));
        let found = found.of_blocks(le32(start, 0x424).into());
        return Some(found.named(slice(0x440, 16), uuid_at(0x430)));
    }
    if has(0, b"XFSB") {
        let found = FileSystem::of(FsKind::Xfs).with_blocks(be32(start, 4)).of_blocks(be64(start, 8));
        let found = found.with_sectors(be32(start, 4).min(be16(start, 102).into()));
        return Some(found.named(slice(108, 12), uuid_at(32)));
    }
    if has(0, b"LUKS\xba\xbe") {
        let text = String::from_utf8_lossy(slice(168, 40)).trim_end_matches('\0').to_owned();
        let label = if be16(start, 6) == 2 { slice(24, 48) } else { &[] };
        return Some(FileSystem::of(FsKind::Luks).named(label, (!text.is_empty()).then_some(text)));
    }
    if (0..4).any(|sector| has(512 * sector, b"LABELONE")) {
        return Some(FileSystem::of(FsKind::Lvm));
    }
    if has(0x400, &[0x10, 0x20, 0xf5, 0xf2]) {
        return Some(FileSystem::of(FsKind::F2fs));
    }
    has(4086, b"SWAPSPACE2").then(|| FileSystem::of(FsKind::Swap).named(slice(1052, 16), uuid_at(1036)))
}

/// ext2, ext3 and ext4: fields from the kernel's documentation, "Super Block".
fn ext(superblock: &[u8]) -> FileSystem {
    const INCOMPAT_RECOVER: u32 = 4;
    const INCOMPAT_64BIT: u32 = 0x80;
    const STATE_ERROR: u16 = 2;
    let blocks = 1024_u32.checked_shl(le32(superblock, 0x18)).filter(|bytes| *bytes >= 1024);
    let found = FileSystem::of(FsKind::Ext).with_blocks(blocks.unwrap_or(1024));
    let high = if le32(superblock, 0x60) & INCOMPAT_64BIT == 0 { 0 } else { le32(superblock, 0x150) };
    let found = found.of_blocks(u64::from(high) << 32 | u64::from(le32(superblock, 0x4)));
    let mut found =
        found.named(superblock.get(0x78..0x88).unwrap_or_default(), uuid(array(superblock, 0x68)));
    if le32(superblock, 0x60) & INCOMPAT_RECOVER != 0 {
        found.journal = Journal::NeedsReplay;
    }
    found.has_errors = le16(superblock, 0x3a) & STATE_ERROR != 0;
    found
}

/// Those whose superblock lies at 64 KiB.
fn by_far_superblock(far: &[u8]) -> Option<FileSystem> {
    const LOG_ROOT_AT: usize = 0x60;
    if far.get(0x40..0x48) == Some(b"_BHRfS_M") {
        let label = far.get(0x12b..0x22b).unwrap_or_default();
        let found = FileSystem::of(FsKind::Btrfs).with_blocks(le32(far, 0x90));
        let mut found = found.named(label, uuid(array(far, 0x20)));
        if le64(far, LOG_ROOT_AT) != 0 {
            found.journal = Journal::NeedsReplay;
        }
        return Some(found);
    }
    (far.get(0x34..0x3a) == Some(b"ReIsEr")).then(|| FileSystem::of(FsKind::Reiserfs))
}

/// Those that begin with a boot sector, by its block of parameters.
fn boot_sector(start: &[u8]) -> Option<FileSystem> {
    if start.get(510..512) != Some(&[0x55, 0xaa]) {
        return None;
    }
    match &start[3..11] {
        b"NTFS    " => return Some(FileSystem::of(FsKind::Ntfs).with_sectors(le16(start, 11).into())),
        b"EXFAT   " => {
            let sectors = 1_u32.checked_shl(u32::from(start[108])).unwrap_or(512);
            return Some(FileSystem::of(FsKind::Exfat).with_sectors(sectors));
        }
        _ => {}
    }
    let sector_bytes = le16(start, 11);
    let (cluster, reserved, copies, media) = (start[13], le16(start, 14), start[16], start[21]);
    let (short_table, long_table) = (le16(start, 22), le32(start, 36));
    let is_fat = matches!(start[0], 0xeb | 0xe9)
        && matches!(sector_bytes, 512 | 1024 | 2048 | 4096)
        && cluster.is_power_of_two()
        && reserved != 0
        && (1..=2).contains(&copies)
        && matches!(media, 0xf0 | 0xf8..)
        && (short_table != 0 || long_table != 0);
    if !is_fat {
        return None;
    }
    let extended = if short_table != 0 { 38 } else { 66 };
    let has_names = matches!(start[extended], 0x28 | 0x29);
    let (id, label) = (le32(start, extended + 1), &start[extended + 5..extended + 16]);
    let found = FileSystem::of(FsKind::Fat).with_sectors(sector_bytes.into());
    Some(match has_names {
        true => {
            let label = if label.starts_with(b"NO NAME") { &[] } else { label };
            found.named(label, Some(format!("{:04X}-{:04X}", id >> 16, id & 0xffff)))
        }
        false => found,
    })
}

fn uuid(bytes: [u8; 16]) -> Option<String> {
    Some(Guid(bytes)).filter(|guid| !guid.is_nil()).map(|guid| guid.to_string())
}
