//! A whole stack, `Count(Emulate(Memory))`, against the plain bytes and a plain tally.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hs_device::{FlatSpec, Medium};
use hs_store::{Clock, Count, Emulate, Fault, MemoryStore, Retry, Sink, Snapshot, Store, StoreError};
use hs_units::{ByteRange, Nanos, Prng};
use proptest::prelude::*;

const LEN: u64 = 1 << 20;

/// Moves only during sleeps.
#[derive(Default)]
struct Virtual(AtomicU64);

impl Clock for Virtual {
    fn now(&self) -> Nanos {
        Nanos(self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, at: Nanos) {
        self.0.fetch_max(at.0, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Read(ByteRange),
    /// A stream whose sink breaks once it has this many bytes.
    Stream(ByteRange, u64),
}

/// Ranges anywhere; half of them begin at one of a few offsets, so that some are contiguous.
fn requests() -> impl Strategy<Value = Vec<Request>> {
    let range = (0..=LEN, 0..=LEN, any::<bool>()).prop_map(|(offset, len, round)| {
        let grain = if round { LEN / 4 } else { 1 };
        let offset = offset / grain * grain;
        ByteRange::new(offset, (len / grain * grain).min(LEN - offset))
    });
    let request = prop_oneof![
        range.clone().prop_map(Request::Read),
        (range, 1..2 * LEN).prop_map(|(range, enough)| Request::Stream(range, enough)),
    ];
    proptest::collection::vec(request, 0..30)
}

/// Carries out `request` and returns its range and how many bytes were delivered, all of them right.
fn carry_out(store: &dyn Store, model: &[u8], request: Request) -> (ByteRange, u64) {
    let expected = |range: ByteRange| &model[range.offset as usize..range.end() as usize];
    match request {
        Request::Read(range) => {
            let mut buf = vec![0; range.len as usize];
            store.read_at(range.offset, &mut buf).expect("in the store");
            assert!(buf == expected(range));
            (range, range.len)
        }
        Request::Stream(range, enough) => {
            let mut got = Vec::new();
            let sink = &mut |piece: &[u8]| {
                assert!((got.len() as u64) < enough, "a piece after the break");
                got.extend_from_slice(piece);
                if got.len() as u64 >= enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            store.stream(range, sink).expect("in the store");
            assert!(expected(range).starts_with(&got));
            assert!(got.len() as u64 >= range.len.min(enough));
            (range, got.len() as u64)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_stack_serves_the_bytes_and_tells_the_truth(requests in requests(), serial in any::<bool>()) {
        let mut model = vec![0; LEN as usize];
        Prng::new(9).fill(&mut model);
        let name = if serial { "flat-10ms-25mbs-serial" } else { "flat-10ms-25mbs" };
        let medium = Medium::parse(name).expect("known");
        let spec = FlatSpec::parse(name).expect("known");
        let clock = Arc::new(Virtual::default());
        let device = medium.device(1 << 20).expect("fits").expect("modelled");
        let emulate = Emulate::with_device(MemoryStore::new(model.clone()), device, clock.clone());
        let store = Count::with_clock(emulate, clock.clone());

        let mut tally = Snapshot::default();
        let mut position = None;
        for request in requests {
            let (range, delivered) = carry_out(&store, &model, request);
            if range.len == 0 {
                continue;
            }
            tally.requests += 1;
            tally.bytes += delivered;
            tally.seeks += u64::from(position.is_some_and(|position| position != range.offset));
            // One after the other, both kinds of flat medium cost the same.
            tally.busy += spec.latency + spec.transfer(delivered);
            position = Some(range.offset + delivered);
        }
        prop_assert_eq!(store.counters().snapshot(), tally);
        prop_assert_eq!(clock.now(), tally.busy);
    }
}

/// Keeps what it was told.
struct RecordingStore(MemoryStore, Mutex<Vec<&'static str>>);

impl Store for RecordingStore {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        self.0.read_at(offset, buf)
    }

    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        self.0.stream(range, sink)
    }

    fn expect_stream(&self, range: ByteRange) {
        assert_eq!(range, ByteRange::new(1, 2));
        self.1.lock().expect("no panic").push("stream");
    }

    fn expect_most(&self, range: ByteRange) {
        assert_eq!(range, ByteRange::new(3, 4));
        self.1.lock().expect("no panic").push("most");
    }

    fn close(&self) {
        self.1.lock().expect("no panic").push("close");
    }
}

#[test]
fn every_layer_passes_on_what_it_is_told() {
    let told = Arc::new(RecordingStore(MemoryStore::new(vec![0; 100]), Mutex::default()));
    let below = || Arc::clone(&told) as Arc<dyn Store>;
    let layers: [Box<dyn Store>; 6] = [
        Box::new(Retry::new(below())),
        Box::new(Fault::new(below(), Vec::new(), 0)),
        Box::new(Count::new(below())),
        Box::new(Emulate::new(below(), &Medium::None).expect("fits")),
        Box::new(below()),
        Box::new(Box::new(below())),
    ];
    for (number, layer) in layers.iter().enumerate() {
        layer.expect_stream(ByteRange::new(1, 2));
        layer.expect_most(ByteRange::new(3, 4));
        layer.close();
        let told = std::mem::take(&mut *told.1.lock().expect("no panic"));
        assert_eq!(told, ["stream", "most", "close"], "layer {number}");
    }
}
