//! NOOP, DEADLINE and CFQ before flash (Nakamura and others 2013, figures 3, 4, 7, 8 and 9).
//!
//! *Micro*: sixteen threads read single bytes of 128 MB. *Application*: of 1 GB, with the time of a virtual
//! machine between two reads; on the Nexus 7 files come through a process that serves one request at a time
//! (its file system in the paper's table 1 is FUSE; that its process was single is our reading of the Android
//! of the time). The figures have no numbers in the text, so only directions are judged.

use std::collections::VecDeque;

use hs_engine::queue::{Class, ClientKey, Direction, ElevatorKind, jain_index};
use hs_lab::{Cell, Claim, Figure, Io, Report, Run, Station, Stream, Streams, Workload, simulate};
use hs_units::{ByteRange, Nanos, Prng};

use crate::flash::{FILE, PAGE, TELEPHONES, THREADS, Telephone, queue, threads, without_steps};

/// How long each benchmark runs.
const LASTS: Nanos = Nanos::from_millis(20_000);

/// What the benchmark in Java takes between two reads: a choice.
const JAVA: Nanos = Nanos(500_000);

const ELEVATORS: [ElevatorKind; 3] = [ElevatorKind::Noop, ElevatorKind::Deadline, ElevatorKind::Cfq];

/// Threads whose requests all pass a process that serves one at a time. To the elevator that process is the
/// only client.
struct Daemon {
    prng: Prng,
    waiting: VecDeque<u64>,
    /// The thread whose request is being served.
    serves: Option<u64>,
    /// Reads of each thread.
    done: [f64; THREADS as usize],
}

impl Daemon {
    fn serve(&mut self, io: &mut Io) {
        if self.serves.is_some() {
            return;
        }
        self.serves = self.waiting.pop_front();
        if self.serves.is_some() {
            let range = ByteRange::new(self.prng.below(FILE / PAGE) * PAGE, PAGE);
            io.request(Class::Demand, ClientKey(0), Direction::Read, range);
        }
    }
}

impl Workload for Daemon {
    fn start(&mut self, io: &mut Io) {
        (0..THREADS).for_each(|thread| io.wake(Nanos(thread), thread));
    }

    fn handle_wake(&mut self, io: &mut Io, thread: u64) {
        self.waiting.push_back(thread);
        self.serve(io);
    }

    fn handle_done(&mut self, io: &mut Io, _request: usize) {
        let thread = self.serves.take().expect("what is done was served");
        self.done[thread as usize] += 1.0;
        io.wake(io.now() + JAVA, thread);
        self.serve(io);
    }
}

/// The results of a benchmark.
#[derive(Clone, Copy, Debug)]
struct Shown {
    reads_per_s: f64,
    jain: f64,
    /// Share of requests whose address is above the one before.
    upwards: f64,
}

/// Reads that each client has had.
fn by_client(run: &Run) -> [f64; THREADS as usize] {
    let mut each = [0.0; THREADS as usize];
    for answer in run.requests.iter().filter(|answer| answer.done.is_some()) {
        each[answer.client.0 as usize] += 1.0;
    }
    each
}

fn shown(run: &Run, each: [f64; THREADS as usize]) -> Shown {
    let up = run.sent.windows(2).filter(|pair| pair[1].dispatch.range.offset > pair[0].dispatch.range.offset);
    Shown {
        reads_per_s: each.iter().sum::<f64>() / run.ended.as_secs_f64(),
        jain: jain_index(each),
        upwards: up.count() as f64 / (run.sent.len().max(2) - 1) as f64,
    }
}

fn micro(seed: u64, station: Box<dyn Station>, elevator: ElevatorKind) -> Shown {
    sixteen(seed, station, elevator, threads(128 << 20))
}

fn sixteen(seed: u64, station: Box<dyn Station>, elevator: ElevatorKind, threads: Vec<Stream>) -> Shown {
    let run = simulate(queue(elevator), station, LASTS, &mut Streams::new(threads, seed));
    shown(&run, by_client(&run))
}

fn application(seed: u64, telephone: Telephone, elevator: ElevatorKind) -> Shown {
    let station = telephone.station();
    if telephone.daemon {
        let done = [0.0; THREADS as usize];
        let mut daemon = Daemon { prng: Prng::new(seed), waiting: VecDeque::new(), serves: None, done };
        let run = simulate(queue(elevator), station, LASTS, &mut daemon);
        return shown(&run, daemon.done);
    }
    let threads = threads(FILE).into_iter().map(|stream| Stream { think: JAVA, ..stream }).collect();
    sixteen(seed, station, elevator, threads)
}

pub(crate) fn run(seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    let flat = ELEVATORS.map(|elevator| micro(seed, without_steps(), elevator));
    for telephone in TELEPHONES {
        let micro = ELEVATORS.map(|elevator| micro(seed, telephone.station(), elevator));
        let application = ELEVATORS.map(|elevator| application(seed, telephone, elevator));
        for (benchmark, shown) in [("micro", micro), ("application", application)] {
            for (elevator, shown) in ELEVATORS.iter().zip(shown) {
                rows.push(vec![
                    telephone.name.into(),
                    benchmark.into(),
                    elevator.name().into(),
                    Cell::Number(shown.reads_per_s, 0),
                    Cell::Number(shown.jain, 4),
                    Cell::Number(shown.upwards, 3),
                ]);
            }
        }
        figures.extend(judge(telephone, micro, application, flat));
    }
    let columns = vec!["device", "benchmark", "elevator", "reads/s", "Jain's index", "share going up"];
    Report { columns, rows, figures, seed: Some(seed) }
}

/// The figures of one telephone. Results are in the order of [`ELEVATORS`].
fn judge(telephone: Telephone, micro: [Shown; 3], application: [Shown; 3], flat: [Shown; 3]) -> Vec<Figure> {
    let name = telephone.name;
    let mut figures = Vec::new();
    for (other, index) in [("noop", 0), ("cfq", 2)] {
        let ratio = |shown: [Shown; 3]| shown[1].reads_per_s / shown[index].reads_per_s;
        figures.push(
            Figure::new(format!("reads of deadline ÷ of {other}, micro, {name}"), ratio(micro))
                .off(ratio(flat))
                .published("004 figure 3", Claim::More),
        );
        let figure =
            Figure::new(format!("reads of deadline ÷ of {other}, application, {name}"), ratio(application));
        // On the Nexus 7 "all schedulers are about the same".
        let claim = if telephone.daemon { Claim::Alike } else { Claim::More };
        let figure = figure.published("004 figure 7", claim);
        figures.push(if telephone.daemon { figure.arithmetic() } else { figure });
    }
    figures.push(
        Figure::new(
            format!("steps up of deadline ÷ of noop, micro, {name}"),
            micro[1].upwards / micro[0].upwards,
        )
        .off(1.0)
        .published("004 figure 4", Claim::More),
    );
    figures.push(
        Figure::new(
            format!("steps up of deadline ÷ of cfq, micro, {name}"),
            micro[1].upwards / micro[2].upwards,
        )
        .off(1.0)
        .published("004 figure 4", Claim::More),
    );
    for (benchmark, source, shown) in
        [("micro", "004 figure 8", micro), ("application", "004 figure 9", application)]
    {
        figures.push(
            Figure::new(
                format!("Jain's index of deadline ÷ of cfq, {benchmark}, {name}"),
                shown[1].jain / shown[2].jain,
            )
            .published(source, Claim::NotLess),
        );
    }
    figures
}
