//! How a server is, as it reports it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use hs_serve::{BackgroundFill, FillProgress, ServedDisk};
use hs_store::{Counters, RetryCounters};
use serde::{Deserialize, Serialize};

use crate::memory::{memory_bytes, peak_rss_bytes};
use crate::queue_status::QueueStatus;
use crate::run_folder::RunFolder;

/// One served image. Bytes are bytes, times are seconds. A field that another version does not know
/// has its default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The server's process.
    pub pid: u32,
    /// The process that starts the next server when this one dies; none without a supervisor.
    pub supervisor: Option<u32>,
    /// Servers before this one that died.
    pub restarts: u32,
    /// The server's version.
    pub version: String,
    /// The image file.
    pub image: PathBuf,
    /// Where disk.img is shown; empty when it is not.
    pub dir: PathBuf,
    /// Where NBD clients find it, as a URI.
    pub nbd: Option<String>,
    /// The command that `run` has started in its root.
    pub command: Option<String>,
    /// How far a file is that fills itself; `dir` is that file.
    pub fill: Option<FillStatus>,
    /// The disk of a pack, which lies in another file; none of other images.
    pub pack: Option<PackStatus>,
    /// How far the cache on disk is filled; none when that was not asked for.
    pub cache_fill: Option<CacheFillStatus>,
    /// Where its file system is mounted.
    pub fs: Option<PathBuf>,
    /// When it was mounted or exported, in seconds since 1970.
    pub since: f64,
    /// The medium.
    pub medium: String,
    /// Where messages go.
    pub log: String,
    /// The prefetch.
    pub prefetch: PrefetchStatus,
    /// The cache.
    pub cache: CacheStatus,
    /// The queue before the medium.
    pub queue: QueueStatus,
    /// Reads that the kernel asked for.
    pub demand_requests: u64,
    /// Bytes that these asked for.
    pub demand_bytes: u64,
    /// Of these reads, how many waited for the medium.
    pub waited_requests: u64,
    /// Sum of the times that they waited.
    pub demand_wait_s: f64,
    /// Reads that wait now.
    pub waiting_now: u64,
    /// For how long the one of them waits that has waited longest.
    pub waiting_longest_s: f64,
    /// Share of the reads that did not wait.
    pub cache_hit_ratio: f64,
    /// Requests to the medium.
    pub store_requests: u64,
    /// Bytes that it delivered.
    pub store_bytes: u64,
    /// Requests that were made because one before them failed.
    pub store_retries: u64,
    /// Requests that failed for good.
    pub store_errors: u64,
    /// Memory of the server now.
    pub rss_bytes: Option<u64>,
    /// The most that it had.
    pub peak_rss_bytes: Option<u64>,
    /// Memory that cannot leave: what has been used of the program and its libraries.
    pub locked_bytes: Option<u64>,
    /// Times that a chunk could not be had, damaged or unreadable.
    pub errors: u64,
}

/// How far the prefetch is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PrefetchStatus {
    /// Where its blocks go: off, warm, hold or push.
    pub mode: String,
    /// Hot chunks that have come.
    pub chunks: u32,
    /// Hot chunks there are.
    pub chunks_total: u32,
    /// Uncompressed bytes that have come.
    pub bytes: u64,
    /// Uncompressed bytes there are.
    pub bytes_total: u64,
    /// How far it was ahead of need when it was least, in seconds; negative when something came too late,
    /// none when the image does not say what is needed when.
    pub least_slack_s: Option<f64>,
    /// Uncompressed bytes that came after the recorded start needed them, by its own times; none when the
    /// image does not say what those are.
    pub overdue_bytes: Option<u64>,
    /// Chunks of which a block was kept from the kernel, so that their use is seen.
    pub markers: u64,
    /// Of these, chunks that were used.
    pub markers_used: u64,
    /// Whether it asks for nothing, since no reader uses what it brings and others wait for the medium.
    pub stands_back: bool,
    /// Why it ended; none while it goes on.
    pub end_reason: Option<String>,
}

