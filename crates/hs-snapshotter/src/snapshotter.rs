//! What containerd asks for: snapshots, their folders, and the trees below them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use hs_service::keeper::Keeper;
use hs_service::notify::Manager;
use hs_start::remote::CacheFolder;
use parking_lot::Mutex;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::artifact::{Finder, container_of};
use crate::filter::Filter;
use crate::messages::Mount;
use crate::mounts::{self, Mounts};
use crate::overlay::{self, Layer};
use crate::program;
use crate::records::Folder;
use crate::snapshots::{
    Asked, Content, Kind, Labels, Lower, REFERENCE, Refusal, Snapshot, Snapshots, Stack, Usage,
};
use crate::table::Table;
use crate::unmounting::Unmounting;
use crate::waiting::{Call, Over};

/// How long a call waits for what it has unmounted: containerd's garbage collector waits for the call, and
/// all pulls and starts for that.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(5);

/// Why a call fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// By containerd's rules.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An image that snapshots need cannot be mounted.
    #[error("{0:#}")]
    Unavailable(anyhow::Error),
    /// The machine does not let it: a full disk, say.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

/// The snapshots of one folder.
pub struct Snapshotter {
    folder: Folder,
    /// As the file has them.
    snapshots: Mutex<Snapshots>,
    mounts: Mounts,
    finder: Finder,
    unmounting: Unmounting,
}

impl Snapshotter {
    /// Takes the folder `root` over, and clears away what a snapshotter that died has begun. `flags` are
    /// further flags of `headstart mount`; `manager` keeps descriptors, and has kept those of `keepers`.
    ///
    /// # Errors
    /// When another snapshotter uses the folder, or its files cannot be read.
    pub fn open(
        root: &Path,
        flags: Vec<OsString>,
        manager: Arc<Manager>,
        keepers: BTreeMap<String, Keeper>,
    ) -> anyhow::Result<Arc<Self>> {
        if !rustix::process::geteuid().is_root() {
            bail!("a snapshotter mounts, which needs root: run with sudo");
        }
        let check = |folder: &Path| match overlay::can_be_an_option(folder) {
            true => Ok(()),
            false => {
                bail!("{}: overlayfs takes no folder with one of , : \\ \" in its path", folder.display())
            }
        };
        check(&std::path::absolute(root).with_context(|| format!("find {}", root.display()))?)?;
        let folder = Folder::lock(root)?;
        check(folder.path())?;
        let finder = Finder::new(Table::of(folder.path()), CacheFolder::of(program::disk_cache_of(&flags)));
        let snapshotter = Arc::new(Self {
            snapshots: Mutex::new(folder.load()?),
            mounts: Mounts::new(folder.path().join("images"), flags, manager),
            finder,
            folder,
            unmounting: Unmounting::default(),
        });
        // What has lost its server gets one again before anything looks at it.
        let images: Vec<String> =
            snapshotter.snapshots.lock().images().into_iter().map(str::to_owned).collect();
        snapshotter.mounts.go_on(keepers, &images);
        snapshotter.cleanup()?;
        Ok(snapshotter)
    }

    /// Makes an active snapshot or a view, and gives what is mounted for it. For a layer of an image that is
    /// mounted lazily, makes a committed snapshot instead, and refuses with [`Refusal::AlreadyExists`]: so
    /// containerd knows that it need not fetch the layer.
    ///
    /// # Errors
    /// See [`Snapshots::prepare`]; and when the image below cannot be mounted, or nothing be written.
    pub fn prepare(
        self: &Arc<Self>,
        kind: Kind,
        key: &str,
        parent: Option<&str>,
        labels: &Labels,
        call: &Call,
    ) -> Result<Vec<Mount>, CallError> {
        let asked = Asked { name: key, labels, now_ns: now_ns() };
        if let (Kind::Active, Some(reference)) = (kind, labels.get(REFERENCE)) {
            self.adopt_layer(reference, parent, &asked, call)?;
        }
        self.complete_below(parent, call)?;
        // The lock of an image goes when a snapshot uses it, so that it is not unmounted before.
        let image = self.snapshots.lock().image_below(parent);
        let lock = image.as_deref().map(|image| self.mounts.lock_of(&Mounts::key(image)));
        let held = lock.as_ref().map(|lock| lock.lock());
        if let (Some(image), Some(locked)) = (&image, &held)
            && let Err(error) = self.mounts.mount(image, locked, call, || None)
        {
            drop(held);
            self.replace(image, error, call)?;
            return self.prepare(kind, key, parent, labels, call);
        }
        let mut snapshots = self.snapshots.lock();
        let mut changed = snapshots.clone();
        let stack = changed.prepare(kind, parent, &asked)?;
        let lower = self.folders(&stack);
        let layer = Layer::at(self.folder.snapshot(stack.id));
        let path = self.folder.snapshot(stack.id);
        // What a snapshotter that died has begun under this number.
        remove(&path)?;
        let made = layer.make(stack.is_writable, lower.first().map(PathBuf::as_path));
        let made = made.with_context(|| format!("make {}", path.display()));
        if let Err(error) = made.and_then(|()| self.folder.store(&changed)) {
            remove(&path)?;
            return Err(error.into());
        }
        *snapshots = changed;
        Ok(layer.mounts(stack.is_writable, &lower))
    }

