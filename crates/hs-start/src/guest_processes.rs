//! The processes in a guest, which its first program tells of
//! ([`first_program.c`](../../hs-guest/src/first_program.c) has the lines).
//!
//! The guest's clock counts from its own start. A line comes later than it was written, so the least delay of
//! all lines places that clock on ours.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Context;
pub use hs_guest::first_program::watch_this_machine;
pub use hs_guest::qemu::PROCESSES_ITEM;
use hs_units::Nanos;

use crate::process_log::{CpuUse, MOST_FIGURES, MOST_PROCESSES, ProcessLife, ProcessLog};

/// No line is longer. A guest may write what it likes.
const MOST_LINE_BYTES: usize = 256;

/// Reads what a guest tells until it has ended.
pub(crate) struct GuestProcesses(JoinHandle<GuestLog>);

impl GuestProcesses {
    /// Reads from `line`, for a start that began then.
    pub(crate) fn watch(began: Instant, mut line: File) -> anyhow::Result<Self> {
        let reading = move || {
            let mut told = GuestLog::default();
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = line.read(&mut buffer) {
                told.feed(&buffer[..read], began.elapsed().into());
            }
            told
        };
        let thread = std::thread::Builder::new().name("hs-processes".to_owned()).spawn(reading);
        Ok(Self(thread.context("watch the guest's processes")?))
    }

    /// What it told, once it has ended: instead of what is in `log`, unless that is nothing.
    pub(crate) fn end(self, log: &ProcessLog) {
        match self.0.join() {
            Ok(told) if !told.lives.is_empty() => log.replace(told.lives(), told.used()),
            _ => log::warn!("the guest told nothing of its processes: the trace has those that run it"),
        }
    }
}

/// A process in the guest; times of its clock, in microseconds.
#[derive(Debug)]
struct Life {
    pid: u32,
    parent: u32,
    name: String,
    from: u64,
    to: u64,
    /// The processor time of all its threads, as the last look told it.
    looked: u64,
    /// That of its threads that have ended.
    ended: u64,
}

impl Life {
    fn cpu(&self) -> u64 {
        self.looked.max(self.ended)
    }
}

/// The processor time between two looks: from, to, and how much.
type Between = (u64, u64, u64);

#[derive(Debug, Default)]
struct GuestLog {
    line: Vec<u8>,
    /// The host's clock less the guest's, in nanoseconds.
    ahead: Option<i128>,
    lives: Vec<Life>,
    living: HashMap<u32, usize>,
    /// The guest's kernel tells of ends: what was not told of lives on.
    tells_ends: bool,
    last_look: u64,
    since_look: u64,
    used: Vec<Between>,
}

impl GuestLog {
    /// Takes bytes that came at `now`.
    fn feed(&mut self, bytes: &[u8], now: Nanos) {
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                if line.len() < MOST_LINE_BYTES {
                    // A line that means nothing is none.
                    let _ = self.take(&String::from_utf8_lossy(&line), now);
                }
            } else if self.line.len() < MOST_LINE_BYTES {
                self.line.push(*byte);
            }
        }
    }

    fn take(&mut self, line: &str, now: Nanos) -> Option<()> {
        let mut rest = line.trim_end_matches('\r');
        let mut word = || {
            let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = behind;
            word
        };
        let kind = word();
        let at: u64 = word().parse().ok()?;
        // Firmware writes on this line too, before the guest's clock begins.
        if !matches!(kind, "live" | "end" | "look") {
            return None;
        }
        let ahead = i128::from(now.0) - i128::from(at) * 1000;
        self.ahead = Some(self.ahead.map_or(ahead, |least| least.min(ahead)));
        match kind {
            "live" => {
                let (pid, parent) = (word().parse().ok()?, word().parse().ok()?);
                let cpu = word().parse().ok()?;
                // One whose time runs backwards is another one with the same number.
                let known = self.living.get(&pid).copied().filter(|place| self.lives[*place].looked <= cpu);
                let place = match known {
                    Some(place) => place,
                    None => self.begin(pid, parent, at)?,
                };
                self.count(place, |life| life.looked = cpu);
                let life = &mut self.lives[place];
                (life.to, life.name) = (at, rest.to_owned());
            }
            "end" => {
                self.tells_ends = true;
                let (pid, process): (u32, u32) = (word().parse().ok()?, word().parse().ok()?);
                let parent = word().parse().ok()?;
                let (age, cpu): (u64, u64) = (word().parse().ok()?, word().parse().ok()?);
                let begun = at.saturating_sub(age);
                let place = match self.living.get(&process).copied() {
                    Some(place) => place,
                    None => self.begin(process, parent, begun)?,
                };
                self.count(place, |life| life.ended = life.ended.saturating_add(cpu));
                let life = &mut self.lives[place];
                life.to = at;
                if pid == process {
                    (life.from, life.name) = (life.from.min(begun), rest.to_owned());
                    self.living.remove(&process);
                } else if life.name.is_empty() {
                    life.name = rest.to_owned();
                }
            }
            "look" => {
                if self.last_look > 0 && self.used.len() < MOST_FIGURES {
                    self.used.push((self.last_look, at, self.since_look));
                }
                (self.last_look, self.since_look) = (at, 0);
            }
            _ => {}
        }
        Some(())
    }

    fn begin(&mut self, pid: u32, parent: u32, at: u64) -> Option<usize> {
        if self.lives.len() == MOST_PROCESSES {
            return None;
        }
        let name = String::new();
        self.lives.push(Life { pid, parent, name, from: at, to: at, looked: 0, ended: 0 });
        self.living.insert(pid, self.lives.len() - 1);
        Some(self.lives.len() - 1)
    }

    /// Changes a process, and counts the time that it thereby had.
    fn count(&mut self, place: usize, change: impl Fn(&mut Life)) {
        let life = &mut self.lives[place];
        let before = life.cpu();
        change(life);
        self.since_look = self.since_look.saturating_add(life.cpu().saturating_sub(before));
    }

    /// A time of the guest's clock, since the start.
    fn since_start(&self, at: u64) -> Nanos {
        let nanos = i128::from(at) * 1000 + self.ahead.unwrap_or_default();
        Nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    fn lives(&self) -> Vec<ProcessLife> {
        let life = |(place, life): (usize, &Life)| {
            let lives_on = self.tells_ends && self.living.get(&life.pid) == Some(&place);
            ProcessLife {
                pid: life.pid,
                parent: life.parent,
                name: life.name.clone(),
                from: self.since_start(life.from),
                to: self.since_start(if lives_on { life.to.max(self.last_look) } else { life.to }),
                cpu: micros(life.cpu()),
            }
        };
        self.lives.iter().enumerate().map(life).collect()
    }

    fn used(&self) -> Vec<CpuUse> {
        let figure = |(from, to, cpu): &Between| {
            let begin = self.since_start(*from);
            let span = self.since_start(*to).saturating_sub(begin);
            CpuUse { from: begin, span, cpu: micros(*cpu) }
        };
        self.used.iter().map(figure).collect()
    }
}

