//! Packs: a hot region whose disk lies in another file, raw or qcow2, here or on a server.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use anyhow::{Context, bail};
use hs_build::source::StoredDisk;
use hs_device::Medium;
use hs_format::limits::PACK_HEADER_BYTES;
use hs_format::{BackingFile, BaseKind, PackHeader, PackTrust, Sample, chunk_digest};
use hs_image::{Decompressor, Image, ImageError, OpenDisk, OpenOptions, PackStore};
use hs_store::{Counters, FileStore, Snapshot, Store, StoreError};
use hs_units::{ByteRange, Digest, to_usize};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::image::ImageSource;
use crate::location::{ImageLocation, ImagePlace};
use crate::medium::{self, Damage};
use crate::on_medium::OnMedium;
use crate::remote::{self, Opened, Purpose};

/// Windows of the disk that are compared when it is opened.
const COMPARED_WINDOWS: u64 = 3;

/// A raw disk or a qcow2 file with the files behind it, as they are.
pub struct DiskFiles {
    /// The disk in them.
    pub disk: StoredDisk,
    /// The file that was named, and those behind it in their order.
    pub files: Vec<DiskFile>,
}

/// A file of a disk.
pub struct DiskFile {
    /// Its name without a folder; empty where that is not known.
    pub name: String,
    /// Its bytes.
    pub store: Arc<dyn Store>,
    /// When it was modified, in nanoseconds since 1970, or a mark of what a server says of that; 0 if it is
    /// not known.
    pub modified_ns: u64,
    /// Of a file on a server, when it was modified, as far as the server says: in seconds since 1970.
    modified_s: Option<u64>,
    counters: Arc<Counters>,
}

impl DiskFile {
    /// Whether a pack knows it by this time, or mark of one. A server tells seconds of the time that the file
    /// had where it was packed.
    fn has_time(&self, modified_ns: u64) -> bool {
        self.modified_ns == modified_ns || self.modified_s == Some(modified_ns / 1_000_000_000)
    }
}

/// Opens a raw disk or a qcow2 file, wherever it lies.
///
/// # Errors
/// When it is none, or cannot be opened.
pub fn open_disk(disk: &ImageSource) -> anyhow::Result<DiskFiles> {
    open_on(disk, &Medium::None, PackTrust::Sampled)
}

/// The same on a medium. Where all windows have digests, these alone say whether a file on a server is the
/// right one.
fn open_on(disk: &ImageSource, medium: &Medium, trust: PackTrust) -> anyhow::Result<DiskFiles> {
    let mut files = vec![open_file(disk, medium, trust)?];
    let top = Arc::clone(&files[0].store);
    let stored = StoredDisk::open(top, &mut |name| {
        let failed = |error: anyhow::Error| std::io::Error::other(format!("{error:#}"));
        let beside = beside(disk, name).map_err(failed)?;
        let file = open_file(&beside, medium, trust).map_err(failed)?;
        let store = Arc::clone(&file.store);
        files.push(file);
        Ok(store)
    })?;
    Ok(DiskFiles { disk: stored, files })
}

fn open_file(disk: &ImageSource, medium: &Medium, trust: PackTrust) -> anyhow::Result<DiskFile> {
    let name = disk.image.file_name().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let (on_medium, modified_ns, modified_s) = match &disk.image.place {
        ImagePlace::File(path) => {
            let metadata = std::fs::metadata(path).with_context(|| format!("open {}", path.display()))?;
            let modified = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
            let modified = if metadata.is_file() { u64::try_from(modified).unwrap_or(0) } else { 0 };
            (medium::open_file(path, medium, &Damage::default())?, modified, None)
        }
        ImagePlace::Remote(address) => {
            let purpose = Purpose::Disk { digests_decide: trust == PackTrust::Whole };
            let opened = remote::open(disk, address, purpose)?;
            let mark = |text: &String| {
                let [a, b, c, d, e, f, g, h, ..] = chunk_digest(text.as_bytes()).0;
                u64::from_le_bytes([a, b, c, d, e, f, g, h])
            };
            let version = opened.version;
            let modified = version.modified().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let modified_s = modified.map(|since| since.as_secs());
            (opened.on_medium, version.last_modified.as_ref().map_or(0, mark), modified_s)
        }
    };
    let OnMedium { store, counters, .. } = on_medium;
    Ok(DiskFile { name, store, modified_ns, modified_s, counters })
}

