//! The partition that a person means.

use std::fmt;

use crate::{FsKind, Partition, Table};

/// Why no partition was chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChoiceError {
    /// There is none of that number, name, identifier or type.
    Nothing(String),
    /// There are several; these are their numbers.
    Several(String, Vec<u32>),
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing(word) => {
                write!(f, "no partition has the number, label, UUID or type '{word}'")
            }
            Self::Several(word, numbers) => {
                let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
                write!(f, "'{word}' is said of the partitions {}: give the number", numbers.join(", "))
            }
        }
    }
}

impl Table {
    /// The one partition that `word` names: by its number; by the label or UUID of partition or file system;
    /// by its type, as `EFI System`, `esp`, `root` or `0x83`. `LABEL=`, `UUID=`, `PARTLABEL=`, `PARTUUID=` and
    /// `TYPE=` say which of them is meant.
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
            [] => Err(ChoiceError::Nothing(word.to_owned())),
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
