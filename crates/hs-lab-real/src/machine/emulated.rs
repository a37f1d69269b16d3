//! A file on an emulated medium, in a mount namespace of this process.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hs_device::Medium;
use hs_serve::ServedFile;
use hs_serve::fuse::FileAccess;
use hs_service::workdir::Workdir;
use hs_start::medium::{self, Damage};

/// A sparse file whose bytes come as from a medium. Nothing of it is left behind.
pub(super) struct Emulated {
    path: PathBuf,
    /// Dropped before the folder that it is mounted in.
    _served: ServedFile,
    _workdir: Workdir,
}

impl Emulated {
    /// A file of `bytes` on `medium`. Only after `super::prepare`.
    pub(super) fn new(medium: &str, bytes: u64) -> anyhow::Result<Self> {
        let workdir = Workdir::new(&[])?;
        let (file, folder) = (workdir.folder("backing")?.join("medium"), workdir.folder("shown")?);
        File::create(&file)
            .and_then(|file| file.set_len(bytes))
            .with_context(|| format!("create {}", file.display()))?;
        let on_medium = medium::open(&file, &Medium::parse(medium)?, &Damage::default())?;
        let served = ServedFile::start(on_medium.store, &folder, "medium", FileAccess::default())?;
        Ok(Self { path: folder.join("medium"), _served: served, _workdir: workdir })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
