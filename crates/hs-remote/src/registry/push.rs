//! Sending an image to a registry: distribution specification 1.1, "Push".

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::{CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE};
use url::Url;

use super::access::{Access, Right, refused};
use super::address::{Reference, RegistryAddress};
use super::login::Logins;
use super::manifest::{EMPTY, MANIFEST_TYPE, Manifest};
use crate::http::{Answer, HttpClient, HttpError, Tries};
use crate::push::KEPT;
use crate::sha256::{Running, Sha256};
use crate::unfinished::Unfinished;
use crate::{Abandoned, PushError, Pushed, Pushing};

/// Bytes of a request: what is sent again after a cut connection, at most.
pub(super) const PIECE_BYTES: u64 = 4 << 20;

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Artifact<'a> {
    /// The image's file.
    pub file: &'a File,
    /// Where that lies, for messages and as the title in the manifest.
    pub path: &'a Path,
    /// The image's own name, `hs1-…`.
    pub name: &'a str,
    /// The folder where uploads that are under way are noted, so that a later process can continue them.
    pub unfinished: Option<&'a Path>,
}

impl Artifact<'_> {
    /// What the manifest calls the file.
    pub(super) fn title(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Sends the missing parts of an image, then the manifest, which the tag then means.
///
/// # Errors
/// [`PushError`] when the file cannot be read, or the registry refuses. The tag does not change before all of
/// it is there.
pub fn push(
    client: Arc<HttpClient>,
    address: &RegistryAddress,
    logins: Logins,
    artifact: Artifact<'_>,
    pushing: &mut Pushing<'_>,
) -> Result<Pushed, PushError> {
    let access = Access::new(client, address.clone(), logins, Right::Push);
    let mut sending = Sending::new(&access);
    let refused = |source| PushError::Refused { address: address.to_string(), source };
    let blob = sending.send_blobs(artifact, pushing)?;
    let manifest = Manifest::of_image(blob.digest, blob.size, artifact.name, &artifact.title());
    let text = serde_json::to_vec(&manifest).expect("strings and numbers are JSON");
    let digest = Sha256::of(&text);
    if let Reference::Digest(wanted) = address.reference()
        && *wanted != digest
    {
        return Err(refused(HttpError::Digest { expected: wanted.to_string(), found: digest.to_string() }));
    }
    let reference = address.reference().to_string();
    sending.try_often(|access| send_manifest(access, &reference, MANIFEST_TYPE, &text)).map_err(refused)?;
    let SentBlob { sent_bytes, resumed_bytes, .. } = blob;
    Ok(Pushed { sent_bytes, resumed_bytes, digest: Some(digest.to_string()) })
}

/// Has the registry remove interrupted uploads to this address, which are noted in the folder `unfinished`.
///
/// # Errors
/// [`PushError`] when the registry refuses.
pub fn abandon(
    client: Arc<HttpClient>,
    address: &RegistryAddress,
    logins: Logins,
    unfinished: Option<&Path>,
) -> Result<Abandoned, PushError> {
    let access = Access::new(client, address.clone(), logins, Right::Push);
    let mut abandoned = Abandoned::Nothing;
    let noted = unfinished.map(|folder| Unfinished::all_to(folder, &address.to_string()));
    for unfinished in noted.into_iter().flatten() {
        if let Some((place, least_bytes)) = recall(&unfinished) {
            Upload { place, least_bytes }
                .give_up(&access)
                .map_err(|source| PushError::Refused { address: address.to_string(), source })?;
            abandoned = Abandoned::Removed;
        }
        unfinished.forget();
    }
    Ok(abandoned)
}

/// The note of an upload: one for each blob and repository.
fn unfinished(artifact: Artifact<'_>, address: &RegistryAddress, blob: Sha256) -> Unfinished {
    let place = address.url(&format!("blobs/{blob}"));
    // What has no address is refused before anything is noted.
    let folder = artifact.unfinished.filter(|_| place.is_ok());
    let place = place.map_or_else(|_| String::new(), String::from);
    Unfinished::of(folder, &place, artifact.path, address.to_string())
}

/// Where it continued according to the last note, and the least size of its pieces.
fn recall(unfinished: &Unfinished) -> Option<(Url, u64)> {
    let text = unfinished.recall()?;
    let (place, least_bytes) = text.trim_end().split_once(' ')?;
    Some((place.parse().ok()?, least_bytes.parse().ok()?))
}

fn digest_of(artifact: Artifact<'_>) -> Result<(Sha256, u64), PushError> {
    let mut running = Running::new();
    let mut at = 0;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = artifact
            .file
            .read_at(&mut buffer, at)
            .map_err(|source| PushError::Read { path: artifact.path.display().to_string(), source })?;
        if read == 0 {
            return Ok((running.finish(), at));
        }
        running.update(&buffer[..read]);
        at += read as u64;
    }
}

