//! Writes and syncs that fail.

use hs_overlay::{Failed, FailedStep, Limits, OverlayError, Refusal, Step, Trouble};

use crate::world::{World, ZERO, content, identity, open};

fn world() -> World {
    World::create(Limits::default())
}

/// Up to the step before one of this kind.
fn until(world: &mut World, wanted: impl Fn(&Step) -> bool) {
    while !world.next_step().is_some_and(&wanted) {
        assert!(world.step());
    }
}

#[test]
fn a_sync_that_failed_is_never_taken_for_done() {
    let mut world = world();
    world.write(3, &[1]);
    world.flush();
    world.write(3, &[2, 2]);
    let batch = world.overlay.handle_flush();
    until(&mut world, |step| *step == Step::Sync);
    // The kernel reports it once, drops the pages, and says yes to the next sync.
    world.device.lose();
    assert!(world.fail(Failed { step: FailedStep::Sync, no_space: false }));
    assert_eq!(world.overlay.trouble(), Some(Trouble::Sync));
    assert!(!world.overlay.is_durable(batch));
    assert_eq!(world.overlay.handle_write(3, &[0; 4096]), Err(Refusal::ReadOnly));
    assert!(!world.step(), "nothing is written any more");
    // All that was written can be read, and nothing is said to be on the medium that is not.
    assert_eq!([world.version(3), world.version(4)], [2, 2]);
    assert!(!world.overlay.is_durable(world.overlay.figures().flushes + 10));
    let found = World::open(world.device.without_cache(), Limits::default()).unwrap();
    assert_eq!([found.version(3), found.version(4)], [1, 0]);
}

#[test]
fn a_full_device_is_told_to_the_writer_and_all_before_stays() {
    let mut world = world();
    world.write(3, &[1]);
    world.flush();
    world.write(5, &[2]);
    world.overlay.handle_flush();
    // Not the zeros that prepare a segment.
    until(&mut world, |step| matches!(step, Step::Write { bytes, .. } if bytes.len() == 2 * 4096));
    assert!(world.fail(Failed { step: FailedStep::Write, no_space: true }));
    assert_eq!(world.overlay.trouble(), None);
    assert_eq!([world.version(3), world.version(5)], [1, 2]);
    assert!(!world.step(), "it is not tried again before a flush");
    world.write(6, &[3]);
    world.flush();
    let found = World::open(world.device.without_cache(), Limits::default()).unwrap();
    assert_eq!([3, 5, 6].map(|block| found.version(block)), [1, 2, 3]);
}

#[test]
fn space_that_cannot_be_had_is_told_before_a_write_is_taken() {
    let mut world = world();
    assert_eq!(world.overlay.handle_write(0, &[0; 4096]), Err(Refusal::NeedsSpace));
    assert!(world.overlay.space_needed(1).is_some());
    assert!(!world.overlay.handle_failed(Failed { step: FailedStep::Write, no_space: true }));
    assert_eq!(world.overlay.handle_write(0, &[0; 4096]), Err(Refusal::NeedsSpace));
    assert_eq!(world.version(0), 0);
    world.write(0, &[9]);
    world.flush();
    assert_eq!(world.version(0), 9);
}

#[test]
fn a_flush_is_not_forgotten_for_a_write_that_finds_no_space() {
    let mut world = world();
    world.write(0, &[1]);
    let batch = world.overlay.handle_flush();
    assert_eq!(world.overlay.handle_write(50, &[7; 300 * 4096]), Err(Refusal::NeedsSpace));
    assert!(world.overlay.space_needed(300).is_some());
    assert!(!world.overlay.handle_failed(Failed { step: FailedStep::Write, no_space: true }));
    while !world.overlay.is_durable(batch) {
        assert!(world.step(), "it waits for ever");
    }
}

#[test]
fn flushes_of_many_are_one_append() {
    let mut world = world();
    world.write(1, &[1]);
    let first = world.overlay.handle_flush();
    until(&mut world, |step| *step == Step::Sync);
    let syncs = world.device.syncs;
    let mut later = Vec::new();
    for block in 2..50 {
        world.write(block, &[2]);
        later.push(world.overlay.handle_flush());
    }
    while later.iter().any(|batch| !world.overlay.is_durable(*batch)) {
        assert!(world.step());
    }
    assert!(world.overlay.is_durable(first));
    assert_eq!(world.device.syncs - syncs, 2);
    assert_eq!(world.overlay.figures().appends, 2);
}

