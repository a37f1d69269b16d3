//! From measurements of a device to a model of it.
//!
//! The probes are those of a flash paper's micro-benchmarks (seeds 004): 4 KiB in sequence and at random; one
//! byte at strides of 1 MiB, in order (`sort`), each once in random order (`shuffle`) and anywhere (`rand`);
//! backwards, at strides; by one reader and by sixteen. The first of them give the first figures of a model
//! of each class, which are then adjusted until the error is smallest. The others measure that error.

mod classes;
mod course;

use hs_device::{Medium, Model, ModelName};
use hs_trace::BlockRequest;
use hs_units::{ByteRange, Nanos, Prng};

use self::classes::{CLASSES, Rates};
pub use self::course::{Burst, Course};
use crate::replay::{Pace, Replay, Replayed};

/// In which order a probe reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Each request begins where the last one ended.
    Sequential,
    /// Anywhere.
    Random,
    /// Every so many bytes.
    Stride(u64),
    /// Every so many bytes, each place once, in random order.
    Shuffle(u64),
    /// Anywhere at multiples of so many bytes.
    RandomStride(u64),
    /// From the end to the beginning.
    Reverse,
}

/// A probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Its name.
    pub name: &'static str,
    /// In which order.
    pub order: Order,
    /// Bytes of each read.
    pub bytes: u64,
    /// The number of readers.
    pub threads: u32,
}

/// The result of a probe.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// The probe.
    pub probe: Probe,
    /// Reads that it made.
    pub reads: u64,
    /// Time for all of them.
    pub time: Nanos,
}

const fn probe(name: &'static str, order: Order, bytes: u64, threads: u32) -> Probe {
    Probe { name, order, bytes, threads }
}

const MIB: u64 = 1 << 20;

/// All of them; a model is made from the first [`FITTED`], the others measure its error.
pub const PROBES: [Probe; 18] = [
    probe("1 MiB in sequence, 4 readers", Order::Sequential, MIB, 4),
    probe("4 KiB in sequence, 16 readers", Order::Sequential, 4096, 16),
    probe("4 KiB at random, 16 readers", Order::Random, 4096, 16),
    probe("4 KiB at random", Order::Random, 4096, 1),
    probe("1 MiB in sequence", Order::Sequential, MIB, 1),
    probe("64 KiB at random", Order::Random, 64 << 10, 1),
    probe("4 KiB in sequence", Order::Sequential, 4096, 1),
    probe("4 KiB backwards", Order::Reverse, 4096, 1),
    probe("sort", Order::Stride(MIB), 1, 1),
    probe("sort, 16 readers", Order::Stride(MIB), 1, 16),
    probe("shuffle", Order::Shuffle(MIB), 1, 1),
    probe("shuffle, 16 readers", Order::Shuffle(MIB), 1, 16),
    probe("rand", Order::RandomStride(MIB), 1, 1),
    probe("rand, 16 readers", Order::RandomStride(MIB), 1, 16),
    probe("4 KiB every 64 KiB", Order::Stride(64 << 10), 4096, 1),
    probe("32 KiB at random, 2 readers", Order::Random, 32 << 10, 2),
    probe("64 KiB at random, 4 readers", Order::Random, 64 << 10, 4),
    probe("256 KiB at random, 2 readers", Order::Random, 256 << 10, 2),
];

/// This many of [`PROBES`] make a model.
pub const FITTED: usize = 8;

/// The places that a probe reads, without end.
#[derive(Clone, Debug)]
pub struct Places {
    probe: Probe,
    file_bytes: u64,
    next: u64,
    order: Vec<u32>,
    prng: Prng,
}

impl Places {
    /// Those of `probe` in a file of `file_bytes`, at least as long as a read.
    #[must_use]
    pub fn new(probe: Probe, file_bytes: u64, seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let mut order = Vec::new();
        if let Order::Shuffle(stride) = probe.order {
            order = (0..(file_bytes / stride).clamp(1, 1 << 20) as u32).collect();
            for last in (1..order.len()).rev() {
                order.swap(last, prng.below(last as u64 + 1) as usize);
            }
        }
        Self { probe, file_bytes, next: 0, order, prng }
    }
}

impl Iterator for Places {
    type Item = ByteRange;

    fn next(&mut self) -> Option<ByteRange> {
        let (number, bytes) = (self.next, self.probe.bytes);
        self.next += 1;
        let every = |step: u64| (self.file_bytes / step).max(1);
        let offset = match self.probe.order {
            Order::Sequential => number % every(bytes) * bytes,
            Order::Reverse => (every(bytes) - 1 - number % every(bytes)) * bytes,
            Order::Random => self.prng.below(every(bytes)) * bytes,
            Order::Stride(stride) => number % every(stride) * stride,
            Order::RandomStride(stride) => self.prng.below(every(stride)) * stride,
            Order::Shuffle(stride) => {
                u64::from(self.order[(number % self.order.len() as u64) as usize]) * stride
            }
        };
        Some(ByteRange::new(offset, bytes))
    }
}

/// The model that the first probes give: those must be there, in the order of [`PROBES`]. Of the classes of
/// models (flash with a controller, flash whose time depends on the step, a disk) it is the one with the
/// smallest error over all probes.
///
/// # Panics
/// When one of the first [`FITTED`] is missing.
#[must_use]
pub fn fit(name: ModelName, file_bytes: u64, measured: &[Measured]) -> Model {
    let fitted = &measured[..FITTED];
    assert!(
        fitted.iter().map(|each| each.probe).eq(PROBES[..FITTED].iter().copied()),
        "the probes come in their order"
    );
    let found = Rates::of(fitted);
    let mut best: Option<(f64, Model)> = None;
    for class in CLASSES {
        let Some(model) = class.fit(name, file_bytes, &found, fitted) else { continue };
        let off = off(&model, file_bytes, measured);
        if best.is_none_or(|(least, _)| off < least) {
            best = Some((off, model));
        }
    }
    best.expect("flash with a controller is always found").1
}

/// The mean error of a model over some probes: the logarithm of the ratio.
fn off(model: &Model, file_bytes: u64, measured: &[Measured]) -> f64 {
    let one = |each: &Measured| {
        // A thousand reads are as good as a hundred thousand.
        let reads = each.reads.clamp(1, 1_000);
        let modelled = modelled(model, file_bytes, &Measured { reads, ..*each }, 1).as_secs_f64();
        let measured = each.time.as_secs_f64() * reads as f64 / each.reads.max(1) as f64;
        (modelled.max(1e-9) / measured.max(1e-9)).ln().abs()
    };
    measured.iter().map(one).sum::<f64>() / measured.len() as f64
}

/// The model's time for the reads of a probe.
///
/// # Panics
/// When the file does not fit on the model.
#[must_use]
pub fn modelled(model: &Model, file_bytes: u64, measured: &Measured, seed: u64) -> Nanos {
    let device = Medium::Model(*model).device(file_bytes).expect("the file fits").expect("it is modelled");
    let mut replay = Replay::new(Replayed::Readable(device), Pace::Depth(measured.probe.threads));
    for range in Places::new(measured.probe, file_bytes, seed).take(measured.reads as usize) {
        replay.handle(&BlockRequest { at: Nanos::ZERO, writes: false, range });
    }
    replay.finish().ended
}

#[cfg(test)]
mod tests;
