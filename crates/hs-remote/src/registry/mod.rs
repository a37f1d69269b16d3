//! Images in registries of the Open Container Initiative: one blob, found by a manifest, read by ranges.
//!
//! ```text
//! oci://HOST/NAME:TAG ──► Access ──► manifest ──► the blob's address and a login ──► HttpStore
//!                           │ 401: a token, by the login files or anonymous
//! ```
//!
//! - An image is an artifact with one layer, the file itself, of the type [`IMAGE_TYPE`]; its annotation
//!   [`NAME_ANNOTATION`] has the image's own name.
//! - A blob is read by ranges from the registry, or from the place that it redirects to. An expired token
//!   is replaced when it is refused.
//! - A manifest may refer to another one, its subject: [`attach()`] sends such, [`Repository::referrers`]
//!   finds them, by the registry's own list or by the tag that stands for it.
//! - [`Repository::opening`] brings what opens an image, for a process that is being started.
//! - [`push()`] sends what the registry does not have: the blob in pieces, from where it was after a cut
//!   connection, then the manifest.
//!
//! The protocol is the OCI distribution specification 1.1; tokens are as in Docker's "Token Authentication".

mod access;
mod address;
mod attach;
mod blob;
mod challenge;
mod converted;
mod copy;
mod credential_helper;
mod login;
mod manifest;
mod opening;
mod push;
mod referrers;
mod repository;

pub use address::{Reference, RegistryAddress};
pub use attach::{Attachment, attach, remove};
pub use blob::RegistryImage;
pub use converted::newest_first;
pub use copy::{Copying, copy};
pub use login::{Login, Logins};
pub use manifest::{
    CHAIN_ANNOTATION, COMMAND_ANNOTATION, CONTAINERD_ANNOTATION, CREATED_ANNOTATION, Descriptor, IMAGE_TYPE,
    INDEX_ANNOTATION, LAYERS_ANNOTATION, NAME_ANNOTATION, PLATFORM_ANNOTATION, PROFILE_TYPE,
    RECIPE_ANNOTATION, SOURCE_ANNOTATION,
};
pub use opening::Opening;
pub use push::{Artifact, abandon, push};
pub use repository::{Repository, RepositoryBlob};

/// What a manifest says of an image: its blob's digest, its size, and its name.
///
/// # Errors
/// When the bytes are no manifest of an image.
pub fn described(bytes: &[u8]) -> Result<(String, u64, Option<String>), crate::http::HttpError> {
    let manifest::Described { blob, size, name } = manifest::Manifest::describe(bytes)?;
    Ok((blob.to_string(), size, name))
}

/// Whether there is a challenge that can be answered in fields, one a line. For the fuzz targets.
#[doc(hidden)]
#[must_use]
pub fn challenge_of(fields: &str) -> bool {
    !challenge::Challenge::all(fields.lines()).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_described_and_a_challenge_is_known() {
        let blob = format!("sha256:{}", "ab".repeat(32));
        let layer = format!(r#"{{"mediaType":"{IMAGE_TYPE}","digest":"{blob}","size":7}}"#);
        let named = format!(
            r#"{{"schemaVersion":2,"layers":[{layer}],"annotations":{{"{NAME_ANNOTATION}":"hs1-00"}}}}"#
        );
        assert_eq!(described(named.as_bytes()).expect("one"), (blob.clone(), 7, Some("hs1-00".to_owned())));
        let nameless = format!(r#"{{"schemaVersion":2,"layers":[{layer}]}}"#);
        assert_eq!(described(nameless.as_bytes()).expect("one"), (blob, 7, None));
        assert!(described(b"{}").is_err());
        assert!(challenge_of("Basic realm=\"x\"") && !challenge_of("Negotiate"));
    }
}
