//! Requests of a real device, from the kernel's trace events `block_rq_insert`, `block_rq_issue` and
//! `block_rq_complete`.
//!
//! The text is that of `trace_pipe` (Documentation/trace/ftrace.rst) with times of one clock, and of the
//! kernel's include/trace/events/block.h. A request waits from its insertion until it is issued, where a
//! scheduler held it, and is served until it is complete. Requests are told apart by their first sector, as
//! the events have no number.

use std::collections::BTreeMap;

use hs_units::{ByteRange, Nanos};

/// A request that was served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServedRequest {
    /// When it was handed to the scheduler, or to the device where there is none; on the trace's clock.
    pub at: Nanos,
    /// The name of the process that made the request: a thread of the kernel, where that wrote or read ahead
    /// for others.
    pub process: String,
    /// Its number.
    pub pid: u32,
    /// Whether it writes.
    pub writes: bool,
    /// Which bytes of the device.
    pub range: ByteRange,
    /// How long a scheduler held it.
    pub queued: Nanos,
    /// How long the device took.
    pub service: Nanos,
}

#[derive(Clone, Debug)]
struct Open {
    inserted: Option<Nanos>,
    issued: Option<Nanos>,
    process: String,
    pid: u32,
    writes: bool,
    sectors: u64,
}

/// Matches events to requests.
#[derive(Clone, Debug, Default)]
pub struct BlockEvents {
    open: BTreeMap<u64, Open>,
    unmatched: u64,
}

/// The most requests that are followed at once: more than any device has in flight. Without a limit, requests
/// whose end the kernel lost would pile up.
const MAX_OPEN: usize = 1 << 16;

impl BlockEvents {
    /// Without any event.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends that were seen without their beginnings, and requests that were dropped.
    #[must_use]
    pub const fn unmatched(&self) -> u64 {
        self.unmatched
    }

    /// Takes a line of the trace; returns the request that has ended by it. Other lines are ignored.
    pub fn handle_line(&mut self, line: &str) -> Option<ServedRequest> {
        let (head, event, rest) = split(line)?;
        let (process, pid, at) = who_and_when(head)?;
        // The name before the event is the one that the kernel noted when it last switched tasks: after
        // `exec` it is old.
        let process = command(rest).unwrap_or(process);
        let place = SectorRange::parse(rest)?;
        match event {
            "block_rq_insert" | "block_rq_issue" => {
                let is_issue = event == "block_rq_issue";
                if self.open.len() >= MAX_OPEN {
                    self.unmatched += self.open.len() as u64;
                    self.open.clear();
                }
                let open = self.open.entry(place.sector).or_insert_with(|| Open {
                    inserted: None,
                    issued: None,
                    process: process.to_owned(),
                    pid,
                    writes: place.writes,
                    sectors: place.sectors,
                });
                open.sectors = place.sectors;
                *(if is_issue { &mut open.issued } else { &mut open.inserted }) = Some(at);
                None
            }
            _ => self.completed(&place, at),
        }
    }

    fn completed(&mut self, place: &SectorRange, at: Nanos) -> Option<ServedRequest> {
        let Some(open) = self.open.remove(&place.sector) else {
            self.unmatched += 1;
            return None;
        };
        let Some(issued) = open.issued else {
            self.unmatched += 1;
            return None;
        };
        let sectors = open.sectors.max(place.sectors);
        let bytes = |sectors: u64| sectors.saturating_mul(512);
        Some(ServedRequest {
            at: open.inserted.unwrap_or(issued),
            process: open.process,
            pid: open.pid,
            writes: open.writes,
            range: ByteRange::new(bytes(place.sector), bytes(sectors)),
            queued: issued.saturating_sub(open.inserted.unwrap_or(issued)),
            service: at.saturating_sub(issued),
        })
    }
}

/// What stands before the event, its name, and what stands behind.
fn split(line: &str) -> Option<(&str, &str, &str)> {
    ["block_rq_insert", "block_rq_issue", "block_rq_complete"].into_iter().find_map(|event| {
        let at = line.find(&format!(" {event}: "))?;
        Some((&line[..at], event, &line[at + event.len() + 3..]))
    })
}

