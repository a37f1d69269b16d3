//! Classes of models, and how each is fitted to probes.
//!
//! Each has a first guess in closed form. Then its figures are moved, one after the other and by ever smaller
//! steps, as long as that reduces the error on the probes that it is made from (a coordinate search; Hooke
//! and Jeeves, "Direct search solution of numerical and statistical problems", Journal of the ACM 8(2),
//! 1961).

use std::num::NonZeroU64;

use hs_device::{DiskSpec, EmmcSpec, Model, ModelKind, ModelName, SsdRates, SsdSpec};
use hs_units::Nanos;

use super::{MIB, Measured, off};

/// The results of the probes, in seconds a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    large_of_four: f64,
    sequential_of_sixteen: f64,
    random_of_sixteen: f64,
    random: f64,
    large: f64,
    medium_random: f64,
    sequential: f64,
    backwards: f64,
}

impl Rates {
    /// Those of the probes that make a model, in their order.
    pub(super) fn of(measured: &[Measured]) -> Self {
        let seconds = |number: usize| {
            measured[number].time.as_secs_f64().max(1e-9) / measured[number].reads.max(1) as f64
        };
        Self {
            large_of_four: seconds(0),
            sequential_of_sixteen: seconds(1),
            random_of_sixteen: seconds(2),
            random: seconds(3),
            large: seconds(4),
            medium_random: seconds(5),
            sequential: seconds(6),
            backwards: seconds(7),
        }
    }
}

/// A class of models.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// [`SsdSpec`], requests and bytes costing their sum.
    Ssd,
    /// [`SsdSpec`], requests and bytes limited apart.
    Throttled,
    /// [`EmmcSpec`].
    Emmc,
    /// [`DiskSpec`].
    Disk,
}

/// All of them; of two with an equal error the first is taken.
pub(super) const CLASSES: [Class; 4] = [Class::Ssd, Class::Throttled, Class::Emmc, Class::Disk];

/// Devices that serve sixteen readers hardly faster than one take one request at a time.
const QUEUE_GAIN: f64 = 1.3;
/// Turns that a disk may take, in seconds: 30,000 and 2,000 a minute.
const TURNS: (f64, f64) = (0.002, 0.030);
/// What probes cannot measure of a disk: how much it reads ahead, and the rate of its buffer relative to that
/// of the surface.
const BUFFER_BYTES: u64 = 512 << 10;
const INTERFACE: f64 = 2.0;
/// Initial values of the shortest seek within the file, relative to the average one: for a small part of a
/// disk, and for most of one.
const SHORTEST: [f64; 2] = [0.6, 0.1];

/// Sequences of moves, and by how much the first ones go.
const ROUNDS: usize = 16;
const FIRST_STEP: f64 = 1.4;

impl Class {
    /// The model of this class with the smallest error on `fitted`, which found `rates`; `None` where they do
    /// not fit the class.
    pub(super) fn fit(
        self,
        name: ModelName,
        file_bytes: u64,
        rates: &Rates,
        fitted: &[Measured],
    ) -> Option<Model> {
        let model = |figures: &[f64]| {
            let kind = self.build(figures, file_bytes, rates)?;
            Some(Model { name, capacity_bytes: Some(file_bytes), kind })
        };
        let judge =
            |figures: &[f64]| model(figures).map_or(f64::INFINITY, |model| off(&model, file_bytes, fitted));
        let searched = self.guesses(rates).into_iter().map(|guess| search(guess, judge));
        let (figures, _) = searched.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        model(&figures)
    }

    /// Initial figures, of which the best result is taken; none where the class is not possible.
    fn guesses(self, rates: &Rates) -> Vec<Vec<f64>> {
        match self {
            Self::Ssd | Self::Throttled => {
                let bytes_per_s = MIB as f64 / rates.large_of_four.min(rates.large);
                let random = if queued(rates) { rates.random_of_sixteen } else { rates.random };
                let latency = (rates.random - rates.random_of_sixteen).max(1e-7);
                // Sixty kilobytes more: what they take longer than a page, alone.
                let stream = (60 << 10) as f64 / (rates.medium_random - rates.random).max(1e-9);
                vec![vec![bytes_per_s, 1.0 / rates.sequential_of_sixteen, 1.0 / random, latency, stream]]
            }
            Self::Emmc => {
                let read = ((rates.backwards - rates.sequential) / 3.0).max(1e-7);
                let bytes_per_s = MIB as f64 / rates.large;
                vec![vec![(rates.sequential - 4096.0 / bytes_per_s).max(1e-7), read, bytes_per_s]]
            }
            Self::Disk => {
                let bytes_per_s = MIB as f64 / rates.large;
                let page = 4096.0 / bytes_per_s;
                // A page that has just gone by comes again after a turn, less itself and the one behind it.
                let turn = rates.backwards + page;
                if !(TURNS.0..TURNS.1).contains(&turn) {
                    return Vec::new();
                }
                let command = (rates.sequential - page / INTERFACE).clamp(1e-5, 1e-3);
                let seek = (rates.random - turn / 2.0 - command - page).max(1e-4);
                SHORTEST.map(|shortest| vec![bytes_per_s, turn, command, seek, shortest]).into()
            }
        }
    }

