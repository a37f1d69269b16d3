//! What an image must be, and where what is read of it is kept.

use std::fmt;
use std::sync::Arc;

use hs_format::{ImageDigest, Superblock, Unverified};
use hs_store::{DiskCache, Store};

use crate::{ImageError, PackStore, SUPERBLOCK_BYTES, UseBase};

/// Called with the name of an image that was opened.
pub type Opened = Arc<dyn Fn(ImageDigest) + Send + Sync>;

/// How an image is opened.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// The name that it must have. Nothing else is trusted then: neither the server nor a cache.
    pub name: Option<ImageDigest>,
    /// Keeps chunks and tables, for stores that are slow or may be asked only seldom.
    pub cache: Option<Arc<DiskCache>>,
    /// Is told the name when it is known.
    pub opened: Option<Opened>,
    /// Where its base comes from, if it has one.
    pub base: UseBase,
    /// The pack that it is made of, if it is: its store is this one.
    pub pack: Option<Arc<PackStore>>,
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions").field("name", &self.name).finish_non_exhaustive()
    }
}

impl OpenOptions {
    /// Refuses a superblock of another image.
    pub(crate) fn check(&self, path: &str, superblock: &Superblock) -> Result<(), ImageError> {
        let found = superblock.image_digest();
        match self.name {
            Some(expected) if expected != found => {
                Err(ImageError::WrongName { path: path.to_owned(), expected, found })
            }
            _ => Ok(()),
        }
    }

    /// The superblock of the wanted image, if it is kept.
    pub(crate) fn kept_superblock(&self, store: &dyn Store) -> Option<Superblock> {
        let (name, cache) = (self.name?, self.cache.as_ref()?);
        let bytes = cache.get(&name.0, SUPERBLOCK_BYTES)?;
        match Superblock::decode(Unverified::new(&bytes)) {
            Ok(superblock) if superblock.image_digest() == name => {
                // What the server has under the address may be another one.
                superblock.check_file(store.len()).ok().map(|()| superblock)
            }
            _ => {
                cache.spoiled(&name.0);
                None
            }
        }
    }

    /// The image is known, and has the name that it must have.
    pub(crate) fn opened(&self, superblock: &Superblock) {
        let name = superblock.image_digest();
        if let Some(cache) = &self.cache {
            cache.put(&name.0, superblock.encode().to_vec().into());
        }
        if let Some(opened) = &self.opened {
            opened(name);
        }
    }
}
