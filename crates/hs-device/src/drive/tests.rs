//! What every drive promises, on both that there are.

use proptest::prelude::*;

use super::*;
use crate::Medium;

const FILE_BYTES: u64 = 700_000_000;

fn media() -> impl Strategy<Value = Medium> {
    prop_oneof![Just(Medium::Cd24xCav), Just(Medium::Hdd7200)]
}

fn device(medium: Medium) -> Box<dyn Device> {
    medium.device(FILE_BYTES).expect("fits").expect("modelled")
}

/// Seconds of a turn.
fn turn(medium: Medium) -> f64 {
    if medium == Medium::Hdd7200 { 60.0 / 7_200.0 } else { 0.012_706 }
}

/// A request, how long after the one before it is made, and how long after that it is abandoned.
type Step = (ByteRange, u64, Option<u64>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0..FILE_BYTES, 0..4_000_000_u64, any::<bool>()).prop_map(|(offset, len, near)| {
        let offset = if near { offset % 1_000_000 } else { offset };
        ByteRange::new(offset, len.min(FILE_BYTES - offset))
    });
    let wait = prop_oneof![Just(0), 0..200_000_000_u64, Just(300_000_000_000)];
    proptest::collection::vec((range, wait, proptest::option::of(0..300_000_000_u64)), 1..30)
}

/// Carries out `steps`, checks what must hold of each, and returns what was promised.
fn carry_out(device: &mut dyn Device, steps: &[Step]) -> Vec<Service> {
    let (mut now, mut free) = (Nanos::ZERO, Nanos::ZERO);
    let mut services = Vec::new();
    for (range, wait, abandoned) in steps {
        now += Nanos(*wait);
        let service = device.submit(now, *range);
        assert!(now <= service.starts, "served before it was submitted");
        assert!(service.starts < service.first_byte, "no command takes no time");
        assert!(service.first_byte <= service.done);
        assert_eq!(service.starts, now.max(free), "one at a time, and at once when the drive is free");
        free = service.done;
        if let Some(abandoned) = abandoned {
            now += Nanos(*abandoned);
            device.abandon(now, service);
            free = if now < service.starts {
                service.starts
            } else {
                now.clamp(service.first_byte, service.done)
            };
        }
        services.push(service);
    }
    services
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn requests_are_served_in_turn_and_the_same_again(medium in media(), steps in steps()) {
        let first = carry_out(&mut *device(medium), &steps);
        let again = carry_out(&mut *device(medium), &steps);
        prop_assert_eq!(first, again);
    }

    /// However it is cut into requests, a file is read at the rate of its place.
    #[test]
    fn sequential_reads_reach_the_rate(
        medium in media(),
        offset in 0..FILE_BYTES - 20_000_000,
        piece in prop_oneof![Just(64_u64 << 10), 64_u64 << 10..2_000_000],
    ) {
        let mut device = device(medium);
        let first = device.submit(Nanos::ZERO, ByteRange::new(offset, piece));
        let (mut place, mut done) = (offset + piece, first.done);
        while place < offset + 10_000_000 {
            done = device.submit(done, ByteRange::new(place, piece)).done;
            place += piece;
        }
        let measured = (place - offset - piece) as f64 / (done - first.done).as_secs_f64();
        let rate = |at| medium.rate_bytes_per_second(FILE_BYTES, at).expect("modelled") as f64;
        prop_assert!(measured >= 0.99 * rate(offset), "{measured} of {}", rate(offset));
        prop_assert!(measured <= 1.01 * rate(place).max(rate(offset)), "{measured} of {}", rate(place));
    }

    /// A request that is farther away takes as long or longer, but for the angle: less than a turn.
    #[test]
    fn farther_is_slower_but_for_the_angle(
        medium in media(),
        from in 0..FILE_BYTES - 100_000_000,
        near in 2_000_000..50_000_000_u64,
        more in 0..50_000_000_u64,
        now in 0..1_000_000_000_u64,
    ) {
        let takes = |distance| {
            let mut device = device(medium);
            let served = device.submit(Nanos(now), ByteRange::new(from, 4_096)).done;
            // Long enough for the buffer to be full and the head to wait.
            let now = served + Nanos::from_millis(1_000);
            (device.submit(now, ByteRange::new(from + distance, 4_096)).first_byte - now).as_secs_f64()
        };
        prop_assert!(takes(near) <= takes(near + more) + turn(medium));
    }

    /// Over all angles, the least time to a place is that of the seek, and it rises with distance.
    #[test]
    fn the_least_of_all_angles_rises_with_distance(medium in media(), near in 2_000_000..600_000_000_u64) {
        let least = |distance| {
            (0..64)
                .map(|phase| {
                    let mut device = device(medium);
                    device.submit(Nanos::ZERO, ByteRange::new(0, 4_096));
                    let now = Nanos::from_millis(1_000) + Nanos::from_secs_f64(turn(medium) / 64.0 * f64::from(phase));
                    (device.submit(now, ByteRange::new(distance, 4_096)).first_byte - now).as_secs_f64()
                })
                .fold(f64::INFINITY, f64::min)
        };
        let step = turn(medium) / 64.0;
        prop_assert!(least(near) <= least(near + 50_000_000) + step);
    }

    /// What was abandoned before it began has never been; the drive goes on reading ahead.
    #[test]
    fn abandoned_before_its_start_it_never_was(medium in media(), offset in 0..FILE_BYTES - 1_000_000) {
        let ahead = ByteRange::new(65_536, 65_536);
        let expected = {
            let mut device = device(medium);
            let first = device.submit(Nanos::ZERO, ByteRange::new(0, 65_536));
            device.submit(first.done, ahead)
        };
        let mut device = device(medium);
        let first = device.submit(Nanos::ZERO, ByteRange::new(0, 65_536));
        let second = device.submit(Nanos(1), ByteRange::new(offset, 65_536));
        device.abandon(Nanos(2), second);
        prop_assert_eq!(device.submit(first.done, ahead), expected);
    }
}

