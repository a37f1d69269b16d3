//! What the queue promises, whatever the elevator.

use hs_units::{ByteRange, Nanos};

use super::*;

mod elevators;
mod limits;
mod simulation;

fn request(tag: u64, class: Class, offset: u64, len: u64) -> Request {
    Request {
        tag: RequestTag(tag),
        class,
        client: ClientKey(1),
        direction: Direction::Read,
        range: ByteRange::new(offset, len),
    }
}

fn serial() -> QueueConfig {
    QueueConfig::for_medium(MediumTraits { rotational: true, overlaps: false, bytes_per_s: None })
}

fn dispatched(queue: &mut Queue, now: Nanos) -> Option<Dispatch> {
    match queue.poll(now) {
        Poll::Dispatch(dispatch) => Some(dispatch),
        Poll::WaitUntil(_) | Poll::Idle => None,
    }
}

#[test]
fn the_urgent_class_overtakes() {
    let mut queue = Queue::new(serial());
    queue.handle_request(Nanos(0), request(1, Class::Prefetch, 0, 4096));
    let first = dispatched(&mut queue, Nanos(0)).unwrap();
    queue.handle_request(Nanos(1), request(2, Class::Prefetch, 1 << 20, 4096));
    queue.handle_request(Nanos(2), request(3, Class::Demand, 2 << 20, 4096));
    assert_eq!(dispatched(&mut queue, Nanos(3)), None, "one request is in service");
    let ended: Vec<_> = queue.handle_done(Nanos(4), first.id, 4096).collect();
    assert_eq!(ended, [Finished { tag: RequestTag(1), complete: true }]);
    let next = dispatched(&mut queue, Nanos(4)).unwrap();
    assert_eq!(queue.tags(next.id).collect::<Vec<_>>(), [RequestTag(3)]);
}

#[test]
fn neighbours_go_together_up_to_the_limit() {
    let mut queue = Queue::new(serial());
    for tag in 0..40 {
        queue.handle_request(Nanos(tag), request(tag, Class::Demand, tag * 4096, 4096));
    }
    let first = dispatched(&mut queue, Nanos(40)).unwrap();
    assert_eq!((first.range, first.requests), (ByteRange::new(0, DEMAND_MERGE_BYTES), 32));
    let short = queue.handle_done(Nanos(41), first.id, 10 * 4096).filter(|ended| ended.complete).count();
    assert_eq!(short, 10);
    let rest = dispatched(&mut queue, Nanos(41)).unwrap();
    assert_eq!(rest.requests, 8);
    let metrics = queue.metrics(Nanos(41)).classes[Class::Demand.index()];
    assert_eq!((metrics.requests, metrics.dispatches, metrics.merged()), (40, 2, 38));
}

#[test]
fn what_happens_to_a_request_is_recorded_in_order() {
    let mut queue = Queue::new(serial());
    assert!(queue.recorder().is_none(), "nothing is kept before it is asked for");
    queue.start_recording(16);
    let withdrawn = queue.handle_request(Nanos(0), request(1, Class::Fill, 0, 4096));
    let promoted = queue.handle_request(Nanos(1), request(2, Class::Fill, 1 << 20, 4096));
    assert!(queue.handle_cancel(Nanos(2), withdrawn));
    assert!(queue.handle_promote(Nanos(3), promoted, Class::Demand));
    let served = dispatched(&mut queue, Nanos(4)).expect("it is served");
    let _ = queue.handle_done(Nanos(5), served.id, 4096).count();
    let range = ByteRange::new(1 << 20, 4096);
    let (direction, client, class) = (Direction::Read, ClientKey(1), Class::Demand);
    let requested = |tag, range| Event::Requested { tag, class: Class::Fill, direction, client, range };
    let [first, second] = [RequestTag(1), RequestTag(2)];
    let expected = [
        requested(first, ByteRange::new(0, 4096)),
        requested(second, range),
        Event::Withdrawn { tag: first },
        Event::Promoted { tag: second, class },
        Event::Dispatched { class, direction, aged: false, requests: 1, range },
        Event::Ended { class, bytes: 4096, range },
    ];
    let recorded: Vec<_> = queue.recorder().expect("it records").last(16).collect();
    let numbered = (0..).map(Nanos).zip(expected).map(|(at, event)| Recorded { at, event });
    assert_eq!(recorded, numbered.collect::<Vec<_>>());
}

#[test]
fn what_is_withdrawn_is_not_served_and_its_ticket_is_void() {
    let mut queue = Queue::new(serial());
    let ticket = queue.handle_request(Nanos(0), request(1, Class::Demand, 0, 4096));
    assert!(queue.handle_cancel(Nanos(1), ticket));
    assert!(!queue.handle_cancel(Nanos(1), ticket));
    assert_eq!(queue.poll(Nanos(0)), Poll::Idle);
    let other = queue.handle_request(Nanos(1), request(2, Class::Fill, 0, 4096));
    assert!(!queue.handle_promote(Nanos(1), ticket, Class::Demand));
    assert!(queue.handle_promote(Nanos(1), other, Class::Demand));
    assert_eq!(dispatched(&mut queue, Nanos(1)).unwrap().class, Class::Demand);
}

