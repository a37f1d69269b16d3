use super::*;

#[test]
fn zones_join() {
    let disk = Zones::new(TABLE);
    let mut before = -1.0;
    for place in (0..DISK_BYTES).step_by(98_765_432) {
        let turns = disk.turns(place);
        assert!(turns > before, "{place}");
        before = turns;
        assert!(disk.place(turns).abs_diff(place) <= 1, "{place}");
    }
    assert!((100_000.0..130_000.0).contains(&disk.cylinders()), "{}", disk.cylinders());
}

#[test]
fn inner_tracks_are_half_as_fast() {
    let disk = Zones::new(TABLE);
    let ratio = disk.bytes_per_turn(0) / disk.bytes_per_turn(DISK_BYTES - 1);
    assert!((2.0..2.2).contains(&ratio), "{ratio}");
}
