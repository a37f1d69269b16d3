use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn flat(name: &str) -> Flat {
    Flat::new(FlatSpec::parse(name).expect("a name of the grammar"))
}

fn request(len: u64) -> ByteRange {
    ByteRange::new(0, len)
}

#[test]
fn overlapping_latencies_overlap_and_the_link_is_shared() {
    let mut device = flat("flat-10ms-25mbs");
    let first = device.submit(Nanos(0), request(25_000));
    let second = device.submit(Nanos(0), request(25_000));
    let third = device.submit(Nanos(5 * MS), request(25_000));
    assert_eq!(first, Service { starts: Nanos(0), first_byte: Nanos(10 * MS), done: Nanos(11 * MS) });
    assert_eq!(second, Service { starts: Nanos(0), first_byte: Nanos(11 * MS), done: Nanos(12 * MS) });
    assert_eq!(third, Service { starts: Nanos(5 * MS), first_byte: Nanos(15 * MS), done: Nanos(16 * MS) });
}

#[test]
fn serial_requests_wait_for_each_other() {
    let mut device = flat("flat-10ms-25mbs-serial");
    let first = device.submit(Nanos(0), request(25_000));
    let second = device.submit(Nanos(0), request(25_000));
    let late = device.submit(Nanos(100 * MS), request(0));
    assert_eq!(first, Service { starts: Nanos(0), first_byte: Nanos(10 * MS), done: Nanos(11 * MS) });
    assert_eq!(second, Service { starts: Nanos(11 * MS), first_byte: Nanos(21 * MS), done: Nanos(22 * MS) });
    assert_eq!(late, Service { starts: Nanos(100 * MS), first_byte: Nanos(110 * MS), done: Nanos(110 * MS) });
}

#[test]
fn an_abandoned_stream_frees_the_link() {
    for (name, next_first_byte) in [("flat-10ms-25mbs", 30), ("flat-10ms-25mbs-serial", 30)] {
        let mut device = flat(name);
        let stream = device.submit(Nanos(0), request(25_000_000));
        device.abandon(Nanos(20 * MS), stream);
        let next = device.submit(Nanos(20 * MS), request(1));
        assert_eq!(next.first_byte, Nanos(next_first_byte * MS), "{name}");
    }
}

#[test]
fn abandoning_keeps_what_is_queued_before_and_behind() {
    for name in ["flat-10ms-25mbs", "flat-10ms-25mbs-serial"] {
        let mut device = flat(name);
        let running = device.submit(Nanos(0), request(2_500_000));
        let queued = device.submit(Nanos(0), request(2_500_000));
        device.abandon(Nanos(MS), running);
        let behind = device.submit(Nanos(MS), request(1));
        assert!(behind.first_byte >= queued.done, "{name}: the queued request kept its time");
        device.abandon(Nanos(2 * MS), behind);
        let again = device.submit(Nanos(2 * MS), request(1));
        assert_eq!(again, Service { starts: again.starts, ..behind }, "{name}: as if it had never been");
    }
}

#[test]
fn a_latency_that_began_is_paid() {
    let mut device = flat("flat-10ms-25mbs-serial");
    let service = device.submit(Nanos(0), request(1_000_000));
    device.abandon(Nanos(MS), service);
    assert_eq!(device.submit(Nanos(MS), request(1)).starts, service.first_byte);
}

#[test]
fn absurd_requests_saturate() {
    let mut device = flat("flat-10ms-1mbs");
    device.submit(Nanos(0), ByteRange::new(0, u64::MAX));
    let after = device.submit(Nanos(0), ByteRange::new(0, u64::MAX));
    assert_eq!(after.done, Nanos(u64::MAX));
}

/// One request of a random history: what came, when it was given up if it was.
#[derive(Clone, Copy, Debug)]
struct Step {
    gap_ns: u64,
    len: u64,
    /// Give it up this long after its submission, before the next one is submitted.
    abandon_after_ns: Option<u64>,
}

/// What the medium did with a request.
#[derive(Clone, Copy, Debug)]
struct ServedRequest {
    submitted: Nanos,
    service: Service,
    len: u64,
    stopped: Nanos,
}

impl ServedRequest {
    fn delivered_by(&self, at: Nanos) -> u64 {
        self.service.delivered(at.min(self.stopped), self.len)
    }

