//! The memory of guests, served to their VMMs.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use hs_linux::SocketFile;
use hs_serve::ServedDisk;
use hs_service::handover::{HandedOver, Supervisor};
use hs_uffd::{KeepClients, KeptClient, MOST_CLIENTS, UffdServer};

/// The names under which the supervisor keeps the socket and the VMMs.
const SOCKET: &str = "uffd";
const CLIENT: &str = "uffd-";

/// Serves the memory in `disk` at the socket `path`, and goes on with the VMMs of a server that died.
pub(super) fn start(
    disk: &Arc<ServedDisk>,
    path: &Path,
    kept: &mut HandedOver,
    supervisor: &Arc<Supervisor>,
) -> anyhow::Result<UffdServer> {
    let context = || format!("serve memory at {}", path.display());
    let socket = match kept.take::<()>(SOCKET)?.and_then(|(_, sockets)| sockets.into_iter().next()) {
        Some(socket) => SocketFile::resume(socket).with_context(context)?,
        None => SocketFile::bind(path).with_context(context)?,
    };
    supervisor.keep(SOCKET, (), [socket.as_fd()].into_iter())?;
    let mut left = Vec::new();
    for number in 0..MOST_CLIENTS {
        if let Some((Some(client), descriptors)) = kept.take::<Option<KeptClient>>(&name(number))? {
            left.push((number, client, descriptors));
        }
    }
    UffdServer::start(Arc::clone(disk), socket, left, Keeper(Arc::clone(supervisor))).with_context(context)
}

fn name(number: usize) -> String {
    format!("{CLIENT}{number}")
}

/// Has the supervisor keep what the next server needs of a VMM.
struct Keeper(Arc<Supervisor>);

impl KeepClients for Keeper {
    fn keep(&self, number: usize, client: &KeptClient, descriptors: [BorrowedFd<'_>; 2]) {
        if let Err(error) = self.0.keep(&name(number), Some(client), descriptors.into_iter()) {
            log::error!("a VMM will not outlive this server: {error:#}");
        }
    }

    fn forget(&self, number: usize) {
        if let Err(error) = self.0.keep(&name(number), None::<KeptClient>, std::iter::empty()) {
            log::warn!("a VMM that is gone is kept: {error:#}");
        }
    }
}
