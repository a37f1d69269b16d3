//! Saving a guest of QEMU when it is ready: what it is made of lies in files then.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use hs_guest::agent::AgentSocket;
use hs_guest::monitor::MonitorSocket;
use hs_guest::qemu::Accelerator;
use hs_guest::resumable::{self, portable_cpu};
use hs_guest::{Guest, GuestError};
use hs_image::Image;
use hs_service::workdir::Workdir;
use hs_units::ByteSize;

use super::{BootSpec, mount_memory};

/// How long QEMU may take for one step of saving: all that it writes is in memory.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most that the state of a guest's devices may have: it has less than 1 MiB.
pub const STATE_BYTES: u64 = 64 << 20;
/// Bytes of a cluster of the overlay.
const CLUSTER: u64 = 64 << 10;
/// What one table of the second level covers.
const L2_COVERS: u64 = CLUSTER / 8 * CLUSTER;

/// Stores a saved guest.
pub trait SaveGuest: Send + Sync {
    /// The file that will hold it.
    fn output(&self) -> &Path;

    /// Stores a guest that was booted from `disk` and has ended. Its files are gone afterwards.
    ///
    /// # Errors
    /// When it cannot be stored.
    fn save(&self, parts: &SavedParts, disk: &Image) -> anyhow::Result<()>;
}

/// What a saved guest is made of.
#[derive(Clone, Debug)]
pub struct SavedParts {
    /// The file with its memory, with holes where that is zero. There is room for the others behind it.
    pub memory_file: PathBuf,
    /// The state of its devices, in QEMU's own format.
    pub state_file: PathBuf,
    /// The qcow2 file with what it wrote to its disk.
    pub overlay_file: PathBuf,
    /// The version of QEMU.
    pub qemu: String,
    /// The full name of its machine.
    pub machine: String,
    /// The model of its processor.
    pub cpu: String,
    /// What executed it.
    pub accelerator: &'static str,
    /// Whether it has a network card.
    pub has_network: bool,
}

/// A guest that is going to be saved.
pub(super) struct Saving {
    folder: PathBuf,
    socket: MonitorSocket,
    /// Open at this end, so that the agent in the guest waits for a line.
    agent: AgentSocket,
    memory: ByteSize,
    has_network: bool,
}

impl Saving {
    /// Makes room for its memory, and for what is appended to it.
    pub(super) fn prepare(spec: &BootSpec, has_network: bool, work: &Workdir) -> anyhow::Result<Self> {
        let folder = work.folder("memory")?;
        mount_memory(&folder, spec.memory.0 + spec.scratch.0 + STATE_BYTES)?;
        let sockets = work.folder("monitor")?;
        let socket = MonitorSocket::listen(sockets.join("socket"))?;
        let agent = AgentSocket::listen(sockets.join("agent"))?;
        Ok(Self { folder, socket, agent, memory: spec.memory, has_network })
    }

    pub(super) fn agent(&self) -> PathBuf {
        self.agent.path().to_owned()
    }

    pub(super) fn monitor(&self) -> PathBuf {
        self.socket.path().to_owned()
    }

    pub(super) fn memory_file(&self) -> PathBuf {
        self.folder.join("memory")
    }

    /// Stops the guest, and brings its state into files.
    pub(super) fn save(
        &self,
        guest: &mut Guest,
        accelerator: Accelerator,
        scratch: &Path,
    ) -> Result<SavedParts, GuestError> {
        let mut monitor = self.socket.accept(guest, PATIENCE)?;
        let qemu = monitor.version()?;
        let machine = monitor.machine_of(resumable::MACHINE)?;
        // Not where the guest's user could have put a link.
        let state_file = self.socket.path().with_file_name("state");
        let state = File::create(&state_file)
            .map_err(|source| GuestError::Monitor { action: "make a file for", source })?;
        match monitor.empty_free_pages(self.memory.0) {
            Ok(Some(bytes)) => log::info!("{} of free memory are left out", ByteSize(bytes)),
            Ok(None) => log::info!("the guest has no driver for a balloon: its free memory is saved too"),
            Err(error @ GuestError::MonitorRefused { .. }) => {
                log::warn!("{error}: the guest's free memory is saved too");
            }
            Err(error) => return Err(error),
        }
        if self.has_network {
            monitor.unplug_network()?;
        }
        monitor.save_devices(state.as_fd())?;
        Ok(SavedParts {
            memory_file: self.memory_file(),
            state_file,
            overlay_file: overlay_path(scratch),
            qemu,
            machine,
            cpu: portable_cpu(accelerator).to_owned(),
            accelerator: accelerator.as_str(),
            has_network: self.has_network,
        })
    }
}

