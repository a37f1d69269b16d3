use proptest::prelude::*;

use super::*;
use crate::{Count, Counters, Fault, FaultKind, MemoryStore, Rule, contract};

const LEN: u64 = 1 << 20;

fn original() -> Vec<u8> {
    contract::noise(LEN as usize, 5)
}

/// A stack with these bad sectors, what its medium counts, and what the retries count.
fn stack(rules: Vec<Rule>) -> (impl Store, Arc<Counters>, Arc<RetryCounters>) {
    let count = Count::new(Fault::new(MemoryStore::new(original()), rules, 0));
    let counters = count.counters();
    let retry = Retry::new(count);
    let retries = retry.counters();
    (retry, counters, retries)
}

fn bad(offset: u64, len: u64) -> Rule {
    Rule::new(FaultKind::Io, ByteRange::new(offset, len))
}

#[test]
fn on_a_sound_medium_it_keeps_the_contract_and_does_nothing() {
    contract::check(|bytes| Retry::new(MemoryStore::new(bytes)), 600_000);
    let (store, medium, retries) = stack(Vec::new());
    store.read_at(5, &mut [0; 70_000]).expect("read");
    assert_eq!((medium.snapshot().requests, retries.snapshot()), (1, RetrySnapshot::default()));
}

#[test]
fn a_place_that_can_be_read_at_the_last_try_is_read_and_nothing_is_asked_for_twice() {
    let times = u64::from(Retry::<()>::RETRIES);
    let (store, medium, retries) = stack(vec![bad(300_000, 5_000).times(times)]);
    assert!(contract::collect(&store, ByteRange::new(0, LEN)).expect("read") == original());
    assert_eq!(medium.snapshot().requests, 1 + times);
    assert_eq!(medium.snapshot().bytes, LEN);
    let RetrySnapshot { retries, errors, first_error } = retries.snapshot();
    assert_eq!((retries, errors, first_error), (times, 0, None));

    let (store, _, _) = stack(vec![bad(300_000, 5_000).times(times)]);
    let mut found = vec![0; LEN as usize];
    store.read_at(0, &mut found).expect("read");
    assert!(found == original());
}

#[test]
fn each_place_of_a_request_has_tries_of_its_own() {
    let rules = (0..20).map(|number| bad(number * 50_000, 100).times(2)).collect();
    let (store, _, retries) = stack(rules);
    assert!(contract::collect(&store, ByteRange::new(0, LEN)).expect("read") == original());
    assert_eq!((retries.snapshot().retries, retries.snapshot().errors), (40, 0));
}

#[test]
fn a_place_that_stays_bad_is_an_error_that_begins_there_and_costs_one_try_from_then_on() {
    let (store, medium, retries) = stack(vec![bad(300_000, 5_000)]);
    let mut came = Vec::new();
    let error = store.stream(ByteRange::new(100, LEN - 100), &mut |piece| {
        came.extend_from_slice(piece);
        ControlFlow::Continue(())
    });
    let Err(StoreError::Read { offset: 300_000, len, .. }) = error else { panic!("{error:?}") };
    assert_eq!(len, LEN - 300_000);
    assert!(came == original()[100..300_000]);
    assert_eq!(medium.snapshot().requests, 1 + u64::from(Retry::<()>::RETRIES));
    assert_eq!(retries.snapshot().errors, 1);
    assert!(retries.snapshot().first_error.is_some_and(|text| text.contains("offset 300000")));

    // Another read of it, alone or with other bytes, waits for one try; its neighbours are good.
    for range in [ByteRange::new(300_000, 4_096), ByteRange::new(290_000, 50_000)] {
        let before = medium.snapshot();
        store.read_at(range.offset, &mut vec![0; range.len as usize]).expect_err("unreadable");
        assert_eq!(medium.snapshot().since(&before).requests, 1, "{range}");
    }
    store.read_at(0, &mut vec![0; 300_000]).expect("before it");
    store.read_at(305_000, &mut [0; 5_000]).expect("behind it");
    assert_eq!(retries.snapshot().errors, 3);
}

#[test]
fn a_place_that_was_given_up_may_come_back() {
    let tries = 1 + u64::from(Retry::<()>::RETRIES);
    let (store, medium, _) = stack(vec![bad(8_192, 1).times(tries), bad(8_192, 1).times(tries)]);
    let mut found = [0; 4_096];
    store.read_at(8_192, &mut found).expect_err("given up");
    for _ in 0..tries {
        store.read_at(8_192, &mut found).expect_err("one try each");
    }
    assert_eq!(medium.snapshot().requests, 2 * tries);
    store.read_at(8_192, &mut found).expect("back");
    assert!(found[..] == original()[8_192..12_288]);
}

