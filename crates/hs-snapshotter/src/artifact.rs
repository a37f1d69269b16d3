//! Which image is mounted for a layer: what its labels lead to, and what the table says.
//!
//! In this order:
//!
//! 1. [`CONTAINERD_ANNOTATION`], an annotation of the layer, which each client of containerd passes on.
//! 2. What refers to the container's image in its registry, by the labels of CRI and nerdctl.
//! 3. The [`Table`].
//!
//! What 1 and 2 find says which container's image it was made from, by digest, and of which layers; the layer
//! that is asked for must be one of these.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_build::source::chain_ids;
use hs_remote::Sha256;
use hs_remote::http::{HttpClient, HttpError, Timeouts};
use hs_remote::registry::{
    CHAIN_ANNOTATION, CONTAINERD_ANNOTATION, LAYERS_ANNOTATION, Reference, RegistryAddress, Repository,
    SOURCE_ANNOTATION,
};
use hs_start::container::{ContainerImage, converted};
use hs_start::image::{ImageSource, RemoteOptions};
use hs_start::open::open_image;
use hs_start::opening_pipe;
use hs_start::remote::CacheFolder;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Deserialize;

use crate::snapshots::{Content, Labels, Snapshot};
use crate::table::{Entry, Table};
use crate::waiting::{Call, Over};

/// The labels with which CRI and nerdctl name a container's image.
const CRI_REFERENCE: &str = "containerd.io/snapshot/cri.image-ref";
const CRI_DIGEST: &str = "containerd.io/snapshot/cri.manifest-digest";
/// How long registries may take to say what there is for a container's image. A pull waits meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it is remembered what was found, that there is nothing, or that it took too long: for the pull of
/// all layers.
const LASTS: Duration = Duration::from_secs(20);
/// The most container's images that are remembered.
const MOST_KNOWN: usize = 1024;

/// The most bytes of a manifest that is remembered.
const MOST_MANIFEST_BYTES: usize = 64 << 10;

/// What was found for a container's image, and when.
struct Known {
    /// `None` where it took too long.
    found: Option<Option<FoundImage>>,
    at: Instant,
}

/// What is mounted for a container's image.
#[derive(Clone)]
struct FoundImage {
    entry: Entry,
    /// Where it lies, and its manifest, unless that is long.
    manifest: Option<(Arc<Repository>, Arc<[u8]>)>,
}

impl FoundImage {
    fn new(entry: Entry, repository: Repository, manifest: &[u8]) -> Self {
        let is_short = manifest.len() <= MOST_MANIFEST_BYTES;
        Self { entry, manifest: is_short.then(|| (Arc::new(repository), manifest.into())) }
    }
}

/// Finds images for layers.
pub struct Finder {
    table: Table,
    known: Arc<Mutex<HashMap<String, Known>>>,
    /// Where the servers of images keep what they fetch.
    cache: Option<CacheFolder>,
    /// Its connections are used again.
    client: Mutex<Option<Arc<HttpClient>>>,
}

impl Finder {
    /// One that also looks in `table`, for servers with this cache.
    #[must_use]
    pub fn new(table: Table, cache: Option<CacheFolder>) -> Self {
        Self { table, known: Arc::default(), cache, client: Mutex::default() }
    }

