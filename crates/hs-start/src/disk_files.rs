//! The files of a disk, as the kernel's own driver shows them: for a build that takes them as a tree.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_format::FileKind;
use hs_linux::fsmount::{FsMount, FsMountOptions};
use hs_linux::loopdev::{LoopDevice, LoopOptions};
use hs_linux::{Volume, rootenv};
use hs_service::workdir::Workdir;
use hs_volumes::Journal;

/// A file system that is mounted for this process alone. The fields are dropped in their order.
pub struct DiskFiles {
    mount: FsMount,
    _device: LoopDevice,
    _folder: Workdir,
}

impl DiskFiles {
    /// Mounts the file system of the raw disk at `disk`, or of the partition that is named. Nothing where
    /// `disk` is no raw disk. The `needed` paths stay where they are. The process must have no other thread.
    ///
    /// # Errors
    /// Without root; for a disk without a file system that Linux mounts, or with several; for a journal that
    /// holds changes.
    pub fn mount(disk: &Path, partition: Option<&str>, needed: &[PathBuf]) -> anyhow::Result<Option<Self>> {
        let read = || disk.display().to_string();
        let mut file = File::open(disk).with_context(read)?;
        let mut start = Vec::new();
        file.by_ref().take(FileKind::NEEDED_BYTES as u64).read_to_end(&mut start).with_context(read)?;
        if !FileKind::of(&start).is_disk() {
            return Ok(None);
        }
        let bytes = file.seek(SeekFrom::End(0)).with_context(read)?;
        let volume = Volume::find(disk, bytes, partition, |at, into| file.read_exact_at(into, at))?;
        if volume.journal == Journal::NeedsReplay {
            bail!(
                "{}: its {} was not unmounted, and its journal holds changes: build an image of the disk without \
                 --as, mount that with `headstart mount --fs`, which replays the journal, and build from there",
                disk.display(),
                volume.file_system
            );
        }
        rootenv::enter_private_mounts()?;
        let folder = Workdir::new(needed)?;
        let part = volume.partition.map(|_| volume.range);
        let options = LoopOptions {
            direct_io: false,
            sector_bytes: volume.sector_bytes,
            part,
            ..LoopOptions::default()
        };
        let device = LoopDevice::attach(disk, options)?;
        let target = folder.folder("files")?;
        let mount = FsMount::mount(device.path(), volume.file_system, &target, FsMountOptions::default())
            .map_err(|error| volume.explain(error))?;
        Ok(Some(Self { mount, _device: device, _folder: folder }))
    }

    /// Where they are.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mount.target()
    }
}
