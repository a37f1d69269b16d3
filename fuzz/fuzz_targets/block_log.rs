//! Logs of other programs: any text is requests in the order of their times, or an error with its line.

#![no_main]

use hs_trace::BlockLog;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
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
            Err(error) => return assert_eq!(error.line, number as u64 + 1),
        }
    }
    let _ = log.finish();
});
