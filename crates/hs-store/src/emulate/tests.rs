use std::thread;

use hs_device::Service;
use hs_units::Nanos;
use parking_lot::Mutex;

use super::*;
use crate::contract;
use crate::virtual_clock::Virtual;
use crate::{Fault, FaultKind, MemoryStore, Rule};

const PIECE: u64 = PIECE_BYTES as u64;
const MS: u64 = 1_000_000;

/// What a device was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Submit(Nanos, ByteRange),
    Abandon(Nanos, Service),
}

/// A device that records its requests and asks the real model.
struct Recording {
    model: Box<dyn Device>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Device for Recording {
    fn submit(&mut self, now: Nanos, request: ByteRange) -> Service {
        self.asked.lock().push(Asked::Submit(now, request));
        self.model.submit(now, request)
    }

    fn abandon(&mut self, now: Nanos, service: Service) {
        self.asked.lock().push(Asked::Abandon(now, service));
        self.model.abandon(now, service);
    }
}

struct Bench<S> {
    store: Emulate<S>,
    clock: Arc<Virtual>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// A store on a medium whose time passes only during waits.
fn bench<S: Store>(medium: &str, inner: S) -> Bench<S> {
    let asked = Arc::default();
    let clock = Arc::new(Virtual::default());
    let model = Medium::parse(medium).expect("known").device(1 << 20).expect("fits").expect("modelled");
    let device = Box::new(Recording { model, asked: Arc::clone(&asked) });
    Bench { store: Emulate::with_device(inner, device, clock.clone()), clock, asked }
}

fn memory(len: u64) -> MemoryStore {
    MemoryStore::new(contract::noise(len as usize, 3))
}

#[test]
fn an_emulated_store_keeps_the_contract() {
    contract::check(|bytes| bench("flat-10ms-25mbs", MemoryStore::new(bytes)).store, 600_000);
    contract::check(|bytes| Emulate::new(MemoryStore::new(bytes), &Medium::None).expect("fits"), 600_000);
}

#[test]
fn a_read_takes_what_the_model_says() {
    let Bench { store, clock, asked } = bench("flat-10ms-25mbs", memory(1 << 20));
    store.read_at(100, &mut [0; 25_000]).expect("read");
    assert_eq!(clock.now(), Nanos(11 * MS));
    store.read_at(0, &mut [0; 50_000]).expect("read");
    assert_eq!(clock.now(), Nanos(23 * MS));
    assert_eq!(
        *asked.lock(),
        [
            Asked::Submit(Nanos(0), ByteRange::new(100, 25_000)),
            Asked::Submit(Nanos(11 * MS), ByteRange::new(0, 50_000)),
        ]
    );
}

#[test]
fn a_stream_is_one_request_whose_pieces_come_as_they_arrive() {
    let Bench { store, clock, asked } = bench("flat-10ms-25mbs", memory(1 << 20));
    let range = ByteRange::new(5, 3 * PIECE + 100);
    let mut arrivals = Vec::new();
    store
        .stream(range, &mut |piece| {
            arrivals.push((clock.now(), piece.len() as u64));
            ControlFlow::Continue(())
        })
        .expect("streamed");

    // 40 ns a byte after 10 ms.
    let mut bytes = 0;
    for (at, len) in &arrivals {
        assert!(*len <= PIECE);
        bytes += len;
        assert_eq!(*at, Nanos(10 * MS + 40 * bytes));
    }
    assert_eq!((bytes, arrivals.len()), (range.len, 4));
    assert_eq!(*asked.lock(), [Asked::Submit(Nanos(0), range)]);
}

#[test]
fn a_broken_stream_is_abandoned_and_the_medium_is_free() {
    let Bench { store, clock, asked } = bench("flat-10ms-25mbs-serial", memory(4 << 20));
    let range = ByteRange::new(0, 4 << 20);
    let mut pieces = 0;
    store
        .stream(range, &mut |_| {
            pieces += 1;
            if pieces == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .expect("a break is no error");
    assert_eq!(pieces, 2);
    let stopped = Nanos(10 * MS + 2 * PIECE * 40);
    assert_eq!(clock.now(), stopped);

    store.read_at(0, &mut [0; 25_000]).expect("read");
    assert_eq!(clock.now(), stopped + Nanos(11 * MS));
    let service =
        Service { starts: Nanos(0), first_byte: Nanos(10 * MS), done: Nanos(10 * MS + (4 << 20) * 40) };
    assert_eq!(
        *asked.lock(),
        [
            Asked::Submit(Nanos(0), range),
            Asked::Abandon(stopped, service),
            Asked::Submit(stopped, ByteRange::new(0, 25_000)),
        ]
    );
}

#[test]
fn a_slow_sink_does_not_slow_the_medium() {
    let Bench { store, clock, .. } = bench("flat-10ms-25mbs", memory(1 << 20));
    let mut seen = Vec::new();
    store
        .stream(ByteRange::new(0, 4 * PIECE), &mut |_| {
            seen.push(clock.now());
            if seen.len() == 1 {
                clock.advance(Nanos(1_000 * MS));
            }
            ControlFlow::Continue(())
        })
        .expect("streamed");
    let late = Nanos(1_010 * MS + 40 * PIECE);
    assert_eq!(seen[1..], [late; 3], "the rest had arrived meanwhile");
}

#[test]
fn bypassed_and_impossible_requests_never_reach_the_medium() {
    let Bench { store, clock, asked } = bench("flat-10ms-25mbs", memory(1 << 20));
    store.read_at(0, &mut []).expect("nothing to read");
    store.read_at(1 << 20, &mut [0]).expect_err("beyond the end");
    store.bypass(true);
    store.read_at(0, &mut [0; 4096]).expect("read");
    contract::collect(&store, ByteRange::new(0, 1 << 20)).expect("streamed");
    assert_eq!((clock.now(), asked.lock().len()), (Nanos(0), 0));
    store.bypass(false);
    store.read_at(0, &mut [0; 4096]).expect("read");
    assert_eq!(asked.lock().len(), 1);
}

#[test]
fn a_failed_request_takes_its_time_and_gives_the_medium_back() {
    let broken = Rule::new(FaultKind::Io, ByteRange::new(2 * PIECE, 1));
    let Bench { store, asked, clock, .. } =
        bench("flat-10ms-25mbs", Fault::new(memory(1 << 20), vec![broken], 0));
    store.read_at(2 * PIECE, &mut [0; 5_000]).expect_err("a bad place");
    let alone = Nanos::from_millis(10) + Nanos(5_000 * 40);
    assert_eq!(clock.now(), alone, "as long as one that succeeds");
    contract::collect(&store, ByteRange::new(0, 1 << 20)).expect_err("a bad place");
    let until_there = Nanos::from_millis(10) + Nanos((2 * PIECE + 2_048) * 40);
    assert_eq!(clock.now(), alone + until_there, "until the bad sector has passed");
    let abandoned = asked.lock().iter().filter(|asked| matches!(asked, Asked::Abandon(..))).count();
    assert_eq!(abandoned, 1);

    // One that cannot be served at all was never under way.
    let cut = Rule::new(FaultKind::Short, ByteRange::new(5_000, u64::MAX));
    let Bench { store, clock, .. } = bench("flat-10ms-25mbs", Fault::new(memory(1 << 20), vec![cut], 0));
    store.read_at(6_000, &mut [0; 8]).expect_err("cut");
    assert_eq!(clock.now(), Nanos::ZERO);
}

/// With real threads and the real clock: the device sees every request, on a time that does not go backwards,
/// and no request is served before the model says.
#[test]
fn threads_wait_on_the_real_clock() {
    let asked = Arc::default();
    let clock = Arc::new(Monotonic::new());
    let model = Medium::parse("flat-1ms-100mbs-serial")
        .expect("known")
        .device(1 << 20)
        .expect("fits")
        .expect("modelled");
    let device = Box::new(Recording { model, asked: Arc::clone(&asked) });
    let store = Emulate::with_device(memory(1 << 20), device, clock.clone());
    thread::scope(|scope| {
        for reader in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for turn in 0..3 {
                    store.read_at((reader * 3 + turn) * 4096, &mut [0; 4096]).expect("read");
                }
            });
        }
    });
    assert!(clock.now() >= Nanos(12 * (MS + 40_960)), "twelve requests, one after the other");
    let times: Vec<Nanos> = asked
        .lock()
        .iter()
        .map(|asked| match asked {
            Asked::Submit(now, _) | Asked::Abandon(now, _) => *now,
        })
        .collect();
    assert_eq!(times.len(), 12);
    assert!(times.is_sorted());
}

#[test]
fn what_does_not_fit_is_refused() {
    /// Has a size and no bytes.
    struct Large;
    impl Store for Large {
        fn len(&self) -> u64 {
            737_280_001
        }
        fn name(&self) -> &str {
            "large"
        }
        fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), StoreError> {
            unreachable!("not read")
        }
        fn stream(&self, _: ByteRange, _: &mut Sink<'_>) -> Result<(), StoreError> {
            unreachable!("not read")
        }
    }
    let cd = Medium::parse("cd-24x-cav").expect("known");
    let refused = Emulate::new(Large, &cd).map(|_| ());
    assert!(matches!(&refused, Err(StoreError::Medium { path, .. }) if path == "large"), "{refused:?}");
    assert!(Emulate::new(Large, &Medium::parse("hdd-7200").expect("known")).is_ok());
}

