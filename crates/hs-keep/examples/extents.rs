//! What opening an overlay with a million extents costs, as one JSON object.
//!
//! ```text
//! cargo run --release -p hs-keep --example extents [FOLDER]
//! ```
//!
//! In FOLDER (a temporary one when not given) it makes an overlay of a disk of 100 GB, of which every 24th
//! block has data, is zero or is discarded. Then it starts itself again, so that nothing of the making is in
//! memory, drops the overlay from the page cache, and opens it.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use hs_keep::{KeepFile, NewFile, OpenedAs};
use hs_units::{BLOCK_BYTES, Digest};

const DISK: (Digest, u64) = (Digest([3; 32]), 100_000_000_000 / BLOCK_BYTES * BLOCK_BYTES);
const EXTENTS: u64 = 1_000_000;
const BLOCKS_BETWEEN: u64 = 24;
/// Of so many extents one has data, and one is discarded.
const KINDS: u64 = 4;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(first), Some(path)) if first == "--measure" => measure(Path::new(&path)),
        (Some(folder), _) => make_and_measure(Path::new(&folder)),
        (None, _) => make_and_measure(tempfile::tempdir()?.path()),
    }
}

fn make_and_measure(folder: &Path) -> Outcome<()> {
    let path = folder.join("extents.hsk");
    if !path.exists() {
        make(&path)?;
    }
    let status = std::process::Command::new(std::env::current_exe()?).arg("--measure").arg(&path).status()?;
    if status.success() { Ok(()) } else { Err(status.to_string().into()) }
}

fn make(path: &Path) -> Outcome<()> {
    let mut new = NewFile::instead_of(KeepFile::open(path, OpenedAs::Keeping, Duration::ZERO)?, DISK)?;
    for number in 0..EXTENTS {
        let block = number * BLOCKS_BETWEEN;
        match number % KINDS {
            0 => new.write(block, &number.to_le_bytes().repeat(BLOCK_BYTES as usize / 8))?,
            kind => new.zero(block, 1, kind == 1)?,
        }
    }
    new.finish()?;
    Ok(())
}

/// Resident bytes of this process that are its own; the program's file is not.
fn resident_bytes() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("no RssAnon in status")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

fn measure(path: &Path) -> Outcome<()> {
    rustix::fs::fadvise(&std::fs::File::open(path)?, 0, None, rustix::fs::Advice::DontNeed)?;
    let before = resident_bytes()?;
    let began = Instant::now();
    let overlay = KeepFile::open(path, OpenedAs::Keeping, Duration::ZERO)?.overlay(Some(DISK), true)?;
    let open_s = began.elapsed().as_secs_f64();
    let extents = overlay.figures().extents;
    assert_eq!(extents, EXTENTS);
    let open_rss_bytes = resident_bytes()?.saturating_sub(before);
    let text = format!(
        "{{\"logical_bytes\": {}, \"extents\": {extents}, \"open_s\": {open_s:.6}, \
         \"open_rss_bytes\": {open_rss_bytes}}}",
        DISK.1
    );
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}
