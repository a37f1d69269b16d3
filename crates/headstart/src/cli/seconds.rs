//! Times on the command line.

use std::time::Duration;

/// Longer than any command waits, and short enough to be added to any moment: thirty years.
const MOST: Duration = Duration::from_secs(1_000_000_000);

/// Seconds, with a fraction.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|time| *time <= MOST)
        .ok_or_else(|| format!("'{text}' is not a number of seconds, from 0 to {}", MOST.as_secs()))
}

/// How long a read may wait: with less than a second a healthy network would often fail.
pub(super) fn read_timeout(text: &str) -> Result<Duration, String> {
    parse(text)
        .ok()
        .filter(|time| *time >= Duration::from_secs(1))
        .ok_or_else(|| format!("'{text}' is not a number of seconds, from 1 to {}", MOST.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_bounded() {
        assert_eq!(parse("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("1e9"), Ok(MOST));
        for wrong in ["", "-1", "nan", "inf", "1e10", "1e30", "soon"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
