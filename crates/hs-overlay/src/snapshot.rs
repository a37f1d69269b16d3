//! A state of the disk that is kept.

use crate::error::OverlayError;
use crate::layout::{MAX_SNAPSHOTS, field};
use crate::map::ExtentMap;
use crate::overlay::Overlay;

/// Bytes of a name at most.
pub(crate) const NAME_BYTES: usize = 64;

/// The map of a disk at some time, under a name.
#[derive(Clone)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// When it was taken, in seconds since 1970.
    pub taken_s: u64,
    pub(crate) map: ExtentMap,
}

impl Snapshot {
    /// Blocks of data that it refers to.
    #[must_use]
    pub const fn data_blocks(&self) -> u64 {
        self.map.data_blocks()
    }

    /// Its name as it is stored.
    pub(crate) fn stored_name(name: &str) -> [u8; NAME_BYTES] {
        let mut bytes = [0; NAME_BYTES];
        field::put(&mut bytes, 0, name.as_bytes());
        bytes
    }

    /// The name in these bytes, if it is one.
    pub(crate) fn name_from(bytes: &[u8; NAME_BYTES]) -> Option<String> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        let name = str::from_utf8(&bytes[..end]).ok()?;
        let is_padded = bytes[end..].iter().all(|byte| *byte == 0);
        (is_padded && check_name(name).is_ok()).then(|| name.to_owned())
    }
}

impl Overlay {
    /// Keeps the disk as it is, under this name. Everything has to be on the medium: see [`Self::is_idle`].
    ///
    /// # Errors
    /// When the name is not free, or cannot be given.
    pub fn take_snapshot(&mut self, name: &str, now_s: u64) -> Result<(), OverlayError> {
        check_name(name)?;
        if self.snapshots.iter().any(|snapshot| snapshot.name == name) {
            let why = "there is one of this name: delete it first, or choose another name";
            return Err(OverlayError::SnapshotName { name: name.to_owned(), why });
        }
        if self.snapshots.len() == MAX_SNAPSHOTS {
            let (found, limit) = (MAX_SNAPSHOTS as u64 + 1, MAX_SNAPSHOTS as u64);
            return Err(OverlayError::TooLarge { what: "snapshots", found, limit });
        }
        let snapshot = Snapshot { name: name.to_owned(), taken_s: now_s, map: self.map.clone() };
        self.snapshots.push(snapshot);
        self.maps_changed();
        Ok(())
    }

    /// The disk is as it was when this snapshot was taken. The snapshot stays.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn revert(&mut self, name: &str) -> Result<(), OverlayError> {
        let snapshot = self.snapshots.iter().find(|snapshot| snapshot.name == name);
        self.map = snapshot.ok_or_else(|| no_such(name))?.map.clone();
        self.maps_changed();
        Ok(())
    }

    /// Whether the disk is as it was when this snapshot was taken; nothing where there is none of this name.
    /// A block that was written since counts, whatever was written to it, or moved in the file.
    #[must_use]
    pub fn is_at(&self, name: &str) -> Option<bool> {
        let snapshot = self.snapshots.iter().find(|snapshot| snapshot.name == name)?;
        Some(self.is_flushed() && snapshot.map.iter().eq(self.map.iter()))
    }

    /// The snapshot is not needed any more.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn delete_snapshot(&mut self, name: &str) -> Result<(), OverlayError> {
        let at = self.snapshots.iter().position(|snapshot| snapshot.name == name);
        self.snapshots.remove(at.ok_or_else(|| no_such(name))?);
        self.maps_changed();
        Ok(())
    }

    fn maps_changed(&mut self) {
        let maps = self.snapshots.iter().map(|snapshot| &snapshot.map);
        self.segments.count_again(&self.map, maps);
        // No record is written to a segment that a snapshot refers to.
        self.must_checkpoint = true;
    }
}

fn no_such(name: &str) -> OverlayError {
    OverlayError::NoSuchSnapshot { name: name.to_owned() }
}

/// Whether a snapshot may be called so.
fn check_name(name: &str) -> Result<(), OverlayError> {
    let refuse = |why| Err(OverlayError::SnapshotName { name: name.to_owned(), why });
    if name.is_empty() || name.len() > NAME_BYTES {
        return refuse("a name has 1 to 64 bytes");
    }
    if name.chars().any(char::is_control) {
        return refuse("it has control characters");
    }
    Ok(())
}
