//! The store against servers that exist only in memory, some of which behave badly. No network, no waiting.

mod addresses;
mod faulty;
mod trickle;
mod versions;

use std::sync::Arc;

use hs_units::{ByteRange, Nanos};
use reqwest::header::HeaderMap;

use self::faulty::{Faulty, Mishap};
use super::super::reader::PROGRESS_BYTES;
use super::*;
use crate::http::{Located, RemoteAddress};
use hs_store::virtual_clock::Virtual;
use hs_store::{Store, StoreError, contract};

fn open_with(server: &Arc<Faulty>, options: HttpOptions) -> Result<HttpStore, StoreError> {
    let address = RemoteAddress::parse("http://server.example/fast.hsi").expect("an address");
    HttpStore::open(Box::new(address), Arc::clone(server) as Arc<dyn Transport>, options)
}

fn options(clock: &Arc<Virtual>) -> HttpOptions {
    HttpOptions { clock: Arc::clone(clock) as Arc<dyn Clock>, seed: 7, ..HttpOptions::default() }
}

fn opened(server: &Arc<Faulty>) -> HttpStore {
    open_with(server, options(&Arc::default())).expect("opened")
}

fn requests(store: &HttpStore) -> u64 {
    store.counters().snapshot().requests
}

#[test]
fn a_remote_file_keeps_the_contract() {
    // An empty file has no first byte to ask for.
    let bytes = contract::noise(600_000, 1);
    let server = Faulty::new(bytes.clone());
    let store = opened(&server);
    assert_eq!((store.len(), store.name()), (600_000, "http://server.example/fast.hsi"));
    contract::check_filled(&store, &bytes);
}

#[test]
fn opening_is_the_first_request_and_reading_on_is_none() {
    let server = Faulty::new(contract::noise(200_000, 2));
    let store = open_with(&server, HttpOptions { opening_bytes: 100_000, ..options(&Arc::default()) });
    let store = store.expect("opened");
    assert_eq!(requests(&store), 1);
    // Also what comes in several pieces is looked at, and is read all the same.
    for len in [1, 90_000, 100_000] {
        assert!(store.peek(len).as_deref() == Some(&server.bytes()[..len]), "{len}");
    }
    let bytes = contract::collect(&store, ByteRange::new(0, 100_000)).expect("read");
    assert!(bytes == server.bytes()[..100_000]);
    assert_eq!(requests(&store), 1);
    assert_eq!(store.counters().snapshot().bytes, 100_000);
}

#[test]
fn what_the_opening_brings_is_kept_while_the_end_is_looked_at() {
    let read = |elsewhere: u64| {
        let server = Faulty::new(contract::noise(1_000_000, 2));
        let store = open_with(&server, HttpOptions { opening_bytes: 300_000, ..options(&Arc::default()) });
        let store = store.expect("opened");
        let mut bytes = vec![0; 200_000];
        let places = (0..elsewhere).map(|at| (900_000 + at * 5_000, 1_000));
        let places = [(0, 4_096)].into_iter().chain(places).chain([(4_096, 200_000)]);
        for (at, len) in places {
            store.read_at(at, &mut bytes[..len]).expect("read");
            assert!(bytes[..len] == server.bytes()[at as usize..at as usize + len]);
        }
        requests(&store)
    };
    assert_eq!((read(0), read(1), read(8)), (1, 2, 9));
    // It is not kept for a reader that never comes.
    assert_eq!(read(9), 1 + 9 + 1);
}

