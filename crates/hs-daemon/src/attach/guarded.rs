//! A file in the hands of its guard.

use std::ops::Deref;

use hs_fill::{Attachment, Marker};

/// An attachment that leaves no readable file behind without a guard. However the guard ends, a file that is
/// not complete then has mode 0.
pub(super) struct Guarded(Attachment);

impl Guarded {
    /// From now on.
    pub(super) const fn new(attachment: Attachment) -> Self {
        Self(attachment)
    }

    /// Whether nothing is missing.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.marker(), Ok(Some(Marker::Complete(_) | Marker::Contradicted(_))))
    }
}

impl Deref for Guarded {
    type Target = Attachment;

    fn deref(&self) -> &Attachment {
        &self.0
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if !self.is_complete()
            && let Err(error) = self.withhold()
        {
            log::warn!("{}: its mode cannot be changed: {error}", self.path().display());
        }
    }
}
