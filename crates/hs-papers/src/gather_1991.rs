//! Gathering writes in an NFS server (Tezuka 1991, section 5, table 4).
//!
//! A client writes a file; as many writes are under way as it has processes for. The server owes the disk
//! three places for each write before it may answer: the block of the allocation, the data, the i-node.
//!
//! - *In place*: what the paper's server did before. The i-node is locked while all three are written where
//!   they belong, one write after the other.
//! - *A flush for each*: the three are written to the disk of an overlay, and flushed, one write after the
//!   other.
//! - *Gathered*: the same, and all writes that come while the log is written are one append. This is the
//!   write engine as it is.

use hs_device::NewsDisk;
use hs_engine::queue::Direction;
use hs_lab::{
    Cell, Claim, Figure, Io, OverlayConfig, OverlayIo, OverlayWorkload, Report, Workload, simulate,
    simulate_overlay,
};
use hs_units::{BLOCK_BYTES, ByteRange, Nanos};

use crate::kernel_1991::{BLOCK, MERGE, PROGRAM, SYNCHRONOUS, kernel, rate};
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

const ONE_PLACE: &str = "a log is one place where the paper's disk has three, so the engine gains before it gathers, 1.7 times; \
    the first write behind an append has the next one for itself, so two appends share five writes; nine under way give 469 KiB/s";

/// Client and wire: writes come to the server one after the other.
struct Client {
    /// Writes under way.
    together: u64,
    /// What the server's processor takes for a write.
    takes: Nanos,
    /// Blocks that were sent, and that were answered.
    sent: u64,
    written: u64,
    /// When the wire and the server's processor are free.
    wire: Nanos,
    processor: Nanos,
}

impl Client {
    const fn new(together: u64, takes: Nanos) -> Self {
        Self { together, takes, sent: 0, written: 0, wire: Nanos::ZERO, processor: Nanos::ZERO }
    }

    /// The next write that may be sent, and when the server's processor is done with it.
    fn send(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        if self.sent == BLOCKS || self.sent == self.written + self.together {
            return None;
        }
        self.wire = self.wire.max(now) + on_the_wire(CALL + BLOCK);
        self.processor = self.processor.max(self.wire) + self.takes;
        self.sent += 1;
        Some((self.sent - 1, self.processor))
    }
}

/// The places that a write of block `number` owes the disk: allocation, data, i-node.
fn places(disk: NewsDisk, number: u64) -> [ByteRange; 3] {
    let blocks = (GROUP + disk.capacity_bytes() / 3) / BLOCK * BLOCK;
    [ByteRange::new(blocks, BLOCK), ByteRange::new(blocks + (number + 1) * BLOCK, BLOCK), INODE]
}

/// The server that writes in place.
struct InPlace {
    client: Client,
    disk: NewsDisk,
    /// Blocks that have come, and the places that the first of them still owes.
    waiting: Vec<u64>,
    owed: Vec<ByteRange>,
}

impl InPlace {
    fn send(&mut self, io: &mut Io) {
        while let Some((number, then)) = self.client.send(io.now()) {
            io.wake(then, number);
        }
    }

    fn go_on(&mut self, io: &mut Io) {
        if let Some(range) = self.owed.pop() {
            io.request(SYNCHRONOUS, PROGRAM, Direction::Write, range);
        }
    }

    fn begin(&mut self, io: &mut Io) {
        if let Some(number) = self.waiting.first() {
            self.owed = places(self.disk, *number).into_iter().rev().collect();
            self.go_on(io);
        }
    }
}

impl Workload for InPlace {
    fn start(&mut self, io: &mut Io) {
        self.send(io);
    }

    fn handle_wake(&mut self, io: &mut Io, number: u64) {
        self.waiting.push(number);
        if self.waiting.len() == 1 {
            self.begin(io);
        }
    }

    fn handle_done(&mut self, io: &mut Io, _request: usize) {
        if !self.owed.is_empty() {
            return self.go_on(io);
        }
        self.waiting.remove(0);
        self.client.written += 1;
        self.send(io);
        self.begin(io);
    }
}

/// The server whose disk is an overlay.
struct Logged {
    client: Client,
    disk: NewsDisk,
    ended: Nanos,
}

