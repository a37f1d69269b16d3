//! The serial line on which a machine that records its own start gives the profile to the program at the
//! other end: `headstart boot --record`.
//!
//! ```text
//! machine  "headstart-recording\n"              it records from here on
//! program  "headstart-end\n"                    the start is over; said again until an answer comes
//! machine  "headstart-profile BYTES\n", BYTES   the profile, which has digests of its own
//!          "headstart-failed WHY\n"             there is none
//! ```
//!
//! Firmware and boot loaders may write to the same line before.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use hs_trace::limits;
use rustix::fs::OFlags;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

pub use hs_guest::qemu::{RECORD_ITEM, WITH_READ_AHEAD};

const BEGUN: &str = "headstart-recording";
const END: &str = "headstart-end";
const PROFILE: &str = "headstart-profile ";
const FAILED: &str = "headstart-failed ";
/// No line is longer. The other end may write what it likes.
const MOST_LINE_BYTES: usize = 4096;

/// The end of the line at the machine that records.
#[derive(Debug)]
pub struct RecordingLine(File);

impl RecordingLine {
    /// Opens the line, and says that the machine records.
    ///
    /// # Errors
    /// When it is no serial line, or does not work.
    pub fn open(path: &Path) -> io::Result<Self> {
        let no_terminal = OFlags::NOCTTY.bits().cast_signed();
        let line = File::options().read(true).write(true).custom_flags(no_terminal).open(path)?;
        // Bytes as they are: no echo, no signals, no other ends of lines.
        let mut modes = tcgetattr(&line)?;
        modes.make_raw();
        tcsetattr(&line, OptionalActions::Now, &modes)?;
        Self::begin(line)
    }

    fn begin(line: File) -> io::Result<Self> {
        let mut line = Self(line);
        line.say(format_args!("\n{BEGUN}\n"), &[])?;
        Ok(line)
    }

    /// Waits until the other end says that the start is over.
    ///
    /// # Errors
    /// When the line does not work any more.
    pub fn wait_for_end(&mut self) -> io::Result<()> {
        let (mut line, mut buffer) = (Vec::new(), [0; 256]);
        loop {
            let read = self.0.read(&mut buffer)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for &byte in &buffer[..read] {
                if byte != b'\n' {
                    push_bounded(&mut line, byte);
                } else if std::mem::take(&mut line).ends_with(END.as_bytes()) {
                    return Ok(());
                }
            }
        }
    }

    /// Gives the other end the profile.
    ///
    /// # Errors
    /// When the line does not work any more.
    pub fn give(&mut self, profile: &[u8]) -> io::Result<()> {
        self.say(format_args!("\n{PROFILE}{}\n", profile.len()), profile)
    }

    /// Says that there is none.
    ///
    /// # Errors
    /// When the line does not work any more.
    pub fn give_up(&mut self, why: &str) -> io::Result<()> {
        self.say(format_args!("\n{FAILED}{}\n", why.replace('\n', " ")), &[])
    }

    fn say(&mut self, line: std::fmt::Arguments<'_>, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(line.to_string().as_bytes())?;
        self.0.write_all(bytes)
    }
}

/// Says to a machine that records that its start is over.
///
/// # Errors
/// When the line does not work any more.
pub(crate) fn say_end(line: &mut impl Write) -> io::Result<()> {
    line.write_all(format!("{END}\n").as_bytes())
}

/// What a machine has said on its line.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// It records.
    Begun,
    /// The profile.
    Profile(Vec<u8>),
    /// There is none, for this reason.
    Failed(String),
}

/// Understands what a machine says, in any pieces.
#[derive(Debug, Default)]
pub struct Listener {
    line: Vec<u8>,
    /// The bytes of a profile that have come, and how many there are to be.
    profile: Option<(Vec<u8>, usize)>,
}

