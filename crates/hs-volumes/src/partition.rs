//! A partition table and its partitions, whichever of the two kinds it is.

use std::fmt;

use hs_units::ByteRange;

use crate::{FileSystem, Guid};

/// The kind of a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// GUID partition table.
    Gpt,
    /// Master boot record.
    Mbr,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpt => "GPT",
            Self::Mbr => "MBR",
        })
    }
}

/// A partition table with at least one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its kind.
    pub scheme: Scheme,
    /// Bytes of a sector, in which its numbers count.
    pub sector_bytes: u32,
    /// Bytes of the disk that it lies on.
    pub disk_bytes: u64,
    /// The partitions, by number.
    pub partitions: Vec<Partition>,
}

/// A partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Its number, as Linux counts: logical ones of an MBR begin with 5.
    pub number: u32,
    /// What the table says it is for.
    pub kind: PartitionType,
    /// Its name in a GPT.
    pub label: Option<String>,
    /// What Linux calls PARTUUID.
    pub id: String,
    /// Where it lies on the disk, as the table says; it may reach beyond the disk's end.
    pub range: ByteRange,
    /// What is in it, as far as that is known.
    pub file_system: Option<FileSystem>,
}

impl Partition {
    /// Whether it only holds logical partitions.
    #[must_use]
    pub fn is_container(&self) -> bool {
        matches!(self.kind, PartitionType::Mbr(0x05 | 0x0f | 0x85))
    }
}

/// The type of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PartitionType {
    /// Of a GPT.
    Gpt(Guid),
    /// Of an MBR.
    Mbr(u8),
}

/// Types of a GPT as systemd's Discoverable Partitions Specification and `sfdisk` name them: identifier, name
/// and a short name to choose by.
const GPT_TYPES: [(&str, &str, &str); 20] = [
    ("c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "EFI System", "esp"),
    ("21686148-6449-6e6f-744e-656564454649", "BIOS boot", "bios"),
    ("bc13c2ff-59e6-4262-a352-b275fd6f7172", "Linux extended boot", "xbootldr"),
    ("0fc63daf-8483-4772-8e79-3d69d8477de4", "Linux filesystem", "linux"),
    ("4f68bce3-e8cd-4db1-96e7-fbcaf984b709", "Linux root (x86-64)", "root"),
    ("44479540-f297-41b2-9af7-d131d5f0458a", "Linux root (x86)", "root"),
    ("b921b045-1df0-41c3-af44-4c6f280d3fae", "Linux root (ARM-64)", "root"),
    ("69dad710-2ce4-4e3c-b16c-21a1d49abed3", "Linux root (ARM)", "root"),
    ("72ec70a6-cf74-40e6-bd49-4bda08e8f224", "Linux root (RISC-V-64)", "root"),
    ("8484680c-9521-48c6-9c11-b0720656f69e", "Linux /usr (x86-64)", "usr"),
    ("933ac7e1-2eb4-4f13-b844-0e14e2aef915", "Linux home", "home"),
    ("3b8f8425-20e0-4f3b-907f-1a25a76f98e8", "Linux server data", "srv"),
    ("4d21b016-b534-45c2-a9fb-5c16e091fd2d", "Linux variable data", "var"),
    ("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", "Linux swap", "swap"),
    ("e6d6d379-f507-44c2-a23c-238f2a3df928", "Linux LVM", "lvm"),
    ("a19d880f-05fc-4d3b-a006-743f0f84911e", "Linux RAID", "raid"),
    ("ca7d7ccb-63ed-4c53-861c-1742536059cc", "Linux LUKS", "luks"),
    ("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", "Microsoft basic data", "data"),
    ("e3c9e316-0b5c-4db8-817d-f92df00215ae", "Microsoft reserved", "msr"),
    ("de94bba4-06d1-4d40-a16a-bfd50179d6ac", "Windows recovery", "recovery"),
];

const MBR_TYPES: [(u8, &str, &str); 16] = [
    (0x01, "FAT12", "fat"),
    (0x04, "FAT16", "fat"),
    (0x05, "Extended", "extended"),
    (0x06, "FAT16", "fat"),
    (0x07, "NTFS or exFAT", "ntfs"),
    (0x0b, "FAT32", "fat"),
    (0x0c, "FAT32", "fat"),
    (0x0e, "FAT16", "fat"),
    (0x0f, "Extended", "extended"),
    (0x82, "Linux swap", "swap"),
    (0x83, "Linux", "linux"),
    (0x85, "Linux extended", "extended"),
    (0x8e, "Linux LVM", "lvm"),
    (0xef, "EFI System", "esp"),
    (0xee, "GPT", "gpt"),
    (0xfd, "Linux RAID", "raid"),
];

impl PartitionType {
    /// Its name, and the short one.
    fn names(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Gpt(guid) => {
                let text = guid.to_string();
                let found = GPT_TYPES.iter().find(|(known, ..)| *known == text);
                found.map(|(_, name, short)| (*name, *short))
            }
            Self::Mbr(number) => {
                let found = MBR_TYPES.iter().find(|(known, ..)| *known == number);
                found.map(|(_, name, short)| (*name, *short))
            }
        }
    }

    /// Whether a person may mean it by `word`: its name, short name or number, in any case.
    #[must_use]
    pub fn is_called(self, word: &str) -> bool {
        let is_name = |name: &str| name.eq_ignore_ascii_case(word);
        let number = match self {
            Self::Gpt(guid) => guid.to_string(),
            Self::Mbr(number) => format!("0x{number:02x}"),
        };
        is_name(&number) || self.names().is_some_and(|(name, short)| is_name(name) || is_name(short))
    }

    /// Whether it is for the root of a system.
    #[must_use]
    pub fn is_root(self) -> bool {
        self.names().is_some_and(|(_, short)| short == "root")
    }
}

impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.names(), self) {
            (Some((name, _)), _) => f.write_str(name),
            (None, Self::Gpt(guid)) => write!(f, "{guid}"),
            (None, Self::Mbr(number)) => write!(f, "0x{number:02x}"),
        }
    }
}
