//! Predicts the time of a start: a recorded program before the engine before the model of a medium.
//!
//! A program is described by its profile: its own time between its reads, and where it reads. Its reads go
//! through the kernel's page cache with its read-ahead, to an image that is served by the disk engine, or to
//! the raw disk, and from there to the medium. docs/LAB.md describes the model and compares
//! it with starts in real time.

mod caches;
mod crowd;
mod files;
mod limit;
mod loop_device;
mod page_cache;
mod program;
mod start;

use hs_device::{Medium, MediumError};
use hs_engine::PrefetchConfig;
use hs_engine::disk::{DeliveryConfig, DiskConfig, UseVisibility};
use hs_engine::queue::{ElevatorKind, MediumTraits, QueueConfig, jain_index};
use hs_units::Nanos;

pub use crowd::Crowd;
pub use files::Files;
pub use limit::Limit;
pub use program::{Program, ProgramRead};
pub use start::{Front, Started};

use crate::network::Network;
use crate::served::{FETCHERS, OPENING, Processors, pass_through};
pub use crate::served::{HotChunk, ImageLayout, SharedProcessors};
use crate::simulation::{Run, simulate, simulate_network};
use start::Starts;

/// What lies on the medium.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Disk {
    /// The disk as it is.
    Raw,
    /// An image.
    Image(ImageLayout),
}

/// How an image is served.
#[derive(Clone, Copy, Debug)]
pub struct ServedConfig {
    /// Limits of the prefetch; nothing is prefetched without.
    pub prefetch: Option<PrefetchConfig>,
    /// Bytes that a core decompresses in a second.
    pub decode_bytes_per_s: f64,
    /// Bytes of the disk read ahead of a sequential reader.
    pub read_ahead_bytes: u64,
    /// Bytes of windows that stay in memory, because more of them may be read.
    pub cache_bytes: u64,
    /// What the clients' processors are, where they are not each client's own.
    pub shared_processors: Option<SharedProcessors>,
}

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
    /// The clients that start from it.
    pub crowd: Crowd,
    /// How the disk is shown.
    pub front: Front<'a>,
    /// How an image is served.
    pub served: ServedConfig,
    /// In which order requests are served that wait at the same time.
    pub elevator: ElevatorKind,
}

/// The result of a prediction.
#[derive(Clone, PartialEq, Debug)]
pub struct Predicted {
    /// Every start.
    pub starts: Vec<Started>,
    /// Requests to the medium; behind an edge cache, those that it made.
    pub requests: u64,
    /// Bytes of them: what the origin sent.
    pub bytes: u64,
    /// Requests that did not begin where the last one ended.
    pub seeks: u64,
    /// The time during which the medium was busy.
    pub busy: Nanos,
}

impl Predicted {
    /// Jain's index of the rates at which clients got ready: starts a second, of each.
    #[must_use]
    pub fn jain_index(&self) -> f64 {
        jain_index(self.starts.iter().map(|start| 1.0 / start.ready.as_secs_f64().max(1e-9)))
    }

    /// The median time of the starts.
    #[must_use]
    pub fn median_ready(&self) -> Nanos {
        let mut ready: Vec<Nanos> = self.starts.iter().map(|start| start.ready).collect();
        ready.sort_unstable();
        ready.get(ready.len() / 2).copied().unwrap_or_default()
    }

    /// The start that took longest.
    #[must_use]
    pub fn slowest(&self) -> Started {
        self.starts.iter().copied().max_by_key(|start| start.ready).unwrap_or_default()
    }
}

/// The same for a raw disk in a file.
const RAW_DEPTH: u32 = 32;

impl Prediction<'_> {
    /// Runs it; nothing where the medium is the real one.
    ///
    /// # Errors
    /// [`MediumError::TooLarge`] when the file does not fit on the medium.
    ///
    /// # Panics
    /// When there is an edge cache and the medium is no link.
    pub fn run(&self) -> Result<Option<Predicted>, MediumError> {
        let Some(device) = self.medium.device(self.file_bytes)? else { return Ok(None) };
        let link = self.medium.link();
        let cohorts = self.crowd.cohorts(link.is_some());
        let mut starts = Starts::new(self, &cohorts);
        let config = self.queue(cohorts.len());
        let Some(link) = link else {
            assert!(self.crowd.edge.is_none(), "an edge cache lies on a link");
            let run = simulate(config, device, Nanos(u64::MAX), &mut starts);
            return Ok(Some(Predicted { starts: starts.started(), ..account(&run) }));
        };
        let clients = cohorts.iter().map(|cohort| cohort.clients).collect();
        let network = match self.crowd.edge {
            None => Network::direct(link, clients),
            Some(edge) => Network::with_edge(link, edge, self.file_bytes, clients),
        };
        let (run, network) = simulate_network(config, network, Nanos(u64::MAX), &mut starts);
        let (requests, bytes) = (network.origin_requests, network.origin_bytes);
        Ok(Some(Predicted { starts: starts.started(), requests, bytes, ..account(&run) }))
    }

    /// The queue before the medium of so many clients: each has its own before it, so this one lets
    /// everything through.
    fn queue(&self, clients: usize) -> QueueConfig {
        let depth = if matches!(self.disk, Disk::Raw) { RAW_DEPTH } else { FETCHERS + OPENING };
        QueueConfig { elevator: self.elevator, ..pass_through(depth.saturating_mul(clients as u32)) }
    }

    /// How the engine behaves.
    fn disk_config(&self) -> DiskConfig {
        let Self { medium, file_bytes, served, .. } = self;
        let traits = MediumTraits {
            rotational: medium.turns(),
            overlaps: medium.overlaps(),
            bytes_per_s: medium.rate_bytes_per_second(*file_bytes, 0).map(|rate| rate as f64),
        };
        // The page cache takes a chunk at once, and answers by itself from then on.
        let delivery = DeliveryConfig { before_answers: true };
        let visibility = if self.front.pushed { UseVisibility::Hidden } else { UseVisibility::Asked };
        DiskConfig {
            queue: QueueConfig { elevator: self.elevator, ..QueueConfig::for_medium(traits) },
            fetchers: FETCHERS,
            prefetch: served.prefetch,
            cache_bytes: served.cache_bytes,
            readers_keep: true,
            read_ahead_bytes: served.read_ahead_bytes,
            visibility,
            delivery: self.front.pushed.then_some(delivery),
            ..DiskConfig::default()
        }
    }

    fn processors(&self) -> Processors {
        let ServedConfig { decode_bytes_per_s, shared_processors, .. } = self.served;
        Processors { decode_bytes_per_s, shared: shared_processors }
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
        // What had not come when the last of them was ready kept the medium busy until then.
        let (from, until) = (sent.at.max(busy_until), sent.service.done.min(run.ended));
        predicted.busy += until.saturating_sub(from);
        busy_until = busy_until.max(until);
    }
    predicted
}

#[cfg(test)]
mod tests;