#[test]
fn the_buffer_answers_without_the_head() {
    for medium in [Medium::Cd24xCav, Medium::Hdd7200] {
        let mut device = device(medium);
        let first = device.submit(Nanos::ZERO, ByteRange::new(10_000_000, 4_096));
        let later = first.done + Nanos::from_millis(500);
        let hit = device.submit(later, ByteRange::new(10_004_096, 65_536));
        assert!(hit.done - later < Nanos::from_millis(5), "{medium}: {hit:?}");
        // What was read is still there, and what lies far behind is not.
        let again = device.submit(hit.done, ByteRange::new(10_020_000, 4_096));
        assert!(again.done - hit.done < Nanos::from_millis(1), "{medium}: {again:?}");
        let miss = device.submit(again.done, ByteRange::new(50_000_000, 4_096));
        assert!(miss.done - again.done > Nanos::from_millis(2), "{medium}: {miss:?}");
        let gone = device.submit(miss.done, ByteRange::new(10_000_000, 4_096));
        assert!(gone.done - miss.done > Nanos::from_millis(2), "{medium}: {gone:?}");
    }
}

#[test]
fn what_the_head_is_about_to_reach_is_waited_for() {
    // 40 kB ahead on the outer tracks of the disc, where a turn holds 46 kB: no seek of 5 ms.
    let mut device = device(Medium::Cd24xCav);
    let first = device.submit(Nanos::ZERO, ByteRange::new(690_000_000, 4_096));
    let next = device.submit(first.done, ByteRange::new(690_040_000, 4_096));
    let reading_on = 44_096.0 / 3_650_000.0;
    assert!((next.done - first.done).as_secs_f64() < reading_on * 1.1, "{next:?} after {first:?}");
}

#[test]
fn a_drive_that_stood_still_spins_up() {
    let mut cd = device(Medium::Cd24xCav);
    let first = cd.submit(Nanos::ZERO, ByteRange::new(0, 4_096));
    let soon = first.done + Nanos::from_millis(200_000);
    let second = cd.submit(soon, ByteRange::new(100_000_000, 4_096));
    assert!(second.done - soon < Nanos::from_millis(1_000));
    let late = second.done + Nanos::from_millis(240_000);
    let third = cd.submit(late, ByteRange::new(0, 4_096));
    assert!(third.first_byte - late >= Nanos::from_millis(3_000));
}

#[test]
fn an_abandoned_stream_frees_the_drive() {
    let mut cd = device(Medium::Cd24xCav);
    let stream = cd.submit(Nanos::ZERO, ByteRange::new(0, 100_000_000));
    let middle = Nanos::from_millis(2_000);
    cd.abandon(middle, stream);
    let next = cd.submit(middle, ByteRange::new(300_000_000, 4_096));
    assert_eq!(next.starts, middle);
    assert!(next.done - middle < Nanos::from_millis(200));
}

#[test]
fn requests_that_cannot_be_do_no_harm() {
    for medium in [Medium::Cd24xCav, Medium::Hdd7200] {
        let mut device = device(medium);
        let mut now = Nanos::ZERO;
        for range in [ByteRange::new(FILE_BYTES, 0), ByteRange::new(u64::MAX, u64::MAX), ByteRange::new(0, 0)]
        {
            let service = device.submit(now, range);
            assert!(service.starts <= service.first_byte && service.first_byte <= service.done);
            now = now.max(Nanos(service.done.0.min(1 << 50)));
        }
    }
}

/// What [`Service`] says of bytes within a request of the disc.
#[test]
fn bytes_come_nearly_evenly() {
    for (len, bound) in [(900_000, 0.000_2), (40_000_000, 0.02), (FILE_BYTES, 0.10)] {
        let whole = device(Medium::Cd24xCav).submit(Nanos::ZERO, ByteRange::new(0, len));
        let half = device(Medium::Cd24xCav).submit(Nanos::ZERO, ByteRange::new(0, len / 2));
        let early = half.done.as_secs_f64() - whole.arrival(len / 2, len).as_secs_f64();
        let share = early / (whole.done - whole.first_byte).as_secs_f64();
        // A sector's worth, which is read whole, and no more than said.
        assert!((-0.000_1..bound + 0.002_1 * 900_000.0 / len as f64).contains(&share), "{len}: {share}");
    }
}