#[test]
fn at_the_end_of_time_no_class_is_overdue_that_does_not_wait() {
    let mut queue = Queue::new(serial());
    assert_eq!(queue.poll(Nanos(u64::MAX)), Poll::Idle);
}

#[test]
fn fairness_is_told_by_the_rates_of_clients_while_they_want_something() {
    let mut queue = Queue::new(serial());
    let millis = Nanos::from_millis;
    let no_client = (ClientKey::NONE, Class::Fill);
    for (tag, (client, class)) in
        (1..).zip([(ClientKey(1), Class::Demand), (ClientKey(2), Class::Demand), no_client])
    {
        queue.handle_request(Nanos(0), Request { client, ..request(tag, class, tag << 30, 4096) });
    }
    // The second gets as much as the first in twice the time: rates of 2 and 1.
    for (now, index) in [(millis(0), 0.5), (millis(1), 9.0 / 10.0)] {
        let served = dispatched(&mut queue, now).expect("a request is served");
        let now = now + millis(1);
        assert_eq!(queue.handle_done(now, served.id, 4096).count(), 1);
        let jain = queue.metrics(now).jain_index;
        assert!((jain - index).abs() < 1e-9, "{jain} at {now}");
    }
}

/// A reader of one block after another thinks for a millisecond between two, while another client waits far
/// away.
#[test]
fn a_proven_stream_is_waited_for_and_left_after_its_slice() {
    let mut queue = Queue::new(serial());
    let millis = Nanos::from_millis;
    let (mut now, mut tag) = (Nanos(0), 0);
    let mut ask = |queue: &mut Queue, now, offset| {
        tag += 1;
        queue.handle_request(now, request(tag, Class::Demand, offset, 4096));
    };
    let serve = |queue: &mut Queue, now: Nanos| {
        let served = dispatched(queue, now).expect("a request is served");
        let _ = queue.handle_done(now + millis(1), served.id, 4096).count();
        served.range.offset
    };
    for block in 0..3 {
        ask(&mut queue, now, block * 4096);
        assert_eq!(serve(&mut queue, now), block * 4096);
        now += millis(2);
    }
    let far = 1 << 30;
    ask(&mut queue, now, far);
    let mut blocks = 3;
    let left = loop {
        assert!(matches!(queue.poll(now), Poll::WaitUntil(then) if then <= now + millis(8)), "at {now}");
        ask(&mut queue, now + millis(1), blocks * 4096);
        let served = serve(&mut queue, now + millis(1));
        now += millis(3);
        if served == far {
            break now;
        }
        assert_eq!(served, blocks * 4096);
        blocks += 1;
        if now >= millis(150) {
            // The slice is over: the queue waits for no client.
            assert_eq!(serve(&mut queue, now), far);
            break now;
        }
    };
    assert!(left >= millis(140), "left at {left}");
    // A client that does not come back is not waited for twice.
    ask(&mut queue, now, far + (1 << 20));
    assert_eq!(serve(&mut queue, now), far + (1 << 20));
}

/// Asks for a block and serves what is chosen, which takes a millisecond.
fn serve_block(queue: &mut Queue, now: Nanos, offset: u64) -> u64 {
    queue.handle_request(now, request(offset, Class::Demand, offset, 4096));
    let served = dispatched(queue, now).expect("a request is served");
    let _ = queue.handle_done(now + Nanos::from_millis(1), served.id, 4096).count();
    served.range.offset
}

#[test]
fn a_stream_between_whose_blocks_others_were_served_is_known_by_its_position_and_waited_for_once() {
    let mut queue = Queue::new(serial());
    let millis = Nanos::from_millis;
    let far = 1 << 30;
    for block in 0..2 {
        let offset = block * 4096;
        assert_eq!(serve_block(&mut queue, millis(4 * block), offset), offset);
        // Others are read here and there.
        let other = far + (block << 20);
        assert_eq!(serve_block(&mut queue, millis(4 * block + 2), other), other);
    }
    assert_eq!(serve_block(&mut queue, millis(8), 2 * 4096), 2 * 4096);
    queue.handle_request(millis(10), request(9, Class::Demand, far, 4096));
    let Poll::WaitUntil(then) = queue.poll(millis(10)) else { panic!("the stream may go on") };
    assert_eq!(then, millis(10) + queue.config().slice_idle);
    let served = dispatched(&mut queue, then).expect("it has not come");
    assert_eq!(served.range.offset, far);
}

#[test]
fn a_stream_whose_next_block_always_waits_is_left_after_its_slice_as_well() {
    let mut queue = Queue::new(serial());
    let far = 1 << 30;
    let (mut now, mut block) = (Nanos(0), 0);
    assert_eq!(serve_block(&mut queue, now, 0), 0);
    queue.handle_request(now, request(1, Class::Demand, far, 4096));
    loop {
        (now, block) = (now + Nanos::from_millis(1), block + 1);
        let served = serve_block(&mut queue, now, block * 4096);
        if served == far {
            break;
        }
        assert!(served == block * 4096 && now < Nanos::from_millis(160), "block {block} at {now}");
    }
    assert!(now >= Nanos::from_millis(150), "left at {now}");
}
