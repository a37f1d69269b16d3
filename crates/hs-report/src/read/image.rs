//! Images: what is hot and what is zero, and which files lie where.

use std::path::Path;

use hs_build::ListedFile;
use hs_image::Image;
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Digest, Lba};

/// Files and directories that are named; a desktop has some 200,000.
const MOST_FILES: usize = 500_000;
/// Runs of zeros that are shown; a desktop has some 20,000.
const MOST_ZERO_RUNS: usize = 500_000;
/// Runs of windows that are asked for at once.
const RUNS_AT_ONCE: usize = 4096;

/// What the page shows of an image.
#[derive(Debug)]
pub(crate) struct ImageInput {
    pub(crate) name: String,
    pub(crate) digest: Digest,
    pub(crate) disk_bytes: u64,
    pub(crate) window_bytes: u64,
    /// Runs with their chunks, in the order of the file.
    pub(crate) hot: Vec<(BlockRange, u32)>,
    /// For each hot chunk, in seconds.
    pub(crate) needed_s: Vec<f32>,
    pub(crate) zero: Vec<BlockRange>,
    pub(crate) files: Vec<ListedFile>,
    pub(crate) notes: Vec<String>,
}

impl ImageInput {
    pub(crate) fn read(path: &Path, name: String) -> anyhow::Result<Self> {
        let image = hs_start::open::open_image(path)?;
        let chunks = 0..image.hot_chunk_count();
        let mut notes = Vec::new();
        let files = hs_build::list_files(&image, MOST_FILES).unwrap_or_else(|error| {
            notes.push(format!("{name}: files are not named: {error}"));
            Vec::new()
        });
        if files.len() == MOST_FILES {
            notes.push(format!("{name}: only {MOST_FILES} files are named."));
        }
        let zero = zero(&image)?;
        if zero.len() == MOST_ZERO_RUNS {
            notes.push(format!("{name}: only {MOST_ZERO_RUNS} runs of zeros are shown."));
        }
        Ok(Self {
            digest: image.disk_digest(),
            disk_bytes: image.disk_bytes(),
            window_bytes: image.window_bytes(),
            hot: chunks
                .clone()
                .flat_map(|chunk| image.hot_extents(chunk).iter().map(move |run| (*run, chunk)))
                .collect(),
            needed_s: chunks.map(|chunk| image.hot_needed(chunk).as_secs_f64() as f32).collect(),
            zero,
            files,
            notes,
            name,
        })
    }
}

fn zero(image: &Image) -> anyhow::Result<Vec<BlockRange>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < image.disk_bytes() && found.len() < MOST_ZERO_RUNS {
        let rest = ByteRange::new(at, image.disk_bytes() - at);
        for run in image.allocation(rest, RUNS_AT_ONCE)? {
            if run.zero {
                let first = Lba::containing(at);
                found.push(BlockRange::new(first, (at + run.len).div_ceil(BLOCK_BYTES) - first.0));
            }
            at += run.len;
        }
    }
    found.truncate(MOST_ZERO_RUNS);
    Ok(found)
}
