use super::*;
use crate::virtual_clock::Virtual;
use crate::{MemoryStore, contract};

const LEN: u64 = 1 << 20;

fn faulty(rules: Vec<Rule>, seed: u64) -> Fault<MemoryStore> {
    Fault::new(MemoryStore::new(contract::noise(LEN as usize, 5)), rules, seed)
}

fn original() -> Vec<u8> {
    contract::noise(LEN as usize, 5)
}

fn all() -> ByteRange {
    ByteRange::new(0, LEN)
}

#[test]
fn without_rules_or_bypassed_it_keeps_the_contract() {
    contract::check(|bytes| Fault::new(MemoryStore::new(bytes), Vec::new(), 0), 600_000);
    let bypassed = |bytes| {
        let store = Fault::new(MemoryStore::new(bytes), vec![Rule::new(FaultKind::Io, all())], 0);
        store.bypass(true);
        store
    };
    contract::check(bypassed, 600_000);
}

#[test]
fn a_bad_place_fails_what_touches_it_and_nothing_else() {
    let store = faulty(vec![Rule::new(FaultKind::Io, ByteRange::new(10_000, 100))], 0);
    store.read_at(9_000, &mut [0; 1_000]).expect("ends before it");
    store.read_at(10_100, &mut [0; 1_000]).expect("begins behind it");
    let error = store.read_at(9_999, &mut [0; 2]).expect_err("touches it");
    let StoreError::Read { offset: 9_999, len: 2, source, .. } = error else { panic!("{error}") };
    assert_eq!(source.raw_os_error(), Some(Errno::IO.raw_os_error()));

    let mut got = Vec::new();
    let error = store.stream(all(), &mut |piece| {
        got.extend_from_slice(piece);
        ControlFlow::Continue(())
    });
    assert!(matches!(error, Err(StoreError::Read { .. })));
    assert_eq!(got, original()[..10_000], "what lies before it is delivered");
    assert_eq!(store.fired(), 2);
}

#[test]
fn a_place_at_a_piece_boundary_stops_the_stream_there() {
    for offset in [0, 256 << 10, LEN - 1] {
        let store = faulty(vec![Rule::new(FaultKind::Io, ByteRange::new(offset, 1))], 0);
        let mut got = 0;
        let error = store.stream(all(), &mut |piece| {
            got += piece.len() as u64;
            ControlFlow::Continue(())
        });
        assert!(error.is_err());
        assert_eq!(got, offset);
    }
}

#[test]
fn a_sink_that_breaks_before_the_bad_place_meets_no_error() {
    let store = faulty(vec![Rule::new(FaultKind::Io, ByteRange::new(LEN - 1, 1))], 0);
    store.stream(all(), &mut |_| ControlFlow::Break(())).expect("a break is no error");
}

#[test]
fn a_short_store_ends_where_the_rule_begins() {
    let store = faulty(vec![Rule::new(FaultKind::Short, ByteRange::new(5_000, u64::MAX))], 0);
    let error = store.read_at(4_000, &mut [0; 4_096]).expect_err("cut");
    assert!(
        matches!(error, StoreError::Short { offset: 4_000, len: 4_096, available: 5_000, .. }),
        "{error}"
    );
    store.read_at(904, &mut [0; 4_096]).expect("before the cut");
}

#[test]
fn flips_are_the_same_however_the_bytes_are_read() {
    let store = faulty(vec![Rule::new(FaultKind::Flip, ByteRange::new(1_000, LEN)).one_in(500)], 7);
    let streamed = contract::collect(&store, all()).expect("streamed");
    let mut piecewise = vec![0; LEN as usize];
    for (number, piece) in piecewise.chunks_mut(777).enumerate() {
        store.read_at(number as u64 * 777, piece).expect("read");
    }
    assert!(streamed == piecewise);

    let original = original();
    let wrong: Vec<usize> = (0..LEN as usize).filter(|at| streamed[*at] != original[*at]).collect();
    assert!(wrong.iter().all(|at| *at >= 1_000));
    assert!(wrong.iter().all(|at| (streamed[*at] ^ original[*at]).is_power_of_two()));
    // 2097 are expected; far outside of chance would mean that the share is not kept.
    assert!((1_800..2_400).contains(&wrong.len()), "{}", wrong.len());

    let other = faulty(vec![Rule::new(FaultKind::Flip, ByteRange::new(1_000, LEN)).one_in(500)], 8);
    assert!(contract::collect(&other, all()).expect("streamed") != streamed, "another seed, other places");
}

