//! Two clients of one disk, of which one asks for 64 blocks at once and the other for one after another, as
//! one JSON object.
//!
//! ```text
//! cargo run -p hs-disk --example sharing [MEDIUM] [SECONDS]
//! ```
//!
//! The disk lies on an emulated medium. It is read for SECONDS with the engine's queue as it is, and as long
//! with one that serves first come, first served, without classes and shares: how long the modest client
//! waits, and how much both get.

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use hs_build::source::{Source, SourceOptions};
use hs_build::{BuildOptions, build};
use hs_device::Medium;
use hs_disk::{CacheSizing, DiskOptions, ReadOptions, Requester, ServedDisk};
use hs_engine::queue::{Class, ClientKey, ElevatorKind, QueueConfig};
use hs_image::{Codec, Image};
use hs_store::{Emulate, FileStore};
use hs_units::{BLOCK_BYTES, Prng};

const DISK_BYTES: u64 = 512 << 20;
const AT_ONCE: u64 = 64;

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Shared {
    modest_waits_s: Vec<f64>,
    modest_reads: u64,
    greedy_reads: u64,
    seconds: f64,
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let medium = arguments.next().unwrap_or_else(|| "flat-10ms-25mbs-serial".to_owned());
    let seconds: f64 = arguments.next().map_or(Ok(5.0), |seconds| seconds.parse())?;
    let folder = tempfile::tempdir()?;
    let (raw, image) = (folder.path().join("disk.raw"), folder.path().join("disk.hsi"));
    let mut content = vec![0; DISK_BYTES as usize];
    Prng::new(1).fill(&mut content);
    std::fs::write(&raw, content)?;
    let options = BuildOptions { codec: Codec::Zstd, level: 1, ..BuildOptions::default() };
    build(&Source::open(&raw, &SourceOptions::default(), &|_| {})?, &image, &options, &|_| {})?;
    std::fs::remove_file(&raw)?;
    let base = QueueConfig::default();
    let first_come = QueueConfig { elevator: ElevatorKind::Noop, by_class: false, fairness: None, ..base };
    let mut out = std::io::stdout().lock();
    write!(out, "{{\"medium\": \"{medium}\"")?;
    for (name, queue) in [("shared", base), ("first_come", first_come)] {
        let store = Emulate::new(FileStore::open(&image)?, &Medium::parse(&medium)?)?;
        let mut result = read(Image::open(Arc::new(store))?, queue, Duration::from_secs_f64(seconds))?;
        result.modest_waits_s.sort_by(f64::total_cmp);
        let at = |part: f64| result.modest_waits_s[(result.modest_waits_s.len() as f64 * part) as usize];
        write!(out, ", \"{name}\": {{\"modest_p50_s\": {:.4}, \"modest_p99_s\": {:.4}", at(0.5), at(0.99))?;
        let rate = (result.modest_reads + result.greedy_reads) as f64 / result.seconds;
        write!(out, ", \"modest_reads\": {}, \"reads_per_s\": {rate:.1}}}", result.modest_reads)?;
    }
    writeln!(out, "}}")?;
    Ok(())
}

/// Has both clients read random blocks until the time is over.
fn read(image: Image, queue: QueueConfig, time: Duration) -> Outcome<Shared> {
    let read = ReadOptions {
        cache_bytes: 1 << 20,
        cache_sizing: CacheSizing::Fixed,
        read_ahead_bytes: 0,
        queue,
        ..ReadOptions::default()
    };
    let options = DiskOptions { read, ..DiskOptions::default() };
    let disk = ServedDisk::of_image(Arc::new(image), &options, None)?;
    let over = AtomicBool::new(false);
    let began = Instant::now();
    let (greedy_reads, modest_waits_s) = std::thread::scope(|scope| {
        let greedy = scope.spawn(|| {
            let (answer, answered) = unbounded();
            let mut prng = Prng::new(2);
            let mut reads = 0;
            (0..AT_ONCE).for_each(|_| ask(&disk, ClientKey(1), &mut prng, answer.clone()));
            while !over.load(Relaxed) && answered.recv().is_ok() {
                reads += 1;
                ask(&disk, ClientKey(1), &mut prng, answer.clone());
            }
            reads
        });
        let (answer, answered) = unbounded();
        let mut prng = Prng::new(3);
        let mut waits = Vec::new();
        while began.elapsed() < time {
            let asked = Instant::now();
            ask(&disk, ClientKey(2), &mut prng, answer.clone());
            let _ = answered.recv();
            waits.push(asked.elapsed().as_secs_f64());
        }
        over.store(true, Relaxed);
        (greedy.join().unwrap_or(0), waits)
    });
    let modest_reads = modest_waits_s.len() as u64;
    Ok(Shared { modest_waits_s, modest_reads, greedy_reads, seconds: began.elapsed().as_secs_f64() })
}

fn ask(disk: &ServedDisk, client: ClientKey, prng: &mut Prng, answer: crossbeam_channel::Sender<()>) {
    let block = prng.below(DISK_BYTES / BLOCK_BYTES);
    let requester = Requester { client, class: Class::Demand };
    disk.submit_for(requester, block * BLOCK_BYTES, BLOCK_BYTES as u32, move |_| {
        let _ = answer.send(());
    });
}