/// Whether the registry has a blob.
pub(super) fn exists(access: &Access, blob: Sha256) -> Result<bool, HttpError> {
    let url = access.address().url(&format!("blobs/{blob}"))?;
    let answer = access.ask(&Method::HEAD, &url, |asked| asked)?;
    match answer.status {
        200 => Ok(true),
        404 => Ok(false),
        _ => Err(refused("the blob", &answer)),
    }
}

/// The configuration, which every manifest must have.
fn send_empty(access: &Access) -> Result<(), HttpError> {
    let digest = Sha256::of(EMPTY);
    if exists(access, digest)? {
        return Ok(());
    }
    let upload = Upload::begin(access)?;
    upload.finish(access, digest, EMPTY)
}

/// Sends a manifest, by its digest or under a tag.
pub(super) fn send_manifest(
    access: &Access,
    reference: &str,
    media_type: &str,
    text: &[u8],
) -> Result<Answer, HttpError> {
    let url = access.address().url(&format!("manifests/{reference}"))?;
    let answer =
        access.ask(&Method::PUT, &url, |asked| asked.header(CONTENT_TYPE, media_type).body(text.to_vec()))?;
    match answer.status {
        200..=204 => Ok(answer),
        _ => Err(refused("the manifest", &answer)),
    }
}

/// The registry does not know an upload.
fn lost(answer: &Answer) -> HttpError {
    let said = refused("the upload", answer).to_string();
    HttpError::UploadLost { said }
}

/// A blob that is being sent.
pub(super) struct Upload {
    /// Where its next bytes go; the address changes after each piece.
    place: Url,
    /// Every piece but the last must have at least this many bytes.
    least_bytes: u64,
}

impl Upload {
    pub(super) fn begin(access: &Access) -> Result<Self, HttpError> {
        let url = access.address().url("blobs/uploads/")?;
        let answer = access.ask(&Method::POST, &url, |asked| asked.body(""))?;
        if answer.status != 202 {
            return Err(refused("an upload", &answer));
        }
        Self::begun(url, &answer)
    }

    /// What was begun with this answer to a request to `url`.
    pub(super) fn begun(url: Url, answer: &Answer) -> Result<Self, HttpError> {
        let least =
            answer.headers.get("oci-chunk-min-length").and_then(|field| field.to_str().ok()?.parse().ok());
        let mut upload = Self { place: url, least_bytes: least.unwrap_or(0) };
        upload.moved(answer)?;
        Ok(upload)
    }

    /// Notes where it goes on.
    fn moved(&mut self, answer: &Answer) -> Result<(), HttpError> {
        let nonsense = |reason: &str| HttpError::Nonsense { reason: reason.to_owned() };
        let Some(place) = answer.headers.get(LOCATION) else { return Ok(()) };
        let place = place.to_str().map_err(|_| nonsense("an upload's place that is no text"))?;
        let place = answer.url.join(place).map_err(|_| nonsense("an upload's place that is no address"))?;
        if answer.url.scheme() == "https" && place.scheme() != "https" {
            return Err(nonsense("an upload that leads from https to http"));
        }
        self.place = place;
        Ok(())
    }

    pub(super) fn send(&mut self, access: &Access, at: u64, piece: &Bytes) -> Result<(), HttpError> {
        let range = format!("{at}-{}", at + piece.len() as u64 - 1);
        let answer = access.ask(&Method::PATCH, &self.place, |asked| {
            asked
                .header(CONTENT_TYPE, "application/octet-stream")
                .header(CONTENT_RANGE, &range)
                .body(piece.clone())
        })?;
        match answer.status {
            202 | 204 => self.moved(&answer),
            404 => Err(lost(&answer)),
            _ => Err(refused("a piece of the blob", &answer)),
        }
    }

