//! Images of containers: their layers, one on the other, are a tree; their configuration says how it starts.
//!
//! Every blob is checked against its digest, and each unpacked layer against the one that the configuration
//! has of it. A layer is applied while it comes; what came of it is dropped when its digest turns out wrong.

mod blobs;
mod documents;
mod fault;
mod resolved;

use std::path::Path;
use std::sync::Arc;

use blobs::{ArchivedFiles, Files, FolderFiles, LayoutBlobs, Passing, Sha256, read_document};
pub use blobs::{Blob, Blobs};
pub use documents::Platform;
use documents::{
    Descriptor, ImageConfig, Index, MOST_DOCUMENT_BYTES, Manifest, SavedImage, choose_saved, parse,
};
pub use fault::{ContainerFault, Known};
use hs_ext4::Time;
pub use resolved::{ResolvedImage, chain_ids};

use super::archive::{Stamps, Unpacked};
use super::archive_bytes::{ArchiveBytes, Packing, peek};
use super::assembly::{Status, file_type};
use super::contents::{Contents, FileStamp};
use super::entries::{EntryTree, NewBody};
use super::tar::TarReading;
use super::{SourceError, SourceOptions, SourceProgress};
use crate::StartConfig;
use crate::start_config::START_CONFIG_PATH;

/// Lists of images in one another.
const MOST_NESTED: u32 = 4;

/// An image of which the layers are known.
struct Image {
    config: ImageConfig,
    layers: Vec<Layer>,
}

/// A layer by its digest, or by its path where `docker save` wrote it.
enum Layer {
    Blob(Descriptor),
    File(String),
}

/// What an image is read from.
pub(super) enum From<'a> {
    /// A layout or what `docker save` wrote.
    Files(&'a mut dyn Files, Form),
    /// Blobs, and the manifest that leads to them, which may be a list.
    Blobs(&'a mut dyn Blobs, &'a [u8]),
}

/// Which documents lead to an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Layout,
    Saved,
}

/// What is said of an image beside where it lies.
pub(super) struct Chosen<'a> {
    /// The name of the image, where there are several.
    pub(super) name: Option<&'a str>,
    /// How the image is called in messages.
    pub(super) shown: &'a Path,
    pub(super) options: &'a SourceOptions,
    pub(super) progress: &'a dyn Fn(SourceProgress),
}

/// What an archive is an image of, if it is one.
pub(super) fn form_of(tree: &EntryTree) -> Option<Form> {
    let has = |name: &[u8]| {
        let found = tree.find(name).ok().flatten();
        found.is_some_and(|entry| tree.content(entry).is_some())
    };
    if has(b"oci-layout") && has(b"index.json") {
        return Some(Form::Layout);
    }
    // A root with a file of this name has directories beside it that are no layers.
    let is_saved = has(b"manifest.json")
        && !tree
            .names(super::entries::EntryId::ROOT)
            .any(|(name, _)| [&b"usr"[..], b"etc", b"bin", b"sbin"].contains(&name));
    is_saved.then_some(Form::Saved)
}

/// What a folder is an image of, if it is one.
pub(super) fn is_layout(folder: &Path) -> bool {
    folder.join("oci-layout").is_file() && folder.join("index.json").is_file()
}

/// The tree of an image in a folder.
pub(super) fn of_folder(folder: &Path, chosen: &Chosen<'_>) -> Result<Unpacked, SourceError> {
    let mut files = FolderFiles { path: folder.to_owned() };
    unpack(From::Files(&mut files, Form::Layout), chosen)
}

/// The tree of an image in an archive.
pub(super) fn of_archive(
    archive: &Unpacked,
    form: Form,
    chosen: &Chosen<'_>,
) -> Result<Unpacked, SourceError> {
    let mut files = ArchivedFiles { tree: &archive.tree, contents: &archive.contents };
    unpack(From::Files(&mut files, form), chosen)
}

