//! The processes of a start over time: sampled, so what lives shorter than 20 ms may be missed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use hs_linux::rootenv::ProcessNow;
use hs_units::Nanos;
use parking_lot::Mutex;

/// How often processes are looked at: as often as bootchart does.
const EVERY: Duration = Duration::from_millis(20);
/// So many looks are one figure of processor time, which the kernel tells in hundredths of a second.
const LOOKS_A_FIGURE: u32 = 5;
/// Processes and figures beyond these are not kept.
pub(crate) const MOST_PROCESSES: usize = 10_000;
pub(crate) const MOST_FIGURES: usize = 100_000;

/// A process, from the first look that saw it to the last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessLife {
    /// Its number.
    pub pid: u32,
    /// That of its parent, at the first look.
    pub parent: u32,
    /// Its name, at the last look.
    pub name: String,
    /// When it was first seen, since the start.
    pub from: Nanos,
    /// When it was last seen.
    pub to: Nanos,
    /// The time that it had a processor.
    pub cpu: Nanos,
}

/// The time that all processes together had a processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuUse {
    /// From when on.
    pub from: Nanos,
    /// How long.
    pub span: Nanos,
    /// The time.
    pub cpu: Nanos,
}

/// What was seen so far.
#[derive(Debug, Default)]
pub struct ProcessLog(Mutex<Sightings>);

#[derive(Debug, Default)]
struct Sightings {
    lives: Vec<ProcessLife>,
    /// Of the processes that live, their places in `lives`.
    living: HashMap<u32, usize>,
    used: Vec<CpuUse>,
    looks: u32,
    open: Option<CpuUse>,
}

/// Looks until it is dropped.
pub(crate) struct Looking {
    stop: Option<Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ProcessLog {
    /// Begins to look, for a start that began then.
    pub(crate) fn watch(
        self: &Arc<Self>,
        began: Instant,
        processes: impl Fn() -> Option<Vec<ProcessNow>> + Send + 'static,
    ) -> std::io::Result<Looking> {
        let (stop, stopped) = channel();
        let log = Arc::clone(self);
        let thread = std::thread::Builder::new().name("hs-processes".to_owned()).spawn(move || {
            while let Some(now) = processes() {
                log.0.lock().take(began.elapsed().into(), now);
                if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        })?;
        Ok(Looking { stop: Some(stop), thread: Some(thread) })
    }

    /// These were seen instead.
    pub(crate) fn replace(&self, lives: Vec<ProcessLife>, used: Vec<CpuUse>) {
        *self.0.lock() = Sightings { lives, used, ..Sightings::default() };
    }

    /// Processes in the order in which they were seen, and the use of processors over time.
    pub fn take(&self) -> (Vec<ProcessLife>, Vec<CpuUse>) {
        let mut seen = self.0.lock();
        let open = seen.open.take();
        seen.used.extend(open);
        (std::mem::take(&mut seen.lives), std::mem::take(&mut seen.used))
    }
}

impl Sightings {
    fn take(&mut self, at: Nanos, now: Vec<ProcessNow>) {
        let mut used = Nanos::ZERO;
        let mut living = HashMap::new();
        for process in now {
            let cpu = Nanos::from(process.cpu);
            // One whose time runs backwards is another one with the same number.
            let known = self.living.get(&process.pid).copied().filter(|place| self.lives[*place].cpu <= cpu);
            let place = match known {
                Some(place) => place,
                None if self.lives.len() == MOST_PROCESSES => continue,
                None => {
                    let ProcessNow { pid, parent, .. } = process;
                    let name = String::new();
                    self.lives.push(ProcessLife { pid, parent, name, from: at, to: at, cpu: Nanos::ZERO });
                    self.lives.len() - 1
                }
            };
            let life = &mut self.lives[place];
            used += cpu.saturating_sub(life.cpu);
            (life.to, life.cpu, life.name) = (at, cpu, process.name);
            living.insert(process.pid, place);
        }
        self.living = living;
        let open = self.open.get_or_insert(CpuUse { from: at, span: Nanos::ZERO, cpu: Nanos::ZERO });
        (open.span, open.cpu) = (at.saturating_sub(open.from), open.cpu + used);
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_A_FIGURE) && self.used.len() < MOST_FIGURES {
            self.used.push(*open);
            self.open = Some(CpuUse { from: at, span: Nanos::ZERO, cpu: Nanos::ZERO });
        }
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, name: &str, ms: u64) -> ProcessNow {
        ProcessNow { pid, parent: 1, name: name.to_owned(), cpu: Duration::from_millis(ms) }
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let mut seen = Sightings::default();
        let looks = [
            vec![process(7, "sh", 0)],
            vec![process(7, "python3", 30), process(8, "cat", 10)],
            vec![process(7, "python3", 50)],
            vec![process(7, "sh", 10), process(8, "cat", 10)],
            vec![],
            vec![process(8, "cat", 20)],
        ];
        for (look, now) in looks.into_iter().enumerate() {
            seen.take(Nanos(look as u64 * 20_000_000), now);
        }
        let names: Vec<_> =
            seen.lives.iter().map(|life| (life.pid, life.name.as_str(), life.cpu.0 / 1_000_000)).collect();
        assert_eq!(
            names,
            [(7, "python3", 50), (8, "cat", 10), (7, "sh", 10), (8, "cat", 10), (8, "cat", 20)]
        );
        assert_eq!((seen.lives[0].from, seen.lives[0].to), (Nanos::ZERO, Nanos(40_000_000)));
        let [first] = seen.used[..] else { panic!("one figure: {:?}", seen.used) };
        assert_eq!((first.span.0, first.cpu.0), (80_000_000, 80_000_000), "50 + 10, 10 + 10");
    }
}
