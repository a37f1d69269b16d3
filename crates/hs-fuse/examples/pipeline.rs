//! How much of the machine the prefetch pipeline uses on a fast medium, as one JSON object.
//!
//! ```text
//! cargo run --release -p hs-fuse --example pipeline -- IMAGE [ROUNDS]
//! ```
//!
//! Measures what the image's hot region costs one thread to read, to verify, to decompress and to push
//! into the page cache of `disk.img`; then the real prefetch in push mode, from opening the image to the
//! last pushed byte. With all cores busy and nothing else to do, the pipeline
//! would deliver cores ÷ (sum of the costs) bytes a second; the ratio is what it does deliver of that.
//! IMAGE should have a hot region of hundreds of megabytes. Needs FUSE.

use std::error::Error;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hs_format::Unverified;
use hs_fuse::Pusher;
use hs_fuse::ServedImage;
use hs_image::{ChunkPlace, Decompressor, Image, StreamEvent};
use hs_serve::{Prefetching, ServeConfig};
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
    hs_linux::allocate_kindly();
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

/// Every stage on this thread, chunk after chunk, with a buffer for each as the pipeline has.
fn alone(path: &Path, round: &mut Round) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let config = ServeConfig { prefetching: Prefetching::Off, ..ServeConfig::default() };
    let served = ServedImage::start(Arc::new(FileStore::open(path)?), folder.path(), &config, None)?;
    // The kernel takes pages only for a file that it has looked up.
    std::fs::metadata(folder.path().join("disk.img"))?;
    let image = served.disk().image();
    let chunks = image.hot_chunk_count();
    if chunks == 0 {
        return Err(format!("{} has no hot region", path.display()).into());
    }
    let mut tools = Decompressor::new();
    let pusher = served.session().pusher();
    let mut failure = None;
    let began = Instant::now();
    let place = |chunk| {
        let (chunk, at) = image.hot_chunk(chunk);
        ChunkPlace { chunk, at }
    };
    let places: Vec<ChunkPlace> = (0..chunks).map(place).collect();
    image.stream_chunks(&places, &mut |event| {
        let StreamEvent::Chunk(chunk, bytes) = event else { return ControlFlow::Continue(()) };
        match stages(image, chunk, bytes.into_owned(), &mut tools, &pusher, round) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    // What is left of the whole is reading.
    round.read_s = began.elapsed().as_secs_f64() - round.verify_s - round.decompress_s - round.push_s;
    failure.map_or(Ok(()), Err)
}

/// The stages of one chunk after it was read.
fn stages(
    image: &Image,
    chunk: u32,
    stored: Unverified<Vec<u8>>,
    tools: &mut Decompressor,
    pusher: &Pusher,
    round: &mut Round,
) -> Result<()> {
    let (entry, _) = image.hot_chunk(chunk);
    assert!(!image.superblock().features.has_stale(), "the stages here push whole chunks");
    let began = Instant::now();
    let stored = stored.verify(&entry.expected())?;
    let verified = Instant::now();
    let raw = tools.decompress(entry.codec, &stored, entry.raw_bytes)?;
    let decompressed = Instant::now();
    let mut rest = raw.as_slice();
    for extent in image.hot_extents(chunk) {
        let (bytes, after) = rest.split_at((extent.count * BLOCK_BYTES) as usize);
        rest = after;
        pusher.push(extent.start.byte_offset(), &[bytes])?;
    }
    round.push_s += decompressed.elapsed().as_secs_f64();
    round.verify_s += (verified - began).as_secs_f64();
    round.decompress_s += (decompressed - verified).as_secs_f64();
    round.bytes += u64::from(entry.raw_bytes);
    Ok(())
}

/// Everything together, as `headstart mount --prefetch push` does it.
fn pipeline(path: &Path, round: &mut Round) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let config = ServeConfig { prefetching: Prefetching::Push, ..ServeConfig::default() };
    let store = Arc::new(FileStore::open(path)?);
    let began = Instant::now();
    let served = ServedImage::start(store, folder.path(), &config, None)?;
    served.wait_prefetch();
    round.pipeline_s = began.elapsed().as_secs_f64();
    let pushed = served.disk().stats().prefetch_bytes;
    if pushed != round.bytes {
        return Err(format!("{pushed} bytes were prefetched, not {}", round.bytes).into());
    }
    Ok(())
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
