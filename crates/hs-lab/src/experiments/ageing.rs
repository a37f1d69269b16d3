//! How long a class can starve.
//!
//! Demand reads keep the medium busy without a pause, while a less urgent class always has requests waiting.
//! The bound is its ageing time and the time of the request then in service. Without ageing the class is
//! never served.

use hs_engine::queue::{Class, ClientKey, Direction, QueueConfig};
use hs_units::{ByteRange, Nanos};

use crate::models::Model;
use crate::report::{Cell, Figure, Report, Target};
use crate::simulation::{Run, simulate};
use crate::streams::{Pattern, Stream, Streams};

const BYTES: u64 = 64 << 10;

/// Long enough for the class that is served least often to be served some twenty times.
const LENGTH: Nanos = Nanos::from_millis(40_000);

fn streams(model: &Model, class: Class) -> Vec<Stream> {
    let half = model.file_bytes() / 2 / BYTES * BYTES;
    let stream = |client: u64, class, depth| Stream {
        client: ClientKey(client),
        class,
        direction: Direction::Read,
        pattern: Pattern::Random,
        region: ByteRange::new(client * half, half),
        bytes: BYTES,
        depth,
        think: Nanos::ZERO,
        begins: Nanos::ZERO,
    };
    vec![stream(0, Class::Demand, 96), stream(1, class, 2)]
}

/// The longest time for which something of a class waited and nothing of it was served.
fn longest_pause(run: &Run, class: Class) -> Nanos {
    let mut served = Nanos::ZERO;
    let mut longest = Nanos::ZERO;
    // Requests of one class are sent in the order in which they came, by ageing and without.
    for answer in run.requests.iter().filter(|answer| answer.class == class) {
        let until = answer.sent.unwrap_or(run.ended);
        longest = longest.max(until.saturating_sub(served.max(answer.came)));
        served = served.max(until);
    }
    longest
}

/// The longest time in which the medium accepted no request.
fn longest_service(run: &Run) -> Nanos {
    run.sent.iter().map(|sent| sent.service.done.saturating_sub(sent.at)).max().unwrap_or_default()
}

fn without_ageing(config: QueueConfig) -> QueueConfig {
    let classes =
        config.classes.map(|class| hs_engine::queue::ClassConfig { ageing: Nanos(u64::MAX / 4), ..class });
    QueueConfig { classes, ..config }
}

pub(super) fn run(seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for model in Model::all() {
        let config = model.config();
        let mut worst: f64 = 0.0;
        let mut worst_off: f64 = 0.0;
        for class in [Class::ReadAhead, Class::Prefetch, Class::Fill] {
            let play = |config| {
                simulate(config, model.station(), LENGTH, &mut Streams::new(streams(&model, class), seed))
            };
            let (with, without) = (play(config), play(without_ageing(config)));
            let bound = config.classes[class.index()].ageing + longest_service(&with);
            let (pause, pause_off) = (longest_pause(&with, class), longest_pause(&without, class));
            worst = worst.max(pause.as_secs_f64() / bound.as_secs_f64());
            worst_off = worst_off.max(pause_off.as_secs_f64() / bound.as_secs_f64());
            let seconds = |time: Nanos| Cell::Number(time.as_secs_f64(), 3);
            let shares = [seconds(bound), seconds(pause), seconds(pause_off)];
            rows.push([model.name().into(), class.name().into()].into_iter().chain(shares).collect());
        }
        figures.push(
            Figure::new(format!("longest pause ÷ bound, {}", model.name()), worst)
                .off(worst_off)
                .target(Target::AtMost(1.0)),
        );
    }
    let columns = vec!["medium", "class", "bound (s)", "longest pause (s)", "without ageing (s)"];
    Report { columns, rows, figures, seed: Some(seed) }
}