/// The cache of chunks that may be asked for again, or came before a reader asked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheStatus {
    /// Bytes that it may hold now.
    pub budget_bytes: u64,
    /// Bytes that it holds.
    pub bytes: u64,
    /// Of these, bytes that no reader has asked for.
    pub prefetched_bytes: u64,
    /// Bytes in memory, also of the prefetch, that the kernel holds as well, by its own doing.
    pub handed_over_bytes: u64,
    /// Chunks that it holds.
    pub chunks: u64,
    /// Times that a chunk which a reader needed was in it.
    pub hits: u64,
    /// Times that it was not.
    pub misses: u64,
    /// The share of hits.
    pub hit_ratio: f64,
    /// Chunks that left for others, or for want of memory.
    pub evicted: u64,
    /// Of these, chunks that no reader ever asked for.
    pub evicted_unused: u64,
}

impl Status {
    /// Where it is used: its address, the command that runs in it, or its folder.
    pub fn place(&self) -> String {
        let place = self.nbd.clone().or_else(|| Some(format!("`{}`", self.command.as_deref()?)));
        place.unwrap_or_else(|| self.dir.display().to_string())
    }

    /// The share of the reads that did not wait, where there are any. Of files over HTTP it is not known.
    pub fn did_not_wait(&self) -> Option<f64> {
        (self.demand_requests > 0 && !self.prefetch.mode.is_empty()).then_some(self.cache_hit_ratio)
    }

    /// Whether it is of this image, or at this directory.
    pub fn is_of(&self, path: &Path) -> bool {
        // As servers say it: names that are no text come as what can be shown of them.
        let shown = path.to_string_lossy();
        let path = Path::new(&*shown);
        self.image == path || self.dir == path || self.fs.as_deref() == Some(path)
    }
}

impl CacheStatus {
    fn of(reader: &ServedDisk) -> Self {
        let usage = reader.cache_usage();
        Self {
            budget_bytes: usage.budget_bytes,
            bytes: usage.bytes,
            prefetched_bytes: usage.prefetched_bytes,
            handed_over_bytes: reader.duplicate_bytes(),
            chunks: usage.entries,
            hits: usage.hits,
            misses: usage.misses,
            hit_ratio: usage.hits as f64 / (usage.hits + usage.misses).max(1) as f64,
            evicted: usage.evicted,
            evicted_unused: usage.evicted_unused,
        }
    }
}

/// How far a file is that fills itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FillStatus {
    /// The process that answers with errors when the server dies.
    pub guard: u32,
    /// Bytes of the disk that the file holds.
    pub filled_bytes: u64,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Whether what no reader has asked for is being filled.
    pub hydrating: bool,
    /// Readers that had to wait for blocks.
    pub waited_readers: u64,
    /// Of these, those that got an error.
    pub denied_readers: u64,
    /// Hot chunks of which a reader has read anything.
    pub hot_chunks_used: u32,
}

/// How far the cache on disk is filled with an image.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheFillStatus {
    /// Bytes of chunks that were gone through.
    pub done_bytes: u64,
    /// Bytes of the image, which has more than chunks.
    pub total_bytes: u64,
    /// Whether everything is there.
    pub is_complete: bool,
}

impl CacheFillStatus {
    fn of(filling: &BackgroundFill) -> Self {
        let FillProgress { done_bytes, total_bytes, is_complete } = filling.progress();
        Self { done_bytes, total_bytes, is_complete }
    }
}

/// The disk of a pack.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PackStatus {
    /// Requests to its files.
    pub disk_requests: u64,
    /// Bytes that these brought.
    pub disk_bytes: u64,
    /// How far the comparison with what is packed is: waiting, comparing, compared or failed; none where
    /// nothing is packed.
    pub comparison: Option<String>,
    /// Blocks that are compared in all; zero before they are counted.
    pub packed_blocks: u64,
    /// Blocks that were compared.
    pub compared_blocks: u64,
    /// Of these, blocks that are others on the disk.
    pub differing_blocks: u64,
}

