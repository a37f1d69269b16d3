//! Passes a command's output on as it comes, and watches it for the line that shows that it is ready.

use std::io::{self, Read, Write};

use regex::Regex;

/// How much of a line is examined: a command may print without ever ending a line.
const LINE_BYTES: usize = 64 << 10;

/// The line that is being printed.
#[derive(Debug)]
struct Watched {
    ready: Option<Regex>,
    line: Vec<u8>,
}

impl Watched {
    /// Takes printed bytes; true, once, when a line that ends in them shows that the command is ready.
    fn feed(&mut self, bytes: &[u8]) -> bool {
        let mut is_ready = false;
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LINE_BYTES - self.line.len();
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                is_ready |= self.end_line();
            }
        }
        is_ready
    }

    fn end_line(&mut self) -> bool {
        // Without the line's end, in front of which `$` would not match.
        let text = String::from_utf8_lossy(self.line.trim_ascii_end());
        let matches = self.ready.as_ref().is_some_and(|ready| ready.is_match(&text));
        self.line.clear();
        if matches {
            self.ready = None;
        }
        matches
    }
}

/// Passes `output` on to `shown` until it ends or `shown` has no reader; calls `told` at the end of the first
/// line that matches `ready`.
pub(crate) fn pass_on(
    mut output: impl Read,
    mut shown: impl Write,
    ready: Option<Regex>,
    mut told: impl FnMut(),
) {
    let mut watched = Watched { ready, line: Vec::new() };
    let mut buffer = [0; 8192];
    loop {
        let bytes = match output.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => &buffer[..read],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        if watched.feed(bytes) {
            told();
        }
        // The command learns of it when it next prints, as if it had printed there itself.
        if shown.write_all(bytes).and_then(|()| shown.flush()).is_err() {
            return;
        }
    }
    // The last line need not be ended.
    if !watched.line.is_empty() && watched.end_line() {
        told();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(output: &[u8], ready: &str) -> (Vec<u8>, usize) {
        let (mut shown, mut times) = (Vec::new(), 0);
        pass_on(output, &mut shown, Some(Regex::new(ready).unwrap()), || times += 1);
        (shown, times)
    }

    #[test]
    fn ready_is_a_whole_line_and_told_once() {
        let output = b"it is\nready\r\nready\n";
        assert_eq!(passed(output, "^ready$"), (output.to_vec(), 1));
        assert_eq!(passed(b"already\n", "^ready$").1, 0);
        assert_eq!(passed(b"x\nready", "^ready$").1, 1, "a last line without an end");
        assert_eq!((passed(b"", "^$").1, passed(b"x\n", "^$").1, passed(b"x\n\n", "^$").1), (0, 0, 1));
    }

    #[test]
    fn a_line_comes_in_any_pieces() {
        let (text, pattern) = (b"one\nready now\nthree", Regex::new("^ready now$").unwrap());
        for cut in 0..text.len() {
            let mut watched = Watched { ready: Some(pattern.clone()), line: Vec::new() };
            let told = [&text[..cut], &text[cut..]].map(|piece| watched.feed(piece));
            assert_eq!(told.iter().filter(|told| **told).count(), 1, "{cut}");
        }
    }

    #[test]
    fn a_line_without_end_is_passed_on_and_bounded() {
        let endless = vec![b'x'; 3 * LINE_BYTES];
        assert_eq!(passed(&endless, "y").0, endless);
        let mut watched = Watched { ready: None, line: Vec::new() };
        watched.feed(&endless);
        assert_eq!(watched.line.len(), LINE_BYTES);
    }

    /// A reader that reads no more, as `head` does when it has enough.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_is_read_for_nobody() {
        // It would never end.
        pass_on(io::repeat(b'y'), Full, None, || {});
    }
}
