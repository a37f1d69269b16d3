//! What is served: a name, and the disk of an image.

use std::sync::Arc;

use hs_image::Reader;

use super::protocol::ExportInfo;

/// A disk that clients may open.
#[derive(Clone)]
pub struct Export {
    /// What clients call it: at most [`Export::MAX_NAME_BYTES`].
    pub name: String,
    /// What it is, for a person.
    pub description: String,
    /// Answers its reads.
    pub reader: Arc<Reader>,
}

impl Export {
    /// The longest name that the protocol has.
    pub const MAX_NAME_BYTES: usize = 4096;

    pub(super) fn info(&self) -> ExportInfo {
        ExportInfo {
            name: self.name.clone(),
            description: self.description.clone(),
            bytes: self.reader.image().disk_bytes(),
        }
    }
}