/// The tree of an image.
pub(super) fn unpack(from: From<'_>, chosen: &Chosen<'_>) -> Result<Unpacked, SourceError> {
    let failed = |fault| container_error(chosen.shown, fault);
    let mut layers = Layers {
        tree: EntryTree::new(),
        contents: Contents::new(&chosen.options.kept_in()),
        stamps: Vec::new(),
        chosen,
    };
    let (config, applied) = match from {
        From::Files(files, Form::Saved) => {
            let image = saved_image(files, chosen).map_err(failed)?;
            let applied = layers.apply(&image, &mut LayersFrom::Files(files));
            (image.config, applied)
        }
        From::Files(files, Form::Layout) => {
            let index = document_file(files, "index.json").map_err(failed)?;
            let blobs = &mut LayoutBlobs(files);
            let image = image_of(blobs, &index, chosen).map_err(failed)?;
            let applied = layers.apply(&image, &mut LayersFrom::Blobs(blobs));
            (image.config, applied)
        }
        From::Blobs(blobs, manifest) => {
            let image = image_of(blobs, manifest, chosen).map_err(failed)?;
            let applied = layers.apply(&image, &mut LayersFrom::Blobs(blobs));
            (image.config, applied)
        }
    };
    applied.map_err(|fault| match fault {
        ContainerFault::Layer(error) => *error,
        fault => failed(fault),
    })?;
    layers.finish(config)
}

/// It is none.
pub(super) fn no_image(path: &Path) -> SourceError {
    container_error(path, ContainerFault::NoImage)
}

/// An error of a container's image.
fn container_error(path: &Path, fault: ContainerFault) -> SourceError {
    SourceError::Container { path: path.to_owned(), fault: Box::new(fault) }
}

/// The image that a manifest leads to, which may be a list of images.
fn image_of(blobs: &mut dyn Blobs, document: &[u8], chosen: &Chosen<'_>) -> Result<Image, ContainerFault> {
    let found = FoundImage::find(blobs, document, chosen.name, chosen.options.platform.as_ref())?;
    let layers = found.layers.into_iter().map(Layer::Blob).collect();
    Image { config: found.config, layers }.checked(chosen)
}

/// An image that a manifest led to, and what it was found by.
struct FoundImage {
    /// The manifest, as it is stored.
    document: Vec<u8>,
    /// Its type, as the list or itself says.
    media_type: String,
    /// The platform that the list says.
    platform: Option<Platform>,
    config: ImageConfig,
    layers: Vec<Descriptor>,
}

impl FoundImage {
    /// The image of this name and platform; without one, that of this machine.
    fn find(
        blobs: &mut dyn Blobs,
        document: &[u8],
        mut name: Option<&str>,
        wanted: Option<&Platform>,
    ) -> Result<Self, ContainerFault> {
        let machine = Platform::of_machine();
        let wanted = wanted.unwrap_or(&machine);
        let mut document = document.to_vec();
        let (mut listed_type, mut platform) = (None, None);
        for _ in 0..=MOST_NESTED {
            let manifest: Manifest = parse("manifest", &document)?;
            if let Some(manifests) = manifest.manifests {
                let index = Index { manifests };
                let next = index.choose(name.take(), wanted)?;
                document = read_blob(blobs.open_manifest(&next.digest, next.size)?, "manifest", next)?;
                (listed_type, platform) = (Some(next.media_type.clone()), next.platform.clone());
                continue;
            }
            let layers = manifest.layers.unwrap_or_default();
            let of_artifact =
                manifest.artifact_type.into_iter().chain(layers.iter().map(|layer| layer.media_type.clone()));
            if let Some(media_type) = of_artifact.into_iter().find(|media_type| !is_layer_type(media_type)) {
                return Err(ContainerFault::LayerType { media_type });
            }
            let Some(config) = manifest.config else { return Err(ContainerFault::NoImage) };
            let json = read_blob(blobs.open(&config.digest, config.size)?, "configuration", &config)?;
            let config: ImageConfig = parse("configuration", &json)?;
            let media_type = listed_type.or(manifest.media_type).unwrap_or_default();
            return Ok(Self { document, media_type, platform, config, layers });
        }
        Err(ContainerFault::Nested { most: MOST_NESTED })
    }
}

/// Whether it is a type of layers that can be read: of the Open Container Initiative, or of Docker.
fn is_layer_type(media_type: &str) -> bool {
    let is_tar = media_type.contains(".tar") || media_type.contains("rootfs");
    media_type.is_empty() || is_tar && !media_type.contains("encrypted")
}

fn saved_image(files: &mut dyn Files, chosen: &Chosen<'_>) -> Result<Image, ContainerFault> {
    let images: Vec<SavedImage> = parse("manifest.json", &document_file(files, "manifest.json")?)?;
    let SavedImage { config, layers, .. } = choose_saved(&images, chosen.name)?.clone();
    let mut blob = files.file(&config)?.ok_or_else(|| ContainerFault::Missing { name: config.clone() })?;
    let passing = Passing::new();
    let json = read_document("configuration", &mut passing.through(Box::new(&mut blob.stream)))?;
    if let Some(digest) = Sha256::of_name(&config) {
        passing.check(&config, &digest)?;
    }
    let config = parse("configuration", &json)?;
    Image { config, layers: layers.into_iter().map(Layer::File).collect() }.checked(chosen)
}