#[test]
fn an_announced_stream_is_one_response_for_all_readers() {
    let server = Faulty::new(contract::noise(3_000_000, 3));
    let store = open_with(&server, HttpOptions { opening_bytes: 300_000, ..options(&Arc::default()) });
    let store = store.expect("opened");
    // The first reader has enough in the middle of a piece, and says so at its end.
    let mut taken = 0;
    let whole = ByteRange::new(0, 300_000);
    store
        .stream(whole, &mut |piece| {
            taken += piece.len();
            if taken > 150_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .expect("read");
    store.expect_stream(ByteRange::new(140_000, 2_000_000));
    for (from, to) in [(140_000, 300_001), (300_001, 800_000), (800_000, 2_140_000)] {
        let bytes = contract::collect(&store, ByteRange::new(from, to - from)).expect("read");
        assert!(bytes == server.bytes()[from as usize..to as usize], "{from} to {to}");
    }
    // The opening one, and one for what it did not bring.
    assert_eq!(requests(&store), 2);
}

#[test]
fn demand_does_not_wait_for_the_stream_nor_end_it() {
    let server = Faulty::new(contract::noise(3_000_000, 4));
    let store = opened(&server);
    store.expect_stream(ByteRange::new(100_000, 2_000_000));
    let mut buf = vec![0; 4096];
    let mut came = Vec::new();
    store
        .stream(ByteRange::new(100_000, 1_000_000), &mut |piece| {
            came.extend_from_slice(piece);
            store.read_at(2_500_000, &mut buf).expect("demand");
            assert!(buf == server.bytes()[2_500_000..2_504_096]);
            store.read_at(1_500_000, &mut buf).expect("demand of what the stream will bring");
            ControlFlow::Continue(())
        })
        .expect("read");
    let before = requests(&store);
    came.extend(contract::collect(&store, ByteRange::new(1_100_000, 1_000_000)).expect("read"));
    assert!(came == server.bytes()[100_000..2_100_000]);
    assert_eq!(requests(&store), before, "the same response goes on");
}

#[test]
fn the_next_of_two_streams_waits_for_the_one_before() {
    let server = Faulty::new(contract::noise(2_000_000, 5));
    let store = opened(&server);
    store.expect_stream(ByteRange::new(100_000, 1_900_000));
    let began = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut waits = true;
            contract_collect(&store, ByteRange::new(100_000, 900_000), &mut || {
                if std::mem::take(&mut waits) {
                    began.wait();
                }
            })
        });
        began.wait();
        let second = contract::collect(&store, ByteRange::new(1_000_000, 1_000_000)).expect("read");
        assert!(second == server.bytes()[1_000_000..]);
        assert!(first.join().expect("no panic") == server.bytes()[100_000..1_000_000]);
    });
    assert_eq!(requests(&store), 2, "opening, and one for both");
}

fn contract_collect(store: &HttpStore, range: ByteRange, each: &mut dyn FnMut()) -> Vec<u8> {
    let mut bytes = Vec::new();
    store
        .stream(range, &mut |piece| {
            each();
            bytes.extend_from_slice(piece);
            ControlFlow::Continue(())
        })
        .expect("read");
    bytes
}

