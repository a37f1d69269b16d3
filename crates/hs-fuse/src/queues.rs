//! The queues of a session's connection: those that its threads take requests from, and what outlives it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use hs_linux::LinuxError;

use super::device::{Device, FUSE_DEVICE};
use super::wire::notify;
use crate::FuseError;

/// The queues of a connection. The requests that were taken from one fail when its last descriptor is closed.
/// A supervisor that holds all keeps them, and the kernel sends them to the next server. One that cannot
/// resend would never answer them, so that the supervisor then holds one from which none is taken.
pub(super) struct Queues {
    /// Threads take requests from these; at least one.
    taken_from: Vec<Arc<Device>>,
    /// What a supervisor holds instead, where the kernel cannot resend.
    held: Option<Device>,
}

impl Queues {
    /// Of a connection with one queue, for so many threads.
    pub(super) fn new(first: Device, can_resend: bool, threads: usize) -> Self {
        let mut clones = Vec::new();
        while clones.len() < threads - usize::from(can_resend) {
            match first.clone_queue() {
                Ok(device) => clones.push(Arc::new(device)),
                Err(error) => {
                    log::debug!("workers share FUSE queues: {error}");
                    if !can_resend && clones.is_empty() {
                        log::warn!("what is read when this server dies will hang: {error}");
                    }
                    break;
                }
            }
        }
        if can_resend || clones.is_empty() {
            clones.insert(0, Arc::new(first));
            return Self { taken_from: clones, held: None };
        }
        Self { taken_from: clones, held: Some(first) }
    }

    /// What a supervisor held of a server that died. Asks for what it had taken, if the kernel can resend.
    pub(super) fn of_dead(
        descriptors: Vec<OwnedFd>,
        can_resend: bool,
        threads: usize,
    ) -> Result<Self, FuseError> {
        let mut devices = descriptors.into_iter().map(Device::from_fd);
        let Some(first) = devices.next() else {
            let needed = "at least one descriptor of the session";
            return Err(LinuxError::Option { option: "descriptors", value: "empty".into(), needed }.into());
        };
        if !can_resend {
            log::warn!("reads that were under way fail: this kernel cannot resend them (Linux 6.9 can)");
            return Ok(Self::new(first, can_resend, threads));
        }
        let taken_from = std::iter::once(first).chain(devices).map(Arc::new).collect();
        let queues = Self { taken_from, held: None };
        queues.ask_again()?;
        Ok(queues)
    }

    /// Has the kernel send all requests again that were taken and have no answer yet.
    pub(super) fn ask_again(&self) -> Result<(), FuseError> {
        self.taken_from[0]
            .notify(notify::RESEND, &[])
            .map_err(|errno| FuseError::FuseDevice { path: FUSE_DEVICE.into(), source: errno.into() })
    }

    /// The queue from which this thread takes requests; several may share one.
    pub(super) fn of_thread(&self, index: usize) -> &Arc<Device> {
        &self.taken_from[index % self.taken_from.len()]
    }

    /// What a supervisor has to hold for the next server.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let taken_from = if self.held.is_some() { &[][..] } else { &self.taken_from };
        self.held.iter().map(AsFd::as_fd).chain(taken_from.iter().map(|device| device.as_fd()))
    }
}
