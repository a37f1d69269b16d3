//! How many requests a second the virtual clock simulates on one core: sixteen readers before the engine's
//! queue and a medium. Prints one JSON object for each medium.
#![allow(clippy::disallowed_types, clippy::print_stdout, reason = "the lab is pure; what measures it is not")]

use std::time::Instant;

use hs_engine::queue::{Class, ClientKey, Direction, QueueConfig};
use hs_lab::{Model, Pattern, Stream, Streams, simulate};
use hs_units::{ByteRange, Nanos};

fn main() {
    for name in ["flat-10ms-25mbs", "hdd-7200", "cd-24x-cav"] {
        let model = Model::named(name);
        let part = model.file_bytes() / 16;
        let stream = |number: u64| Stream {
            client: ClientKey(number),
            class: Class::Demand,
            direction: Direction::Read,
            pattern: if number.is_multiple_of(2) { Pattern::Random } else { Pattern::Sequential },
            region: ByteRange::new(number * part, part),
            bytes: 4096,
            depth: 4,
            think: Nanos::ZERO,
            begins: Nanos::ZERO,
        };
        let mut streams = Streams::new((0..16).map(stream).collect(), 1);
        let config: QueueConfig = model.config();
        // So long that about a million requests are served.
        let until = Nanos::from_secs_f64(1e6 * model.request_time(4096).as_secs_f64().min(1e-3));
        let began = Instant::now();
        let run = simulate(config, model.station(), until, &mut streams);
        let seconds = began.elapsed().as_secs_f64();
        let requests = run.requests.iter().filter(|request| request.done.is_some()).count();
        println!(
            "{{\"medium\": \"{name}\", \"requests\": {requests}, \"seconds\": {seconds:.3}, \"requests_per_s\": {:.0}}}",
            requests as f64 / seconds
        );
    }
}