/// The file of this name in the folder of a disk, whose owner may be a stranger: on this machine no link
/// leads out of the folder, and no device is opened.
fn beside(disk: &ImageSource, name: &str) -> anyhow::Result<ImageSource> {
    match &disk.image.place {
        ImagePlace::File(path) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = File::open(folder.unwrap_or(Path::new(".")))?;
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            let found: File = rustix::fs::openat2(folder, name, flags, Mode::empty(), how)?.into();
            if !found.metadata()?.is_file() {
                bail!("it is no regular file");
            }
            Ok(disk.elsewhere(path.with_file_name(name).as_path().into()))
        }
        ImagePlace::Remote(address) => {
            let address = address.with_path(|path| in_folder_of(path, name));
            let place = ImagePlace::Remote(address.context("it has no address beside the disk")?);
            Ok(disk.elsewhere(ImageLocation { place, trust: None }))
        }
    }
}

/// The path of the file `name` beside the one at `path` of a server.
fn in_folder_of(path: &str, name: &str) -> String {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{folder}/{name}")
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
            let place = ImagePlace::Remote(address.with_path(|path| in_folder_of(path, &header.name))?);
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
    // Only a disk that was not read is known by its files.
    let backing = match header.trust {
        PackTrust::Sampled => PackStore::backing_in(plain.as_ref().unwrap_or(&on_medium.store), &header)?,
        PackTrust::Whole => Vec::new(),
    };
    let opening = Arc::new(Opening {
        pack: pack.display().to_string(),
        plain,
        header: header.clone(),
        backing,
        disk,
        medium: *medium,
        counters: OnceLock::new(),
        opened: Mutex::default(),
    });
    // What is wrong with a file of this machine is said at once. A server takes its time: a start whose
    // blocks are all packed does not wait for it. A disk that was not read must be looked at before all.
    if header.trust == PackTrust::Sampled || opening.disk.file().is_some() {
        opening.open_checked()?;
    } else {
        let opening = Arc::clone(&opening);
        std::thread::Builder::new().name("hs-pack-disk".to_owned()).spawn(move || {
            if let Err(error) = opening.open_checked() {
                log::error!("{error:#}");
            }
        })?;
    }
    let is_sampled = header.trust == PackTrust::Sampled;
    let store = Arc::new(PackStore::new(on_medium.store, header, name, Box::new(Shared(opening))));
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
    backing: Vec<BackingFile>,
    disk: ImageSource,
    medium: Medium,
    /// Of the files of the disk, when they are open.
    counters: OnceLock<Vec<Arc<Counters>>>,
    opened: Mutex<Option<Arc<dyn Store>>>,
}

/// The disk for a store, which other threads open as well.
struct Shared(Arc<Opening>);

impl OpenDisk for Shared {
    fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        self.0.open_checked().map_err(|error| {
            let source = std::io::Error::other(format!("{error:#}"));
            StoreError::Open { path: self.0.disk.display().to_string(), source }
        })
    }

    fn counted(&self) -> Snapshot {
        let all = self.0.counters.get().into_iter().flatten().map(|counters| counters.snapshot());
        all.fold(Snapshot::default(), |sum, each| sum.and(&each))
    }
}

