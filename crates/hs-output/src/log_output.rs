//! Where messages go: to standard error; with their levels, where standard error leads to the journal; and to
//! syslog once standard error has no reader.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use log::{Level, LevelFilter};

use crate::printable::Printable;

/// The system's log: syslog(3).
const SYSLOG: &str = "/dev/log";
/// `LOG_DAEMON`, as the protocol has it.
const DAEMON: u8 = 3 << 3;
/// A message is cut here, so that it fits into a datagram of any log.
const MAX_MESSAGE_BYTES: usize = 2000;
/// A file of messages grows no further: it may lie in memory.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Where messages go.
enum Sink {
    /// A person.
    Stderr,
    /// Standard error, which the journal reads: a line's level stands before it, as sd-daemon(3) says.
    Journal,
    /// The system's log.
    Syslog(UnixDatagram),
    /// Where there is neither.
    File(File),
}

static SINK: RwLock<Sink> = RwLock::new(Sink::Stderr);

struct Messages;

impl log::Log for Messages {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let level = record.level();
        match &*SINK.read().unwrap_or_else(PoisonError::into_inner) {
            Sink::Stderr => crate::note!("headstart: {}: {}", name(level), record.args()),
            Sink::Journal => {
                let lines = for_journal(level, &record.args().to_string());
                crate::note!("{}", lines.trim_end());
            }
            Sink::Syslog(socket) => to_syslog(socket, level, &record.args().to_string()),
            Sink::File(file) => to_file(file, level, &record.args().to_string()),
        }
    }

    fn flush(&self) {}
}

/// How a level is called where people read it.
fn name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug | Level::Trace => "debug",
    }
}

/// The number of a level, the same for all logs.
fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

fn for_journal(level: Level, text: &str) -> String {
    text.lines().map(|line| format!("<{}>{line}\n", severity(level))).collect()
}

/// Without the time, which every log adds: finding it would mean to open a file of time zones, perhaps on
/// the very root that cannot be read.
fn for_syslog(level: Level, text: &str) -> String {
    let mut message = format!("<{}>headstart[{}]: ", DAEMON | severity(level), std::process::id());
    let one_line = text.replace(['\n', '\t'], " ");
    message.push_str(&Printable(one_line).to_string());
    let fits = |&end: &usize| message.is_char_boundary(end);
    let end = (0..=MAX_MESSAGE_BYTES.min(message.len())).rev().find(fits).unwrap_or(0);
    message.truncate(end);
    message
}

fn to_syslog(socket: &UnixDatagram, level: Level, text: &str) {
    let message = for_syslog(level, text);
    if socket.send(message.as_bytes()).is_err() && socket.connect(SYSLOG).is_ok() {
        // syslog was restarted. If it is gone, the message is dropped.
        let _ = socket.send(message.as_bytes());
    }
}

fn to_file(mut file: &File, level: Level, text: &str) {
    if file.metadata().is_ok_and(|file| file.len() < MAX_FILE_BYTES) {
        let _ = writeln!(file, "{}: {}", name(level), Printable(text));
    }
}

/// Starts to show messages; `verbose` counts the times that it was asked for.
pub fn start(quiet: bool, verbose: u8) {
    let level = match (quiet, verbose) {
        (true, _) => LevelFilter::Error,
        (false, 0) => LevelFilter::Warn,
        (false, 1) => LevelFilter::Info,
        (false, 2) => LevelFilter::Debug,
        (false, _) => LevelFilter::Trace,
    };
    if journal_reads_stderr() {
        set(Sink::Journal);
    }
    if log::set_logger(&Messages).is_ok() {
        log::set_max_level(level);
    }
}

fn set(sink: Sink) {
    *SINK.write().unwrap_or_else(PoisonError::into_inner) = sink;
}

/// Whether standard error is the stream that systemd connected to its journal: systemd.exec(5).
fn journal_reads_stderr() -> bool {
    let Some(named) = std::env::var_os("JOURNAL_STREAM") else { return false };
    let Ok(stderr) = std::fs::metadata("/proc/self/fd/2") else { return false };
    named.to_str() == Some(&format!("{}:{}", stderr.dev(), stderr.ino()))
}

/// Reports why the program fails, on standard error or in the log.
pub fn failure(text: &str) {
    if matches!(*SINK.read().unwrap_or_else(PoisonError::into_inner), Sink::Stderr) {
        crate::note!("headstart: error: {text}");
    } else {
        log::error!("{text}");
    }
}

/// The name of where messages go, for `headstart status`; of a file its path.
pub fn place() -> String {
    let name = match &*SINK.read().unwrap_or_else(PoisonError::into_inner) {
        Sink::Stderr => "standard error",
        Sink::Journal => "journal",
        Sink::Syslog(_) => "syslog",
        Sink::File(file) => {
            let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
            return path.map_or_else(|_| "file".to_owned(), |path| path.display().to_string());
        }
    };
    name.to_owned()
}

/// A file for messages. They may contain addresses of images, so only the owner may read it.
pub fn create_log(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).mode(0o600).open(path)
}

/// From now on messages go to syslog, or to the file that `otherwise` gives where there is no syslog.
/// Standard error is closed, so that a program that waits for its end goes on. A journal does not wait for
/// the end, so standard error stays open if it leads there.
pub fn go_to_background(otherwise: impl FnOnce() -> Option<File>) -> io::Result<()> {
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
    if journal_reads_stderr() {
        return Ok(());
    }
    let null = File::options().write(true).open("/dev/null")?;
    let syslog = UnixDatagram::unbound().and_then(|socket| {
        // A log that does not read must not hold the server.
        socket.set_nonblocking(true)?;
        socket.connect(SYSLOG).map(|()| socket)
    });
    match (syslog, otherwise) {
        (Ok(socket), _) => set(Sink::Syslog(socket)),
        (Err(error), otherwise) => match otherwise() {
            Some(file) => set(Sink::File(file)),
            None => log::warn!("{SYSLOG}: {error}: from now on messages go nowhere"),
        },
    }
    rustix::stdio::dup2_stderr(null)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_stand_before_every_line_for_the_journal() {
        assert_eq!(for_journal(Level::Error, "a\nb"), "<3>a\n<3>b\n");
        assert_eq!(for_journal(Level::Info, "a"), "<6>a\n");
    }

    #[test]
    fn syslog_messages_are_one_line_of_bounded_length() {
        let process = std::process::id();
        assert_eq!(for_syslog(Level::Warn, "a\nb"), format!("<28>headstart[{process}]: a b"));
        let long = for_syslog(Level::Error, &"ä".repeat(5000));
        assert!(long.len() <= MAX_MESSAGE_BYTES && long.len() > MAX_MESSAGE_BYTES - 4);
    }
}
