//! A manifest in another place, with blobs that a registry has already: distribution specification 1.1,
//! "Mounting a blob from another repository".

use std::sync::Arc;

use hs_store::Store;
use reqwest::Method;

use super::access::{Access, Right, refused};
use super::address::RegistryAddress;
use super::login::Logins;
use super::manifest::Descriptor;
use super::push::{PIECE_BYTES, Sending, Upload, exists, send_manifest};
use super::repository::Repository;
use crate::PushError;
use crate::http::{HttpClient, HttpError, HttpOptions, HttpStore};
use crate::sha256::Sha256;

/// A manifest, and where its blobs are.
#[derive(Clone, Copy, Debug)]
pub struct Copying<'a> {
    /// The repository with the blobs.
    pub from: &'a RegistryAddress,
    /// Where the manifest is to lie.
    pub to: &'a RegistryAddress,
    /// All blobs that it names.
    pub blobs: &'a [Descriptor],
    /// The manifest.
    pub manifest: &'a [u8],
    /// Its type.
    pub media_type: &'a str,
}

/// Sends a manifest after its blobs. In one registry these are only named anew, where it allows that. Gives
/// the digest, and the bytes that were sent.
///
/// # Errors
/// [`PushError::Refused`]. The tag does not change before all of it is there.
pub fn copy(
    client: Arc<HttpClient>,
    logins: Logins,
    copying: Copying<'_>,
) -> Result<(String, u64), PushError> {
    let Copying { from, to, blobs, manifest, media_type } = copying;
    let refused = |source| PushError::Refused { address: to.to_string(), source };
    let access = Access::new(Arc::clone(&client), to.clone(), logins.clone(), Right::Push);
    let source = Repository::new(from.clone(), Arc::clone(&client), logins);
    let mut sending = Sending::new(&access);
    let mut sent_bytes = 0;
    for blob in blobs {
        let digest = blob.digest.parse().map_err(|()| {
            refused(HttpError::NotAnImage { reason: format!("{:?} is no SHA-256 digest", blob.digest) })
        })?;
        let sent = sending.try_often(|access| {
            if exists(access, digest)? {
                return Ok(0);
            }
            match mount(access, from, digest)? {
                None => Ok(0),
                Some(upload) => send(access, upload, &source, &client, digest, blob.size),
            }
        });
        sent_bytes += sent.map_err(refused)?;
    }
    let reference = to.reference().to_string();
    sending.try_often(|access| send_manifest(access, &reference, media_type, manifest)).map_err(refused)?;
    Ok((Sha256::of(manifest).to_string(), sent_bytes))
}

/// Names a blob of another repository here, or begins to send it.
fn mount(access: &Access, from: &RegistryAddress, blob: Sha256) -> Result<Option<Upload>, HttpError> {
    if access.address().url("")?.origin() != from.url("")?.origin() {
        return Upload::begin(access).map(Some);
    }
    let mut url = access.address().url("blobs/uploads/")?;
    url.query_pairs_mut().append_pair("mount", &blob.to_string()).append_pair("from", &from.repository);
    let answer = access.ask(&Method::POST, &url, |asked| asked.body(""))?;
    match answer.status {
        201 => Ok(None),
        202 => Upload::begun(url, &answer).map(Some),
        _ => Err(refused("an upload", &answer)),
    }
}

fn send(
    access: &Access,
    mut upload: Upload,
    source: &Repository,
    client: &Arc<HttpClient>,
    blob: Sha256,
    size: u64,
) -> Result<u64, HttpError> {
    let send_all = |upload: &mut Upload| {
        if size == 0 {
            return Ok(());
        }
        let located = Box::new(source.blob(&blob.to_string())?);
        let client = Arc::clone(client);
        let store = HttpStore::open(located, client, HttpOptions::default()).map_err(read_error)?;
        let mut at = 0;
        while at < size {
            let mut piece = vec![0; size.saturating_sub(at).min(PIECE_BYTES) as usize];
            store.read_at(at, &mut piece).map_err(read_error)?;
            at += piece.len() as u64;
            upload.send(access, at - piece.len() as u64, &piece.into())?;
        }
        Ok(())
    };
    let sent = send_all(&mut upload).and_then(|()| upload.finish(access, blob, &[]));
    if sent.is_err() {
        upload.leave(access);
    }
    sent.map(|()| size)
}

/// What could not be read is not read again: the store has tried that.
fn read_error(error: hs_store::StoreError) -> HttpError {
    HttpError::Cloud { reason: error.with_causes().to_string() }
}
