//! Elevators before flash: eMMC, an SD card, a memory stick and an SSD.
//!
//! Readers that always want more, each with one read under way: many of single pages in a small file, and few
//! of windows in a large one. The others are what kernels have: `noop` is Linux's `none`, and `kyber`, which
//! orders nothing among reads; `deadline` is `mq-deadline`; `cfq`, with the kernel's idling, is what `bfq`
//! descends from. None of them knows the medium, and neither does headstart's.

use hs_device::Medium;
use hs_engine::queue::{
    ByPosition, Class, ClientKey, Direction, ElevatorKind, MediumTraits, QueueConfig, jain_index,
};
use hs_units::{ByteRange, Nanos};

use crate::report::{Cell, Figure, Report, Target};
use crate::simulation::{Answer, Run, simulate};
use crate::statistics::Latencies;
use crate::streams::{Pattern, Stream, Streams};

/// All serve one request at a time but the last.
const MEDIA: [&str; 5] = ["emmc-2010", "emmc-2012", "sd-uhs1", "usb2-stick", "ssd-sata"];

/// The processor's time from the end of a read to the next, as in `flash-elevators-2012`.
const THINK: Nanos = Nanos(50_000);

/// How long CFQ waits for a client's next request: the kernel's default.
const SLICE_IDLE: Nanos = Nanos::from_millis(8);

/// About so many requests are served.
const REQUESTS: u64 = 20_000;

/// Readers that ask alike.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    readers: u64,
    bytes: u64,
    file_bytes: u64,
}

const LOADS: [Load; 2] = [
    Load { name: "pages", readers: 64, bytes: 4 << 10, file_bytes: 128 << 20 },
    Load { name: "windows", readers: 24, bytes: 64 << 10, file_bytes: 1 << 30 },
];

/// The elevators of kernels, noop first.
const OTHERS: [ElevatorKind; 4] =
    [ElevatorKind::Noop, ElevatorKind::Deadline, ElevatorKind::Cfq, ElevatorKind::CLook];

fn streams(load: Load) -> Vec<Stream> {
    let stream = |reader: u64| Stream {
        client: ClientKey(reader),
        class: Class::Demand,
        direction: Direction::Read,
        pattern: Pattern::Random,
        region: ByteRange::new(0, load.file_bytes),
        bytes: load.bytes,
        depth: 1,
        think: THINK,
        begins: Nanos(reader),
    };
    (0..load.readers).map(stream).collect()
}

/// The result of one elevator.
#[derive(Clone, Copy)]
struct Outcome {
    reads_per_s: f64,
    jain: f64,
    p99: Nanos,
}

impl Outcome {
    fn of(run: &Run, load: Load) -> Self {
        let mut reads = vec![0.0; load.readers as usize];
        let done = run.requests.iter().filter(|answer| answer.done.is_some());
        done.for_each(|answer| reads[answer.client.0 as usize] += 1.0);
        let latencies: Latencies = run.requests.iter().filter_map(Answer::latency).collect();
        Self {
            reads_per_s: reads.iter().sum::<f64>() / run.ended.as_secs_f64(),
            jain: jain_index(reads),
            p99: latencies.quantile(0.99),
        }
    }
}

/// A kernel's elevator, which knows no shares.
fn of_kernel(elevator: ElevatorKind, ours: QueueConfig) -> QueueConfig {
    QueueConfig { elevator, fairness: None, slice_idle: SLICE_IDLE, ..ours }
}

fn play(medium: Medium, load: Load, config: QueueConfig, seed: u64) -> Outcome {
    let device = medium.device(load.file_bytes).expect("the file fits").expect("the medium is modelled");
    let rate = medium.rate_bytes_per_second(load.file_bytes, 0).expect("the medium is modelled");
    let each = medium.latency() + Nanos::from_secs_f64(load.bytes as f64 / rate as f64);
    let mut streams = Streams::new(streams(load), seed);
    Outcome::of(&simulate(config, device, Nanos(each.0 * REQUESTS), &mut streams), load)
}

/// Figures of headstart's elevator beside the others, and of the same in order of arrival.
fn judge(name: &str, others: &[Outcome], ours: Outcome, by_arrival: Outcome) -> [Figure; 4] {
    let quickest = others.iter().copied().max_by(|one, other| one.reads_per_s.total_cmp(&other.reads_per_s));
    let quickest = quickest.expect("there are others");
    let over = |one: Nanos, other: Nanos| one.as_secs_f64() / other.as_secs_f64();
    [
        Figure::new(
            format!("reads/s ÷ the quickest other's, {name}"),
            ours.reads_per_s / quickest.reads_per_s,
        )
        .off(by_arrival.reads_per_s / quickest.reads_per_s)
        .target(Target::AtLeast(0.98)),
        Figure::new(format!("Jain's index, {name}"), ours.jain)
            .off(by_arrival.jain)
            .target(Target::AtLeast(0.99)),
        Figure::new(format!("p99 ÷ the quickest other's, {name}"), over(ours.p99, quickest.p99))
            .off(over(by_arrival.p99, quickest.p99))
            .target(Target::AtMost(1.1)),
        Figure::new(format!("p99 ÷ noop's, {name}"), over(ours.p99, others[0].p99))
            .off(over(by_arrival.p99, others[0].p99)),
    ]
}

pub(super) fn run(seed: u64) -> Report {
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for name in MEDIA {
        let medium = Medium::parse(name).expect("a name of the list");
        let bytes_per_s = medium.rate_bytes_per_second(1 << 30, 0).map(|rate| rate as f64);
        let traits = MediumTraits { rotational: medium.turns(), overlaps: medium.overlaps(), bytes_per_s };
        let ours = QueueConfig::for_medium(traits);
        for load in LOADS {
            let mut row = |elevator: &str, outcome: Outcome| {
                rows.push(vec![
                    name.into(),
                    load.name.into(),
                    elevator.into(),
                    Cell::Number(outcome.reads_per_s, 0),
                    Cell::Number(outcome.jain, 4),
                    Cell::Number(outcome.p99.as_secs_f64() * 1e3, 1),
                ]);
                outcome
            };
            let others = OTHERS
                .map(|elevator| row(elevator.name(), play(medium, load, of_kernel(elevator, ours), seed)));
            let by_arrival = QueueConfig { by_position: ByPosition::Never, ..ours };
            let by_arrival = row("headstart, by arrival", play(medium, load, by_arrival, seed));
            let ours = row("headstart", play(medium, load, ours, seed));
            figures.extend(judge(&format!("{}, {name}", load.name), &others, ours, by_arrival));
        }
    }
    let columns = vec!["medium", "reads of", "elevator", "reads/s", "Jain's index", "p99 (ms)"];
    Report { columns, rows, figures, seed: Some(seed) }
}
