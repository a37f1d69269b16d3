//! The file that shows a snapshot, of which QEMU maps the beginning as the guest's memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use hs_disk::Watch;
use hs_fuse::{Abort, ServedImage};
use hs_guest::jail;
use hs_image::{BaseDisk, OpenOptions, UseBase};
use hs_serve::{FileAccess, Prefetching, ServeConfig, ServedDisk};
use hs_start::boot;
use hs_start::medium;
use hs_start::on_medium::OnMedium;
use hs_start::start;
use hs_start::summary::{FaultWaits, Summary};
use hs_units::to_usize;

use crate::description::Part;
use crate::faults::Faults;
use crate::resume::ResumeSpec;

/// QEMU opens the file for reading and writing, though it writes nothing to it.
const MEMORY_MODE: u32 = 0o600;
/// A part is read in pieces of this size; the state of devices usually is one.
const PIECE_BYTES: u64 = 1 << 20;
/// How far the kernel reads ahead where the whole snapshot is read first.
const WARM_READ_AHEAD_KIB: u32 = 1024;

/// A snapshot that is shown as a file.
pub(crate) struct ShownMemory {
    /// The file.
    pub(crate) file: PathBuf,
    /// For messages.
    pub(crate) name: String,
    served: Option<(ServedImage, OnMedium)>,
    faults: Arc<Faults>,
}

impl ShownMemory {
    /// Shows the image in `folder`. A file that is none is shown already: by `headstart mount`, or whole.
    pub(crate) fn open(
        spec: &ResumeSpec,
        on_medium: Option<OnMedium>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let name = spec.snapshot.display().to_string();
        let Some(on_medium) = on_medium else {
            let file = spec.snapshot.file().context("only a file can be shown already")?;
            let file = file.canonicalize().with_context(|| format!("open {name}"))?;
            return Ok(Self { file, name, served: None, faults: Faults::before(None) });
        };
        let mode = if spec.prefetches { Prefetching::Push } else { Prefetching::Off };
        let mut config = start::config(&spec.snapshot, mode, Some(spec.limits), &spec.medium)?;
        config.read.scattered = true;
        let owner = jail::user().id;
        let access = owner.map_or_else(FileAccess::default, |id| FileAccess::default().owned_by(id, id));
        // Without read-ahead, each page that is read is one that was touched.
        let read_ahead_kib = if spec.warm { WARM_READ_AHEAD_KIB } else { 0 };
        let config = ServeConfig {
            access: FileAccess { mode: MEMORY_MODE, ..access },
            disk_read_ahead_kib: read_ahead_kib,
            hot_disk_read_ahead_kib: read_ahead_kib,
            ..on_medium.config(&config)
        };
        // It is the disk of the guest, which the snapshot names.
        let image = OpenOptions { base: UseBase::Later, ..config.image };
        let config = ServeConfig { image, ..config };
        let faults = Faults::before(spec.watch.clone());
        let (store, watch) = (Arc::clone(&on_medium.store), Some(Arc::clone(&faults) as Arc<dyn Watch>));
        let served = ServedImage::start(store, folder, &config, watch)?;
        Ok(Self { file: folder.join("disk.img"), name, served: Some((served, on_medium)), faults })
    }

    /// Pages that the disk of the guest has too come from there.
    pub(crate) fn use_base(&self, disk: &Arc<ServedDisk>) -> anyhow::Result<()> {
        match &self.served {
            Some((served, _)) => Ok(served.disk().image().use_base(Arc::clone(disk) as Arc<dyn BaseDisk>)?),
            None => Ok(()),
        }
    }

    /// The medium of the image, unless the file is shown already.
    pub(crate) fn on_medium(spec: &ResumeSpec) -> anyhow::Result<Option<OnMedium>> {
        if boot::is_image(&spec.snapshot)? {
            return Ok(Some(medium::open(spec.snapshot.clone(), &spec.medium, &spec.damage)?));
        }
        if spec.watch.is_some() {
            bail!("{} is shown already: a resume is recorded from the image itself", spec.snapshot.display());
        }
        Ok(None)
    }

    /// The bytes of the whole snapshot.
    pub(crate) fn bytes(&self) -> anyhow::Result<u64> {
        Ok(match &self.served {
            Some((served, _)) => served.disk().image().disk_bytes(),
            None => std::fs::metadata(&self.file).with_context(|| format!("open {}", self.name))?.len(),
        })
    }

    /// Fills `bytes` with what lies at `offset`.
    pub(crate) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        match &self.served {
            Some((served, _)) => served.disk().read_at(offset, bytes).map_err(std::io::Error::other),
            None => File::open(&self.file)?.read_exact_at(bytes, offset),
        }
    }

    /// Gives all bytes of a part, piece by piece.
    pub(crate) fn read_part(
        &self,
        part: Part,
        mut each: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut piece = vec![0; to_usize(part.bytes.min(PIECE_BYTES))];
        let mut at = 0;
        while at < part.bytes {
            let piece = &mut piece[..to_usize((part.bytes - at).min(PIECE_BYTES))];
            self.read_at(part.offset + at, piece)?;
            each(piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// The image and its medium, where this process serves it.
    pub(crate) fn served(&self) -> Option<(&ServedImage, &OnMedium)> {
        self.served.as_ref().map(|(served, on_medium)| (served, on_medium))
    }

    /// Waits until the recorded pages are there, or for so long. A guest that runs meanwhile is not sooner
    /// ready: its clock goes on, timers wake programs whose pages were not recorded, and these are fetched
    /// before those that the guest needs (docs/decisions/054-snapshots-are-images.md).
    pub(crate) fn wait_prefetched(&self, patience: Duration) {
        let Some((served, _)) = self.served() else { return };
        let (sender, ended) = std::sync::mpsc::channel();
        let disk = Arc::clone(served.disk());
        let waiting = std::thread::Builder::new().name("hs-prefetched".to_owned()).spawn(move || {
            disk.wait_prefetch();
            let _ = sender.send(());
        });
        if waiting.is_ok() {
            let _ = ended.recv_timeout(patience);
        }
    }

    /// The means to fail requests that wait for the file.
    pub(crate) fn abort(&self) -> Option<Arc<Abort>> {
        self.served()?.0.session().abort()
    }

    /// The message about reads that could not be answered.
    pub(crate) fn lost(&self) -> Option<String> {
        let (served, on_medium) = self.served()?;
        on_medium.lost(served.disk()).or_else(|| on_medium.trouble())
    }

    /// What was read of it until now.
    pub(crate) fn fill(&self, summary: &mut Summary) {
        if let Some((served, on_medium)) = self.served() {
            summary.image_bytes = on_medium.store.len();
            start::fill_image(summary, served.disk());
            start::fill_deadlines(summary, served.disk());
            start::fill_tripwires(summary, served.disk());
        }
    }

    /// The guest goes on now.
    pub(crate) fn count_faults(&self) {
        self.faults.begin();
    }

    /// How long its faults have waited, where this process serves them.
    pub(crate) fn fault_waits(&self) -> Option<FaultWaits> {
        self.served.as_ref().map(|_| self.faults.waits())
    }

    /// It is no longer needed: reads that wait for it fail.
    pub(crate) fn close(&self) {
        if let Some((served, _)) = self.served() {
            served.disk().close();
        }
    }
}
