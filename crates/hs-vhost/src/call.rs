//! The descriptor by which a guest is interrupted. The VMM may change it while the ring runs.

use std::fs::File;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;

/// Where a ring's guest is told of used buffers.
#[derive(Default)]
pub(crate) struct Call(Mutex<Option<OwnedFd>>);

impl Call {
    /// From now on it is told here, and at once: a server before this one may have died before it told of its
    /// last answers.
    pub(crate) fn set(&self, file: Option<File>) {
        *self.0.lock() = file.map(OwnedFd::from);
        self.signal();
    }

    /// Tells it. A guest whose interrupts are masked by its VMM has no descriptor.
    pub(crate) fn signal(&self) {
        if let Some(call) = &*self.0.lock() {
            // It can only fail when the guest has been told often and has not looked.
            let _ = rustix::io::write(call, &1_u64.to_ne_bytes());
        }
    }
}