impl Opening {
    fn open_checked(&self) -> anyhow::Result<Arc<dyn Store>> {
        let mut opened = self.opened.lock();
        if let Some(disk) = &*opened {
            return Ok(Arc::clone(disk));
        }
        let (disk, trust) = (&self.disk, self.header.trust);
        let open = |medium| {
            open_on(disk, medium, trust).with_context(|| {
                format!(
                    "{}: its disk cannot be opened (put it beside the pack, or name it by --base)",
                    self.pack
                )
            })
        };
        let found = open(&self.medium)?;
        let _ = self.counters.set(found.files.iter().map(|file| Arc::clone(&file.counters)).collect());
        self.check_size(&found.disk)?;
        // The time of an emulated medium is not spent on it.
        let plain = match self.medium {
            Medium::None => Arc::clone(found.disk.disk()),
            _ => Arc::clone(open(&Medium::None)?.disk.disk()),
        };
        match trust {
            PackTrust::Whole => self.check_windows(&plain)?,
            PackTrust::Sampled => self.check_files(&found)?,
        }
        Ok(Arc::clone(opened.insert(Arc::clone(found.disk.disk()))))
    }

    fn differs(&self, what: &str) -> anyhow::Error {
        anyhow::anyhow!(
            "{} is not the disk that {} is for, or has changed since: {what}; `headstart pack` makes a new pack",
            self.disk.display(),
            self.pack
        )
    }

    fn check_size(&self, disk: &StoredDisk) -> anyhow::Result<()> {
        let (expected, found) = (self.header.disk_bytes, disk.exact_bytes());
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
        let pack = PackStore::new(Arc::clone(plain), self.header.clone(), name, Box::new(disk));
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

    /// That each file is the one that was packed, by its kind, length, time and samples.
    fn check_files(&self, found: &DiskFiles) -> anyhow::Result<()> {
        let PackHeader { kind, file_bytes, modified_ns, samples, .. } = &self.header;
        let (kinds, files) = (found.disk.kinds(), &found.files);
        if files.len() != self.backing.len() + 1 {
            let (behind, packed) = (files.len() - 1, self.backing.len());
            return Err(self.differs(&format!("{behind} files lie behind it, where {packed} did")));
        }
        let first = Known { kind: *kind, bytes: *file_bytes, modified_ns: *modified_ns, samples };
        let others = self.backing.iter().map(|file| Known {
            kind: file.kind,
            bytes: file.file_bytes,
            modified_ns: file.modified_ns,
            samples: &file.samples,
        });
        for (known, (kind, file)) in std::iter::once(first).chain(others).zip(kinds.iter().zip(files)) {
            if let Some(what) = known.difference(*kind, file)? {
                return Err(self.differs(&format!("{}: {what}", file.store.name())));
            }
        }
        Ok(())
    }
}

/// What a pack knows of a file that was not read.
struct Known<'a> {
    kind: BaseKind,
    bytes: u64,
    modified_ns: u64,
    samples: &'a [Sample],
}

impl Known<'_> {
    /// Why `file` is another one; nothing where it is not.
    fn difference(&self, kind: BaseKind, file: &DiskFile) -> anyhow::Result<Option<String>> {
        let found = file.store.len();
        if kind != self.kind || found != self.bytes {
            let of = |kind| if kind == BaseKind::Raw { "a raw disk" } else { "a qcow2 file" };
            let (kind, expected) = (of(kind), of(self.kind));
            return Ok(Some(format!("{kind} of {found} bytes, not {expected} of {}", self.bytes)));
        }
        if !file.has_time(self.modified_ns) {
            return Ok(Some("it was modified since, or copied without its time".to_owned()));
        }
        for sample in self.samples {
            let mut bytes = vec![0; to_usize(sample.range.len)];
            file.store.read_at(sample.range.offset, &mut bytes)?;
            let digest: Digest = chunk_digest(&bytes);
            if digest != sample.digest {
                return Ok(Some(format!("bytes {} of the file are others", sample.range)));
            }
        }
        Ok(None)
    }
}
