//! Which of the two systems on an installed disk is started: GRUB's environment block on the boot partition.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The block in the boot partition; GRUB finds it beside its configuration.
pub const FILE: &str = "boot/grub/grubenv";
/// A block that GRUB has to write to has this size: GRUB's manual, "The GRUB environment block".
const BLOCK_BYTES: usize = 1024;
const HEAD: &str = "# GRUB Environment Block\n";
const GOOD: &str = "good=";
const NEXT: &str = "next=";

/// One of the two places for a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The first.
    A,
    /// The second.
    B,
}

impl Slot {
    /// The slot of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::A, Self::B].into_iter().find(|slot| slot.name() == name)
    }

    /// Its name, in paths and in the block.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }

    /// The one that it is not.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootState {
    /// The system that came up last.
    pub good: Slot,
    /// The system that is tried once. GRUB takes this out before it starts it.
    pub next: Option<Slot>,
}

impl BootState {
    /// The state in a block; `None` when it is none.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_prefix(HEAD)?;
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        Some(Self { good: Slot::parse(value(GOOD)?)?, next: value(NEXT).and_then(Slot::parse) })
    }

    /// The block: GRUB wants it filled to its size.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let next = self.next.map_or("", Slot::name);
        let mut bytes = format!("{HEAD}{GOOD}{}\n{NEXT}{next}\n", self.good).into_bytes();
        bytes.resize(BLOCK_BYTES, b'#');
        bytes
    }

    /// Reads it from the boot partition that is mounted there.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(boot: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(path(boot))?;
        Self::parse(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no boot state"))
    }

    /// Writes it, in place: all that it says lies in one sector, so that it is the old or the new one after a
    /// power cut.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(self, boot: &Path) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path(boot))?;
        file.write_all_at(&self.to_bytes(), 0)?;
        file.sync_all()
    }
}

fn path(boot: &Path) -> PathBuf {
    boot.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_what_was_written() {
        for (good, next) in [(Slot::A, None), (Slot::B, Some(Slot::A)), (Slot::A, Some(Slot::B))] {
            let state = BootState { good, next };
            let bytes = state.to_bytes();
            assert_eq!((bytes.len(), BootState::parse(&bytes)), (BLOCK_BYTES, Some(state)));
            assert!(bytes.iter().rposition(|byte| *byte == b'\n') < Some(512), "in one sector");
        }
        // As GRUB leaves it.
        let by_grub = format!("{HEAD}good=a\nnext=\n{}", "#".repeat(100));
        assert_eq!(BootState::parse(by_grub.as_bytes()), Some(BootState { good: Slot::A, next: None }));
        for bad in ["", HEAD, "good=a\n", &format!("{HEAD}good=c\n")] {
            assert_eq!(BootState::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn it_is_written_in_place() {
        let esp = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(esp.path().join("boot/grub")).expect("a folder");
        let state = BootState { good: Slot::B, next: Some(Slot::A) };
        BootState { good: Slot::A, next: None }.write(esp.path()).expect("written");
        state.write(esp.path()).expect("written");
        assert_eq!(BootState::read(esp.path()).expect("read"), state);
    }
}
