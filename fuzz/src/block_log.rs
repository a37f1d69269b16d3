//! Logs of other programs: any text is requests in the order of their times, or an error with its line.

use hs_trace::BlockLog;

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let mut log = BlockLog::new();
    let mut last = hs_units::Nanos::ZERO;
    for (number, line) in text.lines().enumerate() {
        match log.handle_line(line) {
            Ok(Some(request)) => {
                assert!(request.at >= last && request.range.len > 0);
                assert!(request.range.fits_in(1 << 62));
                last = request.at;
            }
            Ok(None) => {}
            Err(error) => {
                assert_eq!(error.line, number as u64 + 1);
                return false;
            }
        }
    }
    let _ = log.finish();
    last > hs_units::Nanos::ZERO
}
