//! From measurements of a device to a model of it.
//!
//! The probes are those of a flash paper's micro-benchmarks (seeds 004): 4 KiB in sequence and at random; one byte at strides of 1 MiB,
//! in order (`sort`), each once in random order (`shuffle`) and anywhere (`rand`); backwards, at strides; by one reader and by
//! sixteen. The model is that of [`SsdSpec`]: three of the probes give its rates, a fourth its latency, and
//! all others say how far it is off.

use hs_device::{Medium, Model, ModelKind, ModelName, SsdRates, SsdSpec};
use hs_trace::BlockRequest;
use hs_units::{ByteRange, Nanos, Prng};

use crate::replay::{Pace, Replay, Replayed};

/// In which order a probe reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// One request where the last one ended.
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
    /// What it is called.
    pub name: &'static str,
    /// In which order.
    pub order: Order,
    /// Bytes of each read.
    pub bytes: u64,
    /// So many readers.
    pub threads: u32,
}

/// What a probe found.
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

/// All of them; the first five are what the model is made from.
pub const PROBES: [Probe; 15] = [
    probe("1 MiB in sequence, 4 readers", Order::Sequential, MIB, 4),
    probe("4 KiB in sequence, 16 readers", Order::Sequential, 4096, 16),
    probe("4 KiB at random, 16 readers", Order::Random, 4096, 16),
    probe("4 KiB at random", Order::Random, 4096, 1),
    probe("1 MiB in sequence", Order::Sequential, MIB, 1),
    probe("4 KiB in sequence", Order::Sequential, 4096, 1),
    probe("sort", Order::Stride(MIB), 1, 1),
    probe("sort, 16 readers", Order::Stride(MIB), 1, 16),
    probe("shuffle", Order::Shuffle(MIB), 1, 1),
    probe("shuffle, 16 readers", Order::Shuffle(MIB), 1, 16),
    probe("rand", Order::RandomStride(MIB), 1, 1),
    probe("rand, 16 readers", Order::RandomStride(MIB), 1, 16),
    probe("4 KiB backwards", Order::Reverse, 4096, 1),
    probe("4 KiB every 64 KiB", Order::Stride(64 << 10), 4096, 1),
    probe("64 KiB at random, 4 readers", Order::Random, 64 << 10, 4),
];

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

/// Devices that serve sixteen readers hardly better than one take one request at a time.
const QUEUE_GAIN: f64 = 1.3;

/// The model that the first probes give: those must be there, in the order of [`PROBES`].
///
/// # Panics
/// When one is missing.
#[must_use]
pub fn fit(name: ModelName, file_bytes: u64, measured: &[Measured]) -> Model {
    let per_s = |number: usize| {
        let Measured { probe, reads, time } = measured[number];
        assert!(probe == PROBES[number], "the probes come in their order");
        reads as f64 / time.as_secs_f64().max(1e-9)
    };
    let rates = [per_s(0) * MIB as f64, per_s(1), per_s(2), per_s(3), per_s(4) * MIB as f64];
    let [many_bytes, sequential, random, alone, one_bytes] = rates;
    let queued = random > alone * QUEUE_GAIN;
    let least = |rate: f64| (rate as u64).max(1);
    let read = SsdRates {
        // Whatever small reads have brought can be brought.
        bytes_per_s: least(many_bytes.max(one_bytes).max(random.max(alone) * 4096.0)),
        sequential_per_s: least(sequential),
        random_per_s: least(if queued { random } else { alone.max(random) }),
    };
    // Alone, a read takes its cost and the latency.
    let latency =
        if queued { Nanos::from_secs_f64((1.0 / alone - 1.0 / random).max(0.0)) } else { Nanos::ZERO };
    let model = |apart| {
        let kind = ModelKind::Ssd(SsdSpec { read, write: read, latency, queued, apart });
        Model { name, capacity_bytes: Some(file_bytes), kind }
    };
    // Whether requests and bytes cost the sum or the larger of both: whatever fits the other probes better.
    let (summed, apart) = (model(false), model(true));
    let off = |model: &Model| -> f64 {
        let one = |each: &Measured| {
            (modelled(model, file_bytes, each, 1).as_secs_f64() / each.time.as_secs_f64()).ln().abs()
        };
        measured.iter().map(one).sum()
    };
    if off(&apart) < off(&summed) { apart } else { summed }
}

/// How long the model takes for what a probe has read.
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
mod tests {
    use super::*;

    const FILE: u64 = 256 * MIB;

    /// What the probes would find on a model.
    fn probed(model: &Model) -> Vec<Measured> {
        let one = |probe| {
            let alone = Measured { probe, reads: 2_000, time: Nanos::ZERO };
            Measured { time: modelled(model, FILE, &alone, 1), ..alone }
        };
        PROBES.iter().copied().map(one).collect()
    }

    #[test]
    fn a_model_is_found_again() {
        let name = ModelName::new("again").unwrap();
        for (queued, latency) in [(true, 80_000), (false, 0)] {
            let read = SsdRates { bytes_per_s: 400_000_000, sequential_per_s: 50_000, random_per_s: 20_000 };
            let kind = ModelKind::Ssd(SsdSpec {
                read,
                write: read,
                latency: Nanos(latency),
                queued,
                apart: !queued,
            });
            let model = Model { name, capacity_bytes: Some(FILE), kind };
            let measured = probed(&model);
            let found = fit(name, FILE, &measured);
            for each in &measured {
                let ratio = modelled(&found, FILE, each, 1).as_secs_f64() / each.time.as_secs_f64();
                assert!((ratio - 1.0).abs() < 0.1, "{}: {ratio} of {found:?}", each.probe.name);
            }
        }
    }

    #[test]
    fn places_lie_in_the_file() {
        for probe in PROBES {
            for file_bytes in [MIB, 3 * MIB + 5, FILE] {
                let places: Vec<ByteRange> = Places::new(probe, file_bytes, 3).take(600).collect();
                assert!(places.iter().all(|place| place.fits_in(file_bytes)), "{}", probe.name);
            }
        }
        let shuffled = Places::new(PROBES[8], 100 * MIB, 3).take(100);
        let distinct: std::collections::BTreeSet<u64> = shuffled.map(|place| place.offset).collect();
        assert_eq!(distinct.len(), 100, "each place once");
    }
}
