//! How long a head takes from one track to another.

/// The three-point seek curve of Lee and Katz, "An analytic performance model of disk arrays"
/// (SIGMETRICS 1993, section 3): a square root while the head accelerates, a line while it coasts,
/// through the three figures that data sheets give.
///
/// For a distance of `x` tracks, `0` for none, else `a·√(x−1) + b·(x−1) + c` with
/// `a = (−10·min + 15·avg − 5·max) / (3·√tracks)`, `b = (7·min − 15·avg + 8·max) / (3·tracks)` and
/// `c = min`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SeekCurve {
    root: f64,
    linear: f64,
    settle: f64,
}

/// What a data sheet says of a drive's seeks, in seconds, settling included.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SeekTimes {
    /// To a neighbouring track.
    pub(crate) shortest: f64,
    /// Over a third of all tracks, which is the mean distance of two random places.
    pub(crate) third_stroke: f64,
    /// Over all tracks.
    pub(crate) full_stroke: f64,
}

impl SeekTimes {
    /// What the curve's root and line are multiples of.
    fn coefficients(&self) -> (f64, f64) {
        let Self { shortest, third_stroke, full_stroke } = self;
        let root = -10.0 * shortest + 15.0 * third_stroke - 5.0 * full_stroke;
        let linear = 7.0 * shortest - 15.0 * third_stroke + 8.0 * full_stroke;
        (root, linear)
    }

    /// Whether they make a curve that rises.
    pub(crate) fn rise(&self) -> bool {
        let (root, linear) = self.coefficients();
        self.shortest >= 0.0 && root >= 0.0 && linear >= 0.0
    }
}

impl SeekCurve {
    /// The curve through `times` for a surface of `tracks`.
    ///
    /// # Panics
    /// When the three do not make a curve that rises: a mistake in a table of this crate.
    pub(crate) fn new(times: SeekTimes, tracks: f64) -> Self {
        assert!(times.rise(), "{times:?} is no seek curve");
        let (root, linear) = times.coefficients();
        Self { root: root / (3.0 * tracks.sqrt()), linear: linear / (3.0 * tracks), settle: times.shortest }
    }

    /// Seconds over a distance of `tracks`.
    pub(crate) fn seconds(&self, tracks: f64) -> f64 {
        if tracks < 1.0 {
            return 0.0;
        }
        let beyond = tracks - 1.0;
        self.settle + self.root * beyond.sqrt() + self.linear * beyond
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMES: SeekTimes = SeekTimes { shortest: 0.0018, third_stroke: 0.0085, full_stroke: 0.0147 };

    #[test]
    fn the_curve_goes_through_its_data_sheet() {
        let curve = SeekCurve::new(TIMES, 100_000.0);
        assert_eq!(curve.seconds(0.0), 0.0);
        assert_eq!(curve.seconds(1.0), TIMES.shortest);
        assert!((curve.seconds(100_001.0) - TIMES.full_stroke).abs() < 1e-12);
        // The paper's coefficients make the *mean over random pairs* the average seek: the density
        // of distance is 2(1 − x).
        let steps = 10_000;
        let mean: f64 = (0..steps)
            .map(|step| {
                let share = (f64::from(step) + 0.5) / f64::from(steps);
                2.0 * (1.0 - share) * curve.seconds(share * 100_000.0) / f64::from(steps)
            })
            .sum();
        assert!((mean / TIMES.third_stroke - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    #[should_panic(expected = "is no seek curve")]
    fn times_that_do_not_rise_are_a_mistake() {
        SeekCurve::new(SeekTimes { full_stroke: 0.1, ..TIMES }, 1_000.0);
    }

    proptest! {
        #[test]
        fn farther_takes_longer(near in 0.0..100_000.0_f64, more in 0.0..100_000.0_f64) {
            let curve = SeekCurve::new(TIMES, 100_000.0);
            prop_assert!(curve.seconds(near) <= curve.seconds(near + more));
        }
    }
}
