//! The kernel's elevators, and the engine's, before emulated flash on a loop device.
//!
//! A loop device passes up to 128 requests on at once, and only what waits beyond these is the elevator's to
//! order. So there are more readers here than the sixteen of the paper.

mod ours;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use hs_engine::queue::jain_index;
use hs_lab::Histogram;
use hs_linux::loopdev::{LoopDevice, LoopOptions};
use hs_units::{ByteRange, Nanos, Prng};

use super::emulated::Emulated;
use super::{RealFigure, is_root, skip};
use crate::real_file::{Aligned, RealFile};

/// What is emulated for the paper.
pub(super) const TABLET: &str = "emmc-2012";

/// So much of it is read.
const BYTES: u64 = 128 << 20;

/// Bytes of a read.
const PAGE: u64 = 4 << 10;

/// Readers, each with one read under way.
const READERS: u64 = 384;

/// How long each elevator is measured.
const LASTS: Duration = Duration::from_secs(8);

/// The elevator before the device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// One of the kernel's, by its name.
    Kernel(&'static str),
    /// The engine's, and none of the kernel's.
    Ours,
}

/// Those that the paper has. CFQ has gone; BFQ came of it.
pub(super) const OF_PAPER: &[Before] =
    &[Before::Kernel("none"), Before::Kernel("mq-deadline"), Before::Kernel("bfq")];

/// All of the kernel's, and ours.
pub(super) const ALL: &[Before] = &[
    Before::Kernel("none"),
    Before::Kernel("mq-deadline"),
    Before::Kernel("kyber"),
    Before::Kernel("bfq"),
    Before::Ours,
];

impl Before {
    const fn name(self) -> &'static str {
        match self {
            Self::Kernel(name) => name,
            Self::Ours => "headstart",
        }
    }
}

/// What readers got.
#[derive(Default)]
struct Counted {
    latencies: Histogram,
    reads: Vec<f64>,
}

impl Counted {
    fn count(&mut self, reader: u64, latency: Nanos) {
        self.reads.resize(READERS as usize, 0.0);
        self.reads[reader as usize] += 1.0;
        self.latencies.note(latency);
    }

    fn merge(&mut self, other: &Self) {
        self.reads.resize(READERS as usize, 0.0);
        self.reads.iter_mut().zip(&other.reads).for_each(|(all, other)| *all += other);
        self.latencies.merge(&other.latencies);
    }
}

/// What the readers got, and the seconds that it took.
fn measure(device: &Path, before: Before, seed: u64) -> anyhow::Result<(Counted, f64)> {
    let ends = AtomicBool::new(false);
    let began = Instant::now();
    let counted = std::thread::scope(|scope| {
        let ends = &ends;
        let threads: Vec<_> = match before {
            Before::Kernel(_) => {
                (0..READERS).map(|reader| scope.spawn(move || read(device, seed, reader, ends))).collect()
            }
            Before::Ours => vec![scope.spawn(move || ours::read(device, seed, ends))],
        };
        std::thread::sleep(LASTS);
        ends.store(true, Ordering::Relaxed);
        let mut all = Counted::default();
        for thread in threads {
            all.merge(&thread.join().expect("a reader does not panic")?);
        }
        anyhow::Ok(all)
    })?;
    Ok((counted, began.elapsed().as_secs_f64()))
}

/// Reads random pages, past the page cache, until it is told to end.
fn read(device: &Path, seed: u64, reader: u64, ends: &AtomicBool) -> anyhow::Result<Counted> {
    let (file, mut buffer) = (RealFile::direct(device)?, Aligned::default());
    let (mut prng, mut counted) = (Prng::new(seed * READERS + reader), Counted::default());
    while !ends.load(Ordering::Relaxed) {
        let asked = Instant::now();
        file.read(ByteRange::new(prng.below(BYTES / PAGE) * PAGE, PAGE), &mut buffer)?;
        counted.count(reader, asked.elapsed().into());
    }
    Ok(counted)
}

/// Figures of each elevator that there is, before this medium.
pub(super) fn run(medium: &str, elevators: &[Before], seed: u64) -> anyhow::Result<Vec<RealFigure>> {
    if !is_root() {
        return Ok(skip("elevators on a loop device", "only root attaches one"));
    }
    let emulated = Emulated::new(medium, BYTES)?;
    let device = LoopDevice::attach(emulated.path(), LoopOptions::default())?;
    let name = device.path().file_name().context("a device has a name")?.to_string_lossy().into_owned();
    let setting = Elevator(format!("/sys/block/{name}/queue/scheduler"));
    let mut figures = Vec::new();
    for before in elevators {
        let kernel = if let Before::Kernel(name) = before { name } else { "none" };
        if std::fs::write(&setting.0, kernel).is_err() {
            skip(&format!("elevator {kernel}"), "this kernel does not have it");
            continue;
        }
        let (counted, seconds) = measure(device.path(), *before, seed)?;
        let how = format!("{READERS} readers, {name} on {medium} in real time");
        let p99 = counted.latencies.quantile(0.99).as_secs_f64() * 1e3;
        let rate = counted.reads.iter().sum::<f64>() / seconds;
        for (what, value) in
            [("reads/s", rate), ("Jain's index", jain_index(counted.reads)), ("p99 (ms)", p99)]
        {
            figures.push(RealFigure { name: format!("{what}, {}", before.name()), value, how: how.clone() });
        }
    }
    Ok(figures)
}

/// A device has its elevator for longer than its file: it gets back the usual one.
struct Elevator(String);

impl Drop for Elevator {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(&self.0, "none") {
            log::warn!("{} stays as it is: {error}", self.0);
        }
    }
}