/// `process-pid [cpu] flags seconds.micros:`; a process' name may have blanks and hyphens.
fn who_and_when(head: &str) -> Option<(&str, u32, Nanos)> {
    let (rest, time) = head.trim_end().strip_suffix(':')?.rsplit_once(' ')?;
    let (who, _) = rest.rsplit_once('[')?;
    let (process, pid) = who.trim().rsplit_once('-')?;
    let (seconds, part) = time.split_once('.')?;
    let nanos = match part.len() {
        6 => part.parse::<u64>().ok()?.checked_mul(1_000)?,
        9 => part.parse().ok()?,
        _ => return None,
    };
    let seconds = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    Some((process.trim(), pid.parse().ok()?, Nanos(seconds.checked_add(nanos)?)))
}

/// The name at the end of an event, in brackets: that of the task at that moment.
fn command(rest: &str) -> Option<&str> {
    let (_, name) = rest.split_once(" [")?;
    name.trim_end().strip_suffix(']')
}

/// `maj,min rwbs [bytes] (command) sector + sectors …`
struct SectorRange {
    writes: bool,
    sector: u64,
    sectors: u64,
}

impl SectorRange {
    fn parse(rest: &str) -> Option<Self> {
        let (front, behind) = rest.split_once(')')?;
        let rwbs = front.split_ascii_whitespace().nth(1)?;
        let writes = match rwbs.bytes().find(|letter| b"RWD".contains(letter))? {
            b'R' => false,
            b'W' => true,
            _ => return None,
        };
        let mut words = behind.split_ascii_whitespace();
        let sector = words.next()?.parse().ok()?;
        let sectors = words.nth(1)?.parse().ok()?;
        (sectors > 0).then_some(Self { writes, sector, sectors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
           my-fio 2-4711    [001] .....  12.000100: block_rq_insert: 8,0 R 8192 () 2048 + 16 none,0,0 [my-fio 2]
      kworker/1:1H-33      [001] .....  12.000350: block_rq_issue: 8,0 R 8192 () 2048 + 16 none,0,0 [kworker/1:1H]
              sh-12      [000] d..1.  12.000400: block_rq_issue: 8,0 WS 4096 () 99 + 8 [cat]
             cat-12      [000] d..1.  12.000410: sched_switch: block_rq_nothing: x
          <idle>-0       [001] d.h1.  12.001350: block_rq_complete: 8,0 R () 2048 + 16 none,0,0 [0]
          <idle>-0       [001] d.h1.  12.001400: block_rq_complete: 8,0 WS () 99 + 8 [0]
          <idle>-0       [001] d.h1.  12.001500: block_rq_complete: 8,0 R () 5 + 8 none,0,0 [0]
             cat-12      [000] d..1.  12.002000: block_rq_issue: 8,0 D 4096 () 99 + 8 [cat]
";

    #[test]
    fn a_request_is_put_together_from_its_events() {
        let mut events = BlockEvents::new();
        let served: Vec<ServedRequest> = TRACE.lines().filter_map(|line| events.handle_line(line)).collect();
        assert_eq!(events.unmatched(), 1);
        let [read, write] = &served[..] else { panic!("{served:?}") };
        assert_eq!((read.process.as_str(), read.pid, read.writes), ("my-fio 2", 4711, false));
        assert_eq!(read.range, ByteRange::new(2048 * 512, 8192));
        assert_eq!(
            (read.at, read.queued, read.service),
            (Nanos(12_000_100_000), Nanos(250_000), Nanos(1_000_000))
        );
        assert_eq!(write.process, "cat", "a shell until a moment ago");
        assert_eq!((write.writes, write.queued, write.service), (true, Nanos::ZERO, Nanos(1_000_000)));
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(lines in proptest::collection::vec("[a-z -]{0,9}-?[0-9]{0,12} \\[[0-9]\\] [.] [0-9]{1,20}\\.[0-9]{5,9}: (block_rq_issue|block_rq_complete): 8,0 [RWD] [0-9]{0,5} \\(\\) [0-9]{1,22} \\+ [0-9]{1,22}", 0..6)) {
            let mut events = BlockEvents::new();
            for line in lines {
                let _ = events.handle_line(&line);
            }
        }
    }
}
