//! What the chunk cache costs and hits, as one JSON object.
//!
//! ```text
//! cargo run --release -p hs-build --example chunk_cache [PROFILE]...
//! ```
//!
//! Synthetic requests at a million entries: skewed (Zipf), a loop a quarter larger than the cache, and a
//! skewed set with scans through it. Recorded profiles (what a start read) are replayed by the windows of 128
//! KiB that each read needs, through caches of an eighth, a quarter and a half of all windows of the profile:
//! once, and as a server of several clients sees them, with a copy of the whole disk between two starts.
//! Times are of a look-up and, where it misses, of the insertion and the eviction; requests are made
//! beforehand. The longest operation is the longest of those that were long in each of three passes, which do
//! the same: what only one pass had was the machine's doing.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use hs_engine::cache::{Cache, Origin};
use hs_trace::Profile;
use hs_units::Prng;

const ENTRIES: usize = 1_000_000;
const REQUESTS: usize = 4_000_000;
const WINDOW_BYTES: u64 = 128 << 10;
/// Sizes of the cache, as one part of the profile's windows in so many.
const PARTS: [u64; 3] = [8, 4, 2];
/// A profile is short: it is replayed so often for its time.
const REPLAYS: usize = 50;
/// Passes in which an operation must have been long to count as long.
const PASSES: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let mut lines = Vec::new();
    for (name, requests) in [("zipf", zipf(1)), ("loop", looped()), ("zipf with scans", with_scans())] {
        lines.push(measure(name, ENTRIES as u64, &requests));
    }
    for path in std::env::args_os().skip(1) {
        let path = Path::new(&path);
        let profile = Profile::decode(&std::fs::read(path)?)?;
        let start = windows(&profile);
        let mut distinct = start.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let copy = 0..profile.disk_bytes.div_ceil(WINDOW_BYTES);
        let with_copy: Vec<u64> = start.iter().copied().chain(copy).chain(start.iter().copied()).collect();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for (what, requests) in [("", &start), (" twice and a copy", &with_copy)] {
            for part in PARTS {
                let room = distinct.len() as u64 / part;
                let name = format!("{name}{what}, 1/{part} of its windows");
                lines.push(replay(&name, room, requests));
            }
        }
    }
    writeln!(std::io::stdout(), "[{}]", lines.join(",\n "))?;
    Ok(())
}

/// Zipf's law with exponent 0.8 over eight times as many keys as fit, by inverting its distribution.
fn zipf(seed: u64) -> Vec<u64> {
    let keys = 8 * ENTRIES;
    let mut sums = Vec::with_capacity(keys);
    let mut sum = 0.0;
    for rank in 1..=keys {
        sum += (rank as f64).powf(-0.8);
        sums.push(sum);
    }
    let mut prng = Prng::new(seed);
    let mut next = || {
        let at = prng.next_u64() as f64 / u64::MAX as f64 * sum;
        sums.partition_point(|sum| *sum < at) as u64
    };
    (0..REQUESTS).map(|_| next()).collect()
}

fn looped() -> Vec<u64> {
    (0..REQUESTS as u64).map(|number| number % (ENTRIES as u64 * 5 / 4)).collect()
}

/// Every other half million requests are a scan of what is never asked for again.
fn with_scans() -> Vec<u64> {
    let mut requests = zipf(2);
    let mut fresh = 1 << 40;
    for (number, request) in requests.iter_mut().enumerate() {
        if number / (ENTRIES / 2) % 2 == 1 {
            *request = fresh;
            fresh += 1;
        }
    }
    requests
}

/// The windows that each read of a start needs, in order.
fn windows(profile: &Profile) -> Vec<u64> {
    let windows_of = |read: &hs_trace::Read| {
        let (first, bytes) = (read.blocks.start.byte_offset(), read.blocks.bytes());
        first / WINDOW_BYTES..=(first + bytes - 1) / WINDOW_BYTES
    };
    profile.reads.iter().flat_map(windows_of).collect()
}

/// A cache of so many entries with a weight of one each, all for demanded ones: prefetched entries have a
/// fifth of the budget.
fn cache(entries: u64) -> Cache<u64, ()> {
    Cache::new(entries * 5 / 4)
}

fn ask(cache: &mut Cache<u64, ()>, key: u64) {
    if cache.get(&key).is_none() {
        cache.insert(key, (), 1, Origin::Demanded, |_, ()| {});
    }
}

fn measure(name: &str, entries: u64, requests: &[u64]) -> String {
    let mut cache_once = cache(entries);
    let began = Instant::now();
    requests.iter().for_each(|key| ask(&mut cache_once, *key));
    let nanos = began.elapsed().as_nanos() as f64 / requests.len() as f64;
    let passes = if name.contains("scans") { PASSES } else { 0 };
    let mut shortest = vec![u32::MAX; requests.len()];
    for _ in 0..passes {
        let mut again = cache(entries);
        for (key, shortest) in requests.iter().zip(&mut shortest) {
            let began = Instant::now();
            ask(&mut again, *key);
            *shortest = (*shortest).min(began.elapsed().as_nanos() as u32);
        }
    }
    let longest =
        shortest.into_iter().max().filter(|_| passes > 0).map(|nanos| Duration::from_nanos(nanos.into()));
    line(name, &cache_once, requests.len(), nanos, longest)
}

fn replay(name: &str, entries: u64, requests: &[u64]) -> String {
    let began = Instant::now();
    for _ in 1..REPLAYS {
        let mut cache = cache(entries);
        requests.iter().for_each(|key| ask(&mut cache, *key));
        std::hint::black_box(&cache);
    }
    let nanos = began.elapsed().as_nanos() as f64 / (requests.len() * (REPLAYS - 1)) as f64;
    let mut cache = cache(entries);
    requests.iter().for_each(|key| ask(&mut cache, *key));
    line(name, &cache, requests.len(), nanos, None)
}

fn line(
    name: &str,
    cache: &Cache<u64, ()>,
    requests: usize,
    nanos: f64,
    longest: Option<Duration>,
) -> String {
    let usage = cache.usage();
    let hit_ratio = usage.hits as f64 / requests as f64;
    let longest =
        longest.map_or_else(|| "null".to_owned(), |longest| format!("{:.1}", longest.as_secs_f64() * 1e6));
    format!(
        "{{\"requests\": \"{name}\", \"entries\": {}, \"hit_ratio\": {hit_ratio:.4}, \"ns_an_operation\": {nanos:.1}, \
         \"longest_us\": {longest}}}",
        usage.entries
    )
}
