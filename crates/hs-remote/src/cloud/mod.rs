//! Objects in clouds, and in other stores with the same interfaces: `s3://BUCKET/KEY`, `gs://BUCKET/KEY`,
//! `az://CONTAINER/KEY`.
//!
//! The library `object_store` provides credentials, signatures and uploads. Reading is ours: [`CloudObject`]
//! signs an address, which is then read like any web server's. So there is one way to read over a network,
//! with one long response, one retry policy and one check that the object is still the same.
//!
//! [`push()`] sends an image with one request, or in parts, so that a later process can continue.

mod address;
mod completion;
mod destination;
mod object;
mod parts;
mod profile;
mod push;
mod settings;

pub use address::CloudAddress;
pub use object::CloudObject;
pub(crate) use object::S3_LOGIN;
pub use push::{Object, abandon, push};
pub use settings::Settings;

/// Whether these bytes are an error message that the end of an upload understands. For the fuzz targets.
#[doc(hidden)]
#[must_use]
pub fn understands_answer(bytes: &[u8]) -> bool {
    completion::complaint(bytes).is_some()
}