fn overlay_path(scratch: &Path) -> PathBuf {
    scratch.join("overlay.qcow2")
}

/// Makes an empty qcow2 file in `scratch` for a disk of so many bytes, which the guest's user may write to.
///
/// # Errors
/// When it cannot be written.
pub fn empty_overlay(scratch: &Path, disk_bytes: u64) -> anyhow::Result<PathBuf> {
    let path = overlay_path(scratch);
    let context = || format!("write {}", path.display());
    let mut file = File::create(&path).with_context(context)?;
    file.write_all(&empty_qcow2(disk_bytes)).with_context(context)?;
    // The folder is the guest's own; it is mounted for this process alone.
    file.set_permissions(Permissions::from_mode(0o666)).with_context(context)?;
    Ok(path)
}

/// A qcow2 file, version 3, without data (QEMU's docs/interop/qcow2.txt): a header, and a cluster each for
/// the table of reference counts and its one block; then the table of the first level. What is below it
/// stands on the command line of QEMU.
fn empty_qcow2(disk_bytes: u64) -> Vec<u8> {
    let l1_entries = disk_bytes.div_ceil(L2_COVERS).max(1);
    let clusters = 3 + (l1_entries * 8).div_ceil(CLUSTER);
    let mut file = b"QFI\xfb".to_vec();
    let numbers: [(u64, usize); 17] = [
        (3, 4),
        // Offset and length of the name of a file below.
        (0, 8),
        (0, 4),
        (u64::from(CLUSTER.ilog2()), 4),
        (disk_bytes, 8),
        // No encryption.
        (0, 4),
        (l1_entries, 4),
        (3 * CLUSTER, 8),
        // The table of reference counts, and its clusters.
        (CLUSTER, 8),
        (1, 4),
        // No snapshots: number and offset. No features of three kinds.
        (0, 4),
        (0, 8),
        (0, 8),
        (0, 8),
        (0, 8),
        // Counts of 2^4 bits; the length of the header.
        (4, 4),
        (104, 4),
    ];
    for (number, bytes) in numbers {
        file.extend(&number.to_be_bytes()[8 - bytes..]);
    }
    file.resize(CLUSTER as usize, 0);
    file.extend((2 * CLUSTER).to_be_bytes());
    file.resize(2 * CLUSTER as usize, 0);
    file.extend(1_u16.to_be_bytes().repeat(clusters as usize));
    file.resize((clusters * CLUSTER) as usize, 0);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_overlay_is_what_qemu_takes_for_one() {
        for bytes in [4096, 64 << 20, 5 << 40] {
            let file = empty_qcow2(bytes);
            assert_eq!(file.len() as u64 % CLUSTER, 0);
            assert_eq!(file[100..104], 104_u32.to_be_bytes());
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("overlay");
            std::fs::write(&path, &file).unwrap();
            let checked = std::process::Command::new("qemu-img").args(["check", "-q"]).arg(&path).output();
            // Only where the tool is.
            assert!(checked.is_ok_and(|checked| checked.status.success()) || !has_tool(), "{bytes}");
        }
    }

    fn has_tool() -> bool {
        std::process::Command::new("qemu-img").arg("--version").output().is_ok()
    }
}
