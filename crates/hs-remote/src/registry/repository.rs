//! A repository with images of containers: manifests, and the blobs that they lead to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use reqwest::Method;
use reqwest::header::ACCEPT;

use super::access::{Access, Right, refused};
use super::address::{Reference, RegistryAddress};
use super::converted;
use super::login::Logins;
use super::manifest::{Descriptor, MANIFEST_TYPE};
use super::referrers;
use crate::http::{HttpClient, HttpError, Locate, Located};
use crate::sha256::Sha256;

/// What may be the answer: an image or a list of images, of the Open Container Initiative or of Docker.
pub(super) const ACCEPTED: [&str; 4] = [
    MANIFEST_TYPE,
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// A repository, and the reference to one of its images.
pub struct Repository(Arc<Access>);

impl Repository {
    /// That at `address`. Makes no request yet.
    #[must_use]
    pub fn new(address: RegistryAddress, client: Arc<HttpClient>, logins: Logins) -> Self {
        Self(Arc::new(Access::new(client, address, logins, Right::Pull)))
    }

    /// The manifest that the address refers to, of an image or of a list of images. Where the address has a
    /// digest, it is right.
    ///
    /// # Errors
    /// When the registry does not have it, or has another one.
    pub fn manifest(&self) -> Result<Vec<u8>, HttpError> {
        let reference = self.0.address().reference();
        let manifest = self.fetch(&reference.to_string())?;
        if let Reference::Digest(expected) = reference {
            let found = Sha256::of(&manifest);
            if found != *expected {
                return Err(HttpError::Digest { expected: expected.to_string(), found: found.to_string() });
            }
        }
        Ok(manifest)
    }

    /// The manifest that is said to have this digest.
    ///
    /// # Errors
    /// When the registry does not have it.
    pub fn manifest_of(&self, digest: &str) -> Result<Vec<u8>, HttpError> {
        self.fetch(&known(digest)?.to_string())
    }

    /// The blob that is said to have this digest. Makes no request yet.
    ///
    /// # Errors
    /// When that is no digest.
    pub fn blob(&self, digest: &str) -> Result<RepositoryBlob, HttpError> {
        Ok(RepositoryBlob {
            access: Arc::clone(&self.0),
            blob: known(digest)?,
            is_known: AtomicBool::new(false),
        })
    }

    /// The manifests of this type that refer to the manifest `subject`: what the registry lists, or what the
    /// tag that stands for the list has. None of it is verified.
    ///
    /// # Errors
    /// When `subject` is no digest, the registry refuses, or its list is none.
    pub fn referrers(&self, subject: &str, artifact_type: &str) -> Result<Vec<Descriptor>, HttpError> {
        referrers::list(&self.0, known(subject)?, artifact_type)
    }

    /// The last of the images that were made of the container's image `subject` (`headstart convert`) and
    /// refer to it: its manifest, with what that itself says, and the bytes of that. `chain_id` is that of
    /// the container's layers, where it is known. An image of another root, or one that is only listed so, is
    /// passed over.
    ///
    /// # Errors
    /// When `subject` is no digest, the registry refuses, or its list is none.
    pub fn converted(
        &self,
        subject: &str,
        chain_id: Option<&str>,
    ) -> Result<Option<(Descriptor, Vec<u8>)>, HttpError> {
        let found = converted::find(&self.0, known(subject)?, chain_id)?;
        Ok(found.map(|found| (found.manifest, found.bytes)))
    }

    /// A small file that refers to `subject`, with what its manifest says of it; `None` where that says that
    /// it is something else. Its digest is right.
    ///
    /// # Errors
    /// When the registry does not have it, or it has more than 4 MiB.
    pub fn attached(
        &self,
        listed: &Descriptor,
        subject: &str,
        artifact_type: &str,
    ) -> Result<Option<(Descriptor, Vec<u8>)>, HttpError> {
        converted::attached(&self.0, &listed.digest, known(subject)?, artifact_type)
    }

    pub(super) fn access(&self) -> &Access {
        &self.0
    }

    fn fetch(&self, reference: &str) -> Result<Vec<u8>, HttpError> {
        let url = self.0.address().url(&format!("manifests/{reference}"))?;
        let answer = self.0.ask(&Method::GET, &url, |asked| asked.header(ACCEPT, ACCEPTED.join(", ")))?;
        if answer.status != 200 {
            return Err(refused("the manifest", &answer));
        }
        Ok(answer.body)
    }
}

fn known(digest: &str) -> Result<Sha256, HttpError> {
    let reason = || HttpError::NotAnImage { reason: format!("{digest:?} is no SHA-256 digest") };
    digest.parse().map_err(|()| reason())
}

/// A blob of a repository, where [`HttpStore`](crate::http::HttpStore) reads it.
pub struct RepositoryBlob {
    access: Arc<Access>,
    blob: Sha256,
    /// Whether it was looked for before: then the proof has perhaps expired.
    is_known: AtomicBool,
}

impl Locate for RepositoryBlob {
    fn name(&self) -> String {
        format!("{} ({})", self.access.address(), self.blob)
    }

    fn locate(&self) -> Result<Located, HttpError> {
        if self.is_known.swap(true, Relaxed) {
            self.access.renew()?;
        }
        let url = self.access.address().url(&format!("blobs/{}", self.blob))?;
        Ok(Located { url, headers: self.access.headers(), lasts: None })
    }

    fn ages(&self) -> bool {
        true
    }
}
