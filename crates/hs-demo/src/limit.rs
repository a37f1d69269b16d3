//! What no start can be quicker than.

use std::path::Path;
use std::time::Duration;

use hs_device::Medium;
use hs_trace::Profile;
use serde::Serialize;

/// What no start can be quicker than.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Limit {
    /// The larger of the next two, in seconds.
    pub(super) limit_s: f64,
    /// The program itself, or the guest: its start with everything in memory.
    pub(super) program_s: f64,
    /// The medium's time for the hot region; `None` for a medium of unknown rate.
    pub(super) medium_s: Option<f64>,
    /// The limit that `lab predict --limit` finds: what comes late, and the computing behind it, add up.
    pub(super) critical_path_s: Option<f64>,
}

impl Limit {
    /// Of a program that takes `program_s`, and a medium that takes `medium_s` for the hot region.
    pub(super) fn new(program_s: f64, medium_s: Option<f64>) -> Self {
        let limit_s = medium_s.map_or(program_s, |medium| medium.max(program_s));
        Self { limit_s, program_s, medium_s, critical_path_s: None }
    }

    /// Whether the medium is what limits.
    pub(super) fn is_the_medium(&self) -> bool {
        self.medium_s.is_some_and(|medium| medium > self.program_s)
    }

    /// The same with the critical path of what `profile` recorded, from the image at `path` on `medium`.
    pub(super) fn with_critical_path(
        self,
        path: &Path,
        profile: &Profile,
        medium: Medium,
    ) -> anyhow::Result<Self> {
        let own_time = Duration::from_secs_f64(self.program_s);
        let limit = hs_lab_real::predict::limit(path, profile, medium, own_time)?;
        Ok(Self { critical_path_s: limit.map(|limit| limit.ready.as_secs_f64()), ..self })
    }

    /// Says it of a start that was ready after `ready_s`.
    pub(super) fn critical_path_sentence(&self, ready_s: f64) -> Option<String> {
        let critical_path_s = self.critical_path_s?;
        Some(format!(
            "Its critical path, computing and the waits for an undisturbed stream of what is read, takes \
             {critical_path_s:.2} s; optimized, it takes {:.3} × that.",
            ready_s / critical_path_s
        ))
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
        let (medium_s, critical_path_s) = (None, None);
        let limit = Limit::new(1.5, None);
        assert_eq!(limit, Limit { limit_s: 1.5, program_s: 1.5, medium_s, critical_path_s });
        assert_eq!(limit.critical_path_sentence(2.0), None);
        let limit = Limit { critical_path_s: Some(1.6), ..limit };
        let sentence = limit.critical_path_sentence(2.0).unwrap();
        assert!(sentence.contains("takes 1.60 s") && sentence.contains("1.250 × that"), "{sentence}");
    }
}
