//! A container's image in a registry, as a source.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use hs_build::source::{
    Blob, Blobs, ContainerFault, Platform, ResolvedImage, Source, SourceOptions, SourceProgress,
};
use hs_image::ImageDigest;
use hs_remote::http::{HttpClient, HttpError, HttpOptions, HttpStore, Timeouts};
use hs_remote::registry::{Descriptor, NAME_ANNOTATION, RegistryAddress, Repository};
use hs_store::Store;

use crate::remote;

/// Addresses of registries with TLS.
const TLS: &str = "oci://";
/// What the TLS library says of an answer in plain HTTP.
const NO_TLS: &str = "InvalidContentType";
/// Bytes of one request for a blob: large against a request's latency, small against memory.
const REQUEST_BYTES: usize = 8 << 20;

/// A container's image in a registry: what its tag means now, for one platform.
pub struct ContainerImage {
    /// The repository, with the reference that was asked for.
    pub address: RegistryAddress,
    /// The image.
    pub image: ResolvedImage,
    blobs: Pulled,
}

impl ContainerImage {
    /// Resolves the image at this address, with the logins of the user: no layer is fetched.
    ///
    /// # Errors
    /// When it cannot be fetched, is none, or is for other platforms.
    pub fn resolve(address: RegistryAddress, platform: Option<&Platform>) -> anyhow::Result<Self> {
        let client = HttpClient::new(Timeouts::default())?;
        let logins = remote::keyring().logins;
        let repository = Arc::new(Repository::new(address.clone(), Arc::clone(&client), logins));
        let manifest = repository.manifest().map_err(|error| explained(&address, error))?;
        let mut blobs = Pulled { repository, client };
        let image = ResolvedImage::of(&mut blobs, &manifest, platform);
        let image = image.with_context(|| format!("{address}: read the image"))?;
        Ok(Self { address, image, blobs })
    }

    /// The image as the subject of what refers to it.
    #[must_use]
    pub fn descriptor(&self) -> Descriptor {
        Descriptor {
            media_type: self.image.media_type.clone(),
            digest: self.image.digest.clone(),
            size: self.image.manifest.len() as u64,
            artifact_type: None,
            annotations: BTreeMap::new(),
        }
    }

    /// What of this type refers to it. None of it is verified.
    ///
    /// # Errors
    /// When the registry refuses, or its list is none.
    pub fn referrers(&self, artifact_type: &str) -> Result<Vec<Descriptor>, HttpError> {
        self.blobs.repository.referrers(&self.image.digest, artifact_type)
    }

    /// The last one of the images that were made of it (`headstart convert`) and refer to it. Write access to
    /// the repository is enough to attach one: the container's own digest or signature says nothing of it.
    ///
    /// # Errors
    /// When the registry refuses, or its list is none.
    pub fn converted(&self) -> Result<Option<Converted>, HttpError> {
        let (subject, chain_id) = (&self.image.digest, self.image.chain_id());
        let Some((manifest, _)) = self.blobs.repository.converted(subject, chain_id.as_deref())? else {
            return Ok(None);
        };
        Converted::of(&self.address, manifest)
    }

    /// A small file that refers to it, with what its manifest says; `None` where that is something else.
    ///
    /// # Errors
    /// When the registry does not have it, or it has more than 4 MiB.
    pub fn attached(
        &self,
        listed: &Descriptor,
        artifact_type: &str,
    ) -> Result<Option<(Descriptor, Vec<u8>)>, HttpError> {
        self.blobs.repository.attached(listed, &self.image.digest, artifact_type)
    }

    /// Its merged root, as a source of an image. Fetches all layers.
    ///
    /// # Errors
    /// When a layer cannot be fetched, or is damaged.
    pub fn source(
        &mut self,
        options: &SourceOptions,
        progress: &dyn Fn(SourceProgress),
    ) -> anyhow::Result<Source> {
        let shown = self.address.to_string();
        Ok(Source::open_blobs(&mut self.blobs, &self.image.manifest, Path::new(&shown), options, progress)?)
    }
}

/// The last one of the images that were made of the container's image with the manifest that `address` names
/// by its digest, see [`ContainerImage::converted`], and the bytes of its manifest. The container's image
/// itself is not asked for. `repository` is that of the address.
///
/// # Errors
/// When the address has no digest, the registry refuses, or its list is none.
pub fn converted(
    address: &RegistryAddress,
    repository: &Repository,
) -> anyhow::Result<Option<(Converted, Vec<u8>)>> {
    let found = repository.converted(&address.reference().to_string(), None)?;
    let Some((manifest, bytes)) = found else { return Ok(None) };
    Ok(Converted::of(address, manifest)?.map(|converted| (converted, bytes)))
}

