//! The disk of an image as a block device of guests, for their VMMs.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use hs_keep::KeptDisk;
use hs_linux::SocketFile;
use hs_serve::ServedDisk;
use hs_service::handover::{HandedOver, Supervisor};
use hs_vhost::{VhostOptions, VhostServer};

/// The name under which the supervisor keeps the socket.
const SOCKET: &str = "vhost";

/// Where VMMs get a disk.
#[derive(Clone, Debug)]
pub struct Guests {
    /// Their socket.
    pub socket: PathBuf,
    /// Queues that a guest may have.
    pub queues: u16,
}

/// Serves the disk at the socket, with what is written to it. VMMs whose server died connect to the same
/// socket again.
pub(super) fn start(
    disk: &Arc<ServedDisk>,
    written: Option<&Arc<KeptDisk>>,
    guests: &Guests,
    kept: &mut HandedOver,
    supervisor: &Supervisor,
) -> anyhow::Result<VhostServer> {
    let context = || format!("serve guests at {}", guests.socket.display());
    let socket = match kept.take::<()>(SOCKET)?.and_then(|(_, sockets)| sockets.into_iter().next()) {
        Some(socket) => SocketFile::resume(socket).with_context(context)?,
        None => SocketFile::bind(&guests.socket).with_context(context)?,
    };
    supervisor.keep(SOCKET, (), [socket.as_fd()].into_iter())?;
    let options = VhostOptions { queues: guests.queues, ..VhostOptions::default() };
    VhostServer::start(Arc::clone(disk), written.cloned(), socket, options).with_context(context)
}

/// How people are told of it: there is no standard form of such an address.
pub(super) fn shown(server: &VhostServer) -> String {
    format!("vhost-user-blk:{}", server.path().display())
}
