use core::num::NonZeroU64;

use proptest::prelude::*;

use super::*;

/// 1,000,000 bytes a second, after frames.
fn link(round_trip_ms: u64) -> SharedLink {
    let spec = LinkSpec {
        bits_per_s: NonZeroU64::new(8_497_238).unwrap(),
        round_trip: Nanos::from_millis(round_trip_ms),
        shared_by: NonZeroU32::MIN,
    };
    assert_eq!(spec.rate_bytes_per_second().get(), 1_000_000);
    SharedLink::new(spec)
}

fn flow(bytes: u64, clients: u32) -> Flow {
    Flow { clients: NonZeroU32::new(clients).unwrap(), ..Flow::of(bytes) }
}

/// Everything that happens, with its time.
fn run(link: &mut SharedLink) -> Vec<(Nanos, LinkEvent)> {
    let mut events = Vec::new();
    while let Some(then) = link.next_event() {
        while let Some(event) = link.poll(then) {
            events.push((then, event));
        }
    }
    events
}

fn done(events: &[(Nanos, LinkEvent)], key: u64) -> f64 {
    let found = events.iter().find(|(_, event)| *event == LinkEvent::Done(FlowKey(key)));
    found.expect("it ends").0.as_secs_f64()
}

#[test]
fn a_later_flow_slows_those_under_way() {
    let mut link = link(10);
    link.open(Nanos::ZERO, FlowKey(1), flow(1_000_000, 1));
    assert_eq!(link.next_event(), Some(Nanos::from_millis(10)));
    assert_eq!(link.poll(Nanos::from_millis(10)), Some(LinkEvent::FirstByte(FlowKey(1))));
    link.open(Nanos::from_millis(500), FlowKey(2), flow(250_000, 1));
    let events = run(&mut link);
    // Alone for half a second, half of the rate for another half.
    assert!((done(&events, 2) - 1.01).abs() < 1e-6, "{events:?}");
    assert!((done(&events, 1) - 1.26).abs() < 1e-6, "{events:?}");
    assert_eq!(link.next_event(), None);
}

#[test]
fn a_flow_of_many_clients_is_as_many_flows() {
    let mut together = link(5);
    together.open(Nanos::ZERO, FlowKey(0), flow(30_000, 7));
    together.open(Nanos::from_millis(20), FlowKey(1), flow(90_000, 3));
    let together = run(&mut together);
    let mut apart = link(5);
    for client in 0..7 {
        apart.open(Nanos::ZERO, FlowKey(client), flow(30_000, 1));
    }
    for client in 7..10 {
        apart.open(Nanos::from_millis(20), FlowKey(client), flow(90_000, 1));
    }
    let apart = run(&mut apart);
    assert!((done(&together, 0) - done(&apart, 6)).abs() < 1e-7);
    assert!((done(&together, 1) - done(&apart, 9)).abs() < 1e-7);
}

#[test]
fn a_sender_that_has_no_more_leaves_the_link_to_others() {
    let mut link = link(0);
    link.open(Nanos::ZERO, FlowKey(1), Flow { granted: 100_000, ..flow(200_000, 1) });
    link.open(Nanos::ZERO, FlowKey(2), flow(300_000, 1));
    link.mark(Nanos::ZERO, FlowKey(1), 100_000, 77);
    while link.next_event().is_some_and(|then| then <= Nanos::from_millis(250)) {
        let then = link.next_event().unwrap();
        if let Some(LinkEvent::Passed(key, token)) = link.poll(then) {
            assert_eq!((key, token, then), (FlowKey(1), 77, Nanos::from_millis(200)));
        }
    }
    // Alone since 200 ms, the other has had 100,000 bytes by then and ends at 400 ms.
    link.grant(Nanos::from_millis(300), FlowKey(1), u64::MAX);
    assert_eq!(link.delivered(Nanos::from_millis(300), FlowKey(2)), Some(200_000));
    let events = run(&mut link);
    assert!((done(&events, 2) - 0.5).abs() < 1e-6 && (done(&events, 1) - 0.5).abs() < 1e-6, "{events:?}");
}

#[test]
fn a_closed_flow_takes_nothing() {
    let mut link = link(1);
    link.open(Nanos::ZERO, FlowKey(1), flow(1 << 40, 9));
    link.open(Nanos::ZERO, FlowKey(2), flow(100_000, 1));
    link.open(Nanos::ZERO, FlowKey(3), flow(5, 1));
    link.close(Nanos::ZERO, FlowKey(3));
    link.close(Nanos::from_millis(101), FlowKey(1));
    // A tenth of the rate for 100 ms, then all of it.
    let events = run(&mut link);
    assert!((done(&events, 2) - 0.191).abs() < 1e-6, "{events:?}");
    assert!(!events.iter().any(|(_, event)| *event == LinkEvent::Done(FlowKey(3))));
    link.mark(Nanos::from_millis(500), FlowKey(2), 1, 1);
    assert_eq!(link.poll(Nanos::from_millis(500)), None, "it has ended");
}

