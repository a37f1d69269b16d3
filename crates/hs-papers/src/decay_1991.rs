//! 4.3BSD's processor scheduling, with and without inheritance (Tezuka 1991, section 7).
//!
//! In the background `make` starts one short process after the other, several at a time. In the foreground a
//! user gives a command that computes for a while, and then thinks. Priorities are those of Leffler and
//! others, *The Design and Implementation of the 4.3BSD UNIX Operating System*, section 4.4: usage grows by
//! one a tick and decays once a second by the load. A new process begins with no usage; *with inheritance* it
//! has its parent's, and leaves its own to the parent at its end. This is a model of a processor's scheduler:
//! the engine has no part in it.

use hs_lab::{Cell, Claim, Figure, Latencies, Report};
use hs_units::{Nanos, Prng};

/// Ticks a second.
const HZ: u64 = 100;

/// Ticks between two switches among processes of equal priority.
const ROUND_ROBIN: u64 = 10;

/// Highest usage.
const MOST_USAGE: f64 = 255.0;

/// The simulated time.
const TICKS: u64 = 600 * HZ;

/// Ticks that a command of the foreground computes, and that the user thinks, at most.
const COMMAND: u64 = 50;
const THINKS: u64 = 500;

/// Ticks that a pass of a compiler computes, at most, and that it waits for the disk before.
const PASS: u64 = 80;
const WAITS: u64 = 6;

/// A process.
#[derive(Clone, Copy, Debug)]
struct Process {
    usage: f64,
    /// Usage when the priority was last looked at, every four ticks.
    priority: u64,
    /// Ticks that it still has to compute; it sleeps while there are none.
    work: u64,
    wakes: u64,
    /// Since when it can run.
    since: u64,
}

impl Process {
    const fn new(usage: f64) -> Self {
        Self { usage, priority: 0, work: 0, wakes: 0, since: 0 }
    }

    /// Priorities differ by four, in 32 queues.
    fn set_priority(&mut self) {
        self.priority = (50 + (self.usage / 4.0) as u64).min(127) / 4;
    }
}

/// The machine: process 0 is the foreground, the others are the jobs of `make`.
struct Machine {
    inherits: bool,
    prng: Prng,
    processes: Vec<Process>,
    /// Usage of `make` itself.
    make: f64,
    running: usize,
    /// When a process was last served, for the order among equals.
    served: Vec<u64>,
    load: f64,
    responses: Vec<Nanos>,
    /// Priorities of the background in each second.
    levels: Vec<f64>,
}