    /// What the layer with the chain ID `reference` becomes, if an image is mounted for it.
    ///
    /// # Errors
    /// When none is found, and one of the ways to one failed or took too long.
    pub fn content_of(
        &self,
        labels: &Labels,
        reference: &str,
        call: &Call,
    ) -> anyhow::Result<Option<Content>> {
        let (annotation, cri) =
            (labels.get(CONTAINERD_ANNOTATION), labels.get(CRI_REFERENCE).zip(labels.get(CRI_DIGEST)));
        let mut failed = None;
        let by_annotation = annotation.map(|word| {
            let name = word.clone();
            self.remember(word, call, move |client| of_annotation(&name, &client))
        });
        let by_cri = cri.map(|(image, digest)| {
            let (word, image, digest) = (format!("{image} {digest}"), image.clone(), digest.clone());
            self.remember(&word, call, move |client| of_container(&by_digest(&image, &digest)?, client))
        });
        for found in [by_annotation, by_cri].into_iter().flatten() {
            match found {
                Ok(None) => {}
                Ok(Some(entry)) => match in_chain(&entry, reference) {
                    Some(content) => return Ok(Some(content)),
                    None => {
                        let text = format!("{} is not of the image with layer {reference}", entry.artifact);
                        failed = failed.or(Some(anyhow::anyhow!(text)));
                    }
                },
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match (in_table(&self.table, reference)?, failed) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }

    /// The image that a label names for the layers, when nothing is known of it yet: it may be mounted while
    /// its registry is asked whose it is.
    pub(crate) fn named(&self, labels: &Labels) -> Option<String> {
        let word = labels.get(CONTAINERD_ANNOTATION)?;
        let is_known = self.known.lock().get(word).is_some_and(|known| known.at.elapsed() < LASTS);
        let address = address_of(word).ok().filter(|_| !is_known)?;
        matches!(address.reference(), Reference::Digest(_)).then(|| address.to_string())
    }

    /// Begins to bring what opens this image, where it was found in a registry a moment ago. What is returned
    /// is for the process that mounts it.
    pub(crate) fn opening_of(&self, image: &str) -> Option<OwnedFd> {
        self.manifest_of(image)?;
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).ok()?;
        self.bring(image, writer);
        Some(reader)
    }

    /// Begins to bring what opens this image. Where it was not found, or this fails, the other end of the
    /// pipe sees that nothing comes.
    pub(crate) fn bring(&self, image: &str, to: OwnedFd) {
        let Some((repository, manifest)) = self.manifest_of(image) else { return };
        let mut events = [PollFd::new(&to, PollFlags::empty())];
        let polled = poll(&mut events, Some(&Timespec::default()));
        if polled.is_ok() && events[0].revents().contains(PollFlags::ERR) {
            // It is mounted already.
            return;
        }
        let (thread, cache) = (std::thread::Builder::new().name("opening".to_owned()), self.cache.clone());
        let bring = move || opening_pipe::bring(&repository, &manifest, cache.as_ref(), to);
        if let Err(error) = thread.spawn(bring) {
            log::warn!("{image}: its server asks for all of it by itself: {error}");
        }
    }

    /// Where this image lies, and its manifest, when it was found a moment ago.
    fn manifest_of(&self, image: &str) -> Option<(Arc<Repository>, Arc<[u8]>)> {
        let known = self.known.lock();
        let fresh = known.values().filter(|known| known.at.elapsed() < LASTS);
        let mut found = fresh.filter_map(|known| known.found.as_ref()?.as_ref());
        found.find(|found| found.entry.artifact == image)?.manifest.clone()
    }

    fn remember(
        &self,
        word: &str,
        call: &Call,
        find: impl FnOnce(Arc<HttpClient>) -> anyhow::Result<Option<FoundImage>> + Send + 'static,
    ) -> anyhow::Result<Option<Entry>> {
        if let Some(known) = self.known.lock().get(word)
            && known.at.elapsed() < LASTS
        {
            let found = known.found.clone().ok_or_else(|| Over::Before(word.to_owned()))?;
            return Ok(found.map(|found| found.entry));
        }
        let client = self.client()?;
        let (name, known) = (word.to_owned(), Arc::clone(&self.known));
        let what = format!("the registry of {}", word.split(' ').next().unwrap_or_default());
        let found = call.apart(&what, PATIENCE, move || {
            let found = find(client)?;
            let entry = found.as_ref().map(|found| found.entry.clone());
            // Also when it has come too late for this call.
            put(&known, name, Some(found));
            Ok(entry)
        });
        match found {
            Ok(found) => found,
            Err(error) => {
                if matches!(error.downcast_ref(), Some(Over::Late { .. })) {
                    put(&self.known, word.to_owned(), None);
                }
                Err(error)
            }
        }
    }

    /// This image could not be mounted: the next pull asks for what there is now.
    pub(crate) fn forget(&self, image: &str) {
        let is_it = |known: &Known| {
            let found = known.found.as_ref().and_then(Option::as_ref);
            found.is_some_and(|found| found.entry.artifact == image)
        };
        self.known.lock().retain(|_, known| !is_it(known));
    }

    /// What takes the place of an image that its registry has removed: the last conversion of the container's
    /// image, if it has the same disk. `None` where the image was not removed.
    ///
    /// # Errors
    /// When there is none, or its disk cannot be compared.
    pub(crate) fn successor(
        &self,
        image: &str,
        container: RegistryAddress,
        call: &Call,
    ) -> anyhow::Result<Option<String>> {
        let address = RegistryAddress::parse(image).ok();
        let address = address.filter(|address| matches!(address.reference(), Reference::Digest(_)));
        let Some(address) = address else { return Ok(None) };
        let (client, cache) = (self.client()?, self.cache.clone());
        self.forget(image);
        call.apart(&format!("the registry of {image}"), PATIENCE, move || {
            successor(&address, &container, client, cache.as_ref())
        })?
    }

    fn client(&self) -> Result<Arc<HttpClient>, HttpError> {
        let mut client = self.client.lock();
        if client.is_none() {
            // The call's own end comes first, and is remembered.
            let patience = 2 * PATIENCE;
            *client = Some(HttpClient::new(Timeouts { connect: patience, stall: patience })?);
        }
        Ok(client.as_ref().map(Arc::clone).expect("it was made"))
    }
}

fn put(known: &Mutex<HashMap<String, Known>>, word: String, found: Option<Option<FoundImage>>) {
    let mut known = known.lock();
    if known.len() >= MOST_KNOWN {
        known.clear();
    }
    known.insert(word, Known { found, at: Instant::now() });
}

/// The image that a label names, and the container's image that its manifest names.
fn of_annotation(word: &str, client: &Arc<HttpClient>) -> anyhow::Result<Option<FoundImage>> {
    #[derive(Deserialize)]
    struct Manifest {
        #[serde(default)]
        annotations: BTreeMap<String, String>,
    }
    let address = address_of(word)?;
    if !matches!(address.reference(), Reference::Digest(_)) {
        bail!("{word:?} in the label {CONTAINERD_ANNOTATION} has no digest: HOST/NAME@sha256:… is expected");
    }
    let logins = hs_start::remote::keyring().logins;
    let repository = Repository::new(address.clone(), Arc::clone(client), logins);
    let bytes = repository.manifest()?;
    let manifest: Manifest =
        serde_json::from_slice(&bytes).with_context(|| format!("{address}: its manifest"))?;
    let entry = of_annotations(&address, &manifest.annotations)?;
    Ok(Some(FoundImage::new(entry, repository, &bytes)))
}

/// The image that refers to a container's image, whose address is by digest.
fn of_container(address: &RegistryAddress, client: Arc<HttpClient>) -> anyhow::Result<Option<FoundImage>> {
    let repository = Repository::new(address.clone(), client, hs_start::remote::keyring().logins);
    let Some((converted, bytes)) = converted(address, &repository)? else { return Ok(None) };
    let entry = of_annotations(&converted.address, &converted.manifest.annotations)?;
    Ok(Some(FoundImage::new(entry, repository, &bytes)))
}

/// The address, by digest, of the container's image that these snapshots are of, if one of them says it.
pub(crate) fn container_of<'a>(snapshots: impl Iterator<Item = &'a Snapshot>) -> Option<RegistryAddress> {
    let mut said = snapshots.filter_map(|snapshot| match &snapshot.content {
        Content::Below { container, .. } => RegistryAddress::parse(container).ok(),
        _ => by_digest(snapshot.labels.get(CRI_REFERENCE)?, snapshot.labels.get(CRI_DIGEST)?).ok(),
    });
    said.next()
}