    /// Refuses with [`Refusal::AlreadyExists`] when the layer is there now, without files of its own.
    fn adopt_layer(
        self: &Arc<Self>,
        reference: &str,
        parent: Option<&str>,
        asked: &Asked<'_>,
        call: &Call,
    ) -> Result<(), CallError> {
        let exists = || CallError::from(Refusal::AlreadyExists(reference.to_owned()));
        {
            let snapshots = self.snapshots.lock();
            if let Some(parent) = parent {
                snapshots.get(parent)?;
            }
            if snapshots.of_layers(reference, parent).is_some() {
                return Err(exists());
            }
        }
        let found = self.content_of(asked.labels, reference, call);
        let adopted = found.and_then(|found| {
            found.map(|content| self.adopt(content, reference, parent, asked, call)).transpose()
        });
        match adopted {
            Ok(Some(())) => Err(exists()),
            Ok(None) => Ok(()),
            Err(error) => match error.downcast_ref() {
                Some(Over::Cancelled) => Err(CallError::Unavailable(error)),
                // It was said of the layer before.
                Some(Over::Before(_)) => Ok(()),
                _ => {
                    log::warn!("layer {reference} is unpacked as any other: {error:#}");
                    Ok(())
                }
            },
        }
    }

    /// What the layer becomes. An image that a label names is mounted meanwhile: while the processes for it
    /// start, its registry is asked whose it is and for what opens it.
    fn content_of(
        self: &Arc<Self>,
        labels: &Labels,
        reference: &str,
        call: &Call,
    ) -> anyhow::Result<Option<Content>> {
        let find = || self.finder.content_of(labels, reference, call);
        let Some(image) = self.finder.named(labels) else { return find() };
        let (part, held) = call.part()?;
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).context("make a pipe")?;
        let key = Mounts::key(&image);
        let lock = self.mounts.lock_of(&key);
        std::thread::scope(|scope| {
            let mounting = scope.spawn(|| self.mounts.mount(&image, &lock.lock(), &part, || Some(reader)));
            let found = find();
            let is_it = matches!(&found, Ok(Some(content)) if content.image() == Some(image.as_str()));
            if is_it {
                self.finder.bring(&image, writer);
            } else {
                drop((held, writer));
            }
            let mounted = mounting.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a mount has failed")));
            match mounted {
                Err(error) if is_it => {
                    self.mounts.note_failure(&image, &error);
                    return Err(error);
                }
                Ok(_) if !is_it => self.unmount_unused(&key),
                _ => {}
            }
            found
        })
    }

    /// Where the files of a parent are in the tree of a whole image alone, builds an image of the parent's
    /// layers: another image of containers has these layers, too.
    fn complete_below(self: &Arc<Self>, parent: Option<&str>, call: &Call) -> Result<(), CallError> {
        let found = self
            .snapshots
            .lock()
            .without_files(parent)
            .map(|(name, snapshot)| (name.to_owned(), snapshot.id, snapshot.content.clone()));
        let Some((name, id, Content::Below { container, layers, .. })) = found else { return Ok(()) };
        let path = self.folder.built(id);
        let image = path.to_string_lossy().into_owned();
        let lock = self.mounts.lock_of(&Mounts::key(&image));
        let held = lock.lock();
        if self.snapshots.lock().without_files(parent).is_none() {
            return Ok(());
        }
        log::info!("{layers} layers of {container} are built, since another image has them too");
        let completed = mounts::build(&container, layers, &path, call)
            .and_then(|()| self.mounts.mount(&image, &held, call, || None).map(drop))
            .map_err(|error| CallError::Unavailable(error.context(format!("build the layers of {name}"))))
            .and_then(|()| self.change(|snapshots| snapshots.complete(&name, &image)));
        drop(held);
        completed.inspect_err(|_| self.unmount_unused(&Mounts::key(&image)))
    }

    /// Mounts an image, and makes the snapshot of a layer of it.
    fn adopt(
        self: &Arc<Self>,
        content: Content,
        reference: &str,
        parent: Option<&str>,
        asked: &Asked<'_>,
        call: &Call,
    ) -> anyhow::Result<()> {
        let Some(image) = content.image().map(str::to_owned) else { return Ok(()) };
        let lock = self.mounts.lock_of(&Mounts::key(&image));
        let held = lock.lock();
        // Already for the lowest layer: where the image cannot be had, all layers are unpacked.
        let opening = || self.finder.opening_of(&image);
        let mounted = self.mounts.mount(&image, &held, call, opening);
        let mounted = mounted.inspect_err(|error| self.mounts.note_failure(&image, error));
        let adopted = mounted.and_then(|_| {
            self.change(|snapshots| {
                // Another call may have been faster.
                if snapshots.of_layers(reference, parent).is_none() {
                    let name = snapshots.free_name(reference);
                    snapshots.adopt(content, parent, &Asked { name: &name, ..*asked })?;
                }
                Ok(())
            })
            .map_err(anyhow::Error::from)
        });
        drop(held);
        adopted.inspect_err(|_| self.unmount_unused(&Mounts::key(&image)))
    }

    /// What is mounted for an active snapshot or a view.
    ///
    /// # Errors
    /// When there is none, or the image below it cannot be mounted.
    pub fn mounts(&self, key: &str, call: &Call) -> Result<Vec<Mount>, CallError> {
        let stack = self.snapshots.lock().stack(key)?;
        for lower in &stack.lower {
            let Lower::Tree(image) = lower else { continue };
            let lock = self.mounts.lock_of(&Mounts::key(image));
            let mounted = self.mounts.mount(image, &lock.lock(), call, || None);
            if let Err(error) = mounted {
                self.replace(image, error, call)?;
                return self.mounts(key, call);
            }
        }
        let layer = Layer::at(self.folder.snapshot(stack.id));
        Ok(layer.mounts(stack.is_writable, &self.folders(&stack)))
    }

    /// An image cannot be mounted. Where its registry has removed it, and has another conversion with the
    /// same disk, that takes its place.
    fn replace(&self, image: &str, error: anyhow::Error, call: &Call) -> Result<(), CallError> {
        let container = container_of(self.snapshots.lock().of_image(image));
        let Some(container) = container.filter(|_| error.downcast_ref::<Over>().is_none()) else {
            return Err(CallError::Unavailable(error));
        };
        match self.finder.successor(image, container, call) {
            Ok(Some(next)) => {
                log::warn!(
                    "{image} is in its registry no longer: {next}, which has the same disk, takes its place"
                );
                self.change(|snapshots| {
                    snapshots.replace_image(image, &next);
                    Ok(())
                })
            }
            Ok(None) => Err(CallError::Unavailable(error)),
            Err(why) => Err(CallError::Unavailable(anyhow::anyhow!("{error:#}; {why:#}"))),
        }
    }

    /// The folders below a snapshot, the nearest first.
    fn folders(&self, stack: &Stack) -> Vec<PathBuf> {
        let folder = |lower: &Lower| match lower {
            Lower::Files(id) => Layer::at(self.folder.snapshot(*id)).files(),
            Lower::Tree(image) => self.mounts.tree(image),
        };
        stack.lower.iter().map(folder).collect()
    }

    /// Makes an active snapshot a committed one.
    ///
    /// # Errors
    /// See [`Snapshots::commit`].
    pub fn commit(&self, name: &str, key: &str, labels: &Labels) -> Result<(), CallError> {
        let usage = self.usage(key)?;
        let asked = Asked { name, labels, now_ns: now_ns() };
        self.change(|snapshots| snapshots.commit(key, usage, &asked))
    }

    /// Removes a snapshot and its files, and unmounts an image that no other one uses. What takes long or
    /// fails goes on after the call.
    ///
    /// # Errors
    /// When there is none, or it is a parent.
    pub fn remove(self: &Arc<Self>, key: &str) -> Result<(), CallError> {
        let removed = self.change_by(|snapshots| snapshots.remove(key), Folder::store_removal)?;
        // The snapshot is gone; what stays behind is removed by the next Cleanup.
        if removed.content == Content::Files
            && let Err(error) = remove(&self.folder.snapshot(removed.id))
        {
            log::warn!("{error:#}");
        }
        self.folder.make_reserve();
        if let Some(image) = removed.content.image() {
            self.unmount_unused(&Mounts::key(image));
        }
        Ok(())
    }

    /// Whether there are any snapshots.
    #[must_use]
    pub fn has_snapshots(&self) -> bool {
        self.snapshots.lock().all().next().is_some()
    }

    /// A snapshot.
    ///
    /// # Errors
    /// When there is none.
    pub fn stat(&self, key: &str) -> Result<Snapshot, CallError> {
        Ok(self.snapshots.lock().get(key)?.clone())
    }

    /// Changes labels.
    ///
    /// # Errors
    /// See [`Snapshots::update`].
    pub fn update(&self, name: &str, labels: &Labels, paths: &[String]) -> Result<Snapshot, CallError> {
        let asked = Asked { name, labels, now_ns: now_ns() };
        self.change(|snapshots| snapshots.update(paths, &asked).cloned())
    }

    /// The snapshots that match any of the filters; all without filters.
    ///
    /// # Errors
    /// When one of them is no filter.
    pub fn list(&self, filters: &[String]) -> Result<Vec<(String, Snapshot)>, CallError> {
        let parsed: Result<Vec<Filter>, String> = filters.iter().map(|text| Filter::parse(text)).collect();
        let parsed = parsed.map_err(Refusal::InvalidArgument)?;
        let snapshots = self.snapshots.lock();
        let is_wanted = |(name, snapshot): &(&str, &Snapshot)| {
            parsed.is_empty() || parsed.iter().any(|filter| filter.matches(name, snapshot))
        };
        let wanted = snapshots.all().filter(is_wanted);
        Ok(wanted.map(|(name, snapshot)| (name.to_owned(), snapshot.clone())).collect())
    }

    /// What a snapshot's own files take.
    ///
    /// # Errors
    /// When there is none, or its files cannot be looked at.
    pub fn usage(&self, key: &str) -> Result<Usage, CallError> {
        let snapshot = self.stat(key)?;
        if snapshot.kind != Kind::Active {
            return Ok(snapshot.usage);
        }
        let files = Layer::at(self.folder.snapshot(snapshot.id)).files();
        let usage = overlay::usage(&files).with_context(|| format!("look at {}", files.display()));
        Ok(usage?)
    }

    /// Removes what no snapshot has: folders, and mounted images.
    ///
    /// # Errors
    /// When the folders cannot be listed.
    pub fn cleanup(self: &Arc<Self>) -> anyhow::Result<()> {
        let unused = {
            // A folder and its snapshot are made under this lock.
            let snapshots = self.snapshots.lock();
            let known: BTreeSet<String> = snapshots.folders().iter().map(u64::to_string).collect();
            let folder = self.folder.snapshots();
            let entries = fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
            let is_unknown =
                |entry: &fs::DirEntry| !entry.file_name().to_str().is_some_and(|name| known.contains(name));
            entries.flatten().filter(is_unknown).map(|entry| entry.path()).collect::<Vec<_>>()
        };
        for path in unused {
            remove(&path)?;
        }
        let built = self.folder.all_built();
        let built = built.iter().map(|path| Mounts::key(&path.to_string_lossy()));
        let mut keys: BTreeSet<String> = self.mounts.keys()?.into_iter().chain(built).collect();
        keys.retain(|key| !self.is_used(key));
        keys.iter().for_each(|key| self.begin_to_unmount(key));
        let end = Instant::now() + UNMOUNT_PATIENCE;
        for key in &keys {
            self.unmounting.wait(key, end);
        }
        Ok(())
    }

    fn is_used(&self, key: &str) -> bool {
        self.snapshots.lock().images().iter().any(|image| Mounts::key(image) == key)
    }

    /// Unmounts an image unless a snapshot uses it. No lock of an image may be held.
    fn unmount_unused(self: &Arc<Self>, key: &str) {
        self.begin_to_unmount(key);
        self.unmounting.wait(key, Instant::now() + UNMOUNT_PATIENCE);
    }

    fn begin_to_unmount(self: &Arc<Self>, key: &str) {
        let (snapshotter, name) = (Arc::clone(self), key.to_owned());
        self.unmounting.begin(key, move || snapshotter.try_to_unmount(&name));
    }

    fn try_to_unmount(&self, key: &str) -> anyhow::Result<()> {
        let lock = self.mounts.lock_of(key);
        let held = lock.lock();
        if self.is_used(key) {
            return Ok(());
        }
        self.mounts.unmount(key, &held)?;
        // One that was built here.
        let is_it = |path: &PathBuf| Mounts::key(&path.to_string_lossy()) == key;
        self.folder
            .all_built()
            .iter()
            .filter(|path| is_it(path))
            .try_for_each(|path| fs::remove_file(path).with_context(|| format!("remove {}", path.display())))
    }

    /// Changes the snapshots in the file, then in memory; neither where one fails.
    fn change<T>(&self, change: impl FnOnce(&mut Snapshots) -> Result<T, Refusal>) -> Result<T, CallError> {
        self.change_by(change, Folder::store)
    }

    /// The same, written in this way.
    fn change_by<T>(
        &self,
        change: impl FnOnce(&mut Snapshots) -> Result<T, Refusal>,
        store: impl FnOnce(&Folder, &Snapshots) -> anyhow::Result<()>,
    ) -> Result<T, CallError> {
        let mut snapshots = self.snapshots.lock();
        let mut changed = snapshots.clone();
        let result = change(&mut changed)?;
        if changed != *snapshots {
            store(&self.folder, &changed)?;
            *snapshots = changed;
        }
        Ok(result)
    }
}

/// Removes a folder with everything in it, if it is there.
fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
