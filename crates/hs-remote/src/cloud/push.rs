//! Sending an image to an object store.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path as FilePath;
use std::sync::Arc;

use object_store::{
    Attribute, Error, GetOptions, ObjectStore, PutMode, PutMultipartOptions, PutOptions, WriteMultipart,
};

use super::address::CloudAddress;
use super::destination::Destination;
use super::object::said;
use super::parts::{self, Parts};
use super::settings::Settings;
use crate::http::HttpClient;
use crate::unfinished::Unfinished;
use crate::{Abandoned, PushError, Pushed, Pushing};

/// Images up to here are one request; S3 wants parts of 5 MiB or more.
const PART_BYTES: u64 = 8 << 20;
/// "Amazon S3 multipart upload limits".
const MOST_PARTS: u64 = 10_000;
/// Parts that are under way at once.
pub(super) const AT_ONCE: usize = 4;
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
    pub(super) to: Destination<'a>,
    pub(super) object: Object<'a>,
    pub(super) size: u64,
}

/// Sends an image, in parts if it is large. The object appears at once or not at all. Parts of an interrupted
/// upload are kept if they are noted, and removed otherwise.
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
    Sending::new(Destination::new(client, address, settings)?, object)?.send(pushing)
}

/// Has the store remove the parts of an interrupted upload to this address, which is noted in the folder
/// `unfinished`.
///
/// # Errors
/// [`PushError`] when the store refuses.
pub fn abandon(
    client: &Arc<HttpClient>,
    address: &CloudAddress,
    settings: &Settings,
    unfinished: Option<&FilePath>,
) -> Result<Abandoned, PushError> {
    let from = Destination::new(client, address, settings)?;
    let place = from.place().map_err(|error| from.refused_by(error))?;
    let noted = unfinished.and_then(|folder| Unfinished::find(folder, &place));
    noted.map_or(Ok(Abandoned::Nothing), |noted| parts::abandon(&from, &noted))
}

impl<'a> Sending<'a> {
    fn new(to: Destination<'a>, object: Object<'a>) -> Result<Self, PushError> {
        let read = |source| PushError::Read { path: object.path.display().to_string(), source };
        let size = object.file.metadata().map_err(read)?.len();
        Ok(Self { to, object, size })
    }

    fn send(&self, pushing: &mut Pushing<'_>) -> Result<Pushed, PushError> {
        if self.is_there()? {
            pushing(self.size, self.size).is_break();
            return Ok(Pushed { sent_bytes: 0, resumed_bytes: 0, digest: None });
        }
        if pushing(0, self.size).is_break() {
            return Err(self.to.interrupted(false));
        }
        let mut pushed = Pushed { sent_bytes: self.size, resumed_bytes: 0, digest: None };
        if self.size <= PART_BYTES {
            self.to.client.wait_for(self.send_whole())?;
        } else if let Ok(place) = self.to.place() {
            pushed = Parts::begin(self, self.unfinished(&place))?.send(pushing)?;
        } else {
            // A client whose login is a signed address cannot sign another.
            self.to.client.wait_for(self.send_unsigned(pushing))?;
        }
        pushing(self.size, self.size).is_break();
        Ok(pushed)
    }

    /// The note of the upload: one for each place, whatever is sent there.
    fn unfinished(&self, place: &str) -> Unfinished {
        Unfinished::of(self.object.unfinished, place, self.object.path, self.to.address.clone())
    }

    /// Whether this image is already there. Another object is an error, unless it is to be replaced.
    pub(super) fn is_there(&self) -> Result<bool, PushError> {
        let head = GetOptions { head: true, ..GetOptions::default() };
        match self.to.client.wait_for(self.to.bucket.get_opts(&self.to.key, head)) {
            Ok(found) => {
                let name = found.attributes.get(&Attribute::Metadata(self.to.name_key().into()));
                let is_ours = name.is_some_and(|name| **name == *self.object.name);
                if is_ours && found.meta.size == self.size {
                    return Ok(true);
                }
                if self.object.replace { Ok(false) } else { Err(self.to.taken()) }
            }
            Err(Error::NotFound { .. }) => Ok(false),
            // With the right to write and not to list, the store does not tell whether an object is there.
            Err(Error::PermissionDenied { .. }) if self.object.replace => Ok(false),
            Err(error) => Err(self.to.refused(&error)),
        }
    }

    async fn send_whole(&self) -> Result<(), PushError> {
        let bytes = self.read(0, self.size)?.into();
        // Another process may have sent it first.
        let mode = if self.object.replace { PutMode::Overwrite } else { PutMode::Create };
        let options =
            PutOptions { mode, attributes: self.to.attributes(self.object.name), ..PutOptions::default() };
        match self.to.bucket.put_opts(&self.to.key, bytes, options).await {
            Ok(_) => Ok(()),
            Err(Error::AlreadyExists { .. }) => Err(self.to.taken()),
            Err(error) => Err(self.to.refused(&error)),
        }
    }

    /// In parts as the library sends them, without a condition, so that no later process can continue.
    async fn send_unsigned(&self, pushing: &mut Pushing<'_>) -> Result<(), PushError> {
        let attributes = self.to.attributes(self.object.name);
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let begun = self.to.bucket.put_multipart_opts(&self.to.key, options).await;
        let upload = begun.map_err(|error| self.to.refused(&error))?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, self.part_bytes() as usize);
        if let Err(failed) = self.write(&mut upload, pushing).await {
            if let Err(error) = upload.abort().await {
                log::warn!("{}: parts of an upload are left there: {}", self.to.address, said(&error));
            }
            return Err(failed);
        }
        // After a failure it removes what has come.
        upload.finish().await.map(drop).map_err(|error| self.to.refused(&error))
    }

    async fn write(&self, upload: &mut WriteMultipart, pushing: &mut Pushing<'_>) -> Result<(), PushError> {
        for offset in (0..self.size).step_by(self.part_bytes() as usize) {
            upload.wait_for_capacity(AT_ONCE).await.map_err(|error| self.to.refused(&error))?;
            if pushing(offset, self.size).is_break() {
                return Err(self.to.interrupted(false));
            }
            upload.put(self.read(offset, self.part_bytes().min(self.size - offset))?.into());
        }
        Ok(())
    }

    pub(super) fn part_bytes(&self) -> u64 {
        PART_BYTES.max(self.size.div_ceil(MOST_PARTS))
    }

    pub(super) fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, PushError> {
        let mut bytes = vec![0; length as usize];
        self.object
            .file
            .read_exact_at(&mut bytes, offset)
            .map_err(|source| PushError::Read { path: self.object.path.display().to_string(), source })?;
        Ok(bytes)
    }
}
