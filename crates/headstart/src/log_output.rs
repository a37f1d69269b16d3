//! Where the libraries' messages go: standard error, or the system's log once nobody reads that.

use std::ffi::CString;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use log::{Level, LevelFilter};

static IN_BACKGROUND: AtomicBool = AtomicBool::new(false);

struct Messages;

impl log::Log for Messages {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if IN_BACKGROUND.load(Relaxed) {
            to_syslog(record);
        } else {
            eprintln!("headstart: {}: {}", record.level().as_str().to_lowercase(), record.args());
        }
    }

    fn flush(&self) {}
}

fn to_syslog(record: &log::Record<'_>) {
    let priority = match record.level() {
        Level::Error => libc::LOG_ERR,
        Level::Warn => libc::LOG_WARNING,
        Level::Info => libc::LOG_INFO,
        Level::Debug | Level::Trace => libc::LOG_DEBUG,
    };
    let Ok(text) = CString::new(record.args().to_string()) else { return };
    // SAFETY: both strings end with a zero byte, and the format takes exactly the one argument.
    unsafe { libc::syslog(libc::LOG_DAEMON | priority, c"headstart: %s".as_ptr(), text.as_ptr()) };
}

/// Starts to show messages; `verbose` counts the times that it was asked for.
pub(crate) fn start(quiet: bool, verbose: u8) {
    let level = match (quiet, verbose) {
        (true, _) => LevelFilter::Error,
        (false, 0) => LevelFilter::Warn,
        (false, 1) => LevelFilter::Info,
        (false, 2) => LevelFilter::Debug,
        (false, _) => LevelFilter::Trace,
    };
    if log::set_logger(&Messages).is_ok() {
        log::set_max_level(level);
    }
}

/// From now on messages go to the system's log, and standard error is given back to whoever waits
/// for its end.
pub(crate) fn go_to_background() -> std::io::Result<()> {
    let null = File::options().write(true).open("/dev/null")?;
    IN_BACKGROUND.store(true, Relaxed);
    Ok(rustix::stdio::dup2_stderr(null)?)
}
