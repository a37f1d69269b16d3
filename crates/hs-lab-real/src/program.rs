//! The reads of a recorded program, made for real and when it would make them: [`Program`].

use std::time::Instant;

use anyhow::Context;
use hs_units::{ByteRange, Nanos};
use parking_lot::Mutex;

use super::real_file::{Aligned, ReadOutcome, RealFile};

/// The program does not sleep for less than this, and is early instead: waking takes more processor time than
/// finding a page.
const EARLY: Nanos = Nanos::from_millis(1);
/// Reads that a program has under way at once; more of the same moment wait for these.
const MOST_UNDER_WAY: usize = 32;

/// A program that reads and computes, in this order: its own time does not advance while its reads are under
/// way.
pub(super) struct Program {
    file: RealFile,
    began: Instant,
    /// Its own time until what it asks for now.
    own: Nanos,
    /// When it asks for that, since the beginning. A timer that is late is no time of the program's: it makes
    /// good for it.
    due: Nanos,
    /// What it asks for at that moment.
    group: Vec<ByteRange>,
    outcome: ReadOutcome,
    buffer: Aligned,
}

impl Program {
    /// One that begins now.
    pub(super) fn begin(file: RealFile) -> Self {
        let (own, due) = (Nanos::ZERO, Nanos::ZERO);
        let (group, outcome, buffer) = Default::default();
        Self { file, began: Instant::now(), own, due, group, outcome, buffer }
    }

    /// It asks for `range` after so much of its `own` time.
    pub(super) fn ask(&mut self, range: ByteRange, own: Nanos) -> anyhow::Result<()> {
        if own > self.own {
            self.read_group()?;
            self.due += own.saturating_sub(std::mem::replace(&mut self.own, own));
        }
        self.group.push(range);
        Ok(())
    }

    /// It has asked for everything.
    pub(super) fn finish(mut self) -> anyhow::Result<ReadOutcome> {
        self.read_group()?;
        Ok(self.outcome)
    }

    /// Asks for the group when it is due, and has it.
    fn read_group(&mut self) -> anyhow::Result<()> {
        let mut now: Nanos = self.began.elapsed().into();
        let pause = self.due.saturating_sub(now);
        if pause > EARLY {
            std::thread::sleep(pause.into());
            now = self.began.elapsed().into();
        }
        match self.group[..] {
            [] => return Ok(()),
            [range] => self.outcome.read(&self.file, range, Some(now), &mut self.buffer, self.began)?,
            _ => self.read_at_once(now)?,
        }
        self.group.clear();
        self.due += self.outcome.ended.saturating_sub(now);
        Ok(())
    }

    /// Asks for all of the group `now`, by threads of which this is one.
    fn read_at_once(&mut self, now: Nanos) -> anyhow::Result<()> {
        let (file, began) = (&self.file, self.began);
        let ranges = Mutex::new(self.group.iter());
        let work = |outcome: &mut ReadOutcome, buffer: &mut Aligned| -> anyhow::Result<()> {
            loop {
                let Some(range) = ranges.lock().next() else { return Ok(()) };
                outcome.read(file, *range, Some(now), buffer, began)?;
            }
        };
        let by_another = || {
            let mut outcome = ReadOutcome::default();
            work(&mut outcome, &mut Aligned::default()).map(|()| outcome)
        };
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..self.group.len().min(MOST_UNDER_WAY)).map(|_| scope.spawn(by_another)).collect();
            work(&mut self.outcome, &mut self.buffer)?;
            for other in others {
                self.outcome.merge(&other.join().ok().context("a reading thread died")??);
            }
            Ok(())
        })
    }
}
