//! Packs: a hot region whose disk lies in another file, raw or qcow2, here or on a server.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use hs_build::source::StoredDisk;
use hs_device::Medium;
use hs_format::limits::PACK_HEADER_BYTES;
use hs_format::{BaseKind, PackHeader, PackTrust, chunk_digest};
use hs_image::{Decompressor, Image, ImageError, OpenDisk, OpenOptions, PackStore};
use hs_store::{FileStore, Store, StoreError};
use hs_units::{ByteRange, Digest, to_usize};
use parking_lot::Mutex;

use crate::image::ImageSource;
use crate::location::{ImageLocation, ImagePlace};
use crate::medium::{self, Damage};
use crate::on_medium::OnMedium;
use crate::remote::{self, Opened, Purpose};

/// Windows of the disk that are compared when it is opened.
const COMPARED_WINDOWS: u64 = 3;

/// A raw disk or a qcow2 file, as it is.
pub struct DiskFile {
    /// The disk in it.
    pub disk: StoredDisk,
    /// The file.
    pub file: Arc<dyn Store>,
    /// When it was modified, in nanoseconds since 1970, or a mark of what a server says of that; 0 if it is
    /// not known.
    pub modified_ns: u64,
}

/// Opens a raw disk or a qcow2 file, wherever it lies.
///
/// # Errors
/// When it is none, or cannot be opened.
pub fn open_disk(disk: &ImageSource) -> anyhow::Result<DiskFile> {
    open_on(disk, &Medium::None, PackTrust::Sampled)
}

/// The same on a medium. Where all windows have digests, these alone say whether a file on a server is the
/// right one.
fn open_on(disk: &ImageSource, medium: &Medium, trust: PackTrust) -> anyhow::Result<DiskFile> {
    let (file, modified_ns): (Arc<dyn Store>, u64) = match &disk.image.place {
        ImagePlace::File(path) => {
            let metadata = std::fs::metadata(path).with_context(|| format!("open {}", path.display()))?;
            let modified = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
            let modified = if metadata.is_file() { u64::try_from(modified).unwrap_or(0) } else { 0 };
            (medium::open_file(path, medium, &Damage::default())?.store, modified)
        }
        ImagePlace::Remote(address) => {
            let purpose = Purpose::Disk { digests_decide: trust == PackTrust::Whole };
            let opened = remote::open(disk, address, purpose)?;
            let mark = |text: &String| {
                let [a, b, c, d, e, f, g, h, ..] = chunk_digest(text.as_bytes()).0;
                u64::from_le_bytes([a, b, c, d, e, f, g, h])
            };
            (opened.on_medium.store, opened.version.last_modified.as_ref().map_or(0, mark))
        }
    };
    let disk = StoredDisk::open(Arc::clone(&file))?;
    Ok(DiskFile { disk, file, modified_ns })
}

/// The header of the pack in a file; none where it is something else, or cannot be read: who opens it says
/// so.
pub fn header_in_file(path: &Path) -> Option<PackHeader> {
    PackStore::header_in(&FileStore::open(path).ok()?).ok()?
}

/// The disk that a pack in a file names, beside it.
pub(crate) fn disk_beside(pack: &ImageSource) -> Option<ImageSource> {
    let path = pack.file()?;
    let header = header_in_file(path)?;
    let beside = path.with_file_name(&header.name);
    (!header.name.is_empty()).then(|| pack.elsewhere(beside.as_path().into()))
}

/// Where the disk of a pack lies: as it was said, or beside the pack.
fn disk_of(pack: &ImageSource, header: &PackHeader) -> anyhow::Result<ImageSource> {
    let beside = || match &pack.image.place {
        ImagePlace::Remote(address) if !header.name.is_empty() => {
            let in_folder = |path: &str| {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{folder}/{}", header.name)
            };
            let place = ImagePlace::Remote(address.with_path(in_folder)?);
            Some(pack.elsewhere(ImageLocation { place, trust: None }))
        }
        _ => None,
    };
    let found = pack.base().or_else(beside);
    found.with_context(|| {
        format!("{}: this is a pack: give the disk that it is for by --base", pack.display())
    })
}