fn micros(micros: u64) -> Nanos {
    Nanos(micros.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn told(text: &str, bytes_at_once: usize) -> GuestLog {
        let mut told = GuestLog::default();
        for (number, bytes) in text.as_bytes().chunks(bytes_at_once).enumerate() {
            // All comes 2 s after the guest's clock began, a little later each time.
            told.feed(bytes, Nanos(2_000 * MS + number as u64));
        }
        told
    }

    #[test]
    fn lives_are_from_what_is_seen_and_what_has_ended() {
        let text = "live 1000 1 0 10000 init\nlook 1100\nend 1500 7 7 1 400 300 sh (a) b\r\n\
                    live 2000 1 0 20000 systemd\nend 2500 9 8 1 10 4 worker\nlook 3000\n\
                    end 3500 8 8 1 3000 50 many\nnonsense 9\nlive x\nend 5\nlook 4000\n";
        for bytes_at_once in [1, 7, 4096] {
            let told = told(text, bytes_at_once);
            let lives = told.lives();
            let seen: Vec<_> =
                lives.iter().map(|life| (life.pid, life.name.as_str(), life.cpu.0 / 1000)).collect();
            assert_eq!(seen, [(1, "systemd", 20_000), (7, "sh (a) b", 300), (8, "many", 54)]);
            // The least delay is that of the last line.
            let span = |life: &ProcessLife| (life.to.0 - life.from.0) / 1000;
            assert_eq!(lives.iter().map(span).collect::<Vec<_>>(), [3000, 400, 3000]);
            assert!(lives[0].to.0.abs_diff(2_000 * MS) < MS);
            let used: Vec<_> = told.used().iter().map(|used| (used.span.0, used.cpu.0)).collect();
            assert_eq!(used, [(1_900_000, 10_304_000), (1_000_000, 50_000)]);
        }
    }

    #[test]
    fn without_ends_a_process_lives_as_long_as_it_is_seen() {
        let told = told("live 1000 5 1 0 a\nlook 1000\nlive 2000 5 1 0 a\nlook 2000\nlook 3000\n", 4096);
        assert_eq!(told.lives()[0].to.0 - told.lives()[0].from.0, MS);
    }

    #[test]
    fn a_guest_that_lies_costs_no_more_than_the_limits() {
        let mut told = GuestLog::default();
        told.feed(&vec![b'x'; 1 << 20], Nanos::ZERO);
        assert_eq!(told.line.len(), MOST_LINE_BYTES);
        let huge = u64::MAX;
        let mut text = format!("\nlive {huge} 1 0 {huge} a\nend {huge} 1 1 0 {huge} {huge} a\nlook {huge}\n");
        for pid in 0..MOST_PROCESSES + 10 {
            text += &format!("live 1 {pid} 0 0 a\n");
        }
        told.feed(text.as_bytes(), Nanos::ZERO);
        assert_eq!(told.lives().len(), MOST_PROCESSES);
        let _ = told.used();
    }
}