    /// When the link stops working for this request; before `first_byte` it never began.
    fn link_end(&self) -> Nanos {
        self.stopped.clamp(self.service.first_byte, self.service.done)
    }
}

fn play(spec: FlatSpec, steps: &[Step]) -> Vec<ServedRequest> {
    let mut device = Flat::new(spec);
    let mut now = Nanos(0);
    let mut history = Vec::new();
    for step in steps {
        now += Nanos(step.gap_ns);
        let submitted = now;
        let service = device.submit(now, request(step.len));
        let mut stopped = Nanos(u64::MAX);
        if let Some(after) = step.abandon_after_ns {
            now += Nanos(after);
            stopped = now;
            device.abandon(now, service);
        }
        history.push(ServedRequest { submitted, service, len: step.len, stopped });
    }
    history
}

fn specs() -> impl Strategy<Value = FlatSpec> {
    (0_u64..30_000, 1_u64..2_000, any::<bool>()).prop_map(|(micros, mbs, serial)| FlatSpec {
        latency: Nanos(micros * 1_000),
        rate_bytes_per_second: NonZeroU64::new(mbs * 1_000_000).expect("not zero"),
        serial,
    })
}

fn histories() -> impl Strategy<Value = Vec<Step>> {
    let step = (0_u64..20 * MS, 1_u64..4 << 20, proptest::option::weighted(0.3, 0_u64..40 * MS))
        .prop_map(|(gap_ns, len, abandon_after_ns)| Step { gap_ns, len, abandon_after_ns });
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #[test]
    fn names_round_trip(spec in specs()) {
        prop_assert_eq!(FlatSpec::parse(&spec.to_string()), Some(spec));
    }

    #[test]
    fn latency_is_respected(spec in specs(), steps in histories()) {
        for served in play(spec, &steps) {
            let Service { starts, first_byte, done } = served.service;
            prop_assert!(starts >= served.submitted);
            prop_assert!(first_byte >= starts + spec.latency);
            prop_assert_eq!(done, first_byte + spec.transfer(served.len));
        }
    }

    /// First come, first served: the link works for one request after the other, in order.
    #[test]
    fn the_link_is_first_in_first_out(spec in specs(), steps in histories()) {
        for pair in play(spec, &steps).windows(2) {
            prop_assert!(pair[1].service.first_byte >= pair[0].link_end());
        }
    }

    #[test]
    fn serial_requests_never_overlap(mut spec in specs(), steps in histories()) {
        spec.serial = true;
        for pair in play(spec, &steps).windows(2) {
            let busy_until =
                if pair[0].stopped < pair[0].service.starts { pair[0].service.starts } else { pair[0].link_end() };
            prop_assert!(pair[1].service.starts >= busy_until);
        }
    }

    /// In any window of time, not more bytes than the rate allows; one byte of slack because
    /// delivery is rounded down at the window's beginning.
    #[test]
    fn the_rate_is_never_exceeded(
        spec in specs(), steps in histories(), ends in (0_u64..2_000 * MS, 0_u64..2_000 * MS),
    ) {
        let (from, to) = (Nanos(ends.0.min(ends.1)), Nanos(ends.0.max(ends.1)));
        let history = play(spec, &steps);
        let bytes: u64 = history.iter().map(|served| served.delivered_by(to) - served.delivered_by(from)).sum();
        let allowed = u128::from((to - from).0) * u128::from(spec.rate_bytes_per_second.get());
        prop_assert!(u128::from(bytes.saturating_sub(1)) * 1_000_000_000 <= allowed);
    }

    /// A request with none in front of it costs its latency and its transfer, nothing else.
    #[test]
    fn an_idle_medium_serves_at_once(spec in specs(), steps in histories()) {
        let history = play(spec, &steps);
        let idle_from = history.iter().map(|served| served.service.done).max().expect("not empty");
        let mut device = Flat::new(spec);
        for served in &history {
            device.submit(served.submitted, request(served.len));
        }
        let now = idle_from + Nanos(1_000 * 1_000 * MS);
        let fresh = device.submit(now, request(1));
        prop_assert_eq!(fresh.starts, now);
        prop_assert_eq!(fresh.first_byte, fresh.starts + spec.latency);
    }
}