impl Listener {
    /// Takes bytes; gives what they complete.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Vec<Said> {
        let mut said = Vec::new();
        while !bytes.is_empty() {
            if let Some((profile, whole)) = &mut self.profile {
                let (now, later) = bytes.split_at(bytes.len().min(*whole - profile.len()));
                profile.extend_from_slice(now);
                bytes = later;
                if profile.len() == *whole {
                    said.extend(self.profile.take().map(|(profile, _)| Said::Profile(profile)));
                }
                continue;
            }
            let (byte, later) = (bytes[0], &bytes[1..]);
            bytes = later;
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                said.extend(self.understand(&String::from_utf8_lossy(&line)));
            } else {
                push_bounded(&mut self.line, byte);
            }
        }
        said
    }

    /// Whether a profile has begun to come.
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        self.profile.is_some()
    }

    fn understand(&mut self, line: &str) -> Option<Said> {
        let line = line.trim_end_matches('\r');
        if line.ends_with(BEGUN) {
            return Some(Said::Begun);
        }
        if let Some((_, why)) = line.split_once(FAILED) {
            return Some(Said::Failed(why.to_owned()));
        }
        let bytes: usize = line.split_once(PROFILE)?.1.parse().ok()?;
        if bytes == 0 {
            return Some(Said::Failed("a profile of no bytes".to_owned()));
        }
        if bytes as u64 > limits::MAX_RAW_BODY_BYTES {
            return Some(Said::Failed(format!("a profile of {bytes} bytes is too large")));
        }
        self.profile = Some((Vec::new(), bytes));
        None
    }
}

fn push_bounded(line: &mut Vec<u8>, byte: u8) {
    if line.len() < MOST_LINE_BYTES {
        line.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn machine() -> (RecordingLine, UnixStream) {
        let (theirs, ours) = UnixStream::pair().expect("a line");
        (RecordingLine::begin(OwnedFd::from(theirs).into()).expect("it is open"), ours)
    }

    fn heard(mut line: UnixStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        line.read_to_end(&mut bytes).expect("read");
        bytes
    }

    #[test]
    fn a_profile_comes_in_any_pieces_behind_what_firmware_says() {
        let (mut machine, mut line) = machine();
        let profile = b"\nheadstart-failed no\n\xff".repeat(3);
        say_end(&mut line).expect("said");
        say_end(&mut line).expect("said again");
        machine.wait_for_end().expect("heard");
        machine.give(&profile).expect("given");
        drop(machine);
        let bytes = [&b"\x1b[2JBdsDxe: starting\x1b[m"[..], &heard(line)].concat();
        for piece in [1, 2, 7, bytes.len()] {
            let mut listener = Listener::default();
            let said: Vec<Said> = bytes.chunks(piece).flat_map(|piece| listener.feed(piece)).collect();
            assert_eq!(said, [Said::Begun, Said::Profile(profile.clone())], "{piece}");
            assert!(!listener.is_receiving());
        }
    }

    #[test]
    fn a_reason_is_one_line() {
        let (mut machine, line) = machine();
        machine.give_up("the disk\nis gone").expect("said");
        drop(machine);
        let said = Listener::default().feed(&heard(line));
        assert_eq!(said, [Said::Begun, Said::Failed("the disk is gone".to_owned())]);
    }

    #[test]
    fn what_means_nothing_is_bounded_and_passed_over() {
        let mut listener = Listener::default();
        assert_eq!(listener.feed(&[b'x'; 3 * MOST_LINE_BYTES]), []);
        assert!(listener.line.len() <= MOST_LINE_BYTES);
        assert_eq!(
            listener.feed(b"\nheadstart-profile many\nheadstart-profile -1\n\nheadstart-record\n"),
            []
        );
        let said = listener.feed(format!("headstart-profile {}\n", u64::MAX >> 1).as_bytes());
        assert!(matches!(&said[..], [Said::Failed(why)] if why.contains("too large")), "{said:?}");
    }

    #[test]
    fn a_line_that_ends_says_no_end() {
        let (mut machine, line) = machine();
        drop(line);
        assert!(machine.wait_for_end().is_err());
    }

    #[test]
    fn a_file_is_no_serial_line() {
        assert!(RecordingLine::open(Path::new("/dev/null")).is_err());
    }
}
