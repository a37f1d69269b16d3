//! A state of the disk that is kept.

use crate::error::OverlayError;
use crate::layout::field;
use crate::map::ExtentMap;

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

/// Whether a snapshot may be called so.
pub(crate) fn check_name(name: &str) -> Result<(), OverlayError> {
    let refuse = |why| Err(OverlayError::SnapshotName { name: name.to_owned(), why });
    if name.is_empty() || name.len() > NAME_BYTES {
        return refuse("a name has 1 to 64 bytes");
    }
    if name.chars().any(char::is_control) {
        return refuse("it has control characters");
    }
    Ok(())
}
