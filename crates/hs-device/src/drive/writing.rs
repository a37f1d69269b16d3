//! A drive that also writes.

use hs_units::{ByteRange, Nanos};

use crate::drive::{Drive, Head};
use crate::surface::Surface;
use crate::{Device, Service, WritableDevice};

/// What a drive does to write.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct WriteSpec {
    /// How often the surface has to pass under the head: once on magnetic disks; three times on
    /// magneto-optical ones, to erase, to write, and to read what was written.
    pub(crate) passes: u32,
    /// So much of a request must have come before the surface is touched, or all of it where that is less.
    pub(crate) buffer_bytes: u64,
}

/// A drive at work that writes without a cache: a write is done when the surface has it.
///
/// The seek and the transfer to the drive's buffer go on at the same time. Each further pass begins with the
/// way back to the first track and waits there for the first sector. The interface is taken to keep up with
/// the surface once the buffer is full.
pub(crate) struct WritingDrive<S> {
    pub(crate) drive: Drive<S>,
    pub(crate) write: WriteSpec,
}

impl<S: Surface> Device for WritingDrive<S> {
    fn submit(&mut self, now: Nanos, request: ByteRange) -> Service {
        self.drive.submit(now, request)
    }

    fn abandon(&mut self, now: Nanos, service: Service) {
        self.drive.abandon(now, service);
    }
}

impl<S: Surface> WritableDevice for WritingDrive<S> {
    fn write(&mut self, now: Nanos, request: ByteRange) -> Service {
        let drive = &mut self.drive;
        let starts = now.max(drive.free);
        let ready = drive.turning(starts) + Nanos::from_secs_f64(drive.spec.command);
        let seconds = |bytes: u64| Nanos::from_secs_f64(bytes as f64 / drive.spec.interface);
        let (buffered, handed_over) =
            (ready + seconds(request.len.min(self.write.buffer_bytes)), ready + seconds(request.len));
        let sectors = drive.sectors(request);
        let arrives = ready + drive.move_to(ready, sectors.offset);
        let first_byte = drive.comes_by(arrives.max(buffered), sectors.offset);
        let turns = drive.surface.turns(sectors.end()) - drive.surface.turns(sectors.offset);
        let back = drive.surface.track(sectors.end()) - drive.surface.track(sectors.offset);
        let back = Nanos::from_secs_f64(drive.spec.seek.seconds(back));
        let mut done = drive.after(first_byte, turns);
        for _ in 1..self.write.passes {
            let begins = drive.comes_by(done + back, sectors.offset);
            done = drive.after(begins, turns);
        }
        let done = done.max(handed_over);
        let end = sectors.end();
        drive.head = Head { since: done, turns: drive.surface.turns(end), low: end, limit: end };
        drive.free = done;
        drive.latest = None;
        Service { starts, first_byte, done }
    }
}
