//! Collects what the library logs as errors.

use std::sync::{Mutex, Once, PoisonError};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Collector;

impl log::Log for Collector {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        if record.level() <= log::Level::Warn {
            LINES.lock().unwrap_or_else(PoisonError::into_inner).push(record.args().to_string());
        }
    }
    fn flush(&self) {}
}

/// Starts to collect errors and warnings, once for the whole test binary.
pub(crate) fn collect() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Collector).expect("no other logger");
        log::set_max_level(log::LevelFilter::Warn);
    });
}

/// Takes out the lines that mention `name`; tests run side by side, so each has a name of its own.
pub(crate) fn take(name: &str) -> Vec<String> {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let (ours, others) =
        std::mem::take(&mut *lines).into_iter().partition(|line: &String| line.contains(name));
    *lines = others;
    ours
}
