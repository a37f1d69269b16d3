//! Snapshots of an overlay in use, read by others while it is written to, cleaned and opened anew.

use hs_overlay::{
    BlockSums, Checked, Checking, Failed, FailedStep, Limits, Needed, Opening, Overlay, Source,
};
use hs_units::Prng;

use crate::world::{BLOCK, BLOCKS, DISK, Version, World, content};

const NAME: &str = "kept";
const LIMITS: Limits = Limits { write_back_bytes: 64 << 12, gathered_bytes: 128 << 12, log_blocks: 400 };

/// An overlay that is used without a pause.
struct Busy {
    world: World,
    prng: Prng,
    version: Version,
}

impl Busy {
    fn work(&mut self) {
        for _ in 0..self.prng.below(6) {
            self.version += 1;
            let start = self.prng.below(BLOCKS);
            let most = if self.prng.below(4) == 0 { 64 } else { 4 };
            let len = 1 + self.prng.below((BLOCKS - start).min(most));
            match self.prng.below(12) {
                0..6 => self.world.write(start, &vec![self.version; len as usize]),
                6..8 => self.world.zero(start, len, true),
                8..10 => self.world.flush(),
                10 => self.world.shrink(),
                _ => drop(self.world.step()),
            }
        }
    }

    /// It dies, and another one goes on.
    fn is_opened_anew(&mut self) {
        let device = self.world.device.cut(&mut self.prng);
        let moved = self.world.moved;
        self.world = World::open(device, LIMITS).expect("its own file");
        self.world.moved = moved;
    }

    /// The map of the snapshot, read piece by piece while the overlay is used.
    fn map_of_snapshot(&mut self) -> Overlay {
        for _ in 0..1000 {
            let before = self.world.device.read(0, 2 * BLOCK as u64);
            let mut opening = Opening::of_map(Some((DISK, BLOCKS * BLOCK as u64)), self.world.device.len());
            let mut failed = None;
            while failed.is_none()
                && let Needed::Bytes(range) = opening.poll()
            {
                let bytes = self.world.device.read(range.offset, range.len);
                failed = opening.handle_bytes(&bytes).err();
                self.work();
            }
            match failed.map_or_else(|| opening.finish(), Err) {
                Ok(mut overlay) => {
                    overlay.keep_only(NAME).expect("it is there");
                    return overlay;
                }
                Err(error) => {
                    let after = self.world.device.read(0, 2 * BLOCK as u64);
                    assert!(before != after, "{error}, and no map was stored meanwhile");
                }
            }
        }
        panic!("the map could not be read");
    }

    fn check(&mut self, overlay: &Overlay) -> (Checked, BlockSums) {
        let mut checking = Checking::keeping_sums(overlay);
        while let Some(range) = checking.poll() {
            checking.handle_bytes(&self.world.device.read(range.offset, range.len));
            self.work();
        }
        checking.finish_with_sums()
    }

    /// What the snapshot has, of each block; none where it cannot be read.
    fn read(&mut self, overlay: &Overlay, sums: &BlockSums) -> Vec<Option<Vec<u8>>> {
        let mut blocks = Vec::new();
        for block in 0..BLOCKS {
            overlay.lookup(block, block + 1, &mut |piece| {
                blocks.push(match piece.source {
                    Source::File(offset) => {
                        let bytes = self.world.device.read(offset, BLOCK as u64);
                        sums.has(offset / BLOCK as u64, &bytes).then_some(bytes)
                    }
                    Source::Below => Some(content(block, 0)),
                    _ => Some(vec![0; BLOCK]),
                });
            });
            if block % 64 == 0 {
                self.work();
            }
        }
        blocks
    }
}

/// An overlay with a snapshot, and what that has.
fn busy(seed: u64) -> (Busy, Vec<Version>) {
    let mut busy = Busy { world: World::create(LIMITS), prng: Prng::new(seed), version: 0 };
    (0..60).for_each(|_| busy.work());
    busy.world.flush();
    let expected = busy.world.versions();
    busy.world.write(0, &[1 << 32]);
    busy.world.overlay.take_snapshot(NAME, 1).expect("a free name");
    while busy.world.overlay.is_changing_snapshots() {
        assert!(busy.world.step());
    }
    assert!(!busy.world.overlay.is_flushed(), "it did not wait for what came later");
    (busy, expected)
}

fn is_content(bytes: &[u8], block: u64, version: Version) -> bool {
    bytes == content(block, version)
}

