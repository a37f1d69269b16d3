//! Eight boots over one slow link.
//!
//! Each boot reads what its profile says: much in its first fifth, little later, as systems do. Each has a
//! disk engine of its own that knows nothing of the others. They meet at the link, which divides its rate
//! among them. *Full*: every prefetch goes as fast as it can. A boot that began earlier then brings what it
//! needs in a minute, while a new boot waits for what it needs now. *By deadline*: no prefetch brings
//! anything long before the profile's think times say that it is needed.

use std::num::{NonZeroU32, NonZeroU64};

use hs_device::{LinkSpec, Medium, Model, ModelKind, ModelName};
use hs_engine::queue::ElevatorKind;
use hs_engine::{PrefetchConfig, PrefetchRate};
use hs_units::Nanos;

use crate::predict::{Crowd, Disk, Front, Prediction, Program, ProgramRead, ServedConfig};
use crate::report::{Cell, Figure, Report, Target};
use crate::served::{HotChunk, ImageLayout};

/// 3 MB/s of payload: enough for all that the boots need, not for all of it at once.
const BITS_PER_S: u64 = 25_500_000;
const ROUND_TRIP: Nanos = Nanos::from_millis(10);
const BOOTS: u32 = 8;
const CHUNKS: u32 = 48;
const CHUNK_BYTES: u64 = 128 << 10;

/// The machine's own time until it is ready.
const THINK: Nanos = Nanos::from_millis(20_000);

/// Three fifths of the chunks are needed in the first fifth of the time.
fn needed(chunk: u32) -> Nanos {
    let early = CHUNKS * 3 / 5;
    let fifth = THINK.0 / 5;
    if chunk < early {
        return Nanos(fifth * u64::from(chunk) / u64::from(early));
    }
    Nanos(fifth + 4 * fifth * u64::from(chunk - early) / u64::from(CHUNKS - early))
}

fn link() -> Medium {
    Medium::Model(Model {
        capacity_bytes: None,
        name: ModelName::new("shared-3mbs").expect("a short name"),
        kind: ModelKind::Link(LinkSpec {
            bits_per_s: NonZeroU64::new(BITS_PER_S).expect("a rate"),
            round_trip: ROUND_TRIP,
            shared_by: NonZeroU32::MIN,
        }),
    })
}

/// Times to ready, of boots that begin `apart`.
fn boot(rate: PrefetchRate, apart: Nanos) -> Vec<f64> {
    let mut layout = ImageLayout::hot_first(CHUNKS, CHUNK_BYTES, 0, CHUNK_BYTES);
    for (chunk, number) in layout.hot.iter_mut().zip(0..) {
        chunk.needed = needed(number);
    }
    let read = |(chunk, number): (&HotChunk, u32)| {
        let extent = chunk.extents[0];
        ProgramRead { after: needed(number), block: extent.start.0, blocks: extent.count }
    };
    let program = Program { reads: layout.hot.iter().zip(0..).map(read).collect(), own_time: THINK };
    let disk_bytes = layout.windows.len() as u64 * layout.window_bytes;
    let predicted = Prediction {
        program: &program,
        disk: &Disk::Image(layout),
        disk_bytes,
        file_bytes: u64::from(CHUNKS) * CHUNK_BYTES,
        medium: link(),
        crowd: Crowd {
            clients: NonZeroU32::new(BOOTS).expect("boots"),
            within: Nanos(apart.0 * u64::from(BOOTS)),
            edge: None,
        },
        front: Front {
            files: None,
            inode_ahead_blocks: 0,
            read_ahead_pages: 128 / 4,
            pushed: true,
            overlap: Nanos::ZERO,
        },
        served: ServedConfig {
            prefetch: Some(PrefetchConfig { rate, ..PrefetchConfig::default() }.over_a_network()),
            decode_bytes_per_s: f64::INFINITY,
            read_ahead_bytes: 0,
            cache_bytes: 40 << 20,
            shared_processors: None,
        },
        elevator: ElevatorKind::Headstart,
    };
    let predicted = predicted.run().expect("the file fits").expect("the link is modelled");
    predicted.starts.iter().map(|start| start.ready.as_secs_f64()).collect()
}

pub(super) fn run(_seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for apart in [0, 500, 1_000, 2_000] {
        let worst =
            [("full", PrefetchRate::Full), ("by deadline", PrefetchRate::ByDeadline)].map(|(name, rate)| {
                let ready = boot(rate, Nanos::from_millis(apart));
                let worst = ready.iter().copied().fold(0.0, f64::max);
                let mean = ready.iter().sum::<f64>() / ready.len() as f64;
                let waits = worst - THINK.as_secs_f64();
                rows.push(vec![
                    Cell::Number(apart as f64 / 1e3, 1),
                    name.into(),
                    Cell::Number(worst, 2),
                    Cell::Number(mean, 2),
                    Cell::Number(waits, 2),
                ]);
                (worst, waits)
            });
        let [full, paced] = worst;
        let apart = apart as f64 / 1e3;
        let ready = format!("worst time to ready by deadline ÷ full, boots {apart} s apart");
        figures.push(Figure::new(ready, paced.0 / full.0));
        if apart <= 1.0 {
            let waits = format!("what the worst boot waits by deadline ÷ full, boots {apart} s apart");
            let figure = Figure::new(waits, paced.1 / full.1).off(1.0);
            // Boots that begin together need the same at the same time: there is nothing to leave to others.
            figures.push(if apart > 0.0 { figure.target(Target::AtMost(0.95)) } else { figure });
        }
    }
    let columns = vec!["begun apart (s)", "prefetch", "worst (s)", "mean (s)", "of the worst, waiting (s)"];
    Report { columns, rows, figures, seed: None }
}
