use hs_units::{ByteRange, Nanos};

use super::*;

const BLOCK: u64 = 8 << 10;

/// Seconds for `count` blocks of `bytes` one behind the other, each asked for when the one before is done.
fn one_by_one(disk: NewsDisk, bytes: u64, count: u64, write: bool) -> f64 {
    let mut device = disk.device();
    let mut now = Nanos::ZERO;
    for number in 0..count {
        let range = ByteRange::new(number * bytes, bytes);
        now = if write { device.write(now, range) } else { device.submit(now, range) }.done;
    }
    now.as_secs_f64()
}

#[test]
fn capacities_are_those_of_the_nicknames() {
    // The first nickname counts unformatted millions.
    assert_eq!(NewsDisk::Wren3.capacity_bytes() / 1_000_000, 155);
    for (disk, megabytes) in [(NewsDisk::Dk515c, 639), (NewsDisk::Dk516c, 1280), (NewsDisk::SmoS501, 282)] {
        assert!((disk.capacity_bytes() >> 20).abs_diff(megabytes) < megabytes / 80, "{disk}");
    }
}

#[test]
fn a_block_behind_the_last_waits_for_a_turn() {
    for disk in NewsDisk::MAGNETIC {
        let each = one_by_one(disk, BLOCK, 200, true) / 200.0;
        let block = BLOCK as f64 / disk.tracks().bytes_per_turn(0);
        assert!((each * 60.0 / (1.0 + block) - 1.0).abs() < 0.05, "{disk}: {} turns", each * 60.0);
    }
}

#[test]
fn look_ahead_saves_the_turn_of_a_read() {
    for (disk, slowest) in [(NewsDisk::Wren4, 0.009), (NewsDisk::Dk516c, 0.006)] {
        assert!(one_by_one(disk, BLOCK, 200, false) / 200.0 < slowest, "{disk}");
    }
    assert!(one_by_one(NewsDisk::Wren4WithoutCache, BLOCK, 200, false) / 200.0 > 0.0167);
}

#[test]
fn magneto_optical_writes_take_three_turns() {
    let short = one_by_one(NewsDisk::SmoS501, BLOCK, 1, true);
    // A command, some waiting, then three times the same place.
    assert!((0.05 + 0.012..0.11).contains(&short), "{short}");
    let megabyte = one_by_one(NewsDisk::SmoS501, 128 << 10, 8, true);
    let once = (1 << 20) as f64 / (31.0 * 512.0 * 40.0);
    assert!((3.0 * once..4.0 * once).contains(&megabyte), "{megabyte} {once}");
}

#[test]
fn a_write_can_be_followed_by_anything() {
    let mut device = NewsDisk::Wren4.device();
    let mut now = Nanos::ZERO;
    for number in 0..1_000_u64 {
        let range = ByteRange::new(number.wrapping_mul(2_654_435_761) % (200 << 20), 4096);
        let service = if number % 3 == 0 { device.write(now, range) } else { device.submit(now, range) };
        assert!(
            service.starts >= now
                && service.first_byte >= service.starts
                && service.done > service.first_byte
        );
        assert!(service.done.saturating_sub(now) < Nanos::from_millis(80), "{number}");
        now = service.done;
    }
}