/// What lies in the file at `path` on a medium, or, where that is a pack, the image that the pack makes with
/// its disk.
pub(crate) fn resolved(
    on_medium: OnMedium,
    path: &Path,
    pack: &ImageSource,
    medium: &Medium,
) -> anyhow::Result<OnMedium> {
    // Without the medium's time, and without being counted: each file is looked at.
    let plain = FileStore::open(path)?;
    let header = match PackStore::header_in(&plain) {
        // An image has a second superblock: what cannot be read is for its reader to say.
        Err(ImageError::Store(_)) => None,
        header => header?,
    };
    match header {
        Some(header) => with_disk(on_medium, Some(Arc::new(plain)), header, pack, medium),
        None => Ok(on_medium),
    }
}

/// The same of what lies at an address.
pub(crate) fn resolved_remote(opened: Opened, pack: &ImageSource) -> anyhow::Result<OnMedium> {
    let Opened { on_medium, start, .. } = opened;
    let store = Arc::clone(&on_medium.store);
    let Some(header) = start.map(|start| PackStore::header_of(&start, &*store)).transpose()?.flatten() else {
        return Ok(on_medium);
    };
    // It has come already: the image goes on with the same response behind it.
    store.read_at(0, &mut [0; PACK_HEADER_BYTES])?;
    with_disk(on_medium, None, header, pack, &Medium::None)
}

/// `plain` is the pack where a look into it costs nothing: in a file.
fn with_disk(
    on_medium: OnMedium,
    plain: Option<Arc<dyn Store>>,
    header: PackHeader,
    pack: &ImageSource,
    medium: &Medium,
) -> anyhow::Result<OnMedium> {
    let disk = disk_of(pack, &header)?;
    if header.trust == PackTrust::Sampled && disk.remote.refuses_unnamed && disk.file().is_none() {
        bail!(
            "{}: nothing proves what a server sends of {}, which was not read when it was packed, and root takes \
             nothing from the network that is not proven: pack it without --sampled, or say --insecure",
            pack.display(),
            disk.display()
        );
    }
    let name = disk.display().to_string();
    let opening = Arc::new(Opening {
        pack: pack.display().to_string(),
        plain,
        header: header.clone(),
        disk,
        medium: *medium,
        opened: Mutex::default(),
    });
    // What is wrong with a file of this machine is said at once. A server takes its time: a start whose
    // blocks are all packed does not wait for it. A disk that was not read must be looked at before all.
    if header.trust == PackTrust::Sampled || opening.disk.file().is_some() {
        opening.open()?;
    } else {
        let opening = Arc::clone(&opening);
        std::thread::Builder::new().name("hs-pack-disk".to_owned()).spawn(move || {
            if let Err(error) = opening.open() {
                log::error!("{error:#}");
            }
        })?;
    }
    let open: OpenDisk = Box::new(move || {
        opening.open().map_err(|error| {
            let source = std::io::Error::other(format!("{error:#}"));
            StoreError::Open { path: opening.disk.display().to_string(), source }
        })
    });
    let is_sampled = header.trust == PackTrust::Sampled;
    let store = Arc::new(PackStore::new(on_medium.store, header, name, open));
    let image = OpenOptions {
        pack: Some(Arc::clone(&store)),
        // Windows without digests have no names in a cache.
        cache: on_medium.image.cache.filter(|_| !is_sampled),
        ..on_medium.image
    };
    Ok(OnMedium { store, image, ..on_medium })
}

/// The disk of a pack, which is opened once.
struct Opening {
    pack: String,
    plain: Option<Arc<dyn Store>>,
    header: PackHeader,
    disk: ImageSource,
    medium: Medium,
    opened: Mutex<Option<Arc<dyn Store>>>,
}

