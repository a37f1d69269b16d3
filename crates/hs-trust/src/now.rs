//! What time it is, as far as this machine can know.

use std::time::{Duration, SystemTime};

use crate::date::Date;

/// When this version of the program was made: it is never earlier.
const PROGRAM_MADE: &str = "2026-11-01T00:00:00Z";
/// How much a right clock may differ from a publisher's.
const TOLERANCE: Duration = Duration::from_secs(86_400);

/// Now.
#[derive(Clone, Debug)]
pub struct Now {
    /// The date by this machine's clock, or a later one that it is at least.
    pub date: Date,
    /// The last date that is not of the future; none where the clock is known to be wrong.
    latest: Option<Date>,
}

impl Now {
    /// By this machine's clock, unless it is before a date that was seen, or before this program was made.
    pub fn of_this_machine(newest_seen: Option<Date>) -> Self {
        let made: Date = PROGRAM_MADE.parse().expect("a date of the form");
        let now = Self::with_floor(SystemTime::now(), newest_seen.into_iter().fold(made, Date::max));
        if now.latest.is_none() {
            log::warn!("this machine's clock is wrong: it is {} at least", now.date);
        }
        now
    }

    fn with_floor(clock: SystemTime, floor: Date) -> Self {
        let date = Date::at(clock);
        // What was seen may have been a day ahead by then.
        if Date::at(clock + TOLERANCE) < floor {
            return Self { date: floor, latest: None };
        }
        Self { latest: Some(Date::at(clock + TOLERANCE)), date: date.max(floor) }
    }

    /// Whether no right clock says so late a date.
    pub fn is_future(&self, date: &Date) -> bool {
        self.latest.as_ref().is_some_and(|latest| date > latest)
    }

    #[cfg(test)]
    pub(super) fn by_a_right_clock(date: Date) -> Self {
        let days = (0..40_000_u64).map(|day| SystemTime::UNIX_EPOCH + Duration::from_secs(86_400 * day));
        let clock = days.take_while(|day| Date::at(*day) <= date).last().expect("after 1970");
        let seconds = (0..86_400).map(|second| clock + Duration::from_secs(second));
        let clock = seconds.take_while(|second| Date::at(*second) <= date).last().expect("of that day");
        Self::with_floor(clock, date)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_does_not_count() {
        let date = |text: &str| text.parse::<Date>().expect("a date");
        let day = |number: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(86_400 * number);
        let wrong = Now::with_floor(day(0), date("2026-11-23"));
        assert_eq!(wrong.date, date("2026-11-23"));
        assert!(!wrong.is_future(&date("2027-01-01")), "such a clock does not know");
        // 2026-11-23 is day 20,780.
        let right = Now::with_floor(day(20_780), date("2026-11-01"));
        assert_eq!(right.date, date("2026-11-23"));
        assert!(!right.is_future(&date("2026-11-24")) && right.is_future(&date("2026-11-24T00:00:01Z")));
        let a_little_late = Now::with_floor(day(20_779), date("2026-11-23"));
        assert_eq!(a_little_late.date, date("2026-11-23"));
        assert!(a_little_late.is_future(&date("2026-11-23T00:00:01Z")));
    }
}
