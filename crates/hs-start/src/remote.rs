//! Remote images: how they are opened, and what is remembered of them.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use hs_format::limits::{PACK_HEADER_BYTES, SUPERBLOCK_BYTES};
use hs_format::{FileKind, PackHeader, Superblock, Unverified};
use hs_image::{ImageDigest, OpenOptions};
use hs_remote::http::{
    HttpClient, HttpError, HttpOptions, HttpStore, Locate, Measure, Offline, Patience, Timeouts, Transport,
    Version,
};
use hs_remote::{Address, Keyring};
use hs_store::{Count, DiskCache, RetryCounters, Store};
use serde::{Deserialize, Serialize};

use crate::image::ImageSource;
use crate::on_medium::OnMedium;
use crate::opening_pipe::OpeningPipe;
use hs_output::own_folders::OwnFolders;
use hs_output::whole_file::{make_private_folder, write_private};
use hs_units::Digest;

/// The default size of the cache: the working sets of a few systems.
pub const USUAL_LIMIT_BYTES: u64 = 4 << 30;

/// How the names of files end that remember an address. A digest comes before.
const RECORD: &str = ".json";

/// Whether a file of this name remembers an address.
fn is_record(name: &OsStr) -> bool {
    name.to_str()
        .and_then(|name| name.strip_suffix(RECORD))
        .is_some_and(|digest| digest.parse::<Digest>().is_ok())
}

/// What is remembered of an address.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Remembered {
    /// The address, without secrets, for people.
    address: String,
    len: u64,
    etag: Option<String>,
    last_modified: Option<String>,
    /// The name of the image that was there.
    image: String,
    /// Whether the address itself proves that name, as the digest of a manifest does.
    #[serde(default)]
    is_certain: bool,
}

impl Remembered {
    fn version(&self) -> Version {
        Version { len: self.len, etag: self.etag.clone(), last_modified: self.last_modified.clone() }
    }

    fn name(&self) -> Option<ImageDigest> {
        self.image.parse().ok()
    }
}

/// The folder of the cache: fetched chunks, facts about addresses, and the limit.
#[derive(Clone, Debug)]
pub struct CacheFolder(PathBuf);

impl CacheFolder {
    /// The folder that the user names, or the default; `None` when it was refused, or this user has no home.
    pub fn of(asked: Option<&Path>) -> Option<Self> {
        if let Some(asked) = asked {
            return (asked != Path::new("none")).then(|| Self(asked.to_owned()));
        }
        OwnFolders::CACHE.find("remote").map(Self)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether the superblock of this image is there.
    pub(crate) fn has(&self, name: &ImageDigest) -> bool {
        DiskCache::is_in(&self.chunks(), &name.0)
    }

    /// Where the bytes are.
    pub fn chunks(&self) -> PathBuf {
        self.0.join("chunks")
    }

    /// What is remembered of addresses.
    pub fn addresses(&self) -> PathBuf {
        self.0.join("addresses")
    }

    /// Forgets all addresses. Other files in that folder stay.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub fn forget_addresses(&self) -> io::Result<()> {
        let entries = match std::fs::read_dir(self.addresses()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if is_record(&entry.file_name()) {
                std::fs::remove_file(entry.path())?;
            }
        }
        // It stays where something else lies in it.
        let _ = std::fs::remove_dir(self.addresses());
        Ok(())
    }

    /// Bounds the bytes from now on.
    ///
    /// # Errors
    /// When the limit cannot be written, or a file of its name holds something else.
    pub fn set_limit(&self, bytes: u64) -> anyhow::Result<()> {
        make_private_folder(self.path()).with_context(|| format!("make {}", self.path().display()))?;
        let file = self.limit_file();
        match std::fs::read_to_string(&file) {
            Ok(text) if text.trim().parse::<u64>().is_ok() => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => bail!("{}: this is no limit of a cache: give another folder", file.display()),
        }
        write_private(&file, format!("{bytes}\n").as_bytes())
    }

    /// Where the limit stands.
    pub fn limit_file(&self) -> PathBuf {
        self.0.join("limit")
    }

    /// The most that the bytes may take.
    pub fn limit_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(self.limit_file()).ok();
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL_LIMIT_BYTES)
    }

    fn open(&self) -> Option<Arc<DiskCache>> {
        close_to_others(self);
        DiskCache::open(&self.chunks(), self.limit_bytes())
            .inspect_err(|error| log::warn!("{}: {error}: what is fetched is not kept", self.0.display()))
            .ok()
    }

    /// The file of an address. Its name does not reveal the address, which may contain secrets.
    fn record(&self, address: &Address) -> PathBuf {
        let digest = hs_format::chunk_digest(address.whole().as_bytes());
        self.addresses().join(format!("{digest}{RECORD}"))
    }

    fn recall(&self, address: &Address) -> Option<Remembered> {
        serde_json::from_slice(&std::fs::read(self.record(address)).ok()?).ok()
    }

    fn remember(&self, address: &Address, version: &Version, name: ImageDigest, is_certain: bool) {
        let remembered = Remembered {
            address: address.to_string(),
            len: version.len,
            etag: version.etag.clone(),
            last_modified: version.last_modified.clone(),
            image: name.to_string(),
            is_certain,
        };
        let written = serde_json::to_vec(&remembered)
            .map_err(anyhow::Error::from)
            .and_then(|text| write_private(&self.record(address), &text));
        if let Err(error) = written {
            log::info!("{address} is not remembered: {error:#}");
        }
    }
}

