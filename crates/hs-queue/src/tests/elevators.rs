//! The order that each elevator has its name for.

use super::*;

const MIB: u64 = 1 << 20;

/// One client, no merging, and no waiting for a stream.
fn config(elevator: ElevatorKind) -> QueueConfig {
    let serial = serial();
    let classes = serial.classes.map(|class| ClassConfig { merge_bytes: 0, ..class });
    QueueConfig { elevator, classes, fairness: None, slice_idle: Nanos::ZERO, ..serial }
}

fn ask(queue: &mut Queue, now: Nanos, mib: u64) {
    queue.handle_request(now, request(mib, Class::Demand, mib * MIB, 4096));
}

/// Serves one request, which takes a millisecond.
fn serve(queue: &mut Queue, now: Nanos) -> u64 {
    let served = dispatched(queue, now).expect("a request is served");
    let _ = queue.handle_done(now + Nanos::from_millis(1), served.id, 4096).count();
    served.range.offset / MIB
}

#[test]
fn each_elevator_has_its_published_name() {
    let names = ElevatorKind::ALL.map(ElevatorKind::name);
    assert_eq!(names, ["noop", "deadline", "cfq", "c-look", "headstart"]);
}

#[test]
fn each_elevator_has_an_order_of_its_own() {
    has_its_order([5, 1, 9, 3], [5, 9, 1, 3]);
    // The lowest that is left at the end of a sweep is not the oldest, where the deadline elevator goes on.
    has_its_order([5, 3, 9, 1], [5, 9, 3, 1]);
}

fn has_its_order(asked: [u64; 4], of_deadline: [u64; 4]) {
    for (elevator, order) in [
        (ElevatorKind::Noop, asked),
        // Up from where the head is, and then from the lowest again.
        (ElevatorKind::CLook, [5, 9, 1, 3]),
        (ElevatorKind::Deadline, of_deadline),
        (ElevatorKind::Cfq, [5, 9, 1, 3]),
        (ElevatorKind::Headstart, [5, 9, 1, 3]),
    ] {
        let mut queue = Queue::new(config(elevator));
        ask(&mut queue, Nanos(0), 4);
        assert_eq!(serve(&mut queue, Nanos(0)), 4);
        let now = Nanos::from_millis(2);
        asked.into_iter().for_each(|mib| ask(&mut queue, now, mib));
        let mut step = 0;
        let served = [(); 4].map(|()| {
            step += 2;
            serve(&mut queue, now + Nanos::from_millis(step))
        });
        assert_eq!(served, order, "{elevator:?}");
    }
}

/// There is always a request above the head, so that requests below it would never be served in order of
/// position.
#[test]
fn who_waits_too_long_below_the_head_is_served_by_those_who_have_deadlines() {
    for (elevator, has_deadlines) in
        [(ElevatorKind::Deadline, true), (ElevatorKind::Headstart, true), (ElevatorKind::CLook, false)]
    {
        let config = config(elevator);
        let mut queue = Queue::new(config);
        for mib in [100, 101] {
            ask(&mut queue, Nanos(0), mib);
        }
        assert_eq!(serve(&mut queue, Nanos(0)), 100);
        ask(&mut queue, Nanos::from_millis(1), 0);
        let step = Nanos::from_millis(2);
        let (mut now, mut above) = (step, 101);
        // What is checked only once in a batch can take one batch more.
        let bound = config.read_deadline + Nanos(step.0 * (u64::from(config.batch) + 2));
        let served = loop {
            let served = serve(&mut queue, now);
            if served == 0 || now > bound {
                break served;
            }
            above += 1;
            ask(&mut queue, now, above);
            now += step;
        };
        assert_eq!(served == 0, has_deadlines, "{elevator:?} at {now}");
        assert!(now >= config.read_deadline, "{elevator:?}: out of order at {now}");
    }
}
