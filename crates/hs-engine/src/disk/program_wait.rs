//! How long programs waited for the medium, each moment counted once however many of them waited in it.

use hs_units::Nanos;

use super::DiskEngine;
use super::image_map::ImageMap;

/// The time in which at least one program waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProgramWait {
    waiting: u32,
    /// Since when there has always been one that waits.
    since: Nanos,
    /// The time before that.
    over: Nanos,
}

impl ProgramWait {
    pub(super) const fn begin(&mut self, now: Nanos) {
        if self.waiting == 0 {
            self.since = now;
        }
        self.waiting += 1;
    }

    pub(super) fn end(&mut self, now: Nanos) {
        self.waiting -= 1;
        if self.waiting == 0 {
            self.over += now.saturating_sub(self.since);
        }
    }

    /// The time so far, with that of a wait that has not ended.
    pub(super) fn time(&self, now: Nanos) -> Nanos {
        if self.waiting == 0 { self.over } else { self.over + now.saturating_sub(self.since) }
    }
}

impl<M: ImageMap> DiskEngine<M> {
    /// The program that waits for this read, if one does, waits no more.
    pub(super) fn end_program_wait(&mut self, now: Nanos, read: u32) {
        if std::mem::take(&mut self.reads.slab[read].program_waits) {
            self.program_wait.end(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_moment_counts_once() {
        let mut wait = ProgramWait::default();
        wait.begin(Nanos(10));
        wait.begin(Nanos(20));
        wait.end(Nanos(30));
        assert_eq!(wait.time(Nanos(35)), Nanos(25), "one still waits");
        wait.end(Nanos(40));
        assert_eq!(wait.time(Nanos(90)), Nanos(30));
        wait.begin(Nanos(100));
        wait.end(Nanos(101));
        assert_eq!(wait.time(Nanos(200)), Nanos(31));
    }
}