/// Closes the default folder to other users if an earlier version of this program left it open. A folder that
/// the user names keeps its mode, because its owner may share it.
fn close_to_others(folder: &CacheFolder) {
    let path = folder.path();
    let is_usual = OwnFolders::CACHE.find("remote").is_some_and(|usual| usual == path);
    let is_open = |found: std::fs::Metadata| {
        found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 != 0
    };
    if is_usual && path.symlink_metadata().is_ok_and(is_open) {
        let closed = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700));
        if let Err(error) = closed {
            log::warn!("{} stays open to other users: {error}", path.display());
        }
    }
}

/// Where this machine has an image and its base: the files, or the folder of their cached chunks.
pub fn places_here(image: &ImageSource) -> Vec<PathBuf> {
    let cached =
        || CacheFolder::of(image.remote.disk_cache.as_deref()).map(|folder| folder.path().to_owned());
    let place = |image: &ImageSource| image.file().map(Path::to_owned).or_else(cached);
    [place(image), image.base().as_ref().and_then(place)].into_iter().flatten().collect()
}

/// The logins of the user who runs this.
pub fn keyring() -> Keyring {
    Keyring::of_environment(std::env::vars_os())
}

/// What a remote image is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Its disk is served.
    Serve,
    /// A command reads facts about it.
    Look,
    /// It is no image but a disk. Whether a layer above knows the digests of all that is read.
    Disk {
        /// See there.
        digests_decide: bool,
    },
}

/// What lies at an address.
pub struct Opened {
    /// The file.
    pub on_medium: OnMedium,
    /// What distinguishes it from one that replaces it.
    pub version: Version,
    /// Its first bytes, where the first request has brought them.
    pub start: Option<Vec<u8>>,
}

/// Bytes of [`Opened::start`]: those of a pack's header, and of the superblock behind it.
const START_BYTES: usize = PACK_HEADER_BYTES + SUPERBLOCK_BYTES;

impl Purpose {
    /// Bytes of the first request: the first of a prefetch, or the superblock and tables of the usual size.
    /// Where the cache on disk has what opens the image, no more than what tells an image from a pack.
    pub(crate) const fn opening_bytes(self, is_kept: bool) -> u64 {
        match self {
            _ if is_kept => START_BYTES as u64,
            Self::Serve => 1 << 20,
            Self::Look | Self::Disk { .. } => 64 << 10,
        }
    }
}

/// Opens what lies at an address.
pub fn open(image: &ImageSource, address: &Address, purpose: Purpose) -> anyhow::Result<Opened> {
    let folder = CacheFolder::of(image.remote.disk_cache.as_deref());
    let cache = folder.as_ref().and_then(CacheFolder::open);
    let remembered = folder.as_ref().and_then(|folder| folder.recall(address));
    let wanted = image.image.name();
    if image.remote.offline {
        if let Some(remembered) = remembered.as_ref().filter(|known| wanted.is_none() && !known.is_certain) {
            refuse_unnamed(image, address, || remembered.name())?;
        }
        let on_medium = offline(address, wanted, cache, remembered.as_ref())?;
        let version = Version { len: on_medium.store.len(), etag: None, last_modified: None };
        return Ok(Opened { on_medium, version, start: None });
    }
    // A record without the image's first block saves nothing, and a record of another image is no help.
    let remembered = remembered.filter(|remembered| {
        let name = remembered.name();
        name.is_some_and(|name| {
            wanted.is_none_or(|wanted| wanted == name)
                && cache.as_ref().is_some_and(|cache| cache.has(&name.0))
        })
    });
    let timeout = image.remote.read_timeout;
    let client = HttpClient::new(Timeouts::within(timeout))?;
    let (locate, transport) = reached(address, &client, image.remote.opening.as_ref())?;
    // What the address proves is as good as a name in it.
    let known = wanted.or_else(|| locate.certain_name()?.parse().ok());
    let is_kept = known.zip(cache.as_ref()).is_some_and(|(name, cache)| cache.has(&name.0));
    let options = HttpOptions {
        opening_bytes: purpose.opening_bytes(is_kept),
        opening: image.remote.opening_patience(),
        patience: Patience::within(timeout),
        remembered: remembered.as_ref().map(Remembered::version),
        measure: Some(Measure { bytes: SUPERBLOCK_BYTES, length: image_bytes }),
        ..HttpOptions::default()
    };
    let store = HttpStore::open(locate, transport, options)?;
    let start = store.peek(START_BYTES);
    // A manifest that was fetched just now proves it as well.
    let certain: Option<ImageDigest> = store.certain_name().and_then(|name| name.parse().ok());
    let wanted = wanted.or(certain);
    if wanted.is_some() || purpose == (Purpose::Disk { digests_decide: true }) {
        store.digests_decide();
    } else if purpose == Purpose::Serve {
        refuse_unnamed(image, address, || name_in(start.as_ref()?))?;
    }
    let version = store.version().clone();
    // What is remembered of an address spares it the request that would bring the header of a pack.
    let folder = folder.filter(|_| !start.as_ref().is_some_and(|start| is_pack(start)));
    let name = if store.is_unchanged() { remembered.as_ref().and_then(Remembered::name) } else { None };
    let opened = {
        let (address, is_named, version) = (address.clone(), wanted.is_some(), version.clone());
        let noted = remembered.as_ref().is_some_and(|known| known.is_certain || certain.is_none());
        move |found: ImageDigest| {
            if !is_named && purpose == Purpose::Serve {
                log::warn!(
                    "nothing proves which image {address} is; to get this image and no other, add #{found} to the address"
                );
            }
            if let Some(folder) = folder.as_ref().filter(|_| name != Some(found) || !noted) {
                folder.remember(&address, &version, found, certain == Some(found));
            }
        }
    };
    let on_medium = OnMedium {
        counters: store.counters(),
        retries: store.retries(),
        image: OpenOptions {
            name: wanted.or(name),
            cache,
            opened: Some(Arc::new(opened)),
            ..OpenOptions::default()
        },
        store: Arc::new(store),
    };
    Ok(Opened { on_medium, version, start })
}