#[test]
fn a_medium_that_is_gone_is_not_asked_for_long() {
    let everything = Rule::new(FaultKind::Io, ByteRange::new(0, u64::MAX));
    let fault = Arc::new(Fault::new(MemoryStore::new(original()), vec![everything], 0));
    let count = Count::new(Arc::clone(&fault));
    let (medium, store) = (count.counters(), Retry::new(count));
    let read = |block: u64| store.read_at(block * 4_096, &mut [0; 4_096]);
    let gone = Retry::<()>::GONE;
    for block in 0..gone {
        read(block).expect_err("unreadable");
    }
    let before = medium.snapshot();
    assert_eq!(before.requests, gone * (1 + u64::from(Retry::<()>::RETRIES)));
    for block in gone..gone + 50 {
        read(block).expect_err("unreadable");
    }
    assert_eq!(medium.snapshot().since(&before).requests, 50, "one try each");
    // It is there again: all is as before, also the patience.
    fault.bypass(true);
    (0..gone + 50).for_each(|block| read(block).expect("there again"));
    fault.bypass(false);
    let before = medium.snapshot();
    read(0).expect_err("unreadable");
    assert_eq!(medium.snapshot().since(&before).requests, 1 + u64::from(Retry::<()>::RETRIES));
}

#[test]
fn a_store_that_is_too_short_is_not_asked_again() {
    let short = Rule::new(FaultKind::Short, ByteRange::new(5_000, u64::MAX));
    let (store, medium, retries) = stack(vec![short]);
    assert!(matches!(store.read_at(4_000, &mut [0; 4_000]), Err(StoreError::Short { .. })));
    assert_eq!((medium.snapshot().requests, retries.snapshot().retries), (1, 0));
}

#[test]
fn a_sink_that_has_enough_is_not_given_more() {
    let (store, _, _) = stack(vec![bad(600_000, 100).times(1)]);
    let mut pieces = Vec::new();
    let enough = store.stream(ByteRange::new(0, LEN), &mut |piece| {
        pieces.extend_from_slice(piece);
        if pieces.len() > 600_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    enough.expect("a break is no error");
    assert!(original().starts_with(&pieces) && pieces.len() < LEN as usize);
}

proptest! {
    /// Wherever the bad sectors are: the right bytes or an error, and never an error without a bad sector
    /// that stays bad.
    #[test]
    fn right_or_an_error(
        places in proptest::collection::vec((0..LEN, 1..9_000_u64, 1..9_u64), 0..12),
        reads in proptest::collection::vec((0..LEN, 1..200_000_u64, any::<bool>()), 1..20),
    ) {
        let rules = places.iter().map(|(offset, len, times)| match times {
            8 => bad(*offset, *len),
            times => bad(*offset, *len).times(*times),
        });
        let (store, _, retries) = stack(rules.collect());
        let original = original();
        for (offset, len, streams) in reads {
            let range = ByteRange::new(offset, len.min(LEN - offset));
            let gone = retries.snapshot().errors >= Retry::<()>::GONE;
            let result = if streams {
                contract::collect(&store, range)
            } else {
                let mut found = vec![0; range.len as usize];
                store.read_at(offset, &mut found).map(|()| found)
            };
            match result {
                Ok(found) => prop_assert!(found == original[offset as usize..range.end() as usize]),
                // Rules may share a block, which then needs the tries of all.
                Err(_) => {
                    let tries_of = |block| {
                        let there = places.iter().filter(|(at, len, _)| blocks(ByteRange::new(*at, *len)).contains(&block));
                        there.map(|(.., times)| times).sum::<u64>()
                    };
                    // A read does not say where it failed, so its first failure may count for another place.
                    let tries = u64::from(Retry::<()>::RETRIES) - u64::from(!streams);
                    let hopeless = blocks(range).any(|block| tries_of(block) > tries);
                    prop_assert!(gone || hopeless, "{}", range);
                }
            }
        }
    }
}

std::thread_local! {
    /// What was logged by this thread, which is one test.
    static LOGGED: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) };
}

struct Logged;

impl log::Log for Logged {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LOGGED.with_borrow_mut(|logged| logged.push(record.args().to_string()));
    }

    fn flush(&self) {}
}

#[test]
fn it_is_told_at_which_try_a_place_could_be_read() {
    log::set_logger(&Logged).expect("the only one of these tests");
    log::set_max_level(log::LevelFilter::Warn);
    let (store, _, _) = stack(vec![bad(300_000, 100).times(1), bad(600_000, 100).times(3)]);
    contract::collect(&store, ByteRange::new(0, LEN)).expect("read");
    let tries: Vec<_> =
        LOGGED.take().iter().map(|text| text.rsplit(' ').next().unwrap_or("").to_owned()).collect();
    assert_eq!(tries, ["2", "4"]);
}