    /// The model of these figures; nothing where there is none.
    fn build(self, figures: &[f64], file_bytes: u64, rates: &Rates) -> Option<ModelKind> {
        let least = |figure: f64| (figure as u64).max(1);
        let time = Nanos::from_secs_f64;
        Some(match self {
            Self::Ssd | Self::Throttled => {
                let [bytes_per_s, sequential, random, latency, stream] =
                    figures.try_into().expect("five figures");
                let queued = queued(rates);
                // Whatever small reads have brought can be brought.
                let bytes_per_s = least(bytes_per_s.max(random * 4096.0).max(sequential * 4096.0));
                let stream = (least(stream) < bytes_per_s).then(|| least(stream)).and_then(NonZeroU64::new);
                let read = SsdRates {
                    bytes_per_s,
                    sequential_per_s: least(sequential),
                    random_per_s: least(random),
                };
                ModelKind::Ssd(SsdSpec {
                    read,
                    write: read,
                    latency: if queued { time(latency) } else { Nanos::ZERO },
                    stream_bytes_per_s: stream.filter(|_| queued),
                    queued,
                    apart: self == Self::Throttled,
                })
            }
            Self::Emmc => {
                let [command, page_read, bytes_per_s] = figures.try_into().expect("three figures");
                let (command, page_read) = (time(command), time(page_read));
                ModelKind::Emmc(EmmcSpec { command, page_read, bytes_per_s: least(bytes_per_s) })
            }
            Self::Disk => {
                let [bytes_per_s, turn, command, seek, shortest] = figures.try_into().expect("five figures");
                // The probes do not tell the longest: the middle of what makes a curve that rises
                // (`hs_device`'s seek curve).
                let longest = ((15.0 - 7.0 * shortest) / 8.0 + 3.0 - 2.0 * shortest) / 2.0;
                let spec = DiskSpec {
                    capacity_bytes: file_bytes,
                    // A whole number of turns a minute, as model files have it.
                    turn: Nanos(60_000_000_000 / least((60.0 / turn).round())),
                    heads: 1,
                    zones: 2,
                    outer_bytes_per_s: least(bytes_per_s),
                    inner_bytes_per_s: least(bytes_per_s),
                    seek_next: time(seek * shortest),
                    seek_average: time(seek),
                    seek_full: time(seek * longest),
                    buffer_bytes: BUFFER_BYTES,
                    command: time(command),
                    interface_bytes_per_s: least(bytes_per_s * INTERFACE),
                };
                let track = bytes_per_s * turn;
                let fits = track >= 512.0 && track * 4.0 < file_bytes as f64;
                return (fits && spec.seeks_rise()).then_some(ModelKind::Disk(spec));
            }
        })
    }
}

/// Moves figures to where `judge` is least, and says how much that is.
fn search(mut figures: Vec<f64>, judge: impl Fn(&[f64]) -> f64) -> (Vec<f64>, f64) {
    let mut least = judge(&figures);
    let mut step = FIRST_STEP;
    for _ in 0..ROUNDS {
        let before = least;
        for place in 0..figures.len() {
            for factor in [step, 1.0 / step] {
                let mut moved = figures.clone();
                moved[place] *= factor;
                let judged = judge(&moved);
                if judged < least {
                    (figures, least) = (moved, judged);
                    break;
                }
            }
        }
        if least >= before {
            step = step.sqrt();
        }
    }
    (figures, least)
}

fn queued(rates: &Rates) -> bool {
    rates.random > rates.random_of_sixteen * QUEUE_GAIN
}
