//! How many requests are in service at once, and how far one client gets ahead of another.

use super::*;

const MIB: u64 = 1 << 20;

/// Sends what may be sent; how many requests that is.
fn send_all(queue: &mut Queue) -> usize {
    std::iter::from_fn(|| dispatched(queue, Nanos(0))).count()
}

#[test]
fn a_class_leaves_room_for_less_urgent_requests_in_service() {
    let overlapping = QueueConfig::default();
    let classes = overlapping.classes.map(|class| ClassConfig { merge_bytes: 0, ..class });
    let depths = classes.map(|class| class.depth as usize);
    assert!(depths.is_sorted_by(|more, less| more > less), "{depths:?}");
    let mut queue = Queue::new(QueueConfig { classes, fairness: None, ..overlapping });
    let (mut tag, mut in_service) = (0, 0);
    for class in Class::ALL.into_iter().rev() {
        for _ in 0..20 {
            tag += 1;
            queue.handle_request(Nanos(0), request(tag, class, tag * MIB, 4096));
        }
        in_service += send_all(&mut queue);
        assert_eq!(in_service, depths[class.index()], "{class:?} and what is less urgent");
    }
}

#[test]
fn what_a_client_asked_for_ahead_begins_behind_no_read_in_service_but_the_stream_does() {
    for (client, begins) in [(ClientKey(1), false), (ClientKey::NONE, true)] {
        let mut queue = Queue::new(serial());
        queue.handle_request(Nanos(0), request(1, Class::Demand, MIB, 4096));
        let read = dispatched(&mut queue, Nanos(0)).expect("the read begins");
        queue.handle_request(Nanos(0), Request { client, ..request(2, Class::Prefetch, 2 * MIB, 4096) });
        let held_off = queue.config().classes[Class::Prefetch.index()].hold_off;
        // A second one has room at the medium.
        let mut deep = queue;
        deep.lanes[Class::Demand.index()].config.depth = 2;
        assert_eq!(dispatched(&mut deep, held_off).is_some(), begins, "{client:?}");
        if !begins {
            let _ = deep.handle_done(held_off, read.id, 4096).count();
            assert_eq!(deep.poll(held_off), Poll::WaitUntil(held_off + held_off));
            assert!(dispatched(&mut deep, held_off + held_off).is_some());
        }
    }
}

#[test]
fn the_medium_does_not_wait_for_a_client_that_wants_nothing_more() {
    let overlapping = QueueConfig::default();
    let classes = overlapping.classes.map(|class| ClassConfig { merge_bytes: 0, ..class });
    let depth = classes[Class::Demand.index()].depth as usize;
    let fairness = Some(FairnessConfig { lead_bytes: MIB, together_bytes: MIB, request_cost_bytes: 0 });
    let mut queue = Queue::new(QueueConfig { classes, fairness, ..overlapping });
    let content = Request { client: ClientKey(2), ..request(0, Class::Demand, 0, MIB) };
    queue.handle_request(Nanos(0), content);
    assert_eq!(send_all(&mut queue), 1);
    for tag in 1..=20 {
        queue.handle_request(Nanos(0), request(tag, Class::Demand, tag * 2 * MIB, MIB));
    }
    assert_eq!(send_all(&mut queue), depth - 1, "although it is served ahead by more than its lead");
}

#[test]
fn where_something_moves_a_client_may_be_further_ahead_of_another() {
    let fairness = |rotational| {
        let traits = MediumTraits { rotational, overlaps: false, bytes_per_s: None };
        QueueConfig::for_medium(traits).fairness.expect("clients have shares")
    };
    let [still, moving] = [false, true].map(fairness);
    assert!(moving.lead_bytes > still.lead_bytes && moving.together_bytes > still.together_bytes);
    // And by more than a few requests cost, or each would be another client's.
    for fairness in [still, moving] {
        assert!(fairness.together_bytes >= fairness.lead_bytes);
        assert!(fairness.lead_bytes >= 16 * fairness.request_cost_bytes, "{fairness:?}");
    }
}

/// One client reads alone for a while; when the other comes back, it gets a lead and not all that it did not
/// ask for.
#[test]
fn a_client_that_comes_back_is_ahead_by_its_lead_at_most() {
    let serial = serial();
    let classes = serial.classes.map(|class| ClassConfig { merge_bytes: 0, ..class });
    let fairness = FairnessConfig { lead_bytes: 2 * MIB, together_bytes: 2 * MIB, request_cost_bytes: 0 };
    let elevator = ElevatorKind::Noop;
    let mut queue = Queue::new(QueueConfig { elevator, classes, fairness: Some(fairness), ..serial });
    let (mut now, mut tag) = (Nanos(0), 0);
    let mut ask = |queue: &mut Queue, now, client, count| {
        for _ in 0..count {
            tag += 1;
            let one = request(tag, Class::Demand, tag * 2 * MIB, MIB);
            queue.handle_request(now, Request { client: ClientKey(client), tag: RequestTag(client), ..one });
        }
    };
    let mut serve = |queue: &mut Queue| {
        now += Nanos::from_millis(1);
        let served = dispatched(queue, now).expect("a request is served");
        let client = queue.tags(served.id).next().expect("a request").0;
        let _ = queue.handle_done(now, served.id, MIB).count();
        client
    };
    let (away, busy) = (1, 2);
    ask(&mut queue, Nanos(0), away, 1);
    assert_eq!(serve(&mut queue), away);
    ask(&mut queue, Nanos(0), busy, 100);
    (0..100).for_each(|_| assert_eq!(serve(&mut queue), busy));
    ask(&mut queue, Nanos(0), away, 50);
    ask(&mut queue, Nanos(0), busy, 50);
    let served: Vec<u64> = (0..20).map(|_| serve(&mut queue)).collect();
    let of_busy = served.iter().filter(|client| **client == busy).count();
    assert!((6..=10).contains(&of_busy), "the lead and one request, and then in turn: {served:?}");
}