#[test]
fn space_is_used_again() {
    let mut world = world();
    for round in 1..400 {
        world.write(round % 7 * 50, &[round; 50]);
        world.flush();
    }
    // 400 × 200 KiB were written, of 1.4 MiB that are live.
    let limits = Limits { log_blocks: 2000, ..Limits::default() };
    let mut world = World::open(world.device, limits).unwrap();
    for round in 400..2000 {
        world.write(round % 7 * 50, &[round; 50]);
        world.flush();
    }
    let bytes = world.overlay.figures().segments << 20;
    assert!(bytes <= 48 << 20, "{bytes} bytes");
    assert!(world.device.len() <= 120 << 20, "{} bytes", world.device.len());
}

#[test]
fn an_overlay_of_another_disk_is_refused() {
    let mut world = world();
    world.write(1, &[5]);
    world.close();
    let mut opening = hs_overlay::Opening::new(
        Some((hs_units::Digest([8; 32]), identity().disk_bytes)),
        world.device.len(),
        Limits::default(),
    );
    let error = opening.handle_bytes(&world.device.read(0, 8192)).unwrap_err();
    assert!(matches!(error, OverlayError::OtherDisk { .. }), "{error}");
}

#[test]
fn one_slot_may_be_damaged() {
    for slot in 0..2 {
        let mut world = world();
        world.write(1, &[5]);
        world.zero(2, 1, true);
        world.close();
        world.device.write(slot * 4096, &[1; 4096]);
        let overlay = open(&world.device, Limits::default()).unwrap();
        assert_eq!(overlay.extents().count(), 2);
        let found = World::open(world.device, Limits::default()).unwrap();
        assert_eq!([1, 2].map(|block| found.version(block)), [5, ZERO]);
    }
}

/// A record of zeros is one block, so it fits where one with data does not.
#[test]
fn a_record_in_the_last_block_of_a_segment_is_found() {
    let mut world = world();
    world.write(0, &[1; 254]);
    world.flush();
    world.zero(300, 1, false);
    world.flush();
    world.write(301, &[2]);
    world.flush();
    let found = World::open(world.device, Limits::default()).unwrap();
    assert_eq!([253, 300, 301].map(|block| found.version(block)), [1, ZERO, 2]);
}

/// Writes to the first block until that needs space; gives the last version.
fn fill(world: &mut World, mut version: u64) -> u64 {
    while world.overlay.handle_write(0, &content(0, version + 1)).is_ok() {
        world.flush();
        version += 1;
    }
    assert_eq!(world.overlay.handle_write(0, &content(0, version)), Err(Refusal::NeedsSpace));
    version
}

/// A snapshot keeps what is written over, so only its deletion gives space back, and that stores a map, too.
#[test]
fn a_snapshot_can_be_deleted_where_no_space_is_left() {
    let mut world = world();
    // Beside what a new file has.
    assert!(world.overlay.snapshot_space_needed().is_some());
    assert!(!world.overlay.handle_failed(Failed { step: FailedStep::Write, no_space: true }));
    assert_eq!(world.overlay.trouble(), None);
    world.write(0, &[1; 500]);
    world.flush();
    let version = fill(&mut world, 1);
    // No space can be taken from here on.
    let store = |world: &mut World| {
        while let Some(step) = world.next_step() {
            assert!(!matches!(step, Step::Allocate { .. }), "{step:?}");
            world.step();
        }
        assert!(!world.overlay.is_changing_snapshots());
    };
    world.overlay.handle_zero(20, 1, true).expect("a discard needs none");
    world.flush();
    for name in ["one", "two", "three"] {
        assert!(world.overlay.snapshot_space_needed().is_none());
        world.overlay.take_snapshot(name, 1).expect("a free name");
        store(&mut world);
    }
    for name in ["two", "one", "three"] {
        world.overlay.delete_snapshot(name).expect("it is there");
        store(&mut world);
    }
    assert_eq!([0, 1, 20].map(|block| world.version(block)), [version, 1, ZERO]);
    assert!(world.overlay.snapshots().is_empty());
}
