//! What a cache keeps, and a naive model of its policy.

mod naive;

use std::collections::BTreeMap;

use proptest::prelude::*;

use self::naive::NaiveS3Fifo;
use super::*;

/// The contents of a cache: the entries that came and did not leave.
struct Checked {
    cache: Cache<u64, u64>,
    here: BTreeMap<u64, u64>,
}

impl Checked {
    fn new(budget: u64) -> Self {
        Self { cache: Cache::new(budget), here: BTreeMap::new() }
    }

    fn insert(&mut self, key: u64, weight: u64, origin: Origin) -> Vec<u64> {
        let mut left = Vec::new();
        // The value is the weight, so that the model can tell whose value left.
        self.cache.insert(key, weight, weight, origin, |key, value| left.push((key, value)));
        self.here.entry(key).or_insert(weight);
        for (gone, value) in &left {
            if *gone == key && *value != weight {
                // The older value of the same key.
                self.here.insert(key, weight);
            } else if *gone != key || left.iter().filter(|(gone, _)| *gone == key).count() == 2 {
                self.here.remove(gone);
            }
        }
        if !self.cache.contains(&key) {
            self.here.remove(&key);
        }
        self.check();
        left.into_iter().map(|(key, _)| key).collect()
    }

    fn set_budget(&mut self, bytes: u64) {
        let here = &mut self.here;
        self.cache.set_budget(bytes, |key, _| assert!(here.remove(&key).is_some(), "{key} left twice"));
        self.check();
    }