fn by_digest(reference: &str, digest: &str) -> anyhow::Result<RegistryAddress> {
    Ok(address_of(repository_of(reference))?.at(digest)?)
}

/// See [`Finder::successor`].
fn successor(
    image: &RegistryAddress,
    container: &RegistryAddress,
    client: Arc<HttpClient>,
    cache: Option<&CacheFolder>,
) -> anyhow::Result<Option<String>> {
    let repository = Repository::new(image.clone(), Arc::clone(&client), hs_start::remote::keyring().logins);
    if !matches!(repository.manifest(), Err(HttpError::Refused { status: 404, .. })) {
        return Ok(None);
    }
    let found = of_container(container, client)?;
    let next = found.with_context(|| format!("{container} has no other conversion"))?.entry.artifact;
    let cache = cache.context("without a disk cache it is not known which disk it had")?;
    let disk_of = |image: &str, offline| -> anyhow::Result<String> {
        let disk_cache = Some(cache.path().to_owned());
        let remote = RemoteOptions { offline, disk_cache, ..RemoteOptions::default() };
        Ok(open_image(ImageSource::parse(OsStr::new(image), &remote)?)?.disk_digest().to_string())
    };
    let had = disk_of(&image.to_string(), true).context("the disk cache does not say which disk it had")?;
    let has = disk_of(&next, false)?;
    if had != has {
        bail!("the last conversion, {next}, has another disk ({has}, not {had})");
    }
    Ok(Some(next))
}

