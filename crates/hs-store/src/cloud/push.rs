//! Sending an image to a store of objects.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path as FilePath;
use std::sync::Arc;

use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, MultipartUpload, ObjectStore, PutMode, PutMultipartOptions,
    PutOptions, PutPayload,
};
use tokio::task::JoinSet;

use super::address::CloudAddress;
use super::object::said;
use super::settings::{Bucket, Settings};
use crate::http::{HttpClient, HttpError};
use crate::{PushError, Pushed, Pushing};

/// Images up to here are one request; S3 wants parts of 5 MiB or more.
const PART_BYTES: u64 = 8 << 20;
/// "Amazon S3 multipart upload limits".
const MOST_PARTS: u64 = 10_000;
/// Parts that are under way at once.
const AT_ONCE: usize = 4;
/// Where an object has the image's own name.
const NAME_KEY: &str = "headstart-name";

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
}

struct Sending<'a> {
    bucket: Arc<dyn Bucket>,
    key: Path,
    address: String,
    object: Object<'a>,
    size: u64,
}

/// Sends an image, in parts where it is large. The object is there at once or not at all; what was sent of an image that is given up
/// is removed.
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
    let refused = |source| PushError::Refused { address: address.to_string(), source };
    let bucket = settings.bucket(address, client).map_err(refused)?;
    let key = address.path().map_err(|error| refused(HttpError::Cloud { reason: error.to_string() }))?;
    let read = |source| PushError::Read { path: object.path.display().to_string(), source };
    let size = object.file.metadata().map_err(read)?.len();
    let sending = Sending { bucket, key, address: address.to_string(), object, size };
    client.wait_for(sending.send(pushing))
}

impl Sending<'_> {
    async fn send(&self, pushing: &mut Pushing<'_>) -> Result<Pushed, PushError> {
        if self.is_there().await? {
            pushing(self.size, self.size).is_break();
            return Ok(Pushed { sent_bytes: 0, digest: None });
        }
        if pushing(0, self.size).is_break() {
            return Err(self.interrupted());
        }
        if self.size <= PART_BYTES {
            self.send_whole().await?
        } else {
            self.send_parts(pushing).await?
        }
        pushing(self.size, self.size).is_break();
        Ok(Pushed { sent_bytes: self.size, digest: None })
    }

    /// Whether this image lies there. Another object is in the way, unless it is to be replaced.
    async fn is_there(&self) -> Result<bool, PushError> {
        let head = GetOptions { head: true, ..GetOptions::default() };
        match self.bucket.get_opts(&self.key, head).await {
            Ok(found) => {
                let name = found.attributes.get(&Attribute::Metadata(NAME_KEY.into()));
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
        let bytes = self.read(0, self.size)?;
        // Somebody else may have been quicker.
        let mode = if self.object.replace { PutMode::Overwrite } else { PutMode::Create };
        let options = PutOptions { mode, attributes: self.attributes(), ..PutOptions::default() };
        match self.bucket.put_opts(&self.key, bytes, options).await {
            Ok(_) => Ok(()),
            Err(Error::AlreadyExists { .. }) => Err(self.taken()),
            Err(error) => Err(self.refused(&error)),
        }
    }

    async fn send_parts(&self, pushing: &mut Pushing<'_>) -> Result<(), PushError> {
        let options = PutMultipartOptions { attributes: self.attributes(), ..PutMultipartOptions::default() };
        let begun = self.bucket.put_multipart_opts(&self.key, options).await;
        let mut upload = begun.map_err(|error| self.refused(&error))?;
        let sent = match self.send_each_part(upload.as_mut(), pushing).await {
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

    async fn send_each_part(
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
                let part = upload.put_part(self.read(read, length)?);
                under_way.spawn(async move { part.await.map(|()| length) });
                read += length;
                continue;
            }
            let Some(done) = under_way.join_next().await else { break };
            sent += done.map_err(Error::from).and_then(|part| part).map_err(|error| self.refused(&error))?;
            if pushing(sent, self.size).is_break() {
                under_way.shutdown().await;
                return Err(self.interrupted());
            }
        }
        Ok(())
    }

    fn read(&self, offset: u64, length: u64) -> Result<PutPayload, PushError> {
        let mut bytes = vec![0; length as usize];
        self.object
            .file
            .read_exact_at(&mut bytes, offset)
            .map_err(|source| PushError::Read { path: self.object.path.display().to_string(), source })?;
        Ok(bytes.into())
    }

    fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::Metadata(NAME_KEY.into()), self.object.name.to_owned().into());
        attributes.insert(Attribute::ContentType, crate::registry::IMAGE_TYPE.into());
        attributes
    }

    fn refused(&self, error: &Error) -> PushError {
        PushError::Refused { address: self.address.clone(), source: HttpError::Cloud { reason: said(error) } }
    }

    fn taken(&self) -> PushError {
        PushError::Taken { address: self.address.clone() }
    }

    fn interrupted(&self) -> PushError {
        PushError::Interrupted { address: self.address.clone() }
    }
}
