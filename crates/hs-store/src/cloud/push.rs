//! Sending an image to a store of objects.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, MultipartUpload, ObjectStore, PutMode, PutMultipartOptions,
    PutOptions,
};
use reqwest::Method;
use tokio::task::JoinSet;

use super::address::{CloudAddress, Provider};
use super::object::said;
use super::parts::{self, Parts};
use super::settings::{Bucket, Settings};
use crate::http::{HttpClient, HttpError};
use crate::unfinished::Unfinished;
use crate::{PushError, Pushed, Pushing};

/// Images up to here are one request; S3 wants parts of 5 MiB or more.
pub(super) const PART_BYTES: u64 = 8 << 20;
/// "Amazon S3 multipart upload limits".
pub(super) const MOST_PARTS: u64 = 10_000;
/// Parts that are under way at once.
pub(super) const AT_ONCE: usize = 4;
/// How long an address, which is only to say where the object lies, is signed for.
const SIGNED_FOR: Duration = Duration::from_secs(60);

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    /// The image's file.
    pub file: &'a File,
    /// Where that lies, for messages.
    pub path: &'a FilePath,
    /// The image's own name, `hs1-…`.
    pub name: &'a str,
    /// What to do with another object of that key: replace it, or leave it.
    pub replace: bool,
    /// The folder where uploads that are under way are noted, so that a later process goes on with them.
    pub unfinished: Option<&'a FilePath>,
}

pub(super) struct Sending<'a> {
    pub(super) client: &'a Arc<HttpClient>,
    pub(super) bucket: Arc<dyn Bucket>,
    pub(super) key: Path,
    pub(super) address: String,
    pub(super) object: Object<'a>,
    pub(super) size: u64,
    provider: Provider,
}

/// Sends an image, in parts where it is large. The object is there at once or not at all. Parts that have come of an image whose sending was broken
/// off are kept where that is noted, and removed elsewhere.
///
/// # Errors
/// [`PushError`] when the file cannot be read, the store refuses, or another object has the key.
pub fn push(
    client: &Arc<HttpClient>,
    address: &CloudAddress,
    settings: &Settings,
    object: Object<'_>,
    pushing: &mut Pushing<'_>,
) -> Result<Pushed, PushError> {
    Sending::new(client, address, settings, object)?.send(pushing)
}

/// Has the store remove what a push to this address that was broken off has sent; whether there was anything.
///
/// # Errors
/// [`PushError`] when the file cannot be read, or the store refuses.
pub fn abandon(
    client: &Arc<HttpClient>,
    address: &CloudAddress,
    settings: &Settings,
    object: Object<'_>,
) -> Result<bool, PushError> {
    let sending = Sending::new(client, address, settings, object)?;
    parts::abandon(&sending, &sending.unfinished()?)
}

impl<'a> Sending<'a> {
    fn new(
        client: &'a Arc<HttpClient>,
        address: &CloudAddress,
        settings: &Settings,
        object: Object<'a>,
    ) -> Result<Self, PushError> {
        let refused = |source| PushError::Refused { address: address.to_string(), source };
        let bucket = settings.bucket(address, client).map_err(refused)?;
        let key = address.path().map_err(|error| refused(HttpError::Cloud { reason: error.to_string() }))?;
        let read = |source| PushError::Read { path: object.path.display().to_string(), source };
        let size = object.file.metadata().map_err(read)?.len();
        let provider = address.provider();
        Ok(Self { client, bucket, key, address: address.to_string(), object, size, provider })
    }

    fn send(&self, pushing: &mut Pushing<'_>) -> Result<Pushed, PushError> {
        if self.is_there()? {
            pushing(self.size, self.size).is_break();
            return Ok(Pushed { sent_bytes: 0, resumed_bytes: 0, digest: None });
        }
        if pushing(0, self.size).is_break() {
            return Err(self.interrupted(false));
        }
        let is_small = self.size <= PART_BYTES;
        let mut pushed = Pushed { sent_bytes: self.size, resumed_bytes: 0, digest: None };
        if is_small {
            self.client.wait_for(self.send_whole())?;
        } else if self.bucket.uploads().is_some() {
            pushed = Parts::begin(self, self.unfinished()?)?.send(pushing)?;
        } else {
            self.client.wait_for(self.send_blocks(pushing))?;
        }
        pushing(self.size, self.size).is_break();
        Ok(pushed)
    }

    /// The note of the upload: one for each place, whatever is sent there.
    fn unfinished(&self) -> Result<Unfinished, PushError> {
        let signed = self.client.wait_for(self.bucket.signed_url(Method::GET, &self.key, SIGNED_FOR));
        let mut place = signed.map_err(|error| self.refused(&error))?;
        // What is signed is a secret, and another one each time.
        place.set_query(None);
        let address = self.address.clone();
        Ok(Unfinished::of(self.object.unfinished, place.as_str(), self.object.path, address))
    }

