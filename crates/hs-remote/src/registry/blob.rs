//! The blob of an image, where [`HttpStore`](crate::http::HttpStore) reads it.

use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::Method;
use reqwest::header::ACCEPT;

use super::access::{Access, Right, refused};
use super::address::{Reference, RegistryAddress};
use super::login::Logins;
use super::manifest::{Described, MANIFEST_TYPE, Manifest};
use crate::http::{HttpClient, HttpError, Locate, Located};
use crate::sha256::Sha256;

/// An image in a registry. Its tag is resolved once: then the image is this blob, whatever the tag means
/// later.
pub struct RegistryImage {
    access: Access,
    described: Mutex<Option<Described>>,
}

impl RegistryImage {
    /// The image at `address`. Makes no request yet.
    #[must_use]
    pub fn new(address: RegistryAddress, client: Arc<HttpClient>, logins: Logins) -> Self {
        let access = Access::new(client, address, logins, Right::Pull);
        Self { access, described: Mutex::default() }
    }

    fn describe(&self) -> Result<Described, HttpError> {
        let address = self.access.address();
        let url = address.url(&format!("manifests/{}", address.reference()))?;
        let answer = self.access.ask(&Method::GET, &url, |asked| asked.header(ACCEPT, MANIFEST_TYPE))?;
        if answer.status != 200 {
            return Err(refused("the manifest", &answer));
        }
        if let Reference::Digest(expected) = address.reference() {
            let found = Sha256::of(&answer.body);
            if found != *expected {
                return Err(HttpError::Digest { expected: expected.to_string(), found: found.to_string() });
            }
        }
        Manifest::describe(&answer.body)
    }
}

impl Locate for RegistryImage {
    fn name(&self) -> String {
        self.access.address().to_string()
    }

    fn locate(&self) -> Result<Located, HttpError> {
        let mut described = self.described.lock();
        let blob = match &*described {
            Some(described) => {
                self.access.renew()?;
                described.blob
            }
            None => described.insert(self.describe()?).blob,
        };
        let url = self.access.address().url(&format!("blobs/{blob}"))?;
        Ok(Located { url, headers: self.access.headers(), lasts: None })
    }

    fn ages(&self) -> bool {
        true
    }

    fn size(&self) -> Option<u64> {
        self.described.lock().as_ref().map(|described| described.size)
    }

    /// Where the address has the manifest's digest, and that has the name.
    fn certain_name(&self) -> Option<String> {
        let is_certain = matches!(self.access.address().reference(), Reference::Digest(_));
        self.described.lock().as_ref().and_then(|described| described.name.clone()).filter(|_| is_certain)
    }
}