/// What is mounted for the container's image that the image at `address` was made of, as its manifest says.
fn of_annotations(address: &RegistryAddress, says: &BTreeMap<String, String>) -> anyhow::Result<Entry> {
    let said = |key| {
        let found = says.get(key);
        found.with_context(|| format!("{address} does not say which container's image it is of ({key})"))
    };
    let container = address.at(said(SOURCE_ANNOTATION)?)?;
    let entry = match says.get(LAYERS_ANNOTATION) {
        Some(layers) => {
            let layers: Vec<String> = layers.split(' ').map(str::to_owned).collect();
            entry_of(&container, address.to_string(), &layers)?
        }
        // It was made by an earlier version of this program.
        None => of_resolved(&container, address.to_string())?,
    };
    if entry.chain.last() != Some(said(CHAIN_ANNOTATION)?) {
        bail!("{address} is not of the container's image that it names");
    }
    Ok(entry)
}

/// What is mounted for the container's image at `container`, an address by digest.
///
/// # Errors
/// When the container's image cannot be had, or does not name its layers.
pub fn of_resolved(container: &RegistryAddress, artifact: String) -> anyhow::Result<Entry> {
    let resolved = ContainerImage::resolve(container.clone(), None)?;
    entry_of(&container.at(&resolved.image.digest)?, artifact, &resolved.image.diff_ids)
}

/// What is mounted for a container's image with these layers.
fn entry_of(container: &RegistryAddress, artifact: String, diff_ids: &[String]) -> anyhow::Result<Entry> {
    if diff_ids.is_empty() {
        bail!("{container}: its configuration does not name its layers");
    }
    if let Some(wrong) = diff_ids.iter().find(|digest| !is_chain_id(digest)) {
        bail!("{container}: {wrong:?} is no SHA-256 digest");
    }
    let container = container.to_string();
    Ok(Entry { reference: container.clone(), artifact, container, chain: chain_ids(diff_ids) })
}

/// The address of a name as containerd writes it: registries of this machine are without TLS.
fn address_of(name: &str) -> anyhow::Result<RegistryAddress> {
    if name.contains("://") {
        return Ok(RegistryAddress::parse(name)?);
    }
    let host = name.split('/').next().unwrap_or_default();
    let host_alone = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let is_here = host_alone == "localhost" || host_alone == "[::1]" || host_alone.starts_with("127.");
    let scheme = if is_here { "oci+http" } else { "oci" };
    Ok(RegistryAddress::parse(&format!("{scheme}://{name}"))?)
}

/// A name without its tag and digest.
fn repository_of(name: &str) -> &str {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}

/// What the table has for the layer with this chain ID. An image of which it is the topmost layer comes
/// before one of which it is another.
fn in_table(table: &Table, reference: &str) -> anyhow::Result<Option<Content>> {
    let mut found: Vec<Content> =
        table.entries()?.iter().rev().filter_map(|entry| in_chain(entry, reference)).collect();
    found.sort_by_key(|content| matches!(content, Content::Below { .. }));
    Ok(found.into_iter().next())
}

