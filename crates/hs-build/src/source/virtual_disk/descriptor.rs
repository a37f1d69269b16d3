//! The text of a VMDK disk: alone in a file it says which other files have which parts of the disk.

use std::collections::HashSet;

use super::fault::VirtualDiskFault;

/// How a file begins that is such a text.
pub(super) const MAGIC: &[u8] = b"# Disk DescriptorFile";
/// The largest text that is read.
pub(super) const MOST_BYTES: u64 = 1 << 20;
/// The most parts of a disk: each is an open file.
const MOST_PARTS: usize = 1000;
const SECTOR_BYTES: u64 = 512;

/// A text, with its letters as they are.
pub(super) struct Descriptor(String);

/// A part of the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    pub(super) bytes: u64,
    pub(super) content: ExtentContent,
}

/// Where the bytes of a part are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ExtentContent {
    /// They are zeros.
    Zeros,
    /// In a file as they are, from an offset on.
    Flat { name: String, offset: u64 },
    /// In a file with tables.
    Sparse { name: String },
}

impl Descriptor {
    pub(super) fn new(text: &[u8]) -> Self {
        Self(String::from_utf8_lossy(text).into_owned())
    }

    /// A value by its name, in small letters.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        let mut pairs = self.0.lines().filter_map(|line| line.split_once('='));
        let (_, value) = pairs.find(|(key, _)| key.trim().eq_ignore_ascii_case(name))?;
        Some(value.trim_matches([' ', '"', '\r', '\0']).to_ascii_lowercase())
    }

    /// Refuses a disk that has only what differs from another one.
    pub(super) fn check_whole(&self) -> Result<(), VirtualDiskFault> {
        match self.value("parentCID") {
            Some(parent) if parent != "ffffffff" => {
                Err(VirtualDiskFault::Unread("has what differs from another disk"))
            }
            _ => Ok(()),
        }
    }

    /// The parts of the disk, one behind the other, which together have at least one byte. No file has two of
    /// them: else small files could have a disk without end.
    pub(super) fn extents(&self) -> Result<Vec<Extent>, VirtualDiskFault> {
        let (mut extents, mut names) = (Vec::new(), HashSet::new());
        let mut disk_bytes: u64 = 0;
        for line in self.0.lines().map(str::trim) {
            let Some(extent) = Extent::parse(line) else { continue };
            let extent = extent?;
            if extents.len() == MOST_PARTS {
                return Err(VirtualDiskFault::Parts { most: MOST_PARTS });
            }
            if let Some(name) = extent.name().filter(|name| !names.insert((*name).to_owned())) {
                return Err(VirtualDiskFault::PartName {
                    name: name.to_owned(),
                    reason: "has another one too",
                });
            }
            disk_bytes =
                disk_bytes.checked_add(extent.bytes).ok_or(VirtualDiskFault::Damaged("descriptor"))?;
            extents.push(extent);
        }
        if disk_bytes == 0 || i64::try_from(disk_bytes).is_err() {
            return Err(VirtualDiskFault::Damaged("descriptor"));
        }
        Ok(extents)
    }
}

impl Extent {
    /// Reads a line such as `RW 4192256 FLAT "disk-f001.vmdk" 0`; nothing if it is none.
    fn parse(line: &str) -> Option<Result<Self, VirtualDiskFault>> {
        let (access, rest) = line.split_once(char::is_whitespace)?;
        if !matches!(access, "RW" | "RDONLY" | "NOACCESS") {
            return None;
        }
        Some(Self::parse_rest(rest).unwrap_or(Err(VirtualDiskFault::Damaged("descriptor"))))
    }

    fn parse_rest(rest: &str) -> Option<Result<Self, VirtualDiskFault>> {
        let (sectors, rest) = rest.trim_start().split_once(char::is_whitespace)?;
        let bytes = sectors.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)?;
        let rest = rest.trim();
        let kind = rest.split_whitespace().next()?;
        let file = || {
            let (_, quoted) = rest.split_once('"')?;
            let (name, offset) = quoted.rsplit_once('"')?;
            Some((name.to_owned(), offset.trim()))
        };
        let content = match kind {
            "ZERO" => ExtentContent::Zeros,
            "FLAT" | "VMFS" => {
                let (name, offset) = file()?;
                let sector = if offset.is_empty() { 0 } else { offset.parse::<u64>().ok()? };
                ExtentContent::Flat { name, offset: sector.checked_mul(SECTOR_BYTES)? }
            }
            "SPARSE" => ExtentContent::Sparse { name: file()?.0 },
            _ => {
                return Some(Err(VirtualDiskFault::Unread(
                    "has parts of another kind than FLAT, VMFS, SPARSE and ZERO",
                )));
            }
        };
        Some(Ok(Self { bytes, content }))
    }

    /// The file that has it.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.content {
            ExtentContent::Zeros => None,
            ExtentContent::Flat { name, .. } | ExtentContent::Sparse { name } => Some(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(text: &str) -> Result<Vec<Extent>, VirtualDiskFault> {
        Descriptor::new(text.as_bytes()).extents()
    }

    #[test]
    fn parts_of_each_kind_are_read_with_names_that_have_spaces() {
        let text = "# Disk DescriptorFile\nversion=1\nparentCID=FFFFFFFF\r\ncreateType=\"custom\"\n\n# Extent\n\
                    RW 8 FLAT \"My Disk-f001.vmdk\" 3\nRDONLY  16\tSPARSE \"b.vmdk\"\r\nRW 1 ZERO\nRW 2 VMFS \"c\"\n";
        let flat = |bytes, name: &str, offset| Extent {
            bytes,
            content: ExtentContent::Flat { name: name.to_owned(), offset },
        };
        let sparse = ExtentContent::Sparse { name: "b.vmdk".to_owned() };
        assert_eq!(
            extents(text).expect("a disk"),
            [
                flat(4096, "My Disk-f001.vmdk", 1536),
                Extent { bytes: 8192, content: sparse },
                Extent { bytes: 512, content: ExtentContent::Zeros },
                flat(1024, "c", 0),
            ]
        );
        let descriptor = Descriptor::new(text.as_bytes());
        assert_eq!(descriptor.value("CREATETYPE").as_deref(), Some("custom"));
        assert!(descriptor.check_whole().is_ok());
        assert!(Descriptor::new(b"parentCID=12ab\n").check_whole().is_err());
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        for (text, word) in [
            ("", "descriptor is damaged"),
            ("RW 0 ZERO", "descriptor is damaged"),
            ("RW x ZERO", "descriptor is damaged"),
            ("RW 8 FLAT", "descriptor is damaged"),
            ("RW 8 FLAT \"a", "descriptor is damaged"),
            ("RW 8 FLAT \"a\" -1", "descriptor is damaged"),
            ("RW 36028797018963967 ZERO", "descriptor is damaged"),
            ("RW 8 FLAT \"a\" 0\nRW 8 SPARSE \"a\"", "a, which has another one too"),
            ("RW 8 FLAT \"a\" 0\nRW 8 SESPARSE \"b\"", "another kind"),
        ] {
            let fault = extents(text).expect_err(text).to_string();
            assert!(fault.contains(word), "{text:?}: no {word:?} in {fault}");
        }
        let many = "RW 1 ZERO\n".repeat(MOST_PARTS + 1);
        assert!(extents(&many).expect_err("too many").to_string().contains("more than 1000 parts"));
        assert_eq!(extents(&many[10..]).expect("as many as are taken").len(), MOST_PARTS);
    }
}
