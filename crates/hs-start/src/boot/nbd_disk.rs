//! The disk of a guest of QEMU, over NBD.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hs_disk::Watch;
use hs_guest::qemu::Drive;
use hs_keep::{KeepFile, KeptDisk};
use hs_nbd::{Export, ExportedDisk, KeptImage, NbdAddress, NbdListeners, NbdOptions, NbdServer};
use hs_serve::{ServeConfig, ServedDisk};
use hs_store::Store;

/// The name of the one export, and of the socket.
const EXPORT: &str = "disk";
const SOCKET: &str = "nbd";

/// The disk in an image, over NBD on a socket that only this process and the guest see.
///
/// The fields are dropped in order: the server goes before the disk that it serves.
pub struct NbdDisk {
    _server: NbdServer,
    kept: Option<Arc<KeptDisk>>,
    disk: Arc<ServedDisk>,
    socket: PathBuf,
}

impl NbdDisk {
    /// Serves the image in `store` on a socket in `folder`. What is written to it lasts where there is a file
    /// for that.
    ///
    /// # Errors
    /// When the image is not one, or no server can be started.
    pub fn start(
        store: Arc<dyn Store>,
        folder: &Path,
        config: &ServeConfig,
        watch: Option<Arc<dyn Watch>>,
        keep: Option<KeepFile>,
    ) -> anyhow::Result<Self> {
        Self::of(config.open(store, watch)?, folder, &config.source_name, keep)
    }

    /// The same of a disk that is open already, with its name for messages.
    ///
    /// # Errors
    /// When its changes cannot be kept in the file, or no server can be started.
    pub fn of(
        disk: Arc<ServedDisk>,
        folder: &Path,
        name: &str,
        keep: Option<KeepFile>,
    ) -> anyhow::Result<Self> {
        let socket = folder.join(SOCKET);
        let image = Arc::clone(&disk);
        let kept = keep.map(|file| KeptDisk::new(disk.clone(), file).map(Arc::new)).transpose()?;
        let exported = match &kept {
            Some(kept) => ExportedDisk::Kept(Arc::new(KeptImage { disk: Arc::clone(kept), image })),
            None => image.into(),
        };
        let export = Export { name: EXPORT.to_owned(), description: name.to_owned(), disk: exported };
        let address = NbdAddress::Unix(socket.clone());
        let listeners = NbdListeners::at(&[address])?;
        let server = NbdServer::start(vec![export], listeners, NbdOptions::default())?;
        Ok(Self { _server: server, kept, disk, socket })
    }

    /// The disk with what is written to it, where that lasts.
    pub const fn kept(&self) -> Option<&Arc<KeptDisk>> {
        self.kept.as_ref()
    }

    /// The disk, without how it is shown.
    pub const fn disk(&self) -> &Arc<ServedDisk> {
        &self.disk
    }

    /// Where QEMU finds it.
    pub fn drive(&self) -> Drive {
        Drive::Nbd { socket: self.socket.clone(), export: EXPORT.to_owned() }
    }
}

/// What a guest that has ended has written comes to the medium, where it lasts.
///
/// # Errors
/// When it may not last.
pub fn close_kept(kept: Option<&Arc<KeptDisk>>) -> anyhow::Result<()> {
    kept.map_or(Ok(()), |kept| crate::keep::lasts(kept, kept.close()))
}