    /// How much of it is there. That the registry has lost it is an answer, which is not asked for again.
    fn stands_at(&mut self, access: &Access) -> Result<Result<u64, HttpError>, HttpError> {
        let answer = access.ask(&Method::GET, &self.place, |asked| asked)?;
        match answer.status {
            204 => self.moved(&answer)?,
            404 => return Ok(Err(lost(&answer))),
            _ => return Err(refused("how far an upload is", &answer)),
        }
        let field = answer.headers.get(RANGE).and_then(|field| field.to_str().ok());
        let last =
            field.and_then(|field| field.trim_start_matches("bytes=").split_once('-')?.1.parse::<u64>().ok());
        // The answer 0-0 can mean nothing or one byte. Our pieces are larger.
        Ok(Ok(last.filter(|last| *last > 0).map_or(0, |last| last + 1)))
    }

    pub(super) fn finish(&self, access: &Access, digest: Sha256, rest: &[u8]) -> Result<(), HttpError> {
        let mut url = self.place.clone();
        url.query_pairs_mut().append_pair("digest", &digest.to_string());
        let answer = access.ask(&Method::PUT, &url, |asked| {
            asked.header(CONTENT_TYPE, "application/octet-stream").body(rest.to_vec())
        })?;
        match answer.status {
            201 | 204 => Ok(()),
            404 => Err(lost(&answer)),
            _ => Err(refused("the end of the blob", &answer)),
        }
    }

    /// Has the registry remove it; the registry also does so on its own after some time.
    fn give_up(&self, access: &Access) -> Result<(), HttpError> {
        let answer = access.ask(&Method::DELETE, &self.place, |asked| asked)?;
        match answer.status {
            200..=204 | 404 => Ok(()),
            _ => Err(refused("the end of an upload", &answer)),
        }
    }

    /// The same, where nothing can be done about a failure.
    pub(super) fn leave(&self, access: &Access) {
        if let Err(error) = self.give_up(access) {
            log::debug!("{}: an upload is left there: {error}", access.address());
        }
    }
}

/// A blob that the registry has.
pub(super) struct SentBlob {
    pub(super) digest: Sha256,
    pub(super) size: u64,
    pub(super) sent_bytes: u64,
    pub(super) resumed_bytes: u64,
}

pub(super) struct Sending<'a> {
    access: &'a Access,
    tries: Tries,
}

impl<'a> Sending<'a> {
    pub(super) fn new(access: &'a Access) -> Self {
        Self { access, tries: Tries::new(access.address().to_string()) }
    }

    /// Sends the file and the empty configuration, as far as they are not there.
    pub(super) fn send_blobs(
        &mut self,
        artifact: Artifact<'_>,
        pushing: &mut Pushing<'_>,
    ) -> Result<SentBlob, PushError> {
        let (digest, size) = digest_of(artifact)?;
        let address = self.access.address().to_string();
        let refused = |source| PushError::Refused { address: address.clone(), source };
        let there = self.try_often(|access| exists(access, digest)).map_err(refused)?;
        let (sent_bytes, resumed_bytes) =
            if there { (0, 0) } else { self.send_file(artifact, digest, size, pushing)? };
        pushing(size, size).is_break();
        self.try_often(send_empty).map_err(refused)?;
        Ok(SentBlob { digest, size, sent_bytes, resumed_bytes })
    }

    /// Repeats an operation, after pauses, while it may succeed.
    pub(super) fn try_often<T>(
        &mut self,
        mut what: impl FnMut(&Access) -> Result<T, HttpError>,
    ) -> Result<T, HttpError> {
        self.tries.often(|| what(self.access))
    }