#[test]
fn what_a_snapshot_has_stays_where_it_is() {
    let mut moved = 0;
    for seed in 0..20 {
        let (mut busy, expected) = busy(seed);
        for round in 0..8 {
            let overlay = busy.map_of_snapshot();
            let (checked, sums) = busy.check(&overlay);
            assert_eq!(checked.damaged, 0, "seed {seed}, round {round}");
            (0..20).for_each(|_| busy.work());
            let found = busy.read(&overlay, &sums);
            for (block, version) in expected.iter().enumerate() {
                let found = found[block].as_deref().expect("it is there");
                assert!(is_content(found, block as u64, *version), "seed {seed}: block {block}");
            }
            if round % 3 == 0 {
                busy.is_opened_anew();
            }
        }
        moved += busy.world.moved;
    }
    assert!(moved > 100, "cleaning was busy: {moved} segments were moved");
}

/// Where a snapshot goes while it is read, a block is right or told.
#[test]
fn what_a_deleted_snapshot_had_is_never_taken_for_it() {
    let mut told = [0; 2];
    for seed in 0..20 {
        let (mut busy, expected) = busy(seed);
        let overlay = busy.map_of_snapshot();
        let (_, sums) = busy.check(&overlay);
        busy.world.close();
        busy.world.overlay.delete_snapshot(NAME).expect("it is there");
        (0..60).for_each(|_| busy.work());
        // By those who have the sums, and by those who have only the map yet.
        let mut of_map = Checking::keeping_sums(&overlay);
        while let Some(range) = of_map.poll() {
            of_map.handle_bytes(&busy.world.device.read(range.offset, range.len));
        }
        let (_, late) = of_map.finish_with_sums();
        for (told, sums) in told.iter_mut().zip([sums, late]) {
            let found = busy.read(&overlay, &sums);
            for (block, version) in expected.iter().enumerate() {
                match &found[block] {
                    Some(found) => {
                        assert!(is_content(found, block as u64, *version), "seed {seed}: block {block}");
                    }
                    None => *told += 1,
                }
            }
        }
    }
    assert!(told.iter().all(|told| *told > 100), "{told:?}");
}

#[test]
fn a_snapshot_that_cannot_be_stored_is_taken_back_and_nothing_else() {
    let (mut busy, expected) = busy(7);
    busy.world.flush();
    let now = busy.world.versions();
    let none_left = Failed { step: FailedStep::Write, no_space: true };
    busy.world.write(3, &[5]);
    busy.world.overlay.take_snapshot("second", 2).expect("a free name");
    assert!(busy.world.next_step().is_some());
    assert!(!busy.world.fail(none_left), "no flush of a client fails for it");
    busy.world.close();
    busy.world.overlay.delete_snapshot(NAME).expect("it is there");
    assert!(busy.world.next_step().is_some());
    assert!(!busy.world.fail(none_left));
    assert!(!busy.world.overlay.is_changing_snapshots());
    let names: Vec<_> = busy.world.overlay.snapshots().iter().map(|snapshot| &*snapshot.name).collect();
    assert_eq!(names, [NAME]);
    let mut world = World::open(busy.world.device, LIMITS).expect("its own file");
    assert_eq!(world.version(3), 5);
    assert!((4..BLOCKS).all(|block| world.version(block) == now[block as usize]));
    world.overlay.revert(NAME).expect("it is there");
    assert_eq!(world.versions(), expected);
}

/// R61: a copy has the superblock of one moment, and what lies behind it of a later one.
#[test]
fn a_copy_of_two_moments_is_refused() {
    let mut world = World::create(LIMITS);
    world.write(1, &[5]);
    world.flush();
    world.write(2, &[6]);
    world.close();
    let slots = world.device.read(0, 2 * BLOCK as u64);
    let refused = |device, what: &str| {
        let error = World::open(device, LIMITS).err().unwrap_or_else(|| panic!("{what}: it was opened"));
        assert!(error.to_string().contains("copied while it was in use"), "{what}: {error}");
    };
    // The segment in which the log stood is a hole now.
    let segment = u64::from(slots[128]) + 256 * u64::from(slots[129]);
    let mut copy = world.device.clone();
    copy.write((16 + segment * 256) * BLOCK as u64, &[0; BLOCK]);
    refused(copy, "a hole");
    // Another opening has gone on there.
    let mut world = World::open(world.device, LIMITS).expect("its own file");
    world.write(3, &[7]);
    world.flush();
    let mut copy = world.device.clone();
    copy.write(0, &slots);
    refused(copy, "a later record");
    let found = World::open(world.device, LIMITS).expect("its own file");
    assert_eq!([1, 2, 3].map(|block| found.version(block)), [5, 6, 7]);
}
