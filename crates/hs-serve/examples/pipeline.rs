//! How much of the machine the prefetch pipeline uses on a fast medium, as one JSON object.
//!
//! ```text
//! cargo run --release -p hs-serve --example pipeline -- IMAGE [ROUNDS]
//! ```
//!
//! Measures on one thread what a byte of the image's hot region costs to read, to verify, to decompress
//! and to push into the page cache of `disk.img`, each alone; then the real prefetch in push mode, from
//! opening the image to the last pushed byte. With all cores busy and nothing else to do, the pipeline
//! would deliver cores ÷ (sum of the costs) bytes a second; the ratio is what it does deliver of that.
//! IMAGE should have a hot region of hundreds of megabytes. Needs FUSE.

use std::error::Error;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hs_image::{Decompressor, Image, StreamEvent};
use hs_serve::{Prefetching, ServeConfig, ServedImage};
use hs_store::FileStore;
use hs_units::BLOCK_BYTES;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Seconds of one round, and how many bytes of the disk it was.
#[derive(Default)]
struct Round {
    bytes: u64,
    read_s: f64,
    verify_s: f64,
    decompress_s: f64,
    push_s: f64,
    pipeline_s: f64,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments.next().ok_or("usage: pipeline IMAGE [ROUNDS]")?;
    let path = Path::new(&path);
    let rounds = arguments.next().map_or(Ok(5), |rounds| rounds.to_string_lossy().parse())?;
    // The medium is memory: read once, the file stays in the page cache.
    std::io::copy(&mut std::fs::File::open(path)?, &mut std::io::sink())?;
    for _ in 0..rounds {
        let mut round = Round::default();
        alone(path, &mut round)?;
        pipeline(path, &mut round)?;
        print(&round)?;
    }
    Ok(())
}

/// Every stage by itself, on this thread.
fn alone(path: &Path, round: &mut Round) -> Result<()> {
    let image = Image::open(Arc::new(FileStore::open(path)?))?;
    let chunks = image.hot_chunk_count();
    if chunks == 0 {
        return Err(format!("{} has no hot region", path.display()).into());
    }
    let mut stored = Vec::with_capacity(chunks as usize);
    round.read_s = timed(|| {
        image.stream_hot(0..chunks, &mut |event| {
            if let StreamEvent::Chunk(_, bytes) = event {
                stored.push(bytes.to_vec());
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    })?;
    let entries: Vec<_> = (0..chunks).map(|chunk| image.hot_chunk(chunk).0).collect();
    round.bytes = entries.iter().map(|entry| u64::from(entry.raw_bytes)).sum();
    round.verify_s = timed(|| {
        entries.iter().zip(&stored).try_for_each(|(entry, stored)| entry.verify(stored))?;
        Ok(())
    })?;
    let mut tools = Decompressor::new();
    let mut raw = Vec::with_capacity(stored.len());
    round.decompress_s = timed(|| {
        for (entry, stored) in entries.iter().zip(&stored) {
            let mut bytes = vec![0; entry.raw_bytes as usize];
            tools.decompress(entry.codec, stored, &mut bytes)?;
            raw.push(bytes);
        }
        Ok(())
    })?;
    drop(stored);
    round.push_s = push(path, &image, &raw)?;
    Ok(())
}

/// Seconds to push the chunks, extent by extent, into a disk that prefetches nothing itself.
fn push(path: &Path, image: &Image, raw: &[Vec<u8>]) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let config = ServeConfig { prefetching: Prefetching::Off, ..ServeConfig::default() };
    let served = ServedImage::start(Arc::new(FileStore::open(path)?), folder.path(), &config, None)?;
    // The kernel takes pages only for a file that it has looked up.
    std::fs::metadata(folder.path().join("disk.img"))?;
    let pusher = served.session().pusher();
    timed(|| {
        for (chunk, raw) in raw.iter().enumerate() {
            let mut rest = raw.as_slice();
            for extent in image.hot_extents(chunk as u32) {
                let (bytes, after) = rest.split_at((extent.count * BLOCK_BYTES) as usize);
                rest = after;
                pusher.push(extent.start.byte_offset(), &[bytes])?;
            }
        }
        Ok(())
    })
}

/// Everything together, as `headstart mount --prefetch push` does it.
fn pipeline(path: &Path, round: &mut Round) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let config = ServeConfig { prefetching: Prefetching::Push, ..ServeConfig::default() };
    let store = Arc::new(FileStore::open(path)?);
    let began = Instant::now();
    let mut served = ServedImage::start(store, folder.path(), &config, None)?;
    served.wait_prefetch();
    round.pipeline_s = began.elapsed().as_secs_f64();
    let pushed = served.reader().stats().prefetch_bytes;
    if pushed != round.bytes {
        return Err(format!("{pushed} bytes were prefetched, not {}", round.bytes).into());
    }
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_secs_f64())
}

/// One line a round.
fn print(round: &Round) -> Result<()> {
    let Round { bytes, read_s, verify_s, decompress_s, push_s, pipeline_s } = round;
    let cores = std::thread::available_parallelism()?.get();
    let ideal_s = (read_s + verify_s + decompress_s + push_s) / cores as f64;
    writeln!(
        std::io::stdout(),
        "{{\"cores\": {cores}, \"bytes\": {bytes}, \"read_s\": {read_s:.4}, \"verify_s\": {verify_s:.4}, \
         \"decompress_s\": {decompress_s:.4}, \"push_s\": {push_s:.4}, \"ideal_s\": {ideal_s:.4}, \
         \"pipeline_s\": {pipeline_s:.4}, \"ratio\": {:.4}}}",
        ideal_s / pipeline_s
    )?;
    Ok(())
}