/// What the layer becomes, if it is one of the image's.
fn in_chain(entry: &Entry, reference: &str) -> Option<Content> {
    let layers = entry.chain.iter().position(|id| id == reference)? + 1;
    let image = entry.artifact.clone();
    Some(if layers == entry.chain.len() {
        Content::Tree(image)
    } else {
        Content::Below { image, container: entry.container.clone(), layers }
    })
}

/// Whether this is `sha256:` and 64 digits in lower case.
#[must_use]
pub fn is_chain_id(text: &str) -> bool {
    text.parse::<Sha256>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(digit: char) -> String {
        format!("sha256:{}", String::from(digit).repeat(64))
    }

    #[test]
    fn chains_are_those_of_the_specification() {
        // By `printf 'sha256:00… sha256:11…' | sha256sum`.
        let two = "sha256:f94b891e05f6e37c90d87edfd5bb98a02d618a437c35f3a94b3b00e48e894631";
        let address = address_of("h.example/a").expect("an address");
        let entry = |layers: &[String]| entry_of(&address, "a".to_owned(), layers);
        assert_eq!(entry(&[digest('0'), digest('1')]).expect("two").chain, [digest('0'), two.to_owned()]);
        assert!(entry(&["sha256:0".to_owned()]).is_err() && entry(&["md5:0".to_owned()]).is_err());
        assert!(entry(&[]).is_err() && !is_chain_id(&digest('A')));
    }

    #[test]
    fn the_topmost_layer_of_one_image_may_be_a_layer_of_another() {
        let place = tempfile::tempdir().expect("a folder");
        let table = Table::of(place.path());
        let put = |reference: &str, chain: &[char]| {
            let chain = chain.iter().map(|digit| digest(*digit)).collect();
            let (artifact, container) = (format!("/{reference}.hsi"), "oci://h/x".to_owned());
            table.put(Entry { reference: reference.to_owned(), artifact, container, chain }).expect("put");
        };
        put("base", &['0', '1']);
        put("app", &['0', '1', '2']);
        let found = |digit| in_table(&table, &digest(digit)).expect("read");
        let tree = |image: &str| Some(Content::Tree(image.to_owned()));
        assert_eq!((found('1'), found('2')), (tree("/base.hsi"), tree("/app.hsi")));
        let (image, container) = ("/app.hsi".to_owned(), "oci://h/x".to_owned());
        assert_eq!(found('0'), Some(Content::Below { image, container, layers: 1 }));
        assert_eq!(found('3'), None);
    }

    #[test]
    fn names_are_addresses_and_hostile_ones_are_none() {
        for (name, address) in [
            ("docker.io/library/a:1", "oci://docker.io/library/a"),
            ("127.0.0.1:5000/a/b:1", "oci+http://127.0.0.1:5000/a/b"),
            ("localhost/a", "oci+http://localhost/a"),
            ("h.example:5000/a@sha256:00", "oci://h.example:5000/a"),
        ] {
            let found = address_of(repository_of(name)).expect(name).to_string();
            assert_eq!(found, format!("{address}:latest"), "{name}");
        }
        for name in ["", "/etc/passwd", "h/../x", "file:///etc/passwd", "http://h/a", "h/a b", "me:pass@h/a"]
        {
            assert!(address_of(name).is_err(), "{name}");
        }
        let labels = |word: &str| Labels::from([(CONTAINERD_ANNOTATION.to_owned(), word.to_owned())]);
        let place = tempfile::tempdir().expect("a folder");
        let finder = Finder::new(Table::of(place.path()), None);
        for word in ["/etc/passwd", "../../x", "h.example/a:tag", "file:///a@sha256:00", ""] {
            let found = finder.content_of(&labels(word), &digest('0'), &Call::default());
            assert!(found.is_err(), "{word}");
        }
        assert!(finder.content_of(&Labels::new(), "../x", &Call::default()).expect("none").is_none());
    }
}
