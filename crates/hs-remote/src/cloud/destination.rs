//! Where an image is sent: a key in a bucket.

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::signer::SignedUrlOptions;
use object_store::{Attribute, Attributes, Error, PutMultipartOptions};
use reqwest::{Method, RequestBuilder};
use url::Url;

use super::address::{CloudAddress, Provider};
use super::object::said;
use super::settings::{Bucket, Settings};
use crate::PushError;
use crate::http::{Answer, HttpClient, HttpError};

/// Each address is signed for one request.
const SIGNED_FOR: Duration = Duration::from_secs(300);

pub(super) struct Destination<'a> {
    pub(super) client: &'a Arc<HttpClient>,
    pub(super) bucket: Arc<dyn Bucket>,
    pub(super) key: Path,
    /// For messages.
    pub(super) address: String,
    provider: Provider,
}

impl<'a> Destination<'a> {
    pub(super) fn new(
        client: &'a Arc<HttpClient>,
        address: &CloudAddress,
        settings: &Settings,
    ) -> Result<Self, PushError> {
        let refused = |source| PushError::Refused { address: address.to_string(), source };
        let bucket = settings.bucket(address, client).map_err(refused)?;
        let key = address.path().map_err(|error| refused(HttpError::Cloud { reason: error.to_string() }))?;
        Ok(Self { client, bucket, key, address: address.to_string(), provider: address.provider() })
    }

    /// The address of the key with this query, signed for a request of this kind. Azure signs what may be
    /// done and to what, and no query ("Create a service SAS").
    fn signed(&self, method: &Method, query: &[(&str, String)]) -> Result<Url, HttpError> {
        let signed = if self.is_azure() {
            let signed = self.bucket.signed_url(method.clone(), &self.key, SIGNED_FOR);
            self.client.wait_for(signed).map(|mut url| {
                url.query_pairs_mut().extend_pairs(query);
                url
            })
        } else {
            let query = query.iter().map(|(name, value)| (*name, value.clone()));
            let options = SignedUrlOptions::new().with_query(query);
            self.client.wait_for(self.bucket.signed_url_opts(method.clone(), &self.key, SIGNED_FOR, &options))
        };
        signed.map_err(|error| HttpError::Cloud { reason: said(&error) })
    }

    /// Makes a request that the library does not support.
    pub(super) fn ask(
        &self,
        method: &Method,
        query: &[(&str, String)],
        with: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<Answer, HttpError> {
        let url = self.signed(method, query)?;
        self.client.exchange(with(self.client.requests().request(method.clone(), url)))
    }

    /// The unique name of this destination among all stores and addresses; no secret.
    pub(super) fn place(&self) -> Result<String, HttpError> {
        let mut place = self.signed(&Method::GET, &[])?;
        // The signature is a secret, and differs each time.
        place.set_query(None);
        Ok(place.into())
    }

    /// Begins an upload of an image with this name. Returns the store's identifier for it.
    pub(super) fn begin(&self, name: &str) -> Result<String, Error> {
        // Azure's blocks belong to the key, and what they will be is said at the end.
        let attributes = if self.is_azure() { Attributes::new() } else { self.attributes(name) };
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        self.client.wait_for(self.bucket.create_multipart_opts(&self.key, options))
    }

    /// Has the store remove the parts of an upload; an unknown upload is no error.
    pub(super) fn abort(&self, upload: &str) -> Result<(), Error> {
        match self.client.wait_for(self.bucket.abort_multipart(&self.key, &upload.to_owned())) {
            Err(Error::NotFound { .. }) => Ok(()),
            aborted => aborted,
        }
    }

    pub(super) fn is_azure(&self) -> bool {
        self.provider == Provider::Azure
    }

    /// Whether the store removes parts when it is asked to. Azure has no request for that: it forgets blocks
    /// a week after the last one has come ("Put Block", remarks), or when the key gets an object.
    pub(super) fn removes_parts(&self) -> bool {
        !self.is_azure()
    }

    /// Whether the end of an upload can have a condition. Google's XML API: "Preconditions are not supported"
    /// ("XML API multipart uploads").
    pub(super) fn knows_conditions(&self) -> bool {
        self.provider != Provider::Google
    }

    /// The attribute of an object that has the image's own name. Azure takes identifiers of C# only ("Setting
    /// and retrieving properties and metadata for Blob service resources"); proxies of the others drop names
    /// with underscores.
    pub(super) fn name_key(&self) -> &'static str {
        if self.is_azure() { "headstart_name" } else { "headstart-name" }
    }

    /// The attributes of an image of this name.
    pub(super) fn attributes(&self, name: &str) -> Attributes {
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::Metadata(self.name_key().into()), name.to_owned().into());
        attributes.insert(Attribute::ContentType, crate::registry::IMAGE_TYPE.into());
        attributes
    }

    pub(super) fn refused(&self, error: &Error) -> PushError {
        self.refused_by(HttpError::Cloud { reason: said(error) })
    }

    pub(super) fn refused_by(&self, source: HttpError) -> PushError {
        PushError::Refused { address: self.address.clone(), source }
    }

    pub(super) fn taken(&self) -> PushError {
        PushError::Taken { address: self.address.clone() }
    }

    pub(super) fn interrupted(&self, is_kept: bool) -> PushError {
        PushError::Interrupted { address: self.address.clone(), is_kept }
    }
}
