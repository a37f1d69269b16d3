use super::*;

#[test]
fn the_disc_is_one_of_the_standard() {
    // 1.2 m/s at 1×, with the tolerance of 0.01 m/s.
    let metres = core::f64::consts::PI * (DISC.outer * DISC.outer - DISC.inner * DISC.inner) / DISC.pitch;
    let velocity = metres / (80.0 * 60.0);
    assert!((1.19..=1.21).contains(&velocity), "{velocity}");
    // As many turns a minute as 24× needs: drives of this speed are sold with 4,700 to 5,100.
    let turns_a_minute = 60.0 / turn();
    assert!((4_700.0..4_750.0).contains(&turns_a_minute), "{turns_a_minute}");
}

#[test]
fn turns_and_places_are_inverse() {
    for place in (0..CAPACITY).step_by(7_654_321) {
        assert!(DISC.place(DISC.turns(place)).abs_diff(place) <= 1, "{place}");
    }
}
