//! An object, where [`HttpStore`](crate::http::HttpStore) reads it: by an address that is signed for some time.

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use reqwest::Method;
use reqwest::header::HeaderMap;

use super::address::CloudAddress;
use super::settings::{Bucket, Settings};
use crate::http::{HttpClient, HttpError, Locate, Located};

/// How long a signed address can be used; it is signed anew after half of that. Long responses outlive it: what counts is when they were asked for.
const SIGNED_FOR: Duration = Duration::from_secs(3600);

/// An object in a store of objects.
pub struct CloudObject {
    name: String,
    bucket: Arc<dyn Bucket>,
    path: Path,
    client: Arc<HttpClient>,
}

impl CloudObject {
    /// The object at `address`. Asks nobody yet.
    ///
    /// # Errors
    /// [`HttpError::Cloud`] when what is set makes no sense, and [`HttpError::Login`] when there is no login.
    pub fn new(
        address: &CloudAddress,
        client: &Arc<HttpClient>,
        settings: &Settings,
    ) -> Result<Self, HttpError> {
        let bucket = settings.bucket(address, client)?;
        let path = address.path().map_err(|error| HttpError::Cloud { reason: error.to_string() })?;
        Ok(Self { name: address.to_string(), bucket, path, client: Arc::clone(client) })
    }
}

impl Locate for CloudObject {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn locate(&self) -> Result<Located, HttpError> {
        let signed = self.client.wait_for(self.bucket.signed_url(Method::GET, &self.path, SIGNED_FOR));
        let url = signed.map_err(|error| HttpError::Cloud { reason: said(&error) })?;
        Ok(Located { url, headers: HeaderMap::new(), lasts: Some(SIGNED_FOR) })
    }

    fn ages(&self) -> bool {
        true
    }
}

/// What the library says, in a line, without addresses that may be signed.
pub(super) fn said(error: &object_store::Error) -> String {
    let text = error.to_string();
    let words = text.split_whitespace().map(|word| match word.find("://") {
        Some(at) if word.contains('?') => format!("{}://…", &word[..at].trim_start_matches(['(', '"'])),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ").chars().take(400).collect()
}
