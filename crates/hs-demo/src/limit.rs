//! What no start can be quicker than.

use serde::Serialize;

/// What no start can be quicker than.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Limit {
    /// The larger of the two, in seconds.
    pub(super) limit_s: f64,
    /// The program itself, or the guest: its start with everything in memory.
    pub(super) program_s: f64,
    /// The medium's time for the hot region; `None` for a medium of unknown rate.
    pub(super) medium_s: Option<f64>,
}

impl Limit {
    /// Of a program that takes `program_s`, and a medium that takes `medium_s` for the hot region.
    pub(super) fn new(program_s: f64, medium_s: Option<f64>) -> Self {
        Self { limit_s: medium_s.map_or(program_s, |medium| medium.max(program_s)), program_s, medium_s }
    }

    /// Whether the medium is what limits.
    pub(super) fn is_the_medium(&self) -> bool {
        self.medium_s.is_some_and(|medium| medium > self.program_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_slower_of_program_and_medium() {
        let limit = Limit::new(0.5, Some(1.0));
        assert!(limit.is_the_medium());
        assert_eq!((limit.limit_s, limit.medium_s), (1.0, Some(1.0)));
        let limit = Limit::new(1.5, Some(1.0));
        assert!(!limit.is_the_medium());
        assert_eq!(limit.limit_s, 1.5);
        assert_eq!(Limit::new(1.5, None), Limit { limit_s: 1.5, program_s: 1.5, medium_s: None });
    }
}