impl Image {
    fn checked(self, chosen: &Chosen<'_>) -> Result<Self, ContainerFault> {
        self.check_platform(chosen)?;
        self.check_layers()?;
        Ok(self)
    }

    /// Whether the configuration is one of these layers.
    fn check_layers(&self) -> Result<(), ContainerFault> {
        let digests = self.config.diff_ids().len();
        let layers = self.layers.len();
        if digests != layers
            && (digests > 0 || self.layers.iter().any(|layer| matches!(layer, Layer::File(_))))
        {
            return Err(ContainerFault::Layers { layers, digests });
        }
        Ok(())
    }

    fn check_system(&self) -> Result<(), ContainerFault> {
        match &*self.config.os {
            "" | "linux" => Ok(()),
            os => Err(ContainerFault::NotLinux { os: os.to_owned() }),
        }
    }

    /// Whether it is for Linux, and for the processor that was asked for.
    fn check_wanted(&self, wanted: Option<&Platform>) -> Result<(), ContainerFault> {
        self.check_system()?;
        match (self.platform(), wanted) {
            (Some(platform), Some(wanted)) if wanted.architecture != platform.architecture => {
                let known = vec![platform.to_string()].into();
                Err(ContainerFault::NoPlatform { wanted: wanted.to_string(), known })
            }
            _ => Ok(()),
        }
    }

    /// What the configuration says. Variants are often said in lists of images only.
    fn platform(&self) -> Option<Platform> {
        let architecture = self.config.architecture.clone();
        let is_said = !architecture.is_empty();
        is_said.then(|| Platform { os: "linux".to_owned(), architecture, variant: None })
    }

    fn check_platform(&self, chosen: &Chosen<'_>) -> Result<(), ContainerFault> {
        let wanted = chosen.options.platform.as_ref();
        self.check_wanted(wanted)?;
        let other = self.platform().filter(|platform| !platform.is_for(&Platform::of_machine()));
        if let (Some(platform), None) = (other, wanted) {
            log::warn!("{}: its programs are for {platform}, not for this machine", chosen.shown.display());
        }
        Ok(())
    }
}

fn document_file(files: &mut dyn Files, path: &'static str) -> Result<Vec<u8>, ContainerFault> {
    let mut file = files.file(path)?.ok_or(ContainerFault::NoImage)?;
    read_document(path, &mut file.stream)
}

/// A document that a descriptor leads to.
fn read_blob(blob: Blob<'_>, what: &'static str, descriptor: &Descriptor) -> Result<Vec<u8>, ContainerFault> {
    if descriptor.size > MOST_DOCUMENT_BYTES {
        let (bytes, most_bytes) = (descriptor.size, MOST_DOCUMENT_BYTES);
        return Err(ContainerFault::LargeDocument { what, bytes, most_bytes });
    }
    let passing = Passing::new();
    let json = read_document(what, &mut passing.through(blob.stream))?;
    check_blob(&passing, descriptor)?;
    Ok(json)
}

fn check_blob(passing: &Passing, descriptor: &Descriptor) -> Result<(), ContainerFault> {
    if passing.bytes() != descriptor.size {
        return Err(ContainerFault::Size { name: descriptor.digest.clone(), expected: descriptor.size });
    }
    passing.check(&descriptor.digest, &descriptor.digest)
}

/// Where layers come from.
enum LayersFrom<'a> {
    Blobs(&'a mut dyn Blobs),
    Files(&'a mut dyn Files),
}

impl LayersFrom<'_> {
    fn open(&mut self, layer: &Layer) -> Result<Blob<'_>, ContainerFault> {
        let missing = || ContainerFault::Missing { name: layer.name().to_owned() };
        match (self, layer) {
            (Self::Blobs(blobs), Layer::Blob(descriptor)) => blobs.open(&descriptor.digest, descriptor.size),
            (Self::Files(files), Layer::File(path)) => files.file(path)?.ok_or_else(missing),
            _ => Err(missing()),
        }
    }
}

