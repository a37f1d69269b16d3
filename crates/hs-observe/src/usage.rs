//! What became of prefetched blocks, as the kernel saw it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hs_disk::ServedDisk;
use hs_trace::BlockSet;
use hs_units::{BlockRange, Lba, Nanos};

use crate::{NotObserved, Object, Observer, Prefetched, TargetDevice, Targets, Usage, account};

/// An observation of the file system that an image was mounted as.
pub struct Observation {
    observer: Observer,
}

/// What was observed until [`Observation::finish`].
#[derive(Clone, Copy, Debug)]
pub struct ObservedUsage {
    /// Bytes by what became of them.
    pub usage: Usage,
    /// Of the needed bytes: those whose chunk came after the time in the profile.
    pub overdue_bytes: u64,
    /// Events that the kernel had no room for: above zero, something used may seem unused.
    pub lost_events: u64,
}

impl Observation {
    /// Begins to observe which programs use what the hints of `disk` bring into the caches of the file system
    /// that is mounted at `target`, from the block device `device`.
    ///
    /// # Errors
    /// When the kernel cannot be asked, saying why.
    pub fn start(disk: &ServedDisk, target: &Path, device: Option<&Path>) -> Result<Self, NotObserved> {
        let reason = |error: std::io::Error| NotObserved { reason: error.to_string() };
        let Some(device) = device else {
            return Err(NotObserved { reason: "kernel tracing needs root".to_owned() });
        };
        let fs_dev = std::fs::metadata(target).map_err(reason)?.dev();
        let mut pages = BlockSet::new();
        for hint in disk.image().hints().filter(|hint| hint.inode == 0) {
            pages.insert(BlockRange::new(Lba(hint.page.into()), hint.blocks.into()), |_| {});
        }
        let device = Some(TargetDevice { path: device.to_owned(), pages });
        let observer = Observer::start(Targets { fs_dev, device, ignore_own_process: true })?;
        Ok(Self { observer })
    }

    /// Ends the observation and accounts for every hinted block that has arrived.
    ///
    /// # Errors
    /// When the kernel's records cannot be read.
    pub fn finish(self, disk: &ServedDisk) -> Result<ObservedUsage, NotObserved> {
        let observed = self.observer.finish()?;
        let (prefetched, overdue) = prefetched(disk);
        let usage = account(&observed, &prefetched);
        let overdue = account(&observed, &overdue);
        let overdue_bytes = overdue.used_bytes + overdue.late_bytes;
        Ok(ObservedUsage { usage, overdue_bytes, lost_events: observed.lost_events })
    }
}

/// The hinted pages whose chunk has come, and when that was on `CLOCK_MONOTONIC`; and those of them whose
/// chunk came after its deadline.
fn prefetched(disk: &ServedDisk) -> (Vec<Prefetched>, Vec<Prefetched>) {
    let image = disk.image();
    let arrivals = disk.arrivals();
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64);
    let began = now.saturating_sub(disk.began().elapsed().into());
    let overdue = disk.overdue_chunks();
    let (mut prefetched, mut late) = (Vec::new(), Vec::new());
    for hint in image.hints() {
        let Some(chunk) = image.hot_place(hint.lba).map(|place| place.chunk) else { continue };
        let Some(arrived) = arrivals.get(chunk as usize).copied().flatten() else { continue };
        let object = if hint.inode == 0 { Object::Device } else { Object::Inode(hint.inode) };
        let part = Prefetched { object, page: hint.page.into(), pages: hint.blocks, at: began + arrived };
        prefetched.push(part);
        if overdue.binary_search(&chunk).is_ok() {
            late.push(part);
        }
    }
    (prefetched, late)
}
