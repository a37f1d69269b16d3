//! Gathering writes in an NFS server (Tezuka 1991, section 5, table 4).
//!
//! A client writes a file; as many writes are under way as it has processes for. The server owes the disk
//! three places for each write before it may answer: the block of the allocation, the data, the i-node.
//! *Without*: the i-node is locked while all three are written, one write after the other. *With*: data goes
//! to the disk as it comes, and when nothing more comes, the two others are written once for all that were
//! gathered.

use hs_device::NewsDisk;
use hs_engine::queue::Direction;
use hs_lab::{Cell, Claim, Figure, Io, Report, Workload, simulate};
use hs_units::{ByteRange, Nanos};

use crate::kernel_1991::{ASYNCHRONOUS, BLOCK, PROGRAM, SYNCHRONOUS, kernel, rate};
use crate::nfs::{on_the_wire, processor_at};

/// Blocks of the file: 4 MiB.
const BLOCKS: u64 = 512;

/// Writes under way: four processes of the client and the program itself, as in `read-ahead-1991`; or eight
/// processes.
const TOGETHER: [u64; 2] = [5, 9];

/// Bytes of a write that are not the file's: UDP, RPC with Unix credentials, file handle, offsets, count (RFC
/// 1094).
const CALL: u64 = 8 + 40 + 60 + 32 + 16;

/// Where the cylinder group begins that has the file's i-node, and the one that has its blocks: those of a
/// file larger than 48 KB are put into another group, any that is emptier than most (McKusick and others, "A
/// fast file system for UNIX", 1984, section 3.3). It is a third of the disk away, what an average seek is.
/// The indirect block lies before the data.
const GROUP: u64 = 50 << 20;
const INODE: ByteRange = ByteRange::new(GROUP + 2 * BLOCK, BLOCK);

/// What a processor takes for 8 KiB through NFS: Sandberg's Sun-3, scaled by the paper's table 1, as in
/// `read-ahead-1991`.
fn processor(mips: f64) -> Nanos {
    Nanos::from_secs_f64(processor_at(250e3, BLOCK).as_secs_f64() * 2.3 / mips)
}

/// The paper's machines, and what they do in a second.
const MACHINES: [(&str, f64); 2] = [("MC68030", 5.3), ("R3000", 25.0)];

const SEEKS: &str = "the paper's 440 KB/s leave 93 ms for five writes, wire and all, which three places a third of a disk apart do not allow; \
    its gathers were larger, or its places nearer, and it says neither; without gathering the rate itself is reproduced";

/// What the server does with its disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing: the first request that comes is served.
    Idle,
    /// Waits for these requests to the disk, then for others.
    Allocation,
    Data,
    Inode,
    /// Data is on its way to the disk, and others may come.
    Gathering,
    /// Allocation and i-node are on their way.
    Flushing,
}

/// Client, wire and server.
struct Server {
    gathers: bool,
    /// Writes that the client has under way.
    together: u64,
    /// What its processor takes for a write.
    takes: Nanos,
    /// Where the indirect block lies, and data behind it.
    blocks: u64,
    /// Blocks that the client has sent, and that are written.
    sent: u64,
    written: u64,
    /// When the wire and the server's processor are free.
    wire: Nanos,
    processor: Nanos,
    /// Blocks that have come and are not begun, and those that are being written.
    waiting: Vec<u64>,
    begun: Vec<u64>,
    step: Step,
    /// Requests to the disk that the step waits for.
    pending: usize,
}

impl Server {
    fn new(disk: NewsDisk, mips: f64, together: u64, gathers: bool) -> Self {
        let blocks = (GROUP + disk.capacity_bytes() / 3) / BLOCK * BLOCK;
        Self {
            gathers,
            together,
            takes: processor(mips),
            blocks,
            sent: 0,
            written: 0,
            wire: Nanos::ZERO,
            processor: Nanos::ZERO,
            waiting: Vec::new(),
            begun: Vec::new(),
            step: Step::Idle,
            pending: 0,
        }
    }

    const fn indirect(&self) -> ByteRange {
        ByteRange::new(self.blocks, BLOCK)
    }

    const fn block(&self, number: u64) -> ByteRange {
        ByteRange::new(self.blocks + (number + 1) * BLOCK, BLOCK)
    }