/// An image of headstart's that was made of a container's image.
#[derive(Clone, Debug)]
pub struct Converted {
    /// Where it is, by the digest of its manifest.
    pub address: RegistryAddress,
    /// Its name.
    pub name: ImageDigest,
    /// Its manifest, with its annotations.
    pub manifest: Descriptor,
}

impl Converted {
    /// That of this manifest, beside the image at `address`, if it has a name.
    fn of(address: &RegistryAddress, manifest: Descriptor) -> Result<Option<Self>, HttpError> {
        let name = manifest.annotations.get(NAME_ANNOTATION).and_then(|name| name.parse().ok());
        let Some(name) = name else { return Ok(None) };
        Ok(Some(Self { address: address.at(&manifest.digest)?, name, manifest }))
    }
}

/// Names the image that could not be had, and what else may be meant.
fn explained(address: &RegistryAddress, error: HttpError) -> anyhow::Error {
    let is_no_tls = error.to_string().contains(NO_TLS) && address.to_string().starts_with(TLS);
    let tip = match address.to_string().strip_prefix(TLS) {
        Some(rest) if is_no_tls => format!(" (a registry without TLS is oci+http://{rest})"),
        _ => String::new(),
    };
    anyhow::Error::new(error).context(format!("{address}{tip}"))
}

/// Opens the image at this address.
///
/// # Errors
/// When it cannot be fetched, or is none.
pub(crate) fn open(
    address: &str,
    options: &SourceOptions,
    progress: &dyn Fn(SourceProgress),
) -> anyhow::Result<Source> {
    let address = RegistryAddress::parse(address)?;
    ContainerImage::resolve(address, options.platform.as_ref())?.source(options, progress)
}

/// Blobs that are fetched when they are needed.
struct Pulled {
    repository: Arc<Repository>,
    client: Arc<HttpClient>,
}

impl Blobs for Pulled {
    fn open(&mut self, digest: &str, bytes: u64) -> Result<Blob<'_>, ContainerFault> {
        let failed = |error: &dyn std::fmt::Display| ContainerFault::Read {
            name: digest.to_owned(),
            error: io::Error::other(error.to_string()),
        };
        if bytes == 0 {
            return Ok(Blob::of_stream(Box::new(io::empty())));
        }
        let blob = self.repository.blob(digest).map_err(|error| failed(&error))?;
        let client = Arc::clone(&self.client);
        let store = HttpStore::open(Box::new(blob), client, HttpOptions::default());
        let store = store.map_err(|error| failed(&error.with_causes()))?;
        Ok(Blob::of_stream(Box::new(StoreReader::new(Box::new(store)))))
    }

    fn open_manifest(&mut self, digest: &str, _bytes: u64) -> Result<Blob<'_>, ContainerFault> {
        let manifest = self.repository.manifest_of(digest);
        let manifest = manifest.map_err(|error| ContainerFault::Read {
            name: digest.to_owned(),
            error: io::Error::other(error.to_string()),
        })?;
        Ok(Blob::of_stream(Box::new(io::Cursor::new(manifest))))
    }
}

/// A store, read from its beginning to its end.
struct StoreReader {
    store: Box<dyn Store>,
    at: u64,
    buffer: Vec<u8>,
    taken: usize,
}

impl StoreReader {
    fn new(store: Box<dyn Store>) -> Self {
        Self { store, at: 0, buffer: Vec::new(), taken: 0 }
    }
}

impl Read for StoreReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.buffer.len() {
            let left = self.store.len() - self.at;
            self.buffer.resize(left.min(REQUEST_BYTES as u64) as usize, 0);
            self.taken = 0;
            if self.buffer.is_empty() {
                return Ok(0);
            }
            let read = self.store.read_at(self.at, &mut self.buffer);
            read.map_err(|error| io::Error::other(error.with_causes().to_string()))?;
            self.at += self.buffer.len() as u64;
        }
        let len = (self.buffer.len() - self.taken).min(buf.len());
        buf[..len].copy_from_slice(&self.buffer[self.taken..][..len]);
        self.taken += len;
        Ok(len)
    }
}