impl Logged {
    fn send(&mut self, io: &mut OverlayIo<'_>) {
        while let Some((number, then)) = self.client.send(io.now()) {
            io.wake(then, number);
        }
    }
}

impl OverlayWorkload for Logged {
    fn start(&mut self, io: &mut OverlayIo<'_>) {
        self.send(io);
    }

    fn handle_wake(&mut self, io: &mut OverlayIo<'_>, number: u64) {
        let blocks = |range: ByteRange| (range.offset / BLOCK_BYTES, range.len / BLOCK_BYTES);
        io.write(number, number, &places(self.disk, number).map(blocks));
    }

    fn handle_taken(&mut self, io: &mut OverlayIo<'_>, number: u64) {
        io.flush(number);
    }

    fn handle_flushed(&mut self, io: &mut OverlayIo<'_>, _number: u64) {
        self.client.written += 1;
        self.ended = io.now();
        self.send(io);
    }
}

/// KiB a second, and requests to the disk.
fn in_place(disk: NewsDisk, mips: f64, together: u64) -> (f64, usize) {
    let client = Client::new(together, processor(mips));
    let mut server = InPlace { client, disk, waiting: Vec::new(), owed: Vec::new() };
    let run = simulate(kernel(false, true), disk.device(), Nanos(u64::MAX), &mut server);
    assert!(server.client.written == BLOCKS, "the whole file is written");
    (rate(BLOCKS * BLOCK, run.ended), run.sent.len())
}

/// The same with the write engine.
fn logged(disk: NewsDisk, mips: f64, together: u64, gathers: bool) -> (f64, usize) {
    let client = Client::new(together, processor(mips));
    let mut server = Logged { client, disk, ended: Nanos::ZERO };
    let config = OverlayConfig {
        file_at: GROUP,
        request_bytes: MERGE,
        gathers,
        ..OverlayConfig::new(disk.capacity_bytes() / BLOCK_BYTES * BLOCK_BYTES)
    };
    let (run, ..) = simulate_overlay(config, kernel(true, true), disk.device(), &mut server);
    assert!(server.client.written == BLOCKS, "the whole file is written");
    (rate(BLOCKS * BLOCK, server.ended), run.sent.len())
}

pub(crate) fn run(_seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    let disks = [NewsDisk::Wren4, NewsDisk::Wren3, NewsDisk::Dk516c];
    let machines = disks.iter().flat_map(|disk| MACHINES.map(|machine| (*disk, machine)));
    for (disk, (machine, mips)) in machines {
        for together in TOGETHER {
            let place = in_place(disk, mips, together);
            let [off, on] = [false, true].map(|gathers| logged(disk, mips, together, gathers));
            for (name, (rate, requests)) in [("in place", place), ("a flush for each", off), ("gathered", on)]
            {
                let under_way = Cell::Number(together as f64, 0);
                let numbers = [Cell::Number(rate, 1), Cell::Number(requests as f64, 0)];
                let words = [disk.name().into(), machine.into(), under_way, name.into()];
                rows.push(words.into_iter().chain(numbers).collect());
            }
            let machine = format!("{together} under way, {machine}, {disk}");
            let gathered = Figure::new(format!("writing, gathered ÷ not, {machine}"), on.0 / off.0).off(1.0);
            let places = Figure::new(format!("writing, gathered ÷ in place, {machine}"), on.0 / place.0)
                .off(off.0 / place.0);
            if disk != NewsDisk::Wren4 || mips != MACHINES[0].1 || together != TOGETHER[0] {
                figures.extend([gathered, places]);
                continue;
            }
            figures.extend([
                gathered.published("002 table 4", Claim::Ratio(440.4 / 98.5)).because(ONE_PLACE),
                places,
                Figure::new(format!("writing, gathered (KiB/s), {machine}"), on.0)
                    .published("002 table 4", Claim::Amount(440.4))
                    .because(ONE_PLACE),
                Figure::new(format!("writing in place, not gathered (KiB/s), {machine}"), place.0)
                    .published("002 table 4", Claim::Amount(98.5)),
            ]);
        }
    }
    let columns = vec!["disk", "machines", "under way", "writes", "KiB/s", "requests to the disk"];
    Report { columns, rows, figures, seed: None }
}