/// On a link of 1 MB/s two requests have half of it each, whichever came first; on a device one waits for the
/// other.
#[test]
fn requests_on_a_link_share_it() {
    let link = Medium::parse("lan-10m").expect("known").link().expect("a link");
    let clock = Arc::new(Virtual::default());
    let timing = Timing::of_link(link, clock.clone());
    let bytes = link.rate_bytes_per_second().get();
    let (first, second) =
        (timing.submit(ByteRange::new(0, bytes)), timing.submit(ByteRange::new(0, bytes / 4)));
    let late = |then: f64| (clock.now().as_secs_f64() - then - link.round_trip.as_secs_f64()).abs() < 1e-3;
    timing.wait(second, bytes / 4, bytes / 4);
    assert!(late(0.5), "{:?}", clock.now());
    timing.wait(first, bytes / 4, bytes);
    assert!(late(0.5), "it had as much by then: {:?}", clock.now());
    let third = timing.submit(ByteRange::new(0, bytes));
    timing.abandon(third);
    timing.wait(first, bytes, bytes);
    assert!(late(1.25), "a reader that gave up takes nothing: {:?}", clock.now());
}

#[test]
fn a_store_on_a_link_keeps_the_contract() {
    let link = Medium::parse("lan-1g").expect("known");
    contract::check(|bytes| Emulate::new(MemoryStore::new(bytes), &link).expect("fits"), 600_000);
}

#[test]
fn what_has_come_by_a_link_is_not_waited_for_again() {
    let link = Medium::parse("lan-10m").expect("known").link().expect("a link");
    let clock = Arc::new(Virtual::default());
    let timing = Timing::of_link(link, clock.clone());
    let bytes = link.rate_bytes_per_second().get();
    let pending = timing.submit(ByteRange::new(0, bytes));
    timing.wait(pending, 0, bytes);
    assert_eq!(clock.now(), Nanos::ZERO, "nothing has come, as was asked for");
    timing.wait(pending, bytes / 4, bytes);
    let then = clock.now();
    timing.wait(pending, bytes / 4, bytes);
    assert_eq!(clock.now(), then);
}
