//! Dates as pointers have them: `2026-11-22T14:30:00Z`, to the second, in UTC.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// A date. Its text is 20 characters of fixed form, whose order is that of time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Date(String);

/// Why a text is no date.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a date is 2026-11-22T14:30:00Z, or 2026-11-22")]
pub struct ParseDateError;

impl Date {
    /// A point in time, without its fraction of a second.
    pub fn at(time: SystemTime) -> Self {
        let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (days, of_day) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        Self(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"))
    }

    /// Now, and so much later.
    pub fn in_days(days: u32) -> Self {
        Self::at(SystemTime::now() + Duration::from_secs(86_400 * u64::from(days)))
    }
}

/// Year, month and day of a number of days since 1970: `civil_from_days` of Howard Hinnant's
/// "chrono-Compatible Low-Level Date Algorithms", for days that are not negative.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

impl FromStr for Date {
    type Err = ParseDateError;

    fn from_str(text: &str) -> Result<Self, ParseDateError> {
        let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
        let fits = |(byte, form): (u8, u8)| if form == b'0' { byte.is_ascii_digit() } else { byte == form };
        let form = b"0000-00-00T00:00:00Z";
        let is_date = whole.len() == form.len() && whole.bytes().zip(form.iter().copied()).all(fits);
        if is_date { Ok(Self(whole)) } else { Err(ParseDateError) }
    }
}

impl TryFrom<String> for Date {
    type Error = ParseDateError;

    fn try_from(text: String) -> Result<Self, ParseDateError> {
        text.parse()
    }
}

impl From<Date> for String {
    fn from(date: Date) -> Self {
        date.0
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (784_111_777, "1994-11-06T08:49:37Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
        ] {
            assert_eq!(Date::at(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).to_string(), text);
        }
    }

    #[test]
    fn their_texts_are_in_order_and_of_one_form() {
        let date = |text: &str| text.parse::<Date>();
        let good = |text: &str| date(text).expect("a date");
        assert!(good("2026-11-22") < good("2026-11-22T00:00:01Z"));
        assert!(good("2026-09-30T23:59:59Z") < good("2026-10-01"));
        for wrong in
            ["", "2026", "2026-11-22 14:30:00Z", "2026-11-22T14:30:00", "2026-11-22T14:30:00+", "20261122"]
        {
            assert_eq!(date(wrong), Err(ParseDateError), "{wrong}");
        }
        let text = serde_json::to_string(&date("2026-11-22").expect("a date")).expect("text");
        assert_eq!(text, "\"2026-11-22T00:00:00Z\"");
        assert!(serde_json::from_str::<Date>("\"soon\"").is_err());
    }
}