impl PackStatus {
    fn of(disk: &ServedDisk) -> Option<Self> {
        let counted = disk.image().pack()?.disk_counted();
        let compared = disk.pack_comparison();
        Some(Self {
            disk_requests: counted.requests,
            disk_bytes: counted.bytes,
            comparison: compared.map(|compared| compared.stage.as_str().to_owned()),
            packed_blocks: compared.map_or(0, |compared| compared.packed_blocks),
            compared_blocks: compared.map_or(0, |compared| compared.compared_blocks),
            differing_blocks: compared.map_or(0, |compared| compared.differing_blocks),
        })
    }
}

/// What does not change while the server lasts, and where the rest is asked for.
pub struct Subject<'a> {
    /// What does not change.
    pub fixed: Status,
    /// The server.
    pub served: &'a ServedDisk,
    /// What the medium counts.
    pub counters: Arc<Counters>,
    /// What had to be asked for again.
    pub retries: Arc<RetryCounters>,
    /// What fills the cache on disk, if anything does.
    pub filling: Option<&'a BackgroundFill>,
}

impl Subject<'_> {
    /// How it is now.
    pub fn now(&self) -> Status {
        let reader = self.served;
        let stats = reader.stats();
        let waiting = reader.waiting();
        let driver = self.served;
        let (chunks, chunks_total) = driver.progress();
        let counted = self.counters.snapshot();
        let again = self.retries.snapshot();
        let hot_blocks: u64 = reader.image().superblock().hot.iter().map(|segment| segment.blocks).sum();
        Status {
            prefetch: PrefetchStatus {
                mode: self.fixed.prefetch.mode.clone(),
                chunks,
                chunks_total,
                bytes: stats.prefetch_bytes,
                bytes_total: hot_blocks * hs_units::BLOCK_BYTES,
                least_slack_s: driver.least_slack_s(),
                overdue_bytes: driver.least_slack_s().map(|_| driver.overdue_bytes()),
                markers: reader.tripwire_count().placed,
                markers_used: reader.tripwire_count().used,
                stands_back: driver.ended().is_none() && driver.is_throttled(),
                end_reason: driver.ended().map(|reason| reason.as_str().to_owned()),
            },
            cache: CacheStatus::of(reader),
            pack: PackStatus::of(reader),
            cache_fill: self.filling.map(CacheFillStatus::of),
            queue: QueueStatus::of(reader),
            demand_requests: stats.demand_requests,
            demand_bytes: stats.demand_bytes,
            waited_requests: stats.waited_requests,
            demand_wait_s: stats.demand_wait.as_secs_f64(),
            waiting_now: waiting.reads,
            waiting_longest_s: waiting.oldest.as_secs_f64(),
            cache_hit_ratio: 1.0 - stats.waited_requests as f64 / stats.demand_requests.max(1) as f64,
            store_requests: counted.requests,
            store_bytes: counted.bytes,
            store_retries: again.retries,
            store_errors: again.errors,
            rss_bytes: memory_bytes("VmRSS"),
            peak_rss_bytes: peak_rss_bytes(),
            locked_bytes: super::careful::locked_bytes(),
            errors: stats.chunk_errors,
            ..self.fixed.clone()
        }
    }

    /// As one JSON object.
    pub fn json(&self) -> Vec<u8> {
        // A path that is no UTF-8 has no JSON; the client then gets nothing.
        serde_json::to_vec(&self.now()).unwrap_or_default()
    }
}

/// Seconds since 1970.
pub fn unix_now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The status of every server of this user; prints a warning for a server that does not answer.
///
/// # Errors
/// When the run folder cannot be read.
pub fn servers() -> anyhow::Result<Vec<Status>> {
    let mut answers = Vec::new();
    for folder in RunFolder::all_existing()? {
        answers.extend(folder.ask_all()?);
    }
    let mut found = Vec::new();
    for (process, answer) in answers {
        let said = answer.map_err(anyhow::Error::from).and_then(|text| Ok(serde_json::from_slice(&text)?));
        match said {
            Ok(Said::One(status)) => found.push(*status),
            Ok(Said::Several(several)) => found.extend(several),
            Err(error) => {
                log::warn!("the server with process id {process} does not say how it is: {error:#}")
            }
        }
    }
    Ok(found)
}

/// A server serves one mount, or several exports.
#[derive(Deserialize)]
#[serde(untagged)]
enum Said {
    Several(Vec<Status>),
    One(Box<Status>),
}
