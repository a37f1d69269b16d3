//! The blob of an image, where [`HttpStore`](crate::http::HttpStore) reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderValue};

use super::access::{Access, Right, refused};
use super::address::{Reference, RegistryAddress};
use super::converted;
use super::login::Logins;
use super::manifest::{Described, Manifest};
use super::repository::ACCEPTED;
use crate::http::{HttpClient, HttpError, Locate, Located};
use crate::sha256::Sha256;

/// An image in a registry. Its tag is resolved once: then the image is this blob, whatever the tag means
/// later.
pub struct RegistryImage {
    access: Access,
    /// The image, and whether the address itself is of it, not of a container's image that it was made of.
    described: Mutex<Option<(Described, bool)>>,
    /// Whether another process has fetched the manifest.
    is_given: bool,
    /// Whether this one has asked where the blob is.
    is_located: AtomicBool,
}

impl RegistryImage {
    /// The image at `address`. Makes no request yet.
    #[must_use]
    pub fn new(address: RegistryAddress, client: Arc<HttpClient>, logins: Logins) -> Self {
        let access = Access::new(client, address, logins, Right::Pull);
        Self { access, described: Mutex::default(), is_given: false, is_located: AtomicBool::new(false) }
    }

    /// The image with this manifest, which was fetched before, with what the registry wanted then. Makes no
    /// request yet.
    ///
    /// # Errors
    /// When the address does not name the manifest by its digest, or that is not of an image.
    pub(super) fn of_manifest(
        address: RegistryAddress,
        client: Arc<HttpClient>,
        logins: Logins,
        manifest: &[u8],
        authorization: Option<HeaderValue>,
    ) -> Result<Self, HttpError> {
        let found = Sha256::of(manifest);
        if *address.reference() != Reference::Digest(found) {
            let expected = address.reference().to_string();
            return Err(HttpError::Digest { expected, found: found.to_string() });
        }
        if converted::is_of_container(manifest) {
            let reason = "it is the manifest of a container's image".to_owned();
            return Err(HttpError::NotAnImage { reason });
        }
        let described = Mutex::new(Some((Manifest::describe(manifest)?, true)));
        let access = Access::new(client, address, logins, Right::Pull);
        access.begin_with(authorization);
        Ok(Self { access, described, is_given: true, is_located: AtomicBool::new(false) })
    }

    /// Authenticates again, where that is wanted.
    fn renew(&self) -> Result<(), HttpError> {
        if self.is_given && !self.access.has_challenge() {
            // Which login the registry wants, it says when it is asked. The blob of a manifest that was
            // removed stays for a while.
            return match self.describe() {
                Err(HttpError::Gone { .. }) => Ok(()),
                described => described.map(drop),
            };
        }
        self.access.renew()
    }

    fn describe(&self) -> Result<(Described, bool), HttpError> {
        let address = self.access.address();
        let url = address.url(&format!("manifests/{}", address.reference()))?;
        let answer =
            self.access.ask(&Method::GET, &url, |asked| asked.header(ACCEPT, ACCEPTED.join(", ")))?;
        if let (404, Reference::Digest(digest)) = (answer.status, address.reference()) {
            return Err(HttpError::Gone { what: format!("manifest {digest}") });
        }
        if answer.status != 200 {
            return Err(refused("the manifest", &answer));
        }
        if let Reference::Digest(expected) = address.reference() {
            let found = Sha256::of(&answer.body);
            if found != *expected {
                return Err(HttpError::Digest { expected: expected.to_string(), found: found.to_string() });
            }
        }
        converted::meant(&self.access, &answer.body)
    }
}

impl Locate for RegistryImage {
    fn name(&self) -> String {
        self.access.address().to_string()
    }

    fn locate(&self) -> Result<Located, HttpError> {
        let mut described = self.described.lock();
        let was_located = self.is_located.swap(true, Relaxed);
        let blob = match &*described {
            Some((described, _)) => {
                if was_located {
                    self.renew()?;
                }
                described.blob
            }
            None => described.insert(self.describe()?).0.blob,
        };
        let url = self.access.address().url(&format!("blobs/{blob}"))?;
        Ok(Located { url, headers: self.access.headers(), lasts: None })
    }

    fn ages(&self) -> bool {
        true
    }

    fn explained(&self, error: HttpError) -> HttpError {
        match (&error, &*self.described.lock()) {
            (HttpError::Status { status: 404 | 410, .. }, Some((described, _))) => {
                HttpError::Gone { what: format!("blob {}", described.blob) }
            }
            _ => error,
        }
    }

    fn size(&self) -> Option<u64> {
        self.described.lock().as_ref().map(|(described, _)| described.size)
    }

    /// Where the address has the manifest's digest, and that has the name: the digest of a container's image
    /// says nothing of what was made of it.
    fn certain_name(&self) -> Option<String> {
        let is_certain = matches!(self.access.address().reference(), Reference::Digest(_));
        let described = self.described.lock();
        described.as_ref().filter(|(_, is_itself)| is_certain && *is_itself)?.0.name.clone()
    }
}