/// What finds the file, and what makes the requests for it.
type Reached = (Box<dyn Locate>, Arc<dyn Transport>);

/// How the file at an address is read, with what another process has brought of it.
fn reached(
    address: &Address,
    client: &Arc<HttpClient>,
    opening: Option<&OpeningPipe>,
) -> Result<Reached, HttpError> {
    if let (Address::Registry(address), Some(opening)) = (address, opening.and_then(OpeningPipe::take)) {
        match opening.of(address, client, keyring().logins) {
            Ok((image, transport)) => {
                let locate: Box<dyn Locate> = Box::new(image);
                return Ok((locate, transport));
            }
            Err(error) => log::warn!("{address}: what was brought of it is of no use: {error}"),
        }
    }
    let transport: Arc<dyn Transport> = Arc::<HttpClient>::clone(client);
    Ok((address.locate(client, &keyring())?, transport))
}

fn is_pack(start: &[u8]) -> bool {
    FileKind::of(start) == FileKind::Pack
}

/// Fails where root's programs, or the kernel, would be given whatever a server sends. `found` is what that
/// is now.
fn refuse_unnamed(
    image: &ImageSource,
    address: &Address,
    found: impl FnOnce() -> Option<ImageDigest>,
) -> anyhow::Result<()> {
    if !image.remote.refuses_unnamed {
        return Ok(());
    }
    let name = match found() {
        Some(name) => format!("the image that is there now is {address}#{name}"),
        None => "`headstart verify` prints its name".to_owned(),
    };
    bail!(
        "nothing proves which image {address} is, and root takes no image from the network that has no name: {name}; \
         add the name if you have it from its publisher, #key=KEY of a publisher who signs, or say --insecure"
    )
}

/// The name of the image, or of the pack, that begins so.
fn name_in(start: &[u8]) -> Option<ImageDigest> {
    let at = if is_pack(start) { PACK_HEADER_BYTES } else { 0 };
    let superblock = start.get(at..)?.get(..SUPERBLOCK_BYTES)?;
    Some(Superblock::decode(Unverified::new(superblock)).ok()?.image_digest())
}

/// The length of the image, or of the pack, that begins so, as it says itself.
fn image_bytes(first: &[u8]) -> Option<u64> {
    let first = first.first_chunk::<SUPERBLOCK_BYTES>()?;
    if is_pack(first) {
        return Some(PackHeader::decode(Unverified::new(first)).ok()?.pack_bytes());
    }
    Some(Superblock::decode(Unverified::new(first)).ok()?.image_bytes)
}

/// What the cache holds of the image at an address, or of the image that is wanted.
fn offline(
    address: &Address,
    wanted: Option<ImageDigest>,
    cache: Option<Arc<DiskCache>>,
    remembered: Option<&Remembered>,
) -> anyhow::Result<OnMedium> {
    let Some(cache) = cache else { bail!("--offline needs the cache on disk, and there is none") };
    let name = wanted.or_else(|| remembered.and_then(Remembered::name)).with_context(|| {
        format!("--offline: the cache does not know {address}: open it once with the network")
    })?;
    let first = cache.get(&name.0, SUPERBLOCK_BYTES as u64);
    let superblock = first.and_then(|first| Superblock::decode(Unverified::new(&first)).ok());
    let Some(superblock) = superblock.filter(|superblock| superblock.image_digest() == name) else {
        bail!("--offline: the cache does not have {name}: open it once with the network")
    };
    let store = Count::new(Offline::new(address.to_string(), superblock.image_bytes));
    Ok(OnMedium {
        counters: store.counters(),
        retries: Arc::<RetryCounters>::default(),
        image: OpenOptions { name: Some(name), cache: Some(cache), ..OpenOptions::default() },
        store: Arc::new(store) as Arc<dyn Store>,
    })
}