#[test]
fn marks_at_one_byte_come_in_the_order_they_were_asked_for() {
    let mut link = link(1);
    link.open(Nanos::ZERO, FlowKey(1), flow(1, 1));
    link.mark(Nanos::ZERO, FlowKey(1), 0, 2);
    link.mark(Nanos::ZERO, FlowKey(1), 0, 1);
    let events: Vec<LinkEvent> = run(&mut link).into_iter().map(|(_, event)| event).collect();
    let passed = |token| LinkEvent::Passed(FlowKey(1), token);
    assert_eq!(events, [LinkEvent::FirstByte(FlowKey(1)), passed(2), passed(1), LinkEvent::Done(FlowKey(1))]);
}

/// A plain model: every flow's bytes are counted one by one from event to event. Times of their ends, in
/// seconds.
fn plain(rate: f64, round_trip: f64, flows: &[(f64, f64, f64)]) -> Vec<f64> {
    let mut left: Vec<f64> = flows.iter().map(|(_, _, bytes)| *bytes).collect();
    let mut ends = vec![0.0; flows.len()];
    let mut now = 0.0;
    loop {
        let begun = |number: usize| flows[number].0 + round_trip <= now + 1e-12;
        let active: Vec<usize> =
            (0..flows.len()).filter(|number| begun(*number) && left[*number] > 0.0).collect();
        let shares: f64 = active.iter().map(|number| flows[*number].1).sum();
        let ending = active.iter().map(|number| now + left[*number] * shares / rate);
        let beginning =
            (0..flows.len()).filter(|number| !begun(*number)).map(|number| flows[number].0 + round_trip);
        let next = ending.chain(beginning).fold(f64::INFINITY, f64::min);
        if next == f64::INFINITY {
            return ends;
        }
        for number in active {
            left[number] -= (next - now) * rate / shares;
            if left[number] < 1e-3 {
                (left[number], ends[number]) = (0.0, next);
            }
        }
        now = next;
    }
}

proptest! {
    /// Against the plain model; marks change nothing and come in their order, and what is delivered is what
    /// they say. From four bytes on, a half and a third of them are two marks.
    #[test]
    fn flows_end_when_the_plain_model_says(
        flows in prop::collection::vec((0_u64..3_000, 1_u32..5, 4_u64..400_000), 1..24),
        round_trip_ms in 0_u64..60,
    ) {
        let mut link = link(round_trip_ms);
        let mut order: Vec<usize> = (0..flows.len()).collect();
        order.sort_by_key(|number| flows[*number].0);
        let mut events = Vec::new();
        for number in order {
            let (at, clients, bytes) = flows[number];
            let at = Nanos::from_millis(at);
            while link.next_event().is_some_and(|then| then <= at) {
                let then = link.next_event().unwrap();
                events.extend(link.poll(then).map(|event| (then, event)));
            }
            let key = FlowKey(number as u64);
            link.open(at, key, flow(bytes, clients));
            link.mark(at, key, bytes / 2, 2);
            link.mark(at, key, bytes / 3, 1);
        }
        events.extend(run(&mut link));
        let as_seconds: Vec<(f64, f64, f64)> = flows
            .iter()
            .map(|(at, clients, bytes)| (*at as f64 / 1e3, f64::from(*clients), *bytes as f64))
            .collect();
        let ends = plain(1e6, round_trip_ms as f64 / 1e3, &as_seconds);
        for (number, end) in ends.iter().enumerate() {
            let key = FlowKey(number as u64);
            let ours = done(&events, number as u64);
            prop_assert!((ours - end).abs() < 1e-5, "{number}: {ours} {end}");
            let of: Vec<LinkEvent> = events
                .iter()
                .map(|(_, event)| *event)
                .filter(|event| matches!(event, LinkEvent::FirstByte(of) | LinkEvent::Passed(of, _) | LinkEvent::Done(of) if *of == key))
                .collect();
            let wanted = [LinkEvent::FirstByte(key), LinkEvent::Passed(key, 1), LinkEvent::Passed(key, 2), LinkEvent::Done(key)];
            prop_assert_eq!(of, wanted);
        }
        prop_assert!(events.is_sorted_by_key(|(then, _)| *then));
    }
}

#[test]
fn what_follows_in_an_answer_takes_no_round_trip() {
    let mut link = link(20);
    link.open(Nanos::ZERO, FlowKey(1), Flow { follows: true, ..flow(1_000, 1) });
    link.open(Nanos::ZERO, FlowKey(2), flow(1_000, 1));
    assert_eq!(link.poll(Nanos::ZERO), Some(LinkEvent::FirstByte(FlowKey(1))));
    let events = run(&mut link);
    assert!((done(&events, 1) - 0.001).abs() < 1e-6, "{events:?}");
    assert!((done(&events, 2) - 0.021).abs() < 1e-6, "{events:?}");
}
