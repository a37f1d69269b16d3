//! A start from a server, by image, desktop, link, compression and cache (Suzaki and others, about 2004).
//!
//! The rates and the second start of the slides are the model's parameters ([`sfs`](crate::sfs)); the model
//! is judged by its times of first starts. The start computes as long as the second one takes, spread evenly
//! over its blocks.

use hs_engine::queue::{MediumTraits, QueueConfig};
use hs_lab::{Cell, Claim, Figure, Report};
use hs_units::Nanos;

use crate::replay::{Read, replay};
use crate::sfs::{BLOCK, COMPUTING, GIGABIT, KNOPPIX_BYTES, Sfs, decompression, place};

/// Bytes that the loop device asks for: a page, since it hands on pages one by one.
const PAGE: u64 = 4 << 10;

/// Bytes that a start without compression transfers.
const LOOP_BYTES: u64 = 97_000_000;

/// Second in which `startkde` begins, in the breakdown of a start of 90 s.
const DESKTOP_BEGINS: f64 = 57.0;

/// Bytes that KDE alone transfers: "20 MB more than the others".
const KDE_BYTES: u64 = 20_000_000;

/// Of what a start uses, the compressed blocks hold more: 88,228 KB of 139,200 (seeds 000, table 3).
const DENSITY: f64 = 88_228.0 / 139_200.0;

/// Compressed bytes of a byte: 45,074 KB (table 1) of 2,172 blocks of 64.
const COMPRESSED: f64 = 45_074.0 / (2_172.0 * 64.0);

/// A start.
#[derive(Clone, Copy, Debug)]
struct Start {
    bytes: u64,
    /// Bytes that are fetched at once.
    piece: u64,
    computing: f64,
    /// Bits a second of the wire.
    wire: f64,
}

const KNOPPIX: Start = Start { bytes: KNOPPIX_BYTES, piece: BLOCK, computing: COMPUTING, wire: GIGABIT };

impl Start {
    /// Seconds.
    fn took(self) -> f64 {
        let pieces = self.bytes / self.piece;
        let think = Nanos::from_secs_f64(self.computing / pieces as f64);
        let read = |number| Read { think, range: place(0, number * self.piece, self.piece) };
        let traits = MediumTraits { rotational: false, overlaps: true, bytes_per_s: Some(10e6) };
        let link = Sfs::new(self.wire, 1, false);
        replay(QueueConfig::for_medium(traits), link, (0..pieces).map(read).collect()).all
    }
}

const LOOP_REASON: &str = "what the kernel of 2004 did besides, page by page, is not in the slides: 38 s for 23,700 pages would be 1.6 ms each";

pub(crate) fn run(_seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut measure = |what: &str, start: Start| {
        let took = start.took();
        let megabytes = Cell::Number(start.bytes as f64 / 1e6, 1);
        rows.push(vec![what.into(), megabytes, Cell::Number(start.wire / 1e6, 0), Cell::Number(took, 1)]);
        took
    };
    let knoppix = measure("KNOPPIX 3.3", KNOPPIX);
    let edu = measure("KNOPPIX-Edu 3.2", Start { bytes: 52_300_000, ..KNOPPIX });
    let gis = measure("GIS-KNOPPIX 3.1", Start { bytes: 50_300_000, ..KNOPPIX });
    // Before the desktop the start computes the rest of its 57 s, without its share of the transfer.
    let small = KNOPPIX_BYTES - KDE_BYTES;
    let waited = (knoppix - COMPUTING) * small as f64 / KNOPPIX_BYTES as f64;
    let twm = measure("without KDE", Start { bytes: small, computing: DESKTOP_BEGINS - waited, ..KNOPPIX });
    let fast = measure("100 Mbit/s", Start { wire: 100e6, ..KNOPPIX });
    let enough = measure("40 Mbit/s", Start { wire: 40e6, ..KNOPPIX });
    let slow = measure("10 Mbit/s", Start { wire: 10e6, ..KNOPPIX });
    let blocks = (KNOPPIX_BYTES / BLOCK) as f64;
    let raw =
        Start { bytes: LOOP_BYTES, piece: PAGE, computing: COMPUTING - blocks * decompression(), ..KNOPPIX };
    let uncompressed = measure("not compressed", raw);
    let uncompressed_slow = measure("not compressed, 10 Mbit/s", Start { wire: 10e6, ..raw });
    let blockwise = measure("not compressed, fetched in such blocks", Start { piece: BLOCK, ..raw });

    for (machine, megahertz) in
        [("Pentium 4", 2_400.0), ("Pentium III", 1_200.0), ("Crusoe", 600.0), ("Pentium II", 400.0)]
    {
        let what = format!("{machine}, {megahertz} MHz, computing by its clock");
        measure(&what, Start { computing: COMPUTING * 2_400.0 / megahertz, wire: 100e6, ..KNOPPIX });
    }
    // Nothing is transferred, so nothing is simulated.
    let again = COMPUTING;
    let cached = [Cell::Number(0.0, 1), Cell::Number(GIGABIT / 1e6, 0), Cell::Number(again, 1)];
    rows.push(["again, from the host's cache".into()].into_iter().chain(cached).collect());
    let compressed_bytes = LOOP_BYTES as f64 / DENSITY * COMPRESSED;
    let figures = vec![
        Figure::new("first start of KNOPPIX (s)", knoppix)
            .off(again)
            .published("001 start times", Claim::Amount(90.0))
            .arithmetic(),
        Figure::new("start of KNOPPIX-Edu ÷ of KNOPPIX", edu / knoppix)
            .published("001 start times", Claim::Alike)
            .arithmetic(),
        Figure::new("start of GIS-KNOPPIX ÷ of KNOPPIX", gis / knoppix)
            .published("001 start times", Claim::Alike)
            .arithmetic(),
        Figure::new("start without KDE ÷ with", twm / knoppix)
            .off(1.0)
            .published("001 desktops", Claim::Ratio(60.0 / 90.0))
            .arithmetic(),
        Figure::new("start at 100 Mbit/s ÷ at 1 Gbit/s", fast / knoppix)
            .published("001 links", Claim::Alike)
            .arithmetic(),
        Figure::new("start at 40 Mbit/s ÷ at 1 Gbit/s", enough / knoppix)
            .published("001 summary", Claim::Alike)
            .arithmetic(),
        Figure::new("start at 10 Mbit/s ÷ at 1 Gbit/s", slow / knoppix)
            .off(1.0)
            .published("001 links", Claim::Ratio(130.0 / 90.0))
            .arithmetic(),
        Figure::new("bytes without compression ÷ with", LOOP_BYTES as f64 / compressed_bytes)
            .off(1.0)
            .published("001 compression", Claim::Ratio(97.0 / 52.0))
            .arithmetic(),
        Figure::new("start without compression ÷ with", uncompressed / knoppix)
            .off(blockwise / knoppix)
            .published("001 compression", Claim::Ratio(118.0 / 90.0))
            .arithmetic()
            .because(LOOP_REASON),
        Figure::new("start without compression ÷ with, 10 Mbit/s", uncompressed_slow / slow),
        Figure::new("second start ÷ first", again / knoppix)
            .off(1.0)
            .published("001 cache", Claim::Ratio(80.0 / 90.0))
            .arithmetic(),
    ];
    Report { columns: vec!["what", "MB", "wire (Mbit/s)", "start (s)"], rows, figures, seed: None }
}
