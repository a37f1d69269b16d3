//! The partition that a person means.

use std::fmt;

use crate::{Contents, FsKind, Partition, Table};

/// Why no partition was chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChoiceError {
    /// There is none of that number, name, identifier or type.
    Nothing(String, Box<Table>),
    /// There are several; these are their numbers.
    Several(String, Vec<u32>),
    /// The disk has no table; this is what it holds.
    NoTable(Option<FsKind>),
    /// The partition ends beyond the disk.
    Cut {
        /// Its number.
        number: u32,
        /// Where it ends.
        end: u64,
        /// Where the disk ends.
        disk_bytes: u64,
    },
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing(word, table) => {
                write!(
                    f,
                    "no partition has the number, label, UUID or type '{word}'. The partitions of its {} are:\n{table}",
                    table.scheme
                )
            }
            Self::Several(word, numbers) => {
                let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
                write!(f, "'{word}' is said of the partitions {}: give the number", numbers.join(", "))
            }
            Self::NoTable(Some(kind)) => {
                write!(f, "it has no partitions, it holds {kind}: leave out --partition")
            }
            Self::NoTable(None) => f.write_str("it has no partition table that could be read"),
            Self::Cut { number, end, disk_bytes } => write!(
                f,
                "partition {number} ends at byte {end} and the disk at {disk_bytes}: it was cut short"
            ),
        }
    }
}

impl Contents {
    /// The partition that `word` names, as [`Table::choose`], which must lie on the disk as a whole.
    ///
    /// # Errors
    /// [`ChoiceError`].
    pub fn choose(&self, word: &str) -> Result<&Partition, ChoiceError> {
        let Some(table) = &self.table else {
            return Err(ChoiceError::NoTable(self.file_system.as_ref().map(|found| found.kind)));
        };
        let chosen = table.choose(word)?;
        if chosen.range.fits_in(table.disk_bytes) {
            return Ok(chosen);
        }
        let (number, end, disk_bytes) = (chosen.number, chosen.range.end(), table.disk_bytes);
        Err(ChoiceError::Cut { number, end, disk_bytes })
    }
}

impl Table {
    /// The one partition that `word` names: by its number; by the label or UUID of partition or file system;
    /// by its type, as `EFI System`, `esp`, `root` or `0x83`. `LABEL=`, `UUID=`, `PARTLABEL=`, `PARTUUID=`
    /// and `TYPE=` say which of them is meant.
    ///
    /// # Errors
    /// [`ChoiceError`].
    pub fn choose(&self, word: &str) -> Result<&Partition, ChoiceError> {
        let found: Vec<&Partition> = match word.parse::<u32>() {
            Ok(number) => self.partitions.iter().filter(|partition| partition.number == number).collect(),
            Err(_) => self.named(word),
        };
        match found[..] {
            [one] => Ok(one),
            [] => Err(ChoiceError::Nothing(word.to_owned(), Box::new(self.clone()))),
            _ => {
                let numbers = found.iter().map(|partition| partition.number).collect();
                Err(ChoiceError::Several(word.to_owned(), numbers))
            }
        }
    }

    fn named(&self, word: &str) -> Vec<&Partition> {
        let (key, value) = word.split_once('=').unwrap_or(("", word));
        let matches = |partition: &&Partition| {
            let system = partition.file_system.as_ref();
            let is = |name: Option<&String>| name.is_some_and(|name| name == value);
            let is_id = |id: Option<&String>| id.is_some_and(|id| id.eq_ignore_ascii_case(value));
            let (label, uuid) = (
                is(system.and_then(|system| system.label.as_ref())),
                is_id(system.and_then(|system| system.uuid.as_ref())),
            );
            let (part_label, part_uuid) = (is(partition.label.as_ref()), is_id(Some(&partition.id)));
            match key.to_ascii_uppercase().as_str() {
                "" => label || uuid || part_label || part_uuid || partition.kind.is_called(value),
                "LABEL" => label,
                "UUID" => uuid,
                "PARTLABEL" => part_label,
                "PARTUUID" => part_uuid,
                "TYPE" => partition.kind.is_called(value),
                _ => false,
            }
        };
        self.partitions.iter().filter(matches).collect()
    }

    /// The partition that most likely holds what a person wants: a root, or else the largest file system of
    /// Linux.
    #[must_use]
    pub fn likely(&self) -> Option<&Partition> {
        let mounted = self.partitions.iter().filter(|partition| {
            partition.file_system.as_ref().is_some_and(|found| {
                matches!(
                    found.kind,
                    FsKind::Ext | FsKind::Xfs | FsKind::Btrfs | FsKind::Squashfs | FsKind::Erofs
                )
            })
        });
        let mut mounted: Vec<&Partition> = mounted.collect();
        mounted.sort_by_key(|partition| (partition.kind.is_root(), partition.range.len));
        mounted.pop()
    }
}
