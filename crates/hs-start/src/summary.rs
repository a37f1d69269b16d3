//! The run summary: one object, the same keys wherever they apply.

use std::time::Duration;

use hs_store::Snapshot;
use hs_units::Nanos;
use serde::Serialize;

/// A stage of a boot, and what was read before it. What lies before `kernel` is firmware and boot loader,
/// with the kernel and its initramfs; after that come `initramfs` and `init`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Stage {
    /// Its name.
    pub name: &'static str,
    /// Start → its first line.
    pub at_s: f64,
    /// Requests that the medium counted until then.
    pub store_requests: u64,
    /// Bytes that it delivered until then.
    pub store_bytes: u64,
    /// Requests until then that did not go on where the last one ended.
    pub seeks: u64,
    /// Time during which it had a request in service until then.
    pub medium_busy_s: f64,
}

impl Stage {
    /// A stage that begins so long after the start, and what the medium had counted then.
    pub(crate) fn new(name: &'static str, at: Duration, counted: &Snapshot) -> Self {
        Self {
            name,
            at_s: at.as_secs_f64(),
            store_requests: counted.requests,
            store_bytes: counted.bytes,
            seeks: counted.seeks,
            medium_busy_s: seconds(counted.busy),
        }
    }
}

/// What one stage of a boot from a medium read of one file on it. A request counts for the file in which it
/// begins.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FileReads {
    /// `firmware`; `boot loader` from the first read of a file that firmware does not read itself; from the
    /// kernel's first line on as [`Stage::name`].
    pub stage: &'static str,
    /// The file; `None` for directories, and for what lies in no file.
    pub file: Option<String>,
    /// Start → the first of these reads.
    pub first_s: f64,
    /// Start → the last of them.
    pub last_s: f64,
    /// Requests that the medium counted.
    pub requests: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Requests that did not go on where the one before them ended, whatever file that was in.
    pub seeks: u64,
}

/// What one start took. Bytes are bytes, times are seconds; `None` where a figure does not apply or
/// was not observed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Start → ready.
    pub ready_s: Option<f64>,
    /// Start → end of the command.
    pub wall_s: f64,
    /// What no start from this image on this medium can be quicker than: the critical path through the
    /// recorded program's own times, at the pace of this start where that was quicker, and an undisturbed
    /// stream of the hot region. `None` without such a region, and where the medium is not modelled.
    pub limit_s: Option<f64>,
    /// How long a guest had a processor until ready. Waits for the medium are in the rest, with all its other
    /// waits; a host that gives less of a processor at times changes this much less than `ready_s`.
    pub guest_cpu_s: Option<f64>,
    /// The read-ahead that a guest's kernel was told; `None` when it uses its own.
    pub guest_read_ahead_kib: Option<u32>,
    /// The stages of a boot, as the guest's console shows them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// What was read of the files of the medium that a guest boots from, until it ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub medium_files: Vec<FileReads>,
    /// Start → the first moment of the profile of a guest that recorded itself: times in the profile count
    /// from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_from_s: Option<f64>,
    /// The medium.
    pub medium: String,
    /// The network link; none yet.
    pub link: Option<String>,
    /// Bytes of the image file.
    pub image_bytes: u64,
    /// Bytes of the disk.
    pub logical_bytes: u64,
    /// Uncompressed bytes of the hot blocks.
    pub hot_bytes: u64,
    /// Bytes of the hot region in the file.
    pub hot_compressed_bytes: u64,
    /// Read requests of the kernel.
    pub demand_requests: Option<u64>,
    /// Bytes of these requests.
    pub demand_bytes: Option<u64>,
    /// Bytes of the file outside the hot region that a read waited for, as they are stored.
    pub demand_outside_bytes: Option<u64>,
    /// Stored bytes that came behind the reads until ready, and that no read had asked for.
    pub background_bytes: Option<u64>,
    /// Of these, bytes of chunks that were read.
    pub background_used_bytes: Option<u64>,
    /// Windows outside the hot region that the last start with `--learn` has read, and that came ahead of the
    /// reads; zero when nothing was learned before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learned_windows: Option<u64>,
    /// Time in which the program waited for the medium: each moment once, however many of its reads waited in
    /// it, and without the reads that fill caches ahead of it.
    pub demand_wait_s: Option<f64>,
    /// Bytes prefetched, uncompressed.
    pub prefetch_bytes: Option<u64>,
    /// Prefetched bytes that were demanded before they had come, as observed.
    pub late_bytes: Option<u64>,
    /// Prefetched bytes that came after the recorded start needed them, by its own times.
    pub overdue_bytes: Option<u64>,
    /// Of these, bytes that were used, as observed.
    pub overdue_used_bytes: Option<u64>,
    /// Prefetched bytes that were not used, as observed.
    pub unused_prefetch_bytes: Option<u64>,
    /// Prefetched bytes that were used, as observed.
    pub used_prefetch_bytes: Option<u64>,
    /// Prefetched bytes that were mapped near something used, and may or may not have been used.
    pub mapped_prefetch_bytes: Option<u64>,
    /// Requests that the medium counted until ready.
    pub store_requests: u64,
    /// Bytes that it delivered until ready.
    pub store_bytes: u64,
    /// Requests that did not go on where the last one ended.
    pub seeks: u64,
    /// Time during which it had a request in service.
    pub medium_busy_s: f64,
    /// Requests to the files of a pack's disk until ready, those of opening it among them. The medium has not
    /// counted them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packed_disk_requests: Option<u64>,
    /// Bytes that these brought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packed_disk_bytes: Option<u64>,
    /// Requests that were made because one before them failed.
    pub store_retries: u64,
    /// Requests that failed for good.
    pub store_errors: u64,
    /// Reads of the kernel that were answered with an error.
    pub failed_requests: Option<u64>,
    /// Share of the kernel's reads that did not have to wait for the medium.
    pub cache_hit_ratio: Option<f64>,
    /// Peak memory of the server.
    pub peak_rss_bytes: Option<u64>,
    /// Stored bytes of hot chunks that the prefetch's requests brought until ready, without those that came
    /// with the first byte.
    pub prefetch_stream_bytes: Option<u64>,
    /// The time from the first byte to the last of these chunks, every pause between included, as observed.
    pub prefetch_stream_s: Option<f64>,
    /// How far the prefetch was ahead of need when it was least, by the recorded start's own times; negative
    /// when something came too late.
    pub prefetch_least_slack_s: Option<f64>,
    /// Prefetched chunks of which a block was kept from the kernel until ready, so that their use is seen.
    pub prefetch_markers: Option<u64>,
    /// Of these, chunks that were used.
    pub prefetch_markers_used: Option<u64>,
    /// Why the prefetch ended.
    pub end_reason: Option<String>,
    /// How long faults of a resumed guest waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<FaultWaits>,
}

/// Faults that came to the server in the first ten seconds after a guest went on, or until it ended: pages
/// that lay in the page cache are not among them.
#[derive(Clone, Debug, Serialize)]
pub struct FaultWaits {
    /// How many there were.
    pub requests: u64,
    /// Half of them waited no longer.
    pub median_s: f64,
    /// 99 of 100 waited no longer.
    pub p99_s: f64,
    /// The longest hundred waits, the longest first.
    pub longest_s: Vec<f64>,
}

/// Seconds.
pub fn seconds(nanos: Nanos) -> f64 {
    nanos.as_secs_f64()
}