    /// Sends the blob in pieces, from where an earlier process stopped; anew where the registry has lost what
    /// it had. Returns how many bytes were missing, and how many were there.
    fn send_file(
        &mut self,
        artifact: Artifact<'_>,
        digest: Sha256,
        size: u64,
        pushing: &mut Pushing<'_>,
    ) -> Result<(u64, u64), PushError> {
        let access = self.access;
        let refused = |source| PushError::Refused { address: access.address().to_string(), source };
        let unfinished = unfinished(artifact, access.address(), digest);
        let (mut upload, mut first) = self.recall(&unfinished, size).map_err(refused)?;
        let mut losses = 0;
        loop {
            let sent = self.send_pieces(artifact, &mut upload, &unfinished, first..size, pushing);
            let ended = sent.and_then(|()| self.finish(&upload, digest, &unfinished).map_err(refused));
            let lost = match ended {
                Ok(()) => {
                    unfinished.forget();
                    return Ok((size - first, first));
                }
                Err(PushError::Refused { source: lost @ HttpError::UploadLost { .. }, .. }) => lost,
                Err(error) => {
                    if matches!(&error, PushError::Refused { source, .. } if !source.is_transient()) {
                        unfinished.forget();
                    } else if unfinished.recall().is_some() && !matches!(error, PushError::Interrupted { .. })
                    {
                        log::warn!("{}: {KEPT}", access.address());
                    }
                    return Err(error);
                }
            };
            unfinished.forget();
            self.tries.pause(&mut losses, lost).map_err(refused)?;
            (upload, first) = (self.try_often(Upload::begin).map_err(refused)?, 0);
        }
    }

    /// Sends these bytes. After a fault it continues from where the registry is.
    fn send_pieces(
        &mut self,
        artifact: Artifact<'_>,
        upload: &mut Upload,
        unfinished: &Unfinished,
        bytes: Range<u64>,
        pushing: &mut Pushing<'_>,
    ) -> Result<(), PushError> {
        let access = self.access;
        let refused = |source| PushError::Refused { address: access.address().to_string(), source };
        let (mut at, mut faults) = (bytes.start, 0);
        loop {
            unfinished.note(&format!("{} {}", upload.place, upload.least_bytes));
            if at == bytes.end {
                return Ok(());
            }
            if pushing(at, bytes.end).is_break() {
                let is_kept = unfinished.is_noted() && at > 0;
                if !is_kept {
                    unfinished.forget();
                    upload.leave(access);
                }
                return Err(PushError::Interrupted { address: access.address().to_string(), is_kept });
            }
            let length = PIECE_BYTES.max(upload.least_bytes).min(bytes.end - at);
            let mut piece = vec![0; length as usize];
            artifact.file.read_exact_at(&mut piece, at).map_err(|source| {
                unfinished.forget();
                upload.leave(access);
                PushError::Read { path: artifact.path.display().to_string(), source }
            })?;
            match upload.send(access, at, &piece.into()) {
                Ok(()) => (at, faults) = (at + length, 0),
                Err(error @ HttpError::UploadLost { .. }) => return Err(refused(error)),
                Err(error) => {
                    self.tries.pause(&mut faults, error).map_err(refused)?;
                    let stands = self.try_often(|access| upload.stands_at(access)).map_err(refused)?;
                    at = stands.map_err(refused)?.min(bytes.end);
                }
            }
        }
    }

    /// Ends an upload. An end whose answer was lost is still an end.
    fn finish(&mut self, upload: &Upload, digest: Sha256, unfinished: &Unfinished) -> Result<(), HttpError> {
        let ended = self.try_often(|access| match upload.finish(access, digest, &[]) {
            // It is not there the next time either.
            Err(lost @ HttpError::UploadLost { .. }) => Ok(Err(lost)),
            ended => ended.map(Ok),
        });
        let Err(error) = ended.flatten() else { return Ok(()) };
        if exists(self.access, digest).unwrap_or(false) {
            return Ok(());
        }
        // One that ends with another digest is not continued.
        if matches!(error, HttpError::Refused { .. }) {
            unfinished.forget();
        }
        Err(error)
    }

    /// The upload of an earlier process, and how far it is; a new one when there is none, or the registry
    /// does not continue it.
    fn recall(&mut self, unfinished: &Unfinished, size: u64) -> Result<(Upload, u64), HttpError> {
        if let Some((place, least_bytes)) = recall(unfinished) {
            let mut upload = Upload { place, least_bytes };
            match self.try_often(|access| upload.stands_at(access)) {
                Ok(Ok(at)) if at <= size => return Ok((upload, at)),
                Ok(_) | Err(HttpError::Refused { .. }) => unfinished.forget(),
                Err(error) => return Err(error),
            }
        }
        Ok((self.try_often(Upload::begin)?, 0))
    }
}
