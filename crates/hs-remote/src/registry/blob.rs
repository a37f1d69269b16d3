//! The blob of an image, where [`HttpStore`](crate::http::HttpStore) reads it.

use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::Method;
use reqwest::header::ACCEPT;

use super::access::{Access, Right, refused};
use super::address::{Reference, RegistryAddress};
use super::converted;
use super::login::Logins;
use super::manifest::Described;
use super::repository::ACCEPTED;
use crate::http::{HttpClient, HttpError, Locate, Located};
use crate::sha256::Sha256;

/// An image in a registry. Its tag is resolved once: then the image is this blob, whatever the tag means
/// later.
pub struct RegistryImage {
    access: Access,
    /// The image, and whether the address itself is of it, not of a container's image that it was made of.
    described: Mutex<Option<(Described, bool)>>,
}

impl RegistryImage {
    /// The image at `address`. Makes no request yet.
    #[must_use]
    pub fn new(address: RegistryAddress, client: Arc<HttpClient>, logins: Logins) -> Self {
        let access = Access::new(client, address, logins, Right::Pull);
        Self { access, described: Mutex::default() }
    }

    fn describe(&self) -> Result<(Described, bool), HttpError> {
        let address = self.access.address();
        let url = address.url(&format!("manifests/{}", address.reference()))?;
        let answer =
            self.access.ask(&Method::GET, &url, |asked| asked.header(ACCEPT, ACCEPTED.join(", ")))?;
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
        let blob = match &*described {
            Some((described, _)) => {
                self.access.renew()?;
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