impl Layer {
    fn name(&self) -> &str {
        match self {
            Self::Blob(descriptor) => &descriptor.digest,
            Self::File(path) => path,
        }
    }
}

/// Layers that are being applied.
struct Layers<'a> {
    tree: EntryTree,
    contents: Contents,
    stamps: Stamps,
    chosen: &'a Chosen<'a>,
}

impl Layers<'_> {
    fn apply(&mut self, image: &Image, from: &mut LayersFrom<'_>) -> Result<(), ContainerFault> {
        let mut left_bytes = self.chosen.options.unpack_limit_bytes;
        let layers = self.chosen.options.layers.unwrap_or(usize::MAX);
        for (number, layer) in image.layers.iter().enumerate().take(layers) {
            let diff_id = image.config.diff_ids().get(number);
            left_bytes -= self.apply_layer(layer, diff_id, from.open(layer)?, left_bytes)?;
        }
        Ok(())
    }

    /// Applies a layer that unpacks to at most so many bytes, and gives how many they are.
    fn apply_layer(
        &mut self,
        layer: &Layer,
        diff_id: Option<&String>,
        blob: Blob<'_>,
        most_bytes: u64,
    ) -> Result<u64, ContainerFault> {
        let name = layer.name();
        let failed = |error| ContainerFault::Read { name: name.to_owned(), error };
        let (stored, unpacked) = (Passing::new(), Passing::new());
        let stream = stored.through(blob.stream);
        let (start, stream) = peek(stream, Packing::NEEDED_BYTES).map_err(failed)?;
        let packing = Packing::of(&start);
        let stream = unpacked.through(packing.unpack(stream).map_err(failed)?);
        let place = blob.place.filter(|_| packing == Packing::Plain);
        let place = match place {
            Some((file, at)) => {
                self.stamps.push((FileStamp::of(&file).map_err(failed)?, Arc::clone(&file)));
                Some((self.contents.add_store(self.chosen.shown, file), at))
            }
            None => None,
        };
        self.tree.next_layer();
        let shown = self.chosen.shown.join(name);
        let mut reading = TarReading {
            tree: &mut self.tree,
            contents: &mut self.contents,
            is_layer: true,
            shown: &shown,
            progress: self.chosen.progress,
        };
        let read = reading.read(ArchiveBytes::Stream { stream, most_bytes, place });
        read.map_err(|error| ContainerFault::Layer(Box::new(error)))?;
        if let Layer::Blob(descriptor) = layer {
            check_blob(&stored, descriptor)?;
        }
        if let Some(diff_id) = diff_id {
            unpacked.check(name, diff_id)?;
        }
        Ok(unpacked.bytes())
    }

    fn finish(mut self, config: ImageConfig) -> Result<Unpacked, SourceError> {
        let chosen = self.chosen;
        let mut chain = chain_ids(config.diff_ids());
        chain.truncate(chosen.options.layers.unwrap_or(usize::MAX));
        let mut config = config.config.unwrap_or_default();
        // An image cannot say itself which one it is.
        config.chain_id.clear();
        if config != StartConfig::default() {
            config.chain_id = chain.pop().unwrap_or_default();
            let kept = keep_config(&mut self.tree, &mut self.contents, &config);
            kept.map_err(|error| {
                super::tar::archive_error(chosen.shown, Some(START_CONFIG_PATH.to_owned()), error)
            })?;
        }
        Ok(Unpacked { tree: self.tree, contents: self.contents, stamps: self.stamps })
    }
}

/// Puts the configuration into the tree.
fn keep_config(
    tree: &mut EntryTree,
    contents: &mut Contents,
    config: &StartConfig,
) -> Result<(), super::ArchiveFault> {
    let json = config.encode();
    let content = contents.keep_bytes(&json).map_err(super::ArchiveFault::Read)?;
    let status = |mode| Status { mode, uid: 0, gid: 0, bytes: 0, device: (0, 0), modified: Time::default() };
    let folder = Path::new(START_CONFIG_PATH).parent().and_then(Path::to_str).unwrap_or_default();
    // One that is there already may be a link.
    let put = |tree: &mut EntryTree, path: &str, mode, body: &NewBody<'_>| {
        tree.put(path.as_bytes(), &status(mode), Vec::new(), body)
    };
    put(tree, folder, file_type::DIRECTORY | 0o755, &NewBody::Directory)?;
    put(tree, START_CONFIG_PATH, file_type::REGULAR | 0o644, &NewBody::File(content))
}
