//! Snapshots of a disk in use: taken and deleted between two appends, when what was answered before is on the
//! medium.

use std::io;

use crossbeam_channel::{Sender, bounded};
use hs_overlay::Overlay;

use crate::disk::{KeptState, Shared};
use crate::error::KeepError;
use crate::file::KeepFile;

/// A change of the snapshots of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotChange {
    /// Keep the disk as it is, under a name.
    Take {
        /// The name.
        name: String,
        /// Seconds since 1970.
        now_s: u64,
    },
    /// Delete the snapshot of this name.
    Delete {
        /// The name.
        name: String,
    },
}

impl SnapshotChange {
    /// Makes the change in the overlay of this file; it is stored by the next job.
    ///
    /// # Errors
    /// When it cannot be made, or there is no space for a snapshot.
    pub fn make(&self, file: &KeepFile, overlay: &mut Overlay) -> Result<(), KeepError> {
        let made = match self {
            Self::Take { name, now_s } => {
                file.take_snapshot_space(overlay)?;
                overlay.take_snapshot(name, *now_s)
            }
            Self::Delete { name } => overlay.delete_snapshot(name),
        };
        made.map_err(KeepError::overlay(file.path()))
    }

    /// Whether the overlay is as it is after it.
    fn is_made(&self, overlay: &Overlay) -> bool {
        let (Self::Take { name, .. } | Self::Delete { name }) = self;
        let is_there = overlay.snapshots().iter().any(|snapshot| snapshot.name == *name);
        is_there == matches!(self, Self::Take { .. })
    }
}

/// A change that waits for the batch with what was answered before it, or, once begun, for its map.
pub(crate) struct PendingChange {
    change: SnapshotChange,
    batch: u64,
    is_begun: bool,
    answer: Sender<Result<(), KeepError>>,
}

impl Shared {
    /// See [`KeptDisk::change_snapshots`](crate::KeptDisk::change_snapshots).
    pub(crate) fn change_snapshots(&self, change: SnapshotChange) -> Result<(), KeepError> {
        let (answer, answered) = bounded(1);
        let mut state = self.state.lock();
        if state.ends || state.has_ended {
            return Err(failed(self, libc::ESHUTDOWN));
        }
        let batch = state.overlay.handle_flush();
        state.snapshots.push_back(PendingChange { change, batch, is_begun: false, answer });
        drop(state);
        self.work.notify_one();
        answered.recv().unwrap_or_else(|_| Err(failed(self, libc::ESHUTDOWN)))
    }
}

/// Makes the changes that can be made now, and answers those whose map is stored, or could not be.
pub(crate) fn make_changes(shared: &Shared, state: &mut KeptState) {
    let KeptState { overlay, snapshots, .. } = state;
    while let Some(first) = snapshots.front_mut() {
        if overlay.is_busy() || overlay.is_changing_snapshots() {
            return;
        }
        let outcome = if overlay.trouble().is_some() {
            Err(failed(shared, libc::EIO))
        } else if first.is_begun {
            first.change.is_made(overlay).then_some(()).ok_or_else(|| failed(shared, libc::ENOSPC))
        } else if overlay.is_durable(first.batch) {
            match first.change.make(&shared.file, overlay) {
                Ok(()) => {
                    first.is_begun = true;
                    return;
                }
                Err(error) => Err(error),
            }
        } else {
            return;
        };
        // The one who asked may be gone.
        let _ = first.answer.send(outcome);
        snapshots.pop_front();
    }
}

/// Refuses those that wait. One that is begun is stored all the same, while there is no trouble.
pub(crate) fn refuse(shared: &Shared, state: &mut KeptState, errno: i32) {
    state.snapshots.retain(|pending| {
        let waits = pending.is_begun && errno == libc::ENOSPC;
        if !waits {
            let _ = pending.answer.send(Err(failed(shared, errno)));
        }
        waits
    });
}

fn failed(shared: &Shared, errno: i32) -> KeepError {
    KeepError::io("store the snapshots of", shared.file.path())(io::Error::from_raw_os_error(errno))
}
