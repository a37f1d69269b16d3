//! Times on the command line.

/// Seconds, with a fraction.
pub(super) fn parse(text: &str) -> Result<std::time::Duration, String> {
    let seconds = text.parse::<f64>().ok();
    seconds
        .and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("'{text}' is not a number of seconds"))
}