#[test]
fn the_lanes_of_a_store_end_with_it() {
    let server = Faulty::new(contract::noise(40 << 20, 7));
    let store = opened(&server);
    store.expect_most(ByteRange::new(0, 40 << 20));
    contract::collect(&store, ByteRange::new(0, 100_000)).expect("read");
    assert!(requests(&store) > 1, "no lane has begun");
    drop(store);
    // Each lane has the server, and none has it for long.
    while Arc::strong_count(&server) > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn a_stream_of_most_of_a_file_comes_by_several_responses() {
    let server = Faulty::new(contract::noise(40 << 20, 7));
    let store = opened(&server);
    let whole = ByteRange::new(100_000, (40 << 20) - 300_000);
    store.expect_most(whole);
    let mut came = Vec::new();
    // The reader breaks off now and then and continues where it was; it leaps once.
    let mut at = whole.offset;
    for to in [200_000, 9 << 20, (9 << 20) + 1, 20 << 20, 33 << 20, whole.end()] {
        let mut pieces = 0;
        let mut here = Vec::new();
        store
            .stream(ByteRange::new(at, to - at), &mut |piece| {
                pieces += 1;
                here.extend_from_slice(piece);
                if pieces == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .expect("read");
        assert!(here == server.bytes()[at as usize..at as usize + here.len()]);
        let rest = at + here.len() as u64;
        came.extend(here);
        came.extend(contract::collect(&store, ByteRange::new(rest, to - rest)).expect("read"));
        at = to;
    }
    assert!(came == server.bytes()[whole.offset as usize..whole.end() as usize]);
    // The opening one, and forty segments.
    assert_eq!(requests(&store), 41);
    // What has been taken is requested again for the next reader.
    assert!(
        contract::collect(&store, ByteRange::new(150_000, 10)).expect("read")
            == server.bytes()[150_000..150_010]
    );
    // So is what lies beside it.
    for from in [50_000, whole.end() - 5, whole.end() + 50_000] {
        let bytes = contract::collect(&store, ByteRange::new(from, 10)).expect("read");
        assert!(bytes == server.bytes()[from as usize..][..10], "{from}");
    }
    let leap = opened(&server);
    leap.expect_most(whole);
    let from = 30 << 20;
    assert!(
        contract::collect(&leap, ByteRange::new(from, 100)).expect("read")
            == server.bytes()[from as usize..][..100]
    );
}

#[test]
fn a_stream_that_leaps_reads_over_a_gap_or_asks_anew() {
    let server = Faulty::new(contract::noise(4_000_000, 6));
    let store = opened(&server);
    store.expect_stream(ByteRange::new(100_000, 3_900_000));
    for (from, to, total) in
        [(100_000, 200_000, 2), (230_000, 300_000, 2), (2_000_000, 2_100_000, 3), (500_000, 600_000, 4)]
    {
        let bytes = contract::collect(&store, ByteRange::new(from, to - from)).expect("read");
        assert!(bytes == server.bytes()[from as usize..to as usize], "{from} to {to}");
        assert_eq!(requests(&store), total, "{from} to {to}");
    }
}

#[test]
fn a_file_that_is_remembered_brings_no_bytes_and_is_read_as_before() {
    let server = Faulty::new(contract::noise(100_000, 7));
    let version = opened(&server).version().clone();
    let remembered = || HttpOptions { remembered: Some(version.clone()), ..options(&Arc::default()) };
    let store = open_with(&server, remembered()).expect("opened");
    assert!(store.is_unchanged() && store.len() == 100_000);
    assert_eq!(store.counters().snapshot().bytes, 0);
    assert!(contract::collect(&store, ByteRange::new(0, 100_000)).expect("read") == server.bytes());

    server.replace(contract::noise(90_000, 8));
    let store = open_with(&server, remembered()).expect("opened");
    assert!(!store.is_unchanged() && store.len() == 90_000);
}

#[test]
fn a_file_that_was_replaced_is_an_error_and_never_a_mixture() {
    let server = Faulty::new(contract::noise(1_000_000, 9));
    let store = opened(&server);
    let before = server.bytes();
    let mut got = Vec::new();
    let error = store
        .stream(ByteRange::new(0, 1_000_000), &mut |piece| {
            got.extend_from_slice(piece);
            if got.len() == piece.len() {
                server.replace(contract::noise(1_000_000, 10));
                server.mishaps([Mishap::Cut(0)]);
            }
            ControlFlow::Continue(())
        })
        .expect_err("another file");
    assert!(before.starts_with(&got));
    assert!(error.with_causes().contains("the file was replaced on the server"), "{}", error.with_causes());
    assert!(store.read_at(5, &mut [0; 5]).is_err());
}

#[test]
fn what_is_refused_for_good_is_not_asked_for_again() {
    for (mishap, words) in [
        (Mishap::Status(404, None), "404 (there is no such file)"),
        (Mishap::Status(403, None), "403"),
        (Mishap::Untrusted, "certificate"),
    ] {
        let server = Faulty::new(contract::noise(100_000, 11));
        server.mishaps([mishap]);
        let clock = Arc::<Virtual>::default();
        let error = open_with(&server, options(&clock)).err().expect("refused").with_causes();
        assert!(error.contains(words), "{error}");
        assert_eq!(clock.now(), Nanos::ZERO, "no wait");
    }
}

#[test]
fn a_server_that_asks_for_time_gets_it() {
    let server = Faulty::new(contract::noise(100_000, 12));
    server.mishaps([Mishap::Status(429, Some(30)), Mishap::Status(503, None)]);
    let clock = Arc::<Virtual>::default();
    let store = open_with(&server, options(&clock)).expect("opened");
    assert!(clock.now() >= Nanos::from_millis(30_000) && clock.now() < Nanos::from_millis(31_000));
    assert_eq!(store.retries().snapshot().retries, 2);
    server.mishaps([Mishap::Status(429, Some(61))]);
    let error = store.read_at(70_000, &mut [0; 10]).expect_err("too long").with_causes();
    assert!(error.contains("429"), "{error}");
}

#[test]
fn a_server_that_is_gone_is_given_up_in_time() {
    let server = Faulty::new(contract::noise(100_000, 13));
    let clock = Arc::<Virtual>::default();
    let store = open_with(&server, options(&clock)).expect("opened");
    server.mishaps(std::iter::repeat_n(Mishap::NoConnection, 1_000));
    store.read_at(80_000, &mut [0; 10]).expect_err("no server");
    assert!(clock.now() > Nanos::from_millis(30_000) && clock.now() < Nanos::from_millis(100_000));
    assert_eq!(store.retries().snapshot().errors, 1);
    let seen = server.seen();
    assert_eq!(seen, 2 + u64::from(Patience::default().tries));
}

#[test]
fn a_server_that_is_down_is_asked_for_as_long_as_an_opening_may_take() {
    let open_in = |seconds: u64| {
        let server = Faulty::new(contract::noise(100_000, 13));
        server.mishaps(std::iter::repeat_n(Mishap::NoConnection, 20));
        let clock = Arc::<Virtual>::default();
        let opening = Patience::within(Duration::from_secs(seconds));
        let opened = open_with(&server, HttpOptions { opening, ..options(&clock) }).is_ok();
        (opened, clock.now())
    };
    let (opened, then) = open_in(1_000);
    assert!(opened && then > Nanos::from_millis(100_000), "{then:?}");
    let (opened, then) = open_in(30);
    assert!(!opened && then <= Nanos::from_millis(30_000), "{then:?}");
}

#[test]
fn a_server_without_ranges_is_told_of() {
    for opening_bytes in [1, 64 << 10, 1 << 20] {
        let server = Faulty::new(contract::noise(100_000, 14));
        server.mishaps(std::iter::repeat_n(Mishap::Whole, 100));
        let clock = Arc::<Virtual>::default();
        let error = open_with(&server, HttpOptions { opening_bytes, ..options(&clock) });
        let error = error.err().expect("refused").with_causes();
        assert!(error.contains("range requests"), "{error}");
        assert_eq!((server.seen(), clock.now()), (1, Nanos::ZERO), "one request, and no wait");
    }
}

#[test]
fn a_server_that_gives_up_ranges_later_is_asked_again_within_bounds() {
    let server = Faulty::new(contract::noise(100_000, 14));
    let clock = Arc::<Virtual>::default();
    let store = open_with(&server, options(&clock)).expect("opened");
    server.mishaps([Mishap::Whole, Mishap::Whole]);
    let mut few = [0; 10];
    store.read_at(80_000, &mut few).expect("the third time");
    assert_eq!(few, server.bytes()[80_000..80_010]);
    server.mishaps(std::iter::repeat_n(Mishap::Whole, 100));
    let error = store.read_at(80_000, &mut [0; 10]).expect_err("not from elsewhere").with_causes();
    assert!(error.contains("whole file"), "{error}");
    assert!(server.seen() < 20, "{} requests", server.seen());
}

/// One byte each five seconds is no progress: another connection is tried, and a whole one is taken as it
/// comes.
#[test]
fn a_server_that_trickles_counts_as_cut() {
    let server = Faulty::new(contract::noise(1_000_000, 16));
    let clock = Arc::<Virtual>::default();
    server.set_clock(&clock);
    let store = open_with(&server, options(&clock)).expect("opened");
    server.mishaps([Mishap::Trickle(5_000, u64::MAX)]);
    let mut buffer = vec![0; 100_000];
    store.read_at(300_000, &mut buffer).expect("by the second connection");
    assert!(buffer == server.bytes()[300_000..400_000]);
    assert_eq!(server.seen(), 3);
    assert!(clock.now() < Nanos::from_millis(45_000), "{}", clock.now());
}

/// However many connections trickle, no reader is blocked without a limit: neither by bytes that come, nor by
/// cuts after a few of them.
#[test]
fn trickling_does_not_renew_patience() {
    for (millis, bytes) in [(5_000, u64::MAX), (100, 50), (1, (64 << 10) - 1), (10, 1)] {
        let server = Faulty::new(contract::noise(3_000_000, 17));
        let clock = Arc::<Virtual>::default();
        server.set_clock(&clock);
        let store = open_with(&server, options(&clock)).expect("opened");
        server.mishaps(std::iter::repeat_n(Mishap::Trickle(millis, bytes), 10_000));
        let before = clock.now();
        store.read_at(1_000_000, &mut vec![0; 1_500_000]).expect_err("no end of it");
        let waited = clock.now().saturating_sub(before);
        assert!(waited < Nanos::from_millis(100_000), "{millis} ms, {bytes} bytes: {waited}");
        assert!(server.seen() <= 2 + u64::from(Patience::default().tries), "{}", server.seen());
    }
}

/// A connection that makes progress goes on for as long as it does.
#[test]
fn progress_renews_patience() {
    let server = Faulty::new(contract::noise(3_000_000, 18));
    let clock = Arc::<Virtual>::default();
    let store = open_with(&server, options(&clock)).expect("opened");
    server.mishaps(std::iter::repeat_n(Mishap::Cut(PROGRESS_BYTES), 40));
    let mut buffer = vec![0; 2_500_000];
    store.read_at(400_000, &mut buffer).expect("forty cuts, each of them after some progress");
    assert!(buffer == server.bytes()[400_000..2_900_000]);
}

/// Whatever happens, bytes are right or an error is clear.
#[test]
fn a_thousand_schedules_of_faults_and_no_wrong_byte() {
    let bytes = contract::noise(700_000, 15);
    let (mut whole, mut failed) = (0, 0);
    for seed in 0..1_000 {
        let server = Faulty::new(bytes.clone());
        server.misbehave(seed);
        let clock = Arc::<Virtual>::default();
        let Ok(store) = open_with(&server, HttpOptions { seed, ..options(&clock) }) else {
            failed += 1;
            continue;
        };
        let mut prng = Prng::new(seed);
        let mut errors = 0;
        let hot = ByteRange::new(50_000, 400_000);
        store.expect_stream(hot);
        let mut at = hot.offset;
        while at < hot.end() {
            let len = (1 + prng.below(90_000)).min(hot.end() - at);
            errors += u64::from(check(&store, &bytes, ByteRange::new(at, len), true, seed).is_err());
            at += len;
            let offset = prng.below(690_000);
            let demand = ByteRange::new(offset, 1 + prng.below(10_000));
            errors += u64::from(check(&store, &bytes, demand, prng.below(2) == 0, seed).is_err());
        }
        // Once it behaves, everything can be had.
        server.behave();
        check(&store, &bytes, ByteRange::new(0, 700_000), true, seed).unwrap_or_else(|error| {
            panic!("seed {seed}: {}", error.with_causes());
        });
        whole += u64::from(errors == 0);
        assert!(clock.now() < Nanos::from_millis(3_600_000), "seed {seed}: waited {}", clock.now());
    }
    // Most schedules must be survived, and some must be too much, or the test proves little.
    assert!(whole > 500 && failed + whole < 1_000, "{whole} were whole, {failed} could not be opened");
}

/// What comes is right, also before an error.
fn check(
    store: &HttpStore,
    bytes: &[u8],
    range: ByteRange,
    streams: bool,
    seed: u64,
) -> Result<(), StoreError> {
    let right = &bytes[range.offset as usize..range.end() as usize];
    let mut got = Vec::new();
    let result = if streams {
        store.stream(range, &mut |piece| {
            got.extend_from_slice(piece);
            ControlFlow::Continue(())
        })
    } else {
        got = vec![0; right.len()];
        store.read_at(range.offset, &mut got).inspect_err(|_| got.clear())
    };
    assert!(right.starts_with(&got), "seed {seed}: wrong bytes in {range}");
    assert!(result.is_err() || got.len() == right.len(), "seed {seed}: too few bytes of {range}");
    result
}

/// The stream under way is taken by the thread that asks, so that waiting for it would never end.
#[test]
fn what_lies_before_the_stream_under_way_does_not_wait_for_it() {
    let server = Faulty::new(contract::noise(3_000_000, 19));
    let store = opened(&server);
    store.expect_stream(ByteRange::new(100_000, 2_900_000));
    let mut pieces = 0;
    store
        .stream(ByteRange::new(1_000_000, 500_000), &mut |_| {
            if pieces == 0 {
                let before = contract::collect(&store, ByteRange::new(200_000, 10_000)).expect("read");
                assert!(before == server.bytes()[200_000..210_000]);
            }
            pieces += 1;
            ControlFlow::Continue(())
        })
        .expect("read");
    assert!(pieces > 1);
}

/// An address that lasts for a while, and how often it was asked for.
struct Lasting(Arc<std::sync::atomic::AtomicU64>);

impl Locate for Lasting {
    fn name(&self) -> String {
        "lasting".to_owned()
    }

    fn locate(&self) -> Result<Located, HttpError> {
        self.0.fetch_add(1, Relaxed);
        let url = "http://server.example/x".parse().expect("an address");
        Ok(Located { url, headers: HeaderMap::new(), lasts: Some(Duration::from_secs(100)) })
    }
}

#[test]
fn an_address_is_asked_for_again_after_half_of_its_time() {
    let server = Faulty::new(contract::noise(300_000, 20));
    let (clock, located) = (Arc::<Virtual>::default(), Arc::default());
    let store =
        HttpStore::open(Box::new(Lasting(Arc::clone(&located))), Arc::clone(&server) as _, options(&clock));
    let store = store.expect("opened");
    for (seconds, times) in [(0, 1), (49, 1), (1, 2), (1, 2), (48, 2), (1, 3)] {
        clock.advance(Nanos::from_millis(1_000 * seconds));
        store.read_at(200_000, &mut [0; 10]).expect("read");
        assert_eq!(located.load(Relaxed), times, "after {seconds} s");
    }
}
