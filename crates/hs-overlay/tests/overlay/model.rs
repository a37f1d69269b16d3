//! Random operations against a plain list of versions, with reopenings and snapshots.

use hs_overlay::Limits;
use hs_units::Prng;

use crate::world::{BLOCKS, Version, World, ZERO};

fn limits(prng: &mut Prng) -> Limits {
    let gathered_bytes = (1 + prng.below(200)) << 12;
    Limits { write_back_bytes: gathered_bytes / 2, gathered_bytes, log_blocks: 8 + prng.below(1000) }
}

fn run(seed: u64) {
    let mut prng = Prng::new(seed);
    let mut world = World::create(limits(&mut prng));
    let mut model: Vec<Version> = vec![0; BLOCKS as usize];
    let mut kept: Vec<(String, Vec<Version>)> = Vec::new();
    for version in 1..400 {
        let start = prng.below(BLOCKS);
        let most = if prng.below(10) == 0 { BLOCKS } else { 8 };
        let len = 1 + prng.below((BLOCKS - start).min(most));
        let range = start as usize..(start + len) as usize;
        match prng.below(40) {
            0..20 => {
                world.write(start, &vec![version; len as usize]);
                model[range].fill(version);
            }
            20..24 => {
                world.zero(start, len, prng.below(2) == 0);
                model[range].fill(ZERO);
            }
            24..30 => world.flush(),
            30..34 => drop(world.step()),
            34..36 => world.shrink(),
            36 => {
                world.close();
                world = World::open(world.device, limits(&mut prng)).expect("its own file");
            }
            37 => {
                world.flush();
                world = World::open(world.device.cut(&mut prng), limits(&mut prng)).expect("its own file");
            }
            38 if kept.len() < 16 => {
                world.flush();
                let name = format!("at {version}");
                let before = model.clone();
                if prng.below(2) == 0 {
                    // What is gathered is not in it.
                    world.write(start, &[version]);
                    model[start as usize] = version;
                }
                world.overlay.take_snapshot(&name, version).expect("a free name");
                while world.overlay.is_changing_snapshots() {
                    assert!(world.step(), "seed {seed}: a snapshot is to be stored");
                }
                assert_eq!(world.overlay.is_at(&name), Some(model == before), "seed {seed}");
                kept.push((name, before));
            }
            _ if !kept.is_empty() => {
                world.close();
                let at = prng.below(kept.len() as u64) as usize;
                if prng.below(2) == 0 {
                    world.overlay.revert(&kept[at].0).expect("there is one");
                    model.clone_from(&kept[at].1);
                } else {
                    world.overlay.delete_snapshot(&kept[at].0).expect("there is one");
                    kept.remove(at);
                }
                world.close();
            }
            _ => {}
        }
        for (name, of_snapshot) in &kept {
            let is_at = world.overlay.is_at(name).expect("there is one");
            assert!(!is_at || model == *of_snapshot, "seed {seed}, snapshot {name}");
        }
        for _ in 0..4 {
            let block = prng.below(BLOCKS);
            assert_eq!(world.version(block), model[block as usize], "seed {seed}, block {block}");
        }
    }
    world.close();
    let mut world = World::open(world.device, Limits::default()).expect("its own file");
    assert_eq!(world.versions(), model, "seed {seed}");
    for (name, model) in kept {
        world.overlay.revert(&name).expect("there is one");
        assert_eq!(world.overlay.is_at(&name), Some(true), "seed {seed}, snapshot {name}");
        assert_eq!(world.versions(), model, "seed {seed}, snapshot {name}");
    }
}

#[test]
fn it_equals_a_list_of_blocks() {
    (0..30).for_each(run);
}
