//! How long a start would take: a recorded program before the engine before the model of a medium.
//!
//! A program is what a profile says of it: its own time between its reads, and where it reads. Its reads go through
//! the kernel's page cache with its read-ahead, to an image that is served by the engine's own policies, or to the raw
//! disk, and from there to the medium. docs/LAB.md says what is modelled and how far it agrees with starts in real time.

mod layout;
mod page_cache;
mod program;
mod served;
mod start;

use hs_device::{Medium, MediumError};
use hs_engine::queue::{ElevatorKind, QueueConfig};
use hs_units::Nanos;

pub use layout::{Disk, HotChunk, ImageLayout};
pub use program::{Program, ProgramRead};
pub use served::ServedConfig;
pub use start::{Front, Started};

use crate::simulation::{Run, simulate};
use start::Starts;

/// What is predicted.
#[derive(Clone, Copy, Debug)]
pub struct Prediction<'a> {
    /// The program.
    pub program: &'a Program,
    /// What lies on the medium.
    pub disk: &'a Disk,
    /// Bytes of the disk that the program sees.
    pub disk_bytes: u64,
    /// Bytes of the file that lies on the medium.
    pub file_bytes: u64,
    /// The medium.
    pub medium: Medium,
    /// How many start at the same moment from it.
    pub clients: usize,
    /// How the disk is shown.
    pub front: Front,
    /// How an image is served.
    pub served: ServedConfig,
    /// In which order requests are served that wait at the same time.
    pub elevator: ElevatorKind,
}

/// What a prediction says.
#[derive(Clone, PartialEq, Debug)]
pub struct Predicted {
    /// Every start.
    pub starts: Vec<Started>,
    /// Requests to the medium.
    pub requests: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Requests that did not begin where the last one ended.
    pub seeks: u64,
    /// For so long the medium had something to do.
    pub busy: Nanos,
}

impl Predicted {
    /// The start that took longest.
    #[must_use]
    pub fn slowest(&self) -> Started {
        self.starts.iter().copied().max_by_key(|start| start.ready).unwrap_or_default()
    }
}

/// Requests that one client's reader has under way at once, and its prefetch.
const DEPTH: u32 = 8 + hs_engine::Prefetch::MOST_UNDER_WAY as u32;
/// The same for a raw disk in a file.
const RAW_DEPTH: u32 = 32;

impl Prediction<'_> {
    /// Runs it; nothing where the medium is the real one.
    ///
    /// # Errors
    /// [`MediumError::TooLarge`] when the file does not fit on the medium.
    pub fn run(&self) -> Result<Option<Predicted>, MediumError> {
        let Some(device) = self.medium.device(self.file_bytes)? else { return Ok(None) };
        let mut config = QueueConfig { elevator: self.elevator, ..QueueConfig::default() };
        let depth = if matches!(self.disk, Disk::Raw) { RAW_DEPTH } else { DEPTH };
        let depth = depth.saturating_mul(self.clients as u32);
        for class in &mut config.classes {
            class.merge_bytes = 0;
            class.hold_off = Nanos::ZERO;
            class.depth = depth;
        }
        let mut starts = Starts::new(
            self.program,
            self.disk,
            self.front,
            self.served,
            self.disk_bytes,
            self.file_bytes,
            self.clients,
        );
        let run = simulate(config, device, Nanos(u64::MAX), &mut starts);
        Ok(Some(Predicted { starts: starts.started(), ..account(&run) }))
    }
}

fn account(run: &Run) -> Predicted {
    let mut predicted = Predicted { starts: Vec::new(), requests: 0, bytes: 0, seeks: 0, busy: Nanos::ZERO };
    let mut head = 0;
    let mut busy_until = Nanos::ZERO;
    for sent in &run.sent {
        let range = sent.dispatch.range;
        predicted.requests += 1;
        predicted.bytes += range.len;
        predicted.seeks += u64::from(range.offset != head);
        head = range.end();
        let (from, until) = (sent.at.max(busy_until), sent.service.done);
        predicted.busy += until.saturating_sub(from);
        busy_until = busy_until.max(until);
    }
    predicted
}

#[cfg(test)]
mod tests;