impl Opening {
    fn open(&self) -> anyhow::Result<Arc<dyn Store>> {
        let mut opened = self.opened.lock();
        if let Some(disk) = &*opened {
            return Ok(Arc::clone(disk));
        }
        let (disk, trust) = (&self.disk, self.header.trust);
        let open = |medium| {
            open_on(disk, medium, trust).with_context(|| format!("{}: its disk cannot be opened", self.pack))
        };
        let file = open(&self.medium)?;
        self.check_size(&file)?;
        // The time of an emulated medium is not spent on it.
        let plain = match self.medium {
            Medium::None => Arc::clone(file.disk.disk()),
            _ => Arc::clone(open(&Medium::None)?.disk.disk()),
        };
        match trust {
            PackTrust::Whole => self.check_windows(&plain)?,
            PackTrust::Sampled => self.check_samples(&file)?,
        }
        Ok(Arc::clone(opened.insert(Arc::clone(file.disk.disk()))))
    }

    fn differs(&self, what: &str) -> anyhow::Error {
        anyhow::anyhow!(
            "{} is not the disk that {} is for, or has changed since: {what}; `headstart pack` makes a new pack",
            self.disk.display(),
            self.pack
        )
    }

    fn check_size(&self, file: &DiskFile) -> anyhow::Result<()> {
        let (expected, found) = (self.header.disk_bytes, file.disk.exact_bytes());
        if found.next_multiple_of(hs_units::BLOCK_BYTES) == expected {
            return Ok(());
        }
        Err(self.differs(&format!("it has {found} bytes, where {expected} were packed")))
    }

    /// A few windows tell whether it is another disk. Each window is verified when it is read, so this is
    /// left out where the pack lies on a server and would be asked for them.
    fn check_windows(&self, disk: &Arc<dyn Store>) -> anyhow::Result<()> {
        let Some(plain) = &self.plain else { return Ok(()) };
        let (name, disk) = (self.disk.display().to_string(), Arc::clone(disk));
        let pack = PackStore::new(
            Arc::clone(plain),
            self.header.clone(),
            name,
            Box::new(move || Ok(Arc::clone(&disk))),
        );
        let pack = Arc::new(pack);
        let options = OpenOptions { pack: Some(Arc::clone(&pack)), ..OpenOptions::default() };
        let image = Image::open_as(Arc::clone(&pack) as Arc<dyn Store>, &options)?;
        let (runs, chunk_bytes) = (pack.runs()?, self.header.chunk_bytes);
        let mut tools = Decompressor::new();
        for number in 0..COMPARED_WINDOWS.min(chunk_bytes) {
            let at = (chunk_bytes - 1) / (COMPARED_WINDOWS - 1) * number;
            for place in runs.on_disk(ByteRange::new(at, 1)) {
                let window = place.offset / image.window_bytes();
                match image.load_window(window, &mut tools) {
                    Ok(_) => {}
                    Err(ImageError::ChangedDisk { .. }) => {
                        return Err(self.differs(&format!("window {window} is another")));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn check_samples(&self, found: &DiskFile) -> anyhow::Result<()> {
        let PackHeader { kind, file_bytes, modified_ns, samples, .. } = &self.header;
        if found.disk.kind() != *kind || found.file.len() != *file_bytes {
            let of = |kind| if kind == BaseKind::Raw { "a raw disk" } else { "a qcow2 file" };
            let (expected, kind) = (of(*kind), of(found.disk.kind()));
            let bytes = found.file.len();
            return Err(self.differs(&format!("{kind} of {bytes} bytes, not {expected} of {file_bytes}")));
        }
        if found.modified_ns != *modified_ns {
            return Err(self.differs("it was modified since, or copied without its time"));
        }
        for sample in samples {
            let mut bytes = vec![0; to_usize(sample.range.len)];
            found.file.read_at(sample.range.offset, &mut bytes)?;
            let digest: Digest = chunk_digest(&bytes);
            if digest != sample.digest {
                return Err(self.differs(&format!("bytes {} of the file are others", sample.range)));
            }
        }
        Ok(())
    }
}
