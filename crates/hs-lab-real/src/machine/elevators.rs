//! The kernel's elevators before emulated flash, on a loop device.
//!
//! A loop device passes up to 128 requests on at once, and only what waits beyond these is the elevator's to
//! order. So there are more threads here than the sixteen of the paper.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use hs_engine::queue::jain_index;
use hs_linux::loopdev::{LoopDevice, LoopOptions};
use hs_units::Prng;

use super::emulated::Emulated;
use super::{RealFigure, is_root, skip};

/// What is emulated, and so much of it is read.
const MEDIUM: &str = "emmc-2012";
const BYTES: u64 = 128 << 20;

/// Bytes of a read.
const PAGE: u64 = 4 << 10;

/// Threads, each with one read under way.
const THREADS: u64 = 384;

/// How long each elevator is measured.
const LASTS: Duration = Duration::from_secs(4);

/// Elevators, by their names in the kernel. CFQ has gone; BFQ came of it.
const ELEVATORS: [&str; 3] = ["none", "mq-deadline", "bfq"];

/// Reads a second, and Jain's index of the threads' reads.
fn measure(device: &Path, seed: u64) -> anyhow::Result<(f64, f64)> {
    let ends = AtomicBool::new(false);
    let began = Instant::now();
    let reads = std::thread::scope(|scope| {
        let ends = &ends;
        let read = |thread| scope.spawn(move || read(device, seed * THREADS + thread, ends));
        let threads: Vec<_> = (0..THREADS).map(read).collect();
        std::thread::sleep(LASTS);
        ends.store(true, Ordering::Relaxed);
        let joined = threads.into_iter().map(|thread| thread.join().expect("a reader does not panic"));
        joined.collect::<anyhow::Result<Vec<u64>>>()
    })?;
    let seconds = began.elapsed().as_secs_f64();
    Ok((reads.iter().sum::<u64>() as f64 / seconds, jain_index(reads.iter().map(|reads| *reads as f64))))
}

/// A page of memory where direct I/O wants it.
#[repr(C, align(4096))]
struct Aligned([u8; PAGE as usize]);

/// Reads random pages, past the page cache, until it is told to end.
fn read(device: &Path, seed: u64, ends: &AtomicBool) -> anyhow::Result<u64> {
    let file: File = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(device)?;
    let (mut prng, mut reads) = (Prng::new(seed), 0);
    let mut page = Box::new(Aligned([0; PAGE as usize]));
    while !ends.load(Ordering::Relaxed) {
        file.read_exact_at(&mut page.0, prng.below(BYTES / PAGE) * PAGE)?;
        reads += 1;
    }
    Ok(reads)
}

/// Reads a second of each elevator that the kernel has.
pub(super) fn run(seed: u64) -> anyhow::Result<Vec<RealFigure>> {
    if !is_root() {
        return Ok(skip("elevators on a loop device", "only root attaches one"));
    }
    let emulated = Emulated::new(MEDIUM, BYTES)?;
    let device = LoopDevice::attach(emulated.path(), LoopOptions::default())?;
    let name = device.path().file_name().context("a device has a name")?.to_string_lossy().into_owned();
    let setting = Elevator(format!("/sys/block/{name}/queue/scheduler"));
    let mut figures = Vec::new();
    for elevator in ELEVATORS {
        if std::fs::write(&setting.0, elevator).is_err() {
            skip(&format!("elevator {elevator}"), "this kernel does not have it");
            continue;
        }
        let (rate, jain) = measure(device.path(), seed)?;
        let how = format!("{THREADS} threads, {name} on {MEDIUM} in real time");
        figures.push(RealFigure { name: format!("reads/s, {elevator}"), value: rate, how: how.clone() });
        figures.push(RealFigure { name: format!("Jain's index, {elevator}"), value: jain, how });
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