    pub(super) fn uploads(&self) -> &dyn MultipartStore {
        self.bucket.uploads().expect("only stores that have uploads are sent parts")
    }

    /// Whether the end of an upload can be had on a condition. Google's XML API: "Preconditions are not supported" ("XML API multipart uploads").
    pub(super) fn knows_conditions(&self) -> bool {
        self.provider == Provider::S3
    }

    pub(super) fn abort(&self, upload: &str) -> Result<(), Error> {
        self.client.wait_for(self.uploads().abort_multipart(&self.key, &upload.to_owned()))
    }

    /// Whether this image lies there. Another object is in the way, unless it is to be replaced.
    pub(super) fn is_there(&self) -> Result<bool, PushError> {
        let head = GetOptions { head: true, ..GetOptions::default() };
        match self.client.wait_for(self.bucket.get_opts(&self.key, head)) {
            Ok(found) => {
                let name = found.attributes.get(&self.name_attribute());
                let is_ours = name.is_some_and(|name| **name == *self.object.name);
                if is_ours && found.meta.size == self.size {
                    return Ok(true);
                }
                if self.object.replace { Ok(false) } else { Err(self.taken()) }
            }
            Err(Error::NotFound { .. }) => Ok(false),
            // Who may write and not list is told neither that an object is there nor that it is not.
            Err(Error::PermissionDenied { .. }) if self.object.replace => Ok(false),
            Err(error) => Err(self.refused(&error)),
        }
    }

    async fn send_whole(&self) -> Result<(), PushError> {
        let bytes = self.read(0, self.size)?.into();
        // Somebody else may have been quicker.
        let mode = if self.object.replace { PutMode::Overwrite } else { PutMode::Create };
        let options = PutOptions { mode, attributes: self.attributes(), ..PutOptions::default() };
        match self.bucket.put_opts(&self.key, bytes, options).await {
            Ok(_) => Ok(()),
            Err(Error::AlreadyExists { .. }) => Err(self.taken()),
            Err(error) => Err(self.refused(&error)),
        }
    }

    /// In parts that no later process can go on with.
    async fn send_blocks(&self, pushing: &mut Pushing<'_>) -> Result<(), PushError> {
        let options = PutMultipartOptions { attributes: self.attributes(), ..PutMultipartOptions::default() };
        let begun = self.bucket.put_multipart_opts(&self.key, options).await;
        let mut upload = begun.map_err(|error| self.refused(&error))?;
        let sent = match self.send_each_block(upload.as_mut(), pushing).await {
            Ok(()) => upload.complete().await.map(drop).map_err(|error| self.refused(&error)),
            failed => failed,
        };
        if sent.is_err()
            && let Err(error) = upload.abort().await
        {
            log::warn!("{}: parts of an upload are left there: {}", self.address, said(&error));
        }
        sent
    }

    async fn send_each_block(
        &self,
        upload: &mut dyn MultipartUpload,
        pushing: &mut Pushing<'_>,
    ) -> Result<(), PushError> {
        let part_bytes = PART_BYTES.max(self.size.div_ceil(MOST_PARTS));
        let (mut read, mut sent) = (0, 0);
        // Dropping this ends what is under way.
        let mut under_way = JoinSet::new();
        while sent < self.size {
            if under_way.len() < AT_ONCE && read < self.size {
                let length = part_bytes.min(self.size - read);
                let part = upload.put_part(self.read(read, length)?.into());
                under_way.spawn(async move { part.await.map(|()| length) });
                read += length;
                continue;
            }
            let Some(done) = under_way.join_next().await else { break };
            sent += done.map_err(Error::from).and_then(|part| part).map_err(|error| self.refused(&error))?;
            if pushing(sent, self.size).is_break() {
                under_way.shutdown().await;
                return Err(self.interrupted(false));
            }
        }
        Ok(())
    }

    pub(super) fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, PushError> {
        let mut bytes = vec![0; length as usize];
        self.object
            .file
            .read_exact_at(&mut bytes, offset)
            .map_err(|source| PushError::Read { path: self.object.path.display().to_string(), source })?;
        Ok(bytes)
    }

    /// Where an object has the image's own name. Azure takes identifiers of C# only ("Setting and retrieving properties and metadata for Blob service
    /// resources"); proxies of the others drop names with underscores.
    fn name_attribute(&self) -> Attribute {
        let key = if self.provider == Provider::Azure { "headstart_name" } else { "headstart-name" };
        Attribute::Metadata(key.into())
    }

    pub(super) fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::new();
        attributes.insert(self.name_attribute(), self.object.name.to_owned().into());
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