impl Machine {
    fn new(seed: u64, jobs: usize, inherits: bool) -> Self {
        Self {
            inherits,
            prng: Prng::new(seed),
            processes: vec![Process::new(0.0); jobs + 1],
            make: 0.0,
            running: 0,
            served: vec![0; jobs + 1],
            load: 0.0,
            responses: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// Wakes processes that have slept long enough.
    fn wake(&mut self, tick: u64) {
        for number in 0..self.processes.len() {
            if self.processes[number].work > 0 || self.processes[number].wakes > tick {
                continue;
            }
            let process = &mut self.processes[number];
            if number == 0 {
                process.work = COMMAND;
            } else {
                // `make` forks the next pass.
                *process = Process::new(if self.inherits { self.make } else { 0.0 });
                process.work = PASS / 4 + self.prng.below(PASS * 3 / 4);
            }
            process.since = tick;
            process.set_priority();
        }
    }

    /// The process that runs: the best priority, and among equals the one that was served longest ago.
    fn choose(&mut self, tick: u64) {
        let ready = |number: &usize| self.processes[*number].work > 0;
        let best = (0..self.processes.len())
            .filter(ready)
            .min_by_key(|number| (self.processes[*number].priority, self.served[*number]));
        let Some(best) = best else {
            self.running = usize::MAX;
            return;
        };
        let current = self.running;
        let keeps = current != usize::MAX
            && self.processes[current].work > 0
            && self.processes[current].priority <= self.processes[best].priority
            && !tick.is_multiple_of(ROUND_ROBIN);
        if !keeps {
            self.running = best;
        }
    }

    /// The running process has computed for a tick.
    fn run(&mut self, tick: u64) {
        if self.running == usize::MAX {
            return;
        }
        self.served[self.running] = tick + 1;
        let process = &mut self.processes[self.running];
        process.usage = (process.usage + 1.0).min(MOST_USAGE);
        process.work -= 1;
        if tick.is_multiple_of(4) {
            process.set_priority();
        }
        if process.work > 0 {
            return;
        }
        if self.running == 0 {
            self.responses.push(Nanos((tick + 1 - process.since) * 1_000_000_000 / HZ));
            process.wakes = tick + 1 + THINKS / 2 + self.prng.below(THINKS / 2);
        } else {
            if self.inherits {
                self.make = (self.make + process.usage).min(MOST_USAGE);
            }
            process.wakes = tick + 1 + self.prng.below(WAITS);
        }
    }

    /// Once a second usage decays, more slowly the more processes are ready.
    fn decay(&mut self) {
        let ready = self.processes.iter().filter(|process| process.work > 0).count() as f64;
        // The average over a minute, as the kernel keeps it in steps of five seconds.
        self.load += (ready - self.load) * (1.0 - (-1.0_f64 / 60.0).exp());
        let kept = 2.0 * self.load / (2.0 * self.load + 1.0);
        self.make *= kept;
        for process in &mut self.processes {
            process.usage *= kept;
            process.set_priority();
        }
        let background = &self.processes[1..];
        let usage: f64 = background.iter().map(|process| process.usage).sum();
        self.levels.push(usage / background.len() as f64);
    }

    fn simulate(mut self) -> Outcome {
        for tick in 0..TICKS {
            self.wake(tick);
            self.choose(tick);
            self.run(tick);
            if tick % HZ == HZ - 1 {
                self.decay();
            }
        }
        let mean = self.levels.iter().sum::<f64>() / self.levels.len() as f64;
        let variance =
            self.levels.iter().map(|level| (level - mean).powi(2)).sum::<f64>() / self.levels.len() as f64;
        let all: f64 = self.responses.iter().map(|response| response.as_secs_f64()).sum();
        Outcome {
            mean: all / self.responses.len() as f64,
            p99: self.responses.into_iter().collect::<Latencies>().quantile(0.99).as_secs_f64(),
            fluctuation: variance.sqrt() / mean.max(1e-9),
        }
    }
}

/// Responses of the foreground in seconds, and the fluctuation of the background's usage relative to its
/// mean.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    mean: f64,
    p99: f64,
    fluctuation: f64,
}

pub(crate) fn run(seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for jobs in [0, 1, 4, 8] {
        let [off, on] = [false, true].map(|inherits| Machine::new(seed, jobs.max(1), inherits));
        let idle = jobs == 0;
        let [off, on] = [off, on].map(|mut machine| {
            if idle {
                machine.processes.truncate(2);
                machine.processes[1].wakes = u64::MAX;
            }
            machine.simulate()
        });
        for (name, outcome) in [("no", off), ("yes", on)] {
            rows.push(vec![
                Cell::Number(jobs as f64, 0),
                name.into(),
                Cell::Number(outcome.mean, 2),
                Cell::Number(outcome.p99, 2),
                Cell::Number(outcome.fluctuation, 2),
            ]);
        }
        if jobs == 4 {
            figures.extend([
                Figure::new("mean response, with inheritance ÷ without, four jobs", on.mean / off.mean)
                    .off(1.0)
                    .published("002 section 7", Claim::Less),
                Figure::new("p99 of response, with inheritance ÷ without, four jobs", on.p99 / off.p99)
                    .off(1.0),
                Figure::new(
                    "fluctuation of the background's usage, with inheritance ÷ without, four jobs",
                    on.fluctuation / off.fluctuation,
                )
                .off(1.0)
                .published("002 section 7", Claim::Less),
            ]);
        }
    }
    let columns = vec!["jobs", "inherited", "mean response (s)", "p99 (s)", "fluctuation of usage"];
    Report { columns, rows, figures, seed: Some(seed) }
}
