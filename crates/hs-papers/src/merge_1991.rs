//! Merging on a SCSI disk of the time (Tezuka 1991, section 3, table 2).
//!
//! A program writes, or reads, a file of 8 MiB in blocks of 8 KiB that lie one behind the other. (All of the
//! paper's rates are 8192 KB over a time that is known to a tenth of a second: 25.0, 9.9, 13.0 and 10.7 s.)
//! Writes are asynchronous, so the queue fills and neighbours meet in it. Reads are ahead by a fixed number
//! of blocks, as the kernel's were: by one without merging, by several with it.

use hs_device::NewsDisk;
use hs_engine::queue::Direction;
use hs_lab::{Cell, Claim, Figure, Io, Report, Run, Target, Workload, simulate};
use hs_units::{ByteRange, Nanos};

use crate::kernel_1991::{ASYNCHRONOUS, BLOCK, PROGRAM, Reader, kernel, rate};

/// Blocks of the file.
const BLOCKS: u64 = 1_024;

/// Where the file lies: behind the root partition of the driver's table, a little way into the disk.
const FILE: u64 = 16 << 20;

/// Blocks that the improved kernel reads ahead (table 5 names four).
const READ_AHEAD: u64 = 4;

/// The processor's time for one block: a system call, a copy of 8 KiB, the file system. It is a tenth of the
/// disk's time; the experiment's test shows that the ratios hardly depend on it.
const PROCESSOR: Nanos = Nanos::from_millis(1);

fn block(number: u64) -> ByteRange {
    ByteRange::new(FILE + number * BLOCK, BLOCK)
}

/// Writes block after block without waiting for the disk.
struct Writer {
    processor: Nanos,
}

impl Workload for Writer {
    fn start(&mut self, io: &mut Io) {
        io.wake(self.processor, 0);
    }

    fn handle_wake(&mut self, io: &mut Io, number: u64) {
        io.request(ASYNCHRONOUS, PROGRAM, Direction::Write, block(number));
        if number + 1 < BLOCKS {
            io.wake(io.now() + self.processor, number + 1);
        }
    }

    fn handle_done(&mut self, _io: &mut Io, _request: usize) {}
}

/// A disk and its switches.
#[derive(Clone, Copy, Debug)]
struct Case {
    disk: NewsDisk,
    merge: bool,
    read_ahead: u64,
    processor: Nanos,
}

impl Case {
    fn run(self, workload: &mut impl Workload) -> Run {
        simulate(kernel(self.merge, false), self.disk.device(), Nanos(u64::MAX), workload)
    }

    /// KiB a second, and how many requests the disk had.
    fn write(self) -> (f64, usize) {
        let run = self.run(&mut Writer { processor: self.processor });
        (rate(BLOCKS * BLOCK, run.ended), run.sent.len())
    }

    fn read(self) -> (f64, usize) {
        let Self { processor, read_ahead, .. } = self;
        let run = self.run(&mut Reader::new(FILE, BLOCKS, read_ahead, processor));
        (rate(BLOCKS * BLOCK, run.ended), run.sent.len())
    }
}

/// Writing and reading with and without merging: the ratios of one disk.
#[derive(Clone, Copy, Debug)]
struct Ratios {
    write: f64,
    read: f64,
    /// Reading with more blocks ahead, but not merged.
    read_ahead_only: f64,
}

fn measure(disk: NewsDisk, processor: Nanos, rows: &mut Vec<Vec<Cell>>) -> Ratios {
    let case = |merge, read_ahead| Case { disk, merge, read_ahead, processor };
    let mut row = |what: &str, merge: &str, ahead: &str, (rate, requests): (f64, usize)| {
        let numbers = [Cell::Number(rate, 1), Cell::Number(requests as f64, 0)];
        rows.push(
            [disk.name().into(), what.into(), merge.into(), ahead.into()]
                .into_iter()
                .chain(numbers)
                .collect(),
        );
        rate
    };
    let write_off = row("write", "no", "", case(false, 0).write());
    let write_on = row("write", "yes", "", case(true, 0).write());
    let read_off = row("read", "no", "1", case(false, 1).read());
    let read_ahead_only = row("read", "no", "4", case(false, READ_AHEAD).read());
    let read_on = row("read", "yes", "4", case(true, READ_AHEAD).read());
    Ratios {
        write: write_on / write_off,
        read: read_on / read_off,
        read_ahead_only: read_ahead_only / read_off,
    }
}

pub(crate) fn run(_seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for disk in NewsDisk::MAGNETIC {
        let ratios = measure(disk, PROCESSOR, &mut rows);
        let mut write = Figure::new(format!("writing, merged ÷ not, {disk}"), ratios.write).off(1.0);
        let mut read = Figure::new(format!("reading, merged ÷ not, {disk}"), ratios.read);
        read = read.off(ratios.read_ahead_only);
        if disk == NewsDisk::Wren4 {
            write =
                write.published("002 table 2", Claim::Ratio(827.5 / 327.7)).target(Target::AtLeast(2.016));
            read = read.published("002 table 2", Claim::Ratio(765.6 / 630.2)).target(Target::AtLeast(0.968));
        }
        figures.extend([write, read]);
    }
    let columns = vec!["disk", "what", "merging", "blocks ahead", "KiB/s", "requests to the disk"];
    Report { columns, rows, figures, seed: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_processor_takes_hardly_matters() {
        let ratios = |processor| measure(NewsDisk::Wren4, Nanos::from_millis(processor), &mut Vec::new());
        let (none, usual, twice) = (ratios(0), ratios(1), ratios(2));
        for other in [none, twice] {
            assert!((other.write / usual.write - 1.0).abs() < 0.15, "{other:?} {usual:?}");
            assert!((other.read / usual.read - 1.0).abs() < 0.15, "{other:?} {usual:?}");
        }
    }
}
