//! The kernel's events of a block device, as text.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::NotObserved;
use super::tracefs::Instance;

const EVENTS: [&str; 3] = ["block/block_rq_insert", "block/block_rq_issue", "block/block_rq_complete"];
/// KiB of the buffer of each CPU: some 20,000 requests.
const BUFFER_KIB: &str = "8192";

/// A running trace of one device. Dropping it ends it and leaves nothing behind.
#[derive(Debug)]
pub struct BlockTrace {
    // Closed before the instance goes.
    pipe: File,
    instance: Instance,
    /// The beginning of a line whose end has not come.
    part: Vec<u8>,
}

impl BlockTrace {
    /// Begins to trace the device of these numbers, a whole disk. When it returns, requests are seen.
    ///
    /// # Errors
    /// [`NotObserved`] where the kernel has not the events, or does not let us see them.
    pub fn start(major: u32, minor: u32) -> Result<Self, NotObserved> {
        let instance = Instance::new()?;
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", BUFFER_KIB)?;
        for event in EVENTS {
            if !instance.has_event(event) {
                return Err(NotObserved::new(format!("this kernel has no event {event}")));
            }
            // As the kernel keeps device numbers: include/linux/kdev_t.h.
            instance
                .write(&format!("events/{event}/filter"), &format!("dev == {}", (major << 20) | minor))?;
            instance.write(&format!("events/{event}/enable"), "1")?;
        }
        let pipe = instance.text()?;
        instance.write("tracing_on", "1")?;
        Ok(Self { pipe, instance, part: Vec::new() })
    }

    /// The lines that come within `patience`; none when that is over, or a signal came.
    ///
    /// # Errors
    /// [`NotObserved`] when the kernel's trace could not be read.
    pub fn lines(&mut self, patience: Duration) -> Result<Vec<String>, NotObserved> {
        let failed =
            |error: &dyn std::fmt::Display| NotObserved::new(format!("the trace cannot be read: {error}"));
        let timeout = Timespec::try_from(patience).ok();
        let mut events = [PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::IN)];
        match poll(&mut events, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(error) => return Err(failed(&error)),
        }
        let mut buffer = vec![0; 256 << 10];
        match self.pipe.read(&mut buffer) {
            Ok(read) => self.part.extend_from_slice(&buffer[..read]),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(failed(&error)),
        }
        let Some(end) = self.part.iter().rposition(|byte| *byte == b'\n') else { return Ok(Vec::new()) };
        let whole: Vec<u8> = self.part.drain(..=end).collect();
        Ok(String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect())
    }

    /// No more events are recorded; those that were can still be read.
    ///
    /// # Errors
    /// [`NotObserved`] when the kernel does not let us.
    pub fn stop(&self) -> Result<(), NotObserved> {
        self.instance.write("tracing_on", "0")
    }

    /// How many events the kernel had no room for.
    ///
    /// # Errors
    /// [`NotObserved`] when the kernel does not say.
    pub fn lost_events(&self) -> Result<u64, NotObserved> {
        self.instance.lost_events()
    }
}
