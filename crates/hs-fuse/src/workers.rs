//! The threads that take requests from the kernel.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::device::Device;
use super::files::Files;
use super::negotiate::{MESSAGE_BYTES, WRITE_MESSAGE_BYTES};
use super::wire::Request;

/// How many worker threads still serve. None does once the connection has ended.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    serving: Mutex<usize>,
    ended: Condvar,
}

impl Workers {
    /// Starts a thread that serves the requests of `device`, until the connection ends.
    pub(crate) fn start_one(
        workers: &Arc<Self>,
        index: usize,
        device: Arc<Device>,
        files: Arc<Files>,
    ) -> io::Result<()> {
        *workers.serving.lock() += 1;
        let own = Arc::clone(workers);
        let started = std::thread::Builder::new().name(format!("fuse-{index}")).spawn(move || {
            serve(&device, &files);
            // The disk's resources are released before other threads learn of the end.
            drop((device, files));
            own.leave();
        });
        match started {
            Ok(_) => Ok(()),
            Err(error) => {
                workers.leave();
                Err(error)
            }
        }
    }

    fn leave(&self) {
        *self.serving.lock() -= 1;
        self.ended.notify_all();
    }

    /// True when the connection has ended.
    pub(crate) fn have_ended(&self) -> bool {
        *self.serving.lock() == 0
    }

    /// Waits for the end of the connection.
    pub(crate) fn wait(&self) {
        self.ended.wait_while(&mut self.serving.lock(), |serving| *serving > 0);
    }

    /// The same, no longer than `patience`. True when it has ended.
    pub(crate) fn wait_for(&self, patience: Duration) -> bool {
        let mut serving = self.serving.lock();
        self.ended.wait_while_for(&mut serving, |serving| *serving > 0, patience);
        *serving == 0
    }
}

/// A worker: takes requests until the connection ends.
fn serve(device: &Arc<Device>, files: &Files) {
    if files.takes_writes() {
        hs_linux::flush_for_kernel();
    }
    let mut buffer = vec![0; if files.takes_writes() { WRITE_MESSAGE_BYTES } else { MESSAGE_BYTES }];
    loop {
        let len = match device.receive(&mut buffer) {
            Ok(len) => len,
            // ENOENT: the request was withdrawn while it was on its way.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
            Err(Errno::NODEV | Errno::CONNABORTED) => return,
            Err(errno) => return log::error!("a FUSE worker gives up: {errno}"),
        };
        let Some(request) = Request::parse(&buffer[..len]) else {
            log::error!("the kernel sent {len} bytes that are no request");
            continue;
        };
        // A mistake in the disk must not take the root of a running system away: the read that hit it
        // gets EIO (its Reply is dropped), the others go on.
        if catch_unwind(AssertUnwindSafe(|| files.handle(&request, device))).is_err() {
            log::error!("operation {} panicked", request.header.opcode);
        }
    }
}
