//! What opening and reading an image of a very large disk costs, as one JSON object.
//!
//! ```text
//! cargo run --release -p hs-disk --example scale [FOLDER]
//! ```
//!
//! In FOLDER (a temporary one when not given) it makes a sparse disk of 100 GB with 110,000 distinct
//! chunks and an image of it with 20,000 hot extents. Then it starts itself again, so that nothing of
//! the making is in memory, opens the image, and reads 10,000 random blocks, each compared with what it
//! must be. Only what was asked for is read: the image's pages are dropped from the page cache before.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hs_build::source::{Source, SourceOptions};
use hs_build::{BuildOptions, OptimizeOptions, build, optimize};
use hs_disk::{CacheSizing, DiskOptions, ReadOptions, ServedDisk};
use hs_image::{Codec, Image};
use hs_store::{Count, FileStore};
use hs_trace::{BlockDigest, Profile, Read};
use hs_units::{BLOCK_BYTES, BlockRange, Lba, Nanos, Prng};

const DISK_BYTES: u64 = 100_000_000_000 / WINDOW_BYTES * WINDOW_BYTES;
const WINDOW_BYTES: u64 = 128 << 10;
const WINDOWS: u64 = DISK_BYTES / WINDOW_BYTES;
const CHUNKS: u64 = 110_000;
const HOT_EXTENTS: u64 = 20_000;
const READS: u64 = 10_000;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(first), Some(image)) if first == "--measure" => measure(Path::new(&image)),
        (Some(folder), _) => make_and_measure(Path::new(&folder)),
        (None, _) => make_and_measure(tempfile::tempdir()?.path()),
    }
}

fn make_and_measure(folder: &Path) -> Outcome {
    let image = folder.join("scale-hot.hsi");
    if !image.exists() {
        make(folder, &image)?;
    }
    let status =
        std::process::Command::new(std::env::current_exe()?).arg("--measure").arg(&image).status()?;
    if status.success() { Ok(()) } else { Err(status.to_string().into()) }
}

/// The number-th window that has data; they are spread evenly over the disk.
fn window(number: u64) -> u64 {
    number * WINDOWS / CHUNKS
}

/// The one block of data in a window.
fn lba(window: u64) -> Lba {
    Lba(window * (WINDOW_BYTES / BLOCK_BYTES) + Prng::new(window).below(WINDOW_BYTES / BLOCK_BYTES))
}

fn content(window: u64) -> Vec<u8> {
    let mut line = [0; 64];
    Prng::new(window ^ 0xc0de).fill(&mut line);
    line.repeat(BLOCK_BYTES as usize / line.len())
}

fn make(folder: &Path, output: &Path) -> Outcome {
    let raw = folder.join("scale.raw");
    let disk = File::create(&raw)?;
    disk.set_len(DISK_BYTES)?;
    for window in (0..CHUNKS).map(window) {
        disk.write_all_at(&content(window), lba(window).byte_offset())?;
    }
    let cold = folder.join("scale-cold.hsi");
    let source = Source::open(&raw, &SourceOptions::default(), &|_| {})?;
    let options =
        BuildOptions { window_bytes: WINDOW_BYTES, codec: Codec::Zstd, level: 1, ..BuildOptions::default() };
    let report = build(&source, &cold, &options, &|_| {})?;
    assert_eq!(report.chunks, CHUNKS);
    let image = Image::open(Arc::new(FileStore::open(&cold)?))?;
    let mut prng = Prng::new(1);
    let mut windows: Vec<u64> = (0..CHUNKS).map(window).collect();
    for i in 0..HOT_EXTENTS as usize {
        windows.swap(i, i + prng.below(CHUNKS - i as u64) as usize);
    }
    windows.truncate(HOT_EXTENTS as usize);
    let reads = windows.iter().enumerate().map(|(i, window)| Read {
        at: Nanos(i as u64),
        blocks: BlockRange::new(lba(*window), 1),
        cost: Nanos(1),
    });
    let profile = Profile {
        disk_digest: image.disk_digest(),
        disk_bytes: DISK_BYTES,
        ended: Nanos(HOT_EXTENTS),
        reads: reads.collect(),
        digests: windows.iter().map(|window| BlockDigest::of(&content(*window))).collect(),
        ..Profile::default()
    };
    let options = OptimizeOptions { level: 1, ..OptimizeOptions::default() };
    let report = optimize(&image, Some(&cold), &[profile], output, &options, &|_| {})?;
    assert_eq!(report.extents, HOT_EXTENTS);
    Ok(())
}

/// Resident bytes of this process that are its own; the program's file is not.
fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("no RssAnon in status")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

fn measure(path: &Path) -> Outcome {
    rustix::fs::fadvise(&File::open(path)?, 0, None, rustix::fs::Advice::DontNeed)?;
    let before = resident_bytes()?;
    let count = Count::new(FileStore::open(path)?);
    let counters = count.counters();
    let began = Instant::now();
    let image = Arc::new(Image::open(Arc::new(count))?);
    let open_s = began.elapsed().as_secs_f64();
    let after_open = resident_bytes()?;
    let opening = counters.snapshot();
    let read =
        ReadOptions { cache_bytes: 1 << 20, cache_sizing: CacheSizing::Fixed, ..ReadOptions::default() };
    let options = DiskOptions { read, ..DiskOptions::default() };
    let disk = ServedDisk::of_image(Arc::clone(&image), &options, None)?;
    let mut prng = Prng::new(2);
    let mut most = after_open;
    let began = Instant::now();
    for number in 0..READS {
        // Half of the reads meet data, the others mostly holes.
        let data = window(prng.below(CHUNKS));
        let at = if number % 2 == 0 { lba(data) } else { Lba(prng.below(DISK_BYTES / BLOCK_BYTES)) };
        let of = at.byte_offset() / WINDOW_BYTES;
        let mut found = vec![0; BLOCK_BYTES as usize];
        disk.read_at(at.byte_offset(), &mut found)?;
        let has_data = window((of * CHUNKS).div_ceil(WINDOWS)) == of && lba(of) == at;
        let expected = if has_data { content(of) } else { vec![0; BLOCK_BYTES as usize] };
        assert!(found == expected, "block {at}");
        most = most.max(resident_bytes()?);
    }
    let reads_s = began.elapsed().as_secs_f64();
    let superblock = image.superblock();
    let text = format!(
        "{{\"logical_bytes\": {}, \"image_bytes\": {}, \"chunks\": {}, \"hot_extents\": {HOT_EXTENTS}, \
         \"open_s\": {open_s:.6}, \"open_requests\": {}, \"open_bytes\": {}, \"open_rss_bytes\": {}, \
         \"reads\": {READS}, \"reads_s\": {reads_s:.3}, \"reader_cache_bytes\": {}, \"reads_rss_bytes\": {}}}",
        superblock.disk_bytes,
        superblock.image_bytes,
        superblock.cold.distinct_chunks,
        opening.requests,
        opening.bytes,
        after_open - before,
        read.cache_bytes,
        most - before,
    );
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}
