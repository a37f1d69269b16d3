//! Windows that could not be read, and when to ask the medium for them again.
//!
//! A drive tries for seconds before it says that a sector is unreadable, and the reader of such a window asks
//! for each of its blocks: after a failed read of many pages the kernel asks page by page. So a window that
//! failed slowly is not asked for again for some time, and the error is given at once. How long follows from
//! how long the failure took.

use std::collections::HashMap;

use hs_units::Nanos;

use crate::ImageError;

/// A medium that gives up sooner may be asked again at once: it is no drive that tries hard, or it knows the
/// place.
const QUICK: Nanos = Nanos::from_millis(250);
/// A failure counts for so many times as long as it took: the medium is held up by a bad window for a ninth
/// of the time at most.
const REST: u64 = 8;
/// But not for longer: a disc may have been cleaned.
const LONGEST_REST: Nanos = Nanos::from_millis(60_000);
/// Windows that are remembered; a disc with more of them is beyond help.
const MAX_WINDOWS: usize = 4096;

/// What is known of windows that failed.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    windows: HashMap<u64, (Nanos, ImageError)>,
}

impl Unreadable {
    /// A window could not be had, which took so long to find out.
    pub(super) fn failed(&mut self, window: u64, took: Nanos, now: Nanos, error: &ImageError) {
        self.windows.retain(|_, (until, _)| *until > now);
        if took >= QUICK && self.windows.len() < MAX_WINDOWS {
            let rest = Nanos(took.0.saturating_mul(REST)).min(LONGEST_REST);
            self.windows.insert(window, (now + rest, error.clone()));
        }
    }

    /// Why the window need not be asked for now, if it need not.
    pub(super) fn still(&self, window: u64, now: Nanos) -> Option<&ImageError> {
        let (until, error) = self.windows.get(&window)?;
        (now < *until).then_some(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_slowly_is_not_asked_for_again_for_a_while() {
        let second = Nanos::from_millis(1_000);
        let mut unreadable = Unreadable::default();
        unreadable.failed(7, second, second + second, &ImageError::Closed);
        let end = Nanos(second.0 * (2 + REST));
        assert!(unreadable.still(7, second + second).is_some());
        assert!(unreadable.still(7, end.saturating_sub(Nanos(1))).is_some());
        assert!(unreadable.still(7, end).is_none() && unreadable.still(8, second).is_none());

        // Hours of waiting are no reason to wait for days.
        let hours = Nanos(second.0 * 10_000);
        unreadable.failed(9, hours, hours, &ImageError::Closed);
        assert!(unreadable.still(9, hours + LONGEST_REST).is_none());
        assert_eq!(unreadable.windows.len(), 1, "what is over is forgotten");
    }

    #[test]
    fn what_fails_at_once_may_be_asked_for_at_once() {
        let mut unreadable = Unreadable::default();
        unreadable.failed(7, QUICK.saturating_sub(Nanos(1)), Nanos(5), &ImageError::Closed);
        assert!(unreadable.still(7, Nanos(5)).is_none());
    }
}