    /// The client sends what it may.
    fn send(&mut self, io: &mut Io) {
        while self.sent < BLOCKS && self.sent < self.written + self.together {
            self.wire = self.wire.max(io.now()) + on_the_wire(CALL + BLOCK);
            self.processor = self.processor.max(self.wire) + self.takes;
            io.wake(self.processor, self.sent);
            self.sent += 1;
        }
    }

    fn write(&mut self, io: &mut Io, synchronous: bool, range: ByteRange) {
        let class = if synchronous { SYNCHRONOUS } else { ASYNCHRONOUS };
        io.request(class, PROGRAM, Direction::Write, range);
        self.pending += 1;
    }

    /// Begins what can be begun.
    fn begin(&mut self, io: &mut Io) {
        if self.gathers {
            for number in std::mem::take(&mut self.waiting) {
                self.write(io, false, self.block(number));
                self.begun.push(number);
                self.step = Step::Gathering;
            }
            // All writes have come that can come before an answer.
            if self.step == Step::Gathering && self.written + self.begun.len() as u64 == self.sent {
                self.step = Step::Flushing;
                self.write(io, true, self.indirect());
                self.write(io, true, INODE);
            }
        } else if self.step == Step::Idle && !self.waiting.is_empty() {
            let number = self.waiting.remove(0);
            self.begun.push(number);
            self.step = Step::Allocation;
            self.write(io, true, self.indirect());
        }
    }

    fn answer(&mut self, io: &mut Io) {
        self.written += self.begun.len() as u64;
        self.begun.clear();
        self.step = Step::Idle;
        self.send(io);
        self.begin(io);
    }
}

impl Workload for Server {
    fn start(&mut self, io: &mut Io) {
        self.send(io);
    }

    fn handle_wake(&mut self, io: &mut Io, number: u64) {
        self.waiting.push(number);
        // While two places are written for those that were gathered, others wait for the next time.
        if self.step != Step::Flushing {
            self.begin(io);
        }
    }

    fn handle_done(&mut self, io: &mut Io, _request: usize) {
        self.pending -= 1;
        if self.pending > 0 {
            return;
        }
        match self.step {
            Step::Allocation => {
                self.step = Step::Data;
                self.write(io, true, self.block(self.begun[0]));
            }
            Step::Data => {
                self.step = Step::Inode;
                self.write(io, true, INODE);
            }
            Step::Inode | Step::Flushing => self.answer(io),
            Step::Idle | Step::Gathering => {}
        }
    }
}

/// KiB a second, and requests to the disk.
fn measure(disk: NewsDisk, mips: f64, together: u64, gathers: bool) -> (f64, usize) {
    let mut server = Server::new(disk, mips, together, gathers);
    let run = simulate(kernel(gathers, true), disk.device(), Nanos(u64::MAX), &mut server);
    assert!(server.written == BLOCKS, "the whole file is written");
    (rate(BLOCKS * BLOCK, run.ended), run.sent.len())
}

pub(crate) fn run(_seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    let disks = [NewsDisk::Wren4, NewsDisk::Wren3, NewsDisk::Dk516c];
    let machines = disks.iter().flat_map(|disk| MACHINES.map(|machine| (*disk, machine)));
    for (disk, (machine, mips)) in machines {
        for together in TOGETHER {
            let [off, on] = [false, true].map(|gathers| measure(disk, mips, together, gathers));
            for (name, (rate, requests)) in [("no", off), ("yes", on)] {
                let under_way = Cell::Number(together as f64, 0);
                let numbers = [Cell::Number(rate, 1), Cell::Number(requests as f64, 0)];
                let words = [disk.name().into(), machine.into(), under_way, name.into()];
                rows.push(words.into_iter().chain(numbers).collect());
            }
            let name = format!("writing, gathered ÷ not, {together} under way, {machine}, {disk}");
            let figure = Figure::new(name, on.0 / off.0).off(1.0);
            if disk != NewsDisk::Wren4 || machine != MACHINES[0].0 || together != TOGETHER[0] {
                figures.push(figure);
                continue;
            }
            figures.push(figure.published("002 table 4", Claim::Ratio(440.4 / 98.5)).because(SEEKS));
            figures.push(
                Figure::new(format!("writing, not gathered (KiB/s), {machine}, {disk}"), off.0)
                    .published("002 table 4", Claim::Amount(98.5)),
            );
        }
    }
    let columns = vec!["disk", "machines", "under way", "gathered", "KiB/s", "requests to the disk"];
    Report { columns, rows, figures, seed: None }
}