    fn check(&self) {
        let usage = self.cache.usage();
        assert!(usage.bytes <= usage.budget_bytes, "{usage:?}");
        assert_eq!(usage.bytes, self.here.values().sum::<u64>(), "weights add up");
        assert_eq!(usage.entries, self.here.len() as u64);
        for (key, weight) in &self.here {
            assert_eq!(self.cache.peek(key), Some(weight), "{key} did not leave");
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Demand(u64, u64),
    Prefetch(u64, u64),
    Get(u64),
    Remove(u64),
    Budget(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0_u64..40;
    prop_oneof![
        4 => (key.clone(), 1_u64..30).prop_map(|(key, weight)| Op::Demand(key, weight)),
        3 => (key.clone(), 1_u64..30).prop_map(|(key, weight)| Op::Prefetch(key, weight)),
        5 => key.clone().prop_map(Op::Get),
        1 => key.prop_map(Op::Remove),
        1 => (0_u64..300).prop_map(Op::Budget),
    ]
}

proptest! {
    /// Never over budget; what came and did not leave is found; weights add up; the budget may change at any
    /// time.
    #[test]
    fn a_cache_is_what_came_and_did_not_leave(ops in proptest::collection::vec(op(), 1..200), budget in 0_u64..300) {
        let mut checked = Checked::new(budget);
        for op in &ops {
            match *op {
                Op::Demand(key, weight) => drop(checked.insert(key, weight, Origin::Demanded)),
                Op::Prefetch(key, weight) => {
                    let demanded = checked.cache.demanded_bytes;
                    let over = demanded > checked.cache.demanded_capacity();
                    let known = checked.cache.contains(&key);
                    checked.insert(key, weight, Origin::Prefetched);
                    // Unless one that was promoted still had to make its own room.
                    assert!(over || known || checked.cache.demanded_bytes == demanded);
                }
                Op::Get(key) => {
                    let found = checked.cache.get(&key).copied();
                    assert_eq!(found, checked.here.get(&key).copied());
                }
                Op::Remove(key) => assert_eq!(checked.cache.remove(&key), checked.here.remove(&key)),
                Op::Budget(bytes) => checked.set_budget(bytes),
            }
            checked.check();
        }
        let usage = checked.cache.usage();
        let gets = ops.iter().filter(|op| matches!(op, Op::Get(_))).count() as u64;
        assert_eq!(usage.hits + usage.misses, gets);
        checked.set_budget(0);
        assert!(checked.here.is_empty());
    }

    /// It evicts exactly as a naive model of its policy does. The model knows no share for prefetched
    /// entries, so its share is the part that demanded ones have.
    #[test]
    fn it_evicts_as_a_naive_model_does(keys in proptest::collection::vec(0_u64..30, 1..300), room in 1_usize..20) {
        let mut model = NaiveS3Fifo::new(room * 4);
        let mut checked = Checked::new(room as u64 * 5);
        for key in keys {
            let hit = model.ask(key);
            prop_assert_eq!(checked.cache.get(&key).is_some(), hit);
            if !hit {
                checked.insert(key, 1, Origin::Demanded);
            }
        }
    }
}

/// Asks for `key` and brings it when it is not there. Returns whether it was there.
fn ask(cache: &mut Cache<u64, ()>, key: u64) -> bool {
    let hit = cache.get(&key).is_some();
    if !hit {
        cache.insert(key, (), 1, Origin::Demanded, |_, ()| {});
    }
    hit
}

#[test]
fn prefetched_entries_do_not_push_out_demanded_ones_and_are_promoted_when_asked_for() {
    let mut cache = Cache::new(1000);
    (0..800).for_each(|key| assert!(!ask(&mut cache, key)));
    for key in 10_000..20_000 {
        cache.insert(key, (), 1, Origin::Prefetched, |left, ()| assert!(left >= 10_000));
    }
    assert_eq!(cache.usage().prefetched_bytes, 200);
    assert!((0..800).all(|key| cache.contains(&key)));
    assert!((19_800..20_000).all(|key| cache.contains(&key)), "the latest wait");
    assert_eq!(cache.usage().evicted_unused, 9_800);
    assert!(cache.get(&19_900).is_some());
    assert_eq!(cache.usage().prefetched_bytes, 199);
    // It is demanded now: another 10,000 that wait do not push it out.
    for key in 30_000..40_000 {
        cache.insert(key, (), 1, Origin::Prefetched, |_, ()| {});
    }
    assert!(!cache.contains(&19_901));
    assert_eq!(cache.usage().bytes, 1000);
}

#[test]
fn prefetched_entries_use_idle_room_and_give_it_back() {
    let mut cache = Cache::new(1000);
    for key in 0..1000 {
        cache.insert(key, (), 1, Origin::Prefetched, |_, ()| panic!("there is room"));
    }
    (5000..6000).for_each(|key| assert!(!ask(&mut cache, key)));
    let usage = cache.usage();
    assert_eq!((usage.bytes, usage.prefetched_bytes), (1000, 200));
    assert!((800..1000).all(|key| cache.contains(&key)));
}

#[test]
fn what_is_larger_than_its_share_is_not_kept_and_pushes_out_nothing() {
    let mut checked = Checked::new(100);
    (0..8).for_each(|key| drop(checked.insert(key, 10, Origin::Demanded)));
    assert_eq!(checked.insert(50, 81, Origin::Demanded), [50]);
    assert_eq!(checked.insert(51, 21, Origin::Prefetched), [51]);
    assert_eq!(checked.here.len(), 8);
    assert_eq!(checked.insert(52, 80, Origin::Demanded).len(), 8);
    assert_eq!(checked.insert(53, 20, Origin::Prefetched), [] as [u64; 0]);
}

/// What is asked for repeatedly survives a scan of ten times the cache.
#[test]
fn a_scan_leaves_what_is_needed() {
    let mut cache = Cache::new(1250);
    for _ in 0..4 {
        (0..500).for_each(|key| {
            ask(&mut cache, key);
        });
    }
    (10_000..20_000).for_each(|key| {
        ask(&mut cache, key);
    });
    let left = (0..500).filter(|key| cache.contains(key)).count();
    assert!(left > 450, "{left}");
}

/// After a million hits on a million entries the next eviction looks at few of them. (Times are measured by
/// decision 10; this counts.)
#[test]
fn an_eviction_after_many_hits_passes_over_few() {
    let count = 20_000;
    let mut cache = Cache::new(count * 5 / 4);
    (0..count).for_each(|key| {
        ask(&mut cache, key);
    });
    for _ in 0..4 {
        (0..count).for_each(|key| assert!(cache.get(&key).is_some()));
    }
    // Were the marks of all cleared by one eviction, this many would leave in the order in which they
    // came.
    ask(&mut cache, count);
    assert_eq!(cache.usage().evicted, 1);
    assert_eq!(cache.usage().bytes, count);
}
