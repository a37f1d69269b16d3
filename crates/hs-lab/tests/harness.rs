//! Ten million steps of the engine under faults. `HEADSTART_SIM_SEED` replays the one world of that seed;
//! `HEADSTART_SIM_STEPS` makes it longer, and `HEADSTART_SIM_FIRST` chooses other worlds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hs_lab::harness::{Fault, World, run_worlds};

#[expect(
    clippy::disallowed_methods,
    reason = "the test is told which world to replay; the harness itself is not"
)]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn nothing_is_lost_duplicated_starved_or_over_its_budget() {
    if let Some(seed) = number("HEADSTART_SIM_SEED") {
        eprintln!("world {seed}: {:?}", World::new(seed).run());
        return;
    }
    let steps = number("HEADSTART_SIM_STEPS").unwrap_or(10_000_000);
    let mut worlds = 0;
    let first = number("HEADSTART_SIM_FIRST").unwrap_or(1991);
    let seen = run_worlds(first, steps, |seed| {
        worlds += 1;
        // Shown when the test fails: the last one is the one that did.
        eprintln!("HEADSTART_SIM_SEED={seed}");
    });
    eprintln!("{worlds} worlds: {seen:?}");
    assert!(seen.steps >= steps);
    // What could go wrong did.
    assert!(
        seen.background_bytes > 1 << 30
            && seen.faults > 10_000
            && seen.errors > 20
            && seen.joined > 1_000
            && seen.streamed > 10_000,
        "{seen:?}"
    );
    assert!(
        seen.damaged > 1_000 && seen.cancelled > 1_000 && seen.blocked > 100 && seen.lost_workers > 100,
        "{seen:?}"
    );
}

#[test]
fn a_seed_is_a_world() {
    assert_eq!(World::new(7).run(), World::new(7).run());
    assert_ne!(World::new(7).run(), World::new(8).run());
}

/// What the harness says of a mistake.
fn complaint(fault: Fault) -> &'static str {
    match fault {
        Fault::LosesRequest | Fault::LosesEnd | Fault::DeliversOnAll => "a read is lost",
        Fault::EndsTwice => "has ended twice",
        Fault::CutsShort => "is not in what was sent for it",
        Fault::SendsTwice => "was sent twice",
        Fault::Inverts => "which went as",
        Fault::Starves => "was not served for",
        Fault::IgnoresDepth => "requests in service",
        Fault::IgnoresPrefetchBudget => "bytes wait",
        Fault::IgnoresCacheBudget => "the cache holds",
        Fault::HidesDamage => "is damaged, and a read got it",
        Fault::IgnoresCancel => "was cancelled, and is answered",
        Fault::DropsEarly => "is needed and is not there",
        Fault::LosesDrop => "the engine knows of",
        Fault::IgnoresShutdown => "it is not done",
    }
}

#[test]
fn every_planted_fault_is_seen() {
    // Worlds differ, and not each has what a mistake needs to show: a crowd, merging, little memory.
    const WORLDS: u64 = 24;
    for fault in Fault::ALL {
        let seen_in = (0..WORLDS).find(|seed| {
            let world = World::with_fault(*seed, Some(fault));
            let Err(said) = catch_unwind(AssertUnwindSafe(|| world.run())) else { return false };
            let said = said.downcast_ref::<String>().map_or("", String::as_str);
            assert!(said.contains(complaint(fault)), "{fault:?} was taken for something else: {said}");
            true
        });
        assert!(seen_in.is_some(), "{fault:?} was not seen in {WORLDS} worlds");
    }
}
