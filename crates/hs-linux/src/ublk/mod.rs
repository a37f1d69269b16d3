//! Block devices of this kernel whose requests a program answers: ublk.
//!
//! ```text
//! /dev/ublk-control ◄─ add, start, stop, delete ─ Control
//! /dev/ublkbN ─request─► Queue ─► its answer: bytes through /dev/ublkcN (Reply), then the result (Queue)
//! ```
//!
//! The kernel is asked through io_uring alone. Each ring is made for its device: it takes commands for that,
//! and nothing else, for as long as it exists.
//!
//! Source: Documentation/block/ublk.rst and include/uapi/linux/ublk_cmd.h of Linux 6.12.

mod abi;
mod control;
mod queue;

pub use control::{Control, DeviceState, Features};
pub use queue::{Event, Queue, Reply, Request};

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::register::Restriction;
use io_uring::squeue::{EntryMarker, Flags};
use io_uring::{Builder, IoUring, cqueue};

/// A ring that takes only these operations, on these files alone.
fn ring_for<S: EntryMarker>(
    entries: u32,
    files: &[BorrowedFd<'_>],
    operations: &[u8],
) -> io::Result<IoUring<S, cqueue::Entry>> {
    let mut builder: Builder<S, cqueue::Entry> = IoUring::builder();
    let ring = builder.setup_r_disabled().build(entries)?;
    let files: Vec<_> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let submitter = ring.submitter();
    submitter.register_files(&files)?;
    let mut rules: Vec<_> = operations.iter().copied().map(Restriction::sqe_op).collect();
    rules.push(Restriction::sqe_flags_required(Flags::FIXED_FILE.bits()));
    submitter.register_restrictions(&mut rules)?;
    submitter.register_enable_rings()?;
    Ok(ring)
}