#[test]
fn one_byte_can_be_flipped_exactly() {
    let store = faulty(vec![Rule::new(FaultKind::Flip, ByteRange::new(4_242, 1))], 0);
    let wrong = contract::collect(&store, all()).expect("streamed");
    let original = original();
    assert_eq!(wrong.iter().zip(&original).filter(|(a, b)| a != b).count(), 1);
    assert_ne!(wrong[4_242], original[4_242]);
}

#[test]
fn a_passing_fault_passes() {
    let store = faulty(
        vec![
            Rule::new(FaultKind::Io, ByteRange::new(0, 10)).times(2),
            Rule::new(FaultKind::Flip, ByteRange::new(0, 10)).times(1),
        ],
        0,
    );
    let mut buf = [0; 10];
    store.read_at(0, &mut buf).expect_err("first");
    store.read_at(0, &mut buf).expect_err("second");
    store.read_at(0, &mut buf).expect("third, with wrong bytes");
    assert_ne!(buf, original()[..10]);
    store.read_at(0, &mut buf).expect("sound");
    assert_eq!(buf, original()[..10]);
    assert_eq!(store.fired(), 3);
}

#[test]
fn bad_sectors_are_where_the_seed_puts_them() {
    let rules = vec![Rule::new(FaultKind::Io, all()).one_in(16)];
    let bad = |seed| -> Vec<u64> {
        let store = faulty(rules.clone(), seed);
        (0..LEN / BLOCK_BYTES)
            .filter(|block| store.read_at(block * BLOCK_BYTES, &mut [0; 4096]).is_err())
            .collect()
    };
    assert_eq!(bad(1), bad(1));
    assert_ne!(bad(1), bad(2));
    assert!(!bad(1).is_empty() && bad(1).len() < 64, "{:?}", bad(1));
}

#[test]
fn delays_add_up_before_the_request() {
    let clock = Arc::new(Virtual::default());
    let rules = vec![
        Rule::new(FaultKind::Delay(Duration::from_millis(3)), ByteRange::new(0, 100)),
        Rule::new(FaultKind::Delay(Duration::from_millis(4)), ByteRange::new(50, 100)),
    ];
    let store = Fault::with_clock(MemoryStore::new(original()), rules, 0, clock.clone());
    store.read_at(60, &mut [0; 10]).expect("late");
    assert_eq!(clock.now(), Nanos::from_millis(7));
    store.read_at(200, &mut [0; 10]).expect("in time");
    assert_eq!(clock.now(), Nanos::from_millis(7));
    store.read_at(0, &mut [0; 10]).expect("late");
    assert_eq!(clock.now(), Nanos::from_millis(10));
}

#[test]
fn a_stream_stops_at_the_first_block_that_the_seed_has_chosen() {
    let store = faulty(vec![Rule::new(FaultKind::Io, all()).one_in(16)], 1);
    let is_bad = |block: &u64| store.read_at(block * BLOCK_BYTES, &mut [0; 1]).is_err();
    let first = (0..LEN / BLOCK_BYTES).find(is_bad).expect("a bad one");
    assert!(first > 1);
    let mut got = 0;
    store
        .stream(all(), &mut |piece| {
            got += piece.len() as u64;
            ControlFlow::Continue(())
        })
        .expect_err("a bad place");
    assert_eq!(got, first * BLOCK_BYTES);
}
