use super::*;
use crate::models::Model;
use crate::streams::Pattern;
use crate::writers::{Writer, Writers};

const MIB: u64 = 1 << 20;

fn writers(count: u64, blocks: u64, writes: u64) -> Writers {
    let writer = |number: u64| Writer {
        requester: number,
        pattern: Pattern::Random,
        region: (number * 1_024, 1_024),
        blocks,
        depth: 1,
        syncs: true,
        think: Nanos::ZERO,
        begins: Nanos::ZERO,
        writes: Some(writes),
    };
    Writers::new((0..count).map(writer).collect(), 1)
}

fn run(config: OverlayConfig, programs: &mut impl OverlayWorkload) -> (Run, OverlayCounts, Figures) {
    let model = Model::writable("hdd-7200");
    let station = model.writable_station().expect("a disk can be written to");
    simulate_overlay(config, model.config(), station, programs)
}

#[test]
fn what_comes_during_an_append_is_the_next_one() {
    let config = OverlayConfig::new(64 * MIB);
    let (_, counts, figures) = run(config, &mut writers(8, 1, 100));
    assert_eq!(counts.taken_bytes, 800 * BLOCK_BYTES);
    assert!(figures.flushes >= 800 && 6 * figures.appends <= figures.flushes, "{figures:?}");
    // Without a wait, the first that comes back takes an append alone, and most others the next one.
    let at_once = OverlayConfig { waits_for_writers: false, ..config };
    let (_, _, figures) = run(at_once, &mut writers(8, 1, 100));
    assert!((3..5).contains(&(figures.flushes / figures.appends)), "{figures:?}");
    let (_, _, figures) = run(OverlayConfig { gathers: false, ..config }, &mut writers(8, 1, 100));
    assert!(figures.appends >= 800, "{figures:?}");
}

#[test]
fn a_flush_waits_for_the_medium() {
    let mut programs = writers(1, 1, 50);
    let (run, ..) = run(OverlayConfig::new(64 * MIB), &mut programs);
    let turn = Nanos(60_000_000_000 / 7_200);
    // The first one finds the head over the file's beginning.
    assert!(programs.waits(0).skip(1).all(|wait| wait >= turn), "{:?}", programs.written());
    assert!(run.sent.iter().all(|sent| sent.dispatch.direction == Direction::Write));
}

#[test]
fn a_writer_alone_is_not_waited_for() {
    let waits = |waits_for_writers| {
        let config = OverlayConfig { waits_for_writers, ..OverlayConfig::new(64 * MIB) };
        let mut programs = writers(1, 1, 100);
        run(config, &mut programs);
        programs.waits(0).collect::<Vec<_>>()
    };
    assert_eq!(waits(true), waits(false));
}

#[test]
fn the_same_run_is_the_same() {
    let waits = || {
        let mut programs = writers(3, 7, 60);
        let counts = run(OverlayConfig::new(64 * MIB), &mut programs).1;
        (programs.written().iter().map(crate::Written::wait).collect::<Vec<_>>(), counts)
    };
    assert_eq!(waits(), waits());
}

/// Writes the same part of the disk again and again, until it has written much more than it holds; then
/// rests.
struct Overwriting {
    prng: hs_units::Prng,
    left: u64,
}

impl OverlayWorkload for Overwriting {
    fn start(&mut self, io: &mut OverlayIo<'_>) {
        let whole: Vec<(u64, u64)> = (0..16 * MIB / BLOCK_BYTES).step_by(256).map(|at| (at, 256)).collect();
        io.write(0, 0, &whole);
    }

    fn handle_taken(&mut self, io: &mut OverlayIo<'_>, token: u64) {
        io.flush(token);
    }

    fn handle_flushed(&mut self, io: &mut OverlayIo<'_>, _token: u64) {
        if self.left > 0 {
            self.left -= 1;
            io.write(0, 0, &[(self.prng.below(4_000), 8)]);
        }
    }
}

#[test]
fn dead_blocks_are_given_back() {
    let overwriting = || Overwriting { prng: hs_units::Prng::new(1), left: 3_000 };
    let config = OverlayConfig::new(64 * MIB);
    let (_, counts, _) = run(config, &mut overwriting());
    // Data, a tenth, and what is kept.
    assert!(counts.space_bytes < 23 * MIB, "{counts:?}");
    assert!(counts.read_bytes > 0 && counts.most_space_bytes < 120 * MIB, "{counts:?}");
    let (_, kept, _) = run(OverlayConfig { gives_back: false, ..config }, &mut overwriting());
    assert!(kept.space_bytes > 100 * MIB && kept.read_bytes == 0, "{kept:?}");
}
