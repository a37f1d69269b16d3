//! Writing the disk of an image in the formats of other programs.

mod cloop;
mod clusters;
mod qcow2;
mod raw;

use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

use hs_image::{Image, Progress};

use crate::BuildError;
use crate::output::{Output, Readers};
use clusters::{Encoding, Piece};

/// Bytes of what is written at once: the block of KNOPPIX's cloop files, and qcow2's usual cluster.
const CLUSTER_BYTES: usize = 64 << 10;

const SECTOR_BYTES: u64 = 512;

/// What other programs can read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ExportFormat {
    /// The disk, byte for byte, with holes where it is zero.
    Raw,
    /// cloop version 2 with blocks of 64 KiB at zlib's level 9; see [`crate::cloop`].
    Cloop,
    /// qcow2 version 3 with clusters of 64 KiB.
    Qcow2 {
        /// Whether clusters are compressed, by zstd.
        compress: bool,
    },
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportReport {
    /// Bytes of the disk, all of which agreed with their digests.
    pub disk_bytes: u64,
    /// Bytes of the disk that the file shows: cloop rounds up to whole blocks of 64 KiB, qcow2 to whole
    /// sectors.
    pub shown_bytes: u64,
    /// Size of the file, holes included.
    pub file_bytes: u64,
    /// Clusters of 64 KiB that are zero.
    pub zero_clusters: u64,
}

/// One thread for each core.
#[must_use]
pub fn default_threads() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Takes the clusters of a disk in order and lays them out in a file.
trait Layout {
    /// How clusters should come.
    fn encoding(&self) -> Encoding;
    /// The next cluster.
    fn put(&mut self, piece: Piece) -> Result<(), BuildError>;
    /// Writes what is left; the file, and its size.
    fn finish(self: Box<Self>) -> Result<(Output, u64), BuildError>;
}

/// Writes the disk of `image`, which may be a file here, to `output`, which appears when it is complete. Each
/// chunk is verified before anything of it is written.
///
/// # Errors
/// When a chunk cannot be read or is damaged, or the output cannot be written.
pub fn export(
    (image, file): (&Image, Option<&Path>),
    output: &Path,
    format: ExportFormat,
    threads: NonZeroUsize,
    progress: &dyn Fn(Progress),
) -> Result<ExportReport, BuildError> {
    let disk_bytes = image.exact_bytes();
    let file = Output::create(output, Readers::of(file))?;
    let mut layout: Box<dyn Layout> = match format {
        ExportFormat::Raw => Box::new(raw::Raw::new(file, disk_bytes)),
        ExportFormat::Cloop => Box::new(cloop::Cloop::new(file, disk_bytes)),
        ExportFormat::Qcow2 { compress } => {
            Box::new(qcow2::Qcow2::new(file, disk_bytes.next_multiple_of(SECTOR_BYTES), compress))
        }
    };
    let shown_bytes = match format {
        ExportFormat::Cloop => disk_bytes.next_multiple_of(CLUSTER_BYTES as u64),
        // QEMU counts disks in sectors.
        ExportFormat::Qcow2 { .. } => disk_bytes.next_multiple_of(SECTOR_BYTES),
        ExportFormat::Raw => disk_bytes,
    };
    let mut report = ExportReport { disk_bytes, shown_bytes, file_bytes: 0, zero_clusters: 0 };
    let mut done_bytes = 0;
    let encoding = layout.encoding();
    clusters::for_each(image, encoding, threads, &mut |piece| {
        report.zero_clusters += u64::from(matches!(piece, Piece::Zero));
        layout.put(piece)?;
        done_bytes = disk_bytes.min(done_bytes + CLUSTER_BYTES as u64);
        progress(Progress { stage: "exporting", done_bytes, total_bytes: disk_bytes });
        Ok(())
    })?;
    let (mut file, file_bytes) = layout.finish()?;
    file.set_len(file_bytes)?;
    report.file_bytes = file_bytes;
    file.finish()?;
    Ok(report)
}
