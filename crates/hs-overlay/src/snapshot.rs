//! A state of the disk that is kept.

use crate::error::OverlayError;
use crate::layout::{MAX_SNAPSHOTS, field, segment_of};
use crate::map::{Content, ExtentMap};
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

/// A change of the snapshots that is in no stored map yet. It is taken back where none can be stored.
pub(crate) enum Unstored {
    /// The last snapshot is new.
    Taken,
    /// This one was deleted, which was at this place among the others.
    Deleted(usize, Snapshot),
}

impl Overlay {
    /// Keeps the disk under this name, as its file has it: without what is gathered. No job may be under way
    /// ([`Self::is_busy`]), and no other change of the snapshots ([`Self::is_changing_snapshots`]). The next
    /// job stores it; where that fails for want of space, it is taken back.
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
        for (_, _, content) in self.map.iter() {
            if let Content::Data(place) = content
                && let Some(segment) = segment_of(place)
            {
                self.segments.pin(segment);
            }
        }
        (self.must_checkpoint, self.unstored) = (true, Some(Unstored::Taken));
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

    /// The snapshot is not needed any more. For when, and what then, see [`Self::take_snapshot`].
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn delete_snapshot(&mut self, name: &str) -> Result<(), OverlayError> {
        let at = self.snapshots.iter().position(|snapshot| snapshot.name == name);
        let at = at.ok_or_else(|| no_such(name))?;
        let snapshot = self.snapshots.remove(at);
        self.maps_changed();
        self.unstored = Some(Unstored::Deleted(at, snapshot));
        Ok(())
    }

    /// Whether a change of the snapshots is still to be stored.
    #[must_use]
    pub const fn is_changing_snapshots(&self) -> bool {
        self.unstored.is_some()
    }

    /// The map with the last change of the snapshots cannot be stored: they are as stored again.
    pub(crate) fn take_back_snapshot_change(&mut self) {
        match self.unstored.take() {
            Some(Unstored::Taken) => drop(self.snapshots.pop()),
            Some(Unstored::Deleted(at, snapshot)) => self.snapshots.insert(at, snapshot),
            None => return,
        }
        self.maps_changed();
        // Nothing is lost without it.
        self.must_checkpoint = false;
    }

    /// Leaves of all maps only that of a snapshot: what [`Checking`](crate::Checking) goes through, and
    /// [`Self::extents`] has. Nothing may be written from here on.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn keep_only(&mut self, name: &str) -> Result<(), OverlayError> {
        self.revert(name)?;
        self.snapshots.clear();
        self.refuse_writes();
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
