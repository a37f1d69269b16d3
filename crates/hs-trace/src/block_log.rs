//! Logs of requests to a block device, as other programs write them: fio's iolog and the text of blkparse.
//!
//! It reads line by line, so a log may have any length. Formats: fio(1), *Trace file format v2* and *v3*;
//! blkparse(1), *Default output*. In iologs of version 3 times are microseconds (fio 3.33 writes them so; its
//! manual does not state the unit).

use hs_units::{ByteRange, Nanos};

/// A request to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRequest {
    /// When it was made, since the beginning of the log.
    pub at: Nanos,
    /// Whether it writes.
    pub writes: bool,
    /// Which bytes; at least one.
    pub range: ByteRange,
}

/// The program that wrote the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockLogKind {
    /// fio, version 2: times are only the sums of its `wait` lines.
    FioV2,
    /// fio, version 3.
    FioV3,
    /// blkparse; the requests are those of its action `Q`, as they were made.
    Blkparse,
}

/// An error of a log, and its line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct BlockLogError {
    /// The line, from 1.
    pub line: u64,
    /// The error.
    pub fault: BlockLogFault,
}

/// An error of a log.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockLogFault {
    /// Too few words, or a word that is not valid in its place.
    #[error("'{word}' is no {expected}")]
    Word {
        /// The word; empty where the line ends.
        word: String,
        /// What is valid there.
        expected: &'static str,
    },
    /// An iolog of an unsupported version.
    #[error("fio version {version} is not read (2 and 3 are)")]
    Version {
        /// As written.
        version: String,
    },
    /// A time before the log's beginning.
    #[error("the time {word} is negative")]
    Negative {
        /// As written.
        word: String,
    },
    /// An earlier time than the line before.
    #[error("the time {at} is before that of the request in front of it, {before}: sort the log by time")]
    Unordered {
        /// The time.
        at: Nanos,
        /// That of the request before.
        before: Nanos,
    },
    /// A request that is empty or ends behind every disk.
    #[error("{bytes} bytes from {offset} are no request")]
    Range {
        /// The first byte.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// Requests to a second file or device.
    #[error("'{second}' is another file than '{first}': one log is of one file")]
    SecondFile {
        /// The file of the first request.
        first: String,
        /// Another.
        second: String,
    },
    /// The log has no request.
    #[error("the log ends without a request")]
    Empty,
}

const SECTOR_BYTES: u64 = 512;
/// The most characters of a word that an error shows.
const SHOWN_CHARS: usize = 60;

/// Reads a log, a line at a time.
#[derive(Clone, Debug, Default)]
pub struct BlockLog {
    kind: Option<BlockLogKind>,
    line: u64,
    /// The sum of the `wait` lines so far.
    waited: Nanos,
    last: Nanos,
    requests: u64,
    file: Option<String>,
}

type ParsedRequest = Result<Option<BlockRequest>, BlockLogFault>;

impl BlockLog {
    /// Before the first line.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The program that wrote it; `None` before the first line.
    #[must_use]
    pub const fn kind(&self) -> Option<BlockLogKind> {
        self.kind
    }

    /// Takes the next line, without its end; returns the request in it, if there is one.
    ///
    /// # Errors
    /// When it does not have the format, or its time is negative or before that of an earlier request.
    pub fn handle_line(&mut self, line: &str) -> Result<Option<BlockRequest>, BlockLogError> {
        self.line += 1;
        let found = self.parse(line.trim()).and_then(|found| self.check(found));
        found.map_err(|fault| BlockLogError { line: self.line, fault })
    }

    /// Ends the log.
    ///
    /// # Errors
    /// When there was no request in it.
    pub const fn finish(&self) -> Result<(), BlockLogError> {
        if self.requests > 0 {
            return Ok(());
        }
        Err(BlockLogError { line: self.line, fault: BlockLogFault::Empty })
    }

    fn parse(&mut self, line: &str) -> ParsedRequest {
        let Some(kind) = self.kind else {
            let kind = match line.strip_prefix("fio version ") {
                None => BlockLogKind::Blkparse,
                Some("2 iolog") => BlockLogKind::FioV2,
                Some("3 iolog") => BlockLogKind::FioV3,
                Some(other) => return Err(BlockLogFault::Version { version: shown(other) }),
            };
            self.kind = Some(kind);
            return if kind == BlockLogKind::Blkparse { self.blkparse(line) } else { Ok(None) };
        };
        match kind {
            _ if line.is_empty() => Ok(None),
            BlockLogKind::FioV2 => self.fio(line.split_ascii_whitespace(), None),
            BlockLogKind::FioV3 => {
                let mut words = line.split_ascii_whitespace();
                let at = micros(words.next().unwrap_or_default(), "time in microseconds")?;
                self.fio(words, Some(at))
            }
            BlockLogKind::Blkparse => self.blkparse(line),
        }
    }

    fn check(&mut self, found: Option<BlockRequest>) -> ParsedRequest {
        let Some(request) = found else { return Ok(None) };
        let BlockRequest { at, range, .. } = request;
        if range.len == 0 || range.offset.checked_add(range.len).is_none_or(|end| end > 1 << 62) {
            return Err(BlockLogFault::Range { offset: range.offset, bytes: range.len });
        }
        if at < self.last {
            return Err(BlockLogFault::Unordered { at, before: self.last });
        }
        self.last = at;
        self.requests += 1;
        Ok(found)
    }

    fn fio<'a>(&mut self, mut words: impl Iterator<Item = &'a str>, at: Option<Nanos>) -> ParsedRequest {
        let file = words.next().unwrap_or_default();
        let action = words.next().unwrap_or_default();
        let writes = match action {
            "add" | "open" | "close" => return Ok(None),
            "sync" | "datasync" | "trim" => return Ok(None),
            "wait" if at.is_none() => {
                self.waited += micros(words.next().unwrap_or_default(), "number of microseconds")?;
                return Ok(None);
            }
            "read" => false,
            "write" => true,
            _ => return Err(BlockLogFault::Word { word: shown(action), expected: "action of an iolog" }),
        };
        let offset = number(words.next().unwrap_or_default(), "offset")?;
        let len = number(words.next().unwrap_or_default(), "length")?;
        self.same_file(file)?;
        Ok(Some(BlockRequest { at: at.unwrap_or(self.waited), writes, range: ByteRange::new(offset, len) }))
    }

    /// `maj,min cpu sequence seconds.nanoseconds pid action rwbs sector + sectors [process]`
    fn blkparse(&mut self, line: &str) -> ParsedRequest {
        let mut words = line.split_ascii_whitespace();
        let device = words.next().unwrap_or_default();
        // Its summary, and messages of processes.
        let is_device =
            device.split_once(',').is_some_and(|(major, minor)| is_number(major) && is_number(minor));
        if !is_device {
            return Ok(None);
        }
        let words: Vec<&str> = words.take(9).collect();
        let word = |at: usize| words.get(at).copied().unwrap_or_default();
        let at = seconds(word(2))?;
        if word(4) != "Q" {
            return Ok(None);
        }
        let rwbs = word(5);
        let writes = match rwbs.bytes().find(|letter| b"RWDFN".contains(letter)) {
            Some(b'R') => false,
            Some(b'W') => true,
            // A flush in front of a write has its data in the same request.
            Some(b'F') if rwbs.contains('W') => true,
            Some(_) => return Ok(None),
            None => return Err(BlockLogFault::Word { word: shown(rwbs), expected: "direction (RWBS)" }),
        };
        if word(7) != "+" {
            // An empty flush has no address.
            return Ok(None);
        }
        let sector = number(word(6), "sector")?;
        let sectors = number(word(8), "number of sectors")?;
        self.same_file(device)?;
        let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
        Ok(Some(BlockRequest { at, writes, range: ByteRange::new(bytes(sector), bytes(sectors)) }))
    }

    fn same_file(&mut self, file: &str) -> Result<(), BlockLogFault> {
        match &self.file {
            Some(first) if first != file => {
                Err(BlockLogFault::SecondFile { first: shown(first), second: shown(file) })
            }
            Some(_) => Ok(()),
            None => {
                self.file = Some(file.to_owned());
                Ok(())
            }
        }
    }
}

fn shown(word: &str) -> String {
    word.chars().take(SHOWN_CHARS).collect()
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn number(word: &str, expected: &'static str) -> Result<u64, BlockLogFault> {
    let fault = || BlockLogFault::Word { word: shown(word), expected };
    if is_number(word) { word.parse().map_err(|_| fault()) } else { Err(fault()) }
}

/// The span of `count` units of `scale` nanoseconds.
fn span(count: u64, scale: u64, word: &str, expected: &'static str) -> Result<Nanos, BlockLogFault> {
    let nanos = count.checked_mul(scale).filter(|nanos| *nanos <= crate::limits::MAX_NANOS.0);
    nanos.map(Nanos).ok_or_else(|| BlockLogFault::Word { word: shown(word), expected })
}

fn not_negative(word: &str) -> Result<(), BlockLogFault> {
    let negative = word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if negative { Err(BlockLogFault::Negative { word: shown(word) }) } else { Ok(()) }
}

fn micros(word: &str, expected: &'static str) -> Result<Nanos, BlockLogFault> {
    not_negative(word)?;
    span(number(word, expected)?, 1_000, word, expected)
}

fn seconds(word: &str) -> Result<Nanos, BlockLogFault> {
    const EXPECTED: &str = "time in seconds";
    not_negative(word)?;
    let (whole, part) = word.split_once('.').unwrap_or((word, "0"));
    if part.len() > 9 {
        return Err(BlockLogFault::Word { word: shown(word), expected: EXPECTED });
    }
    let whole = span(number(whole, EXPECTED)?, 1_000_000_000, word, EXPECTED)?;
    let part = number(part, EXPECTED)? * 10_u64.pow(9 - part.len() as u32);
    Ok(whole + Nanos(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &str) -> Result<Vec<(u64, bool, u64, u64)>, String> {
        let mut parser = BlockLog::new();
        let mut found = Vec::new();
        for line in log.lines() {
            found.extend(parser.handle_line(line).map_err(|error| error.to_string())?);
        }
        parser.finish().map_err(|error| error.to_string())?;
        Ok(found.iter().map(|it| (it.at.0, it.writes, it.range.offset, it.range.len)).collect())
    }

    #[test]
    fn iologs_of_fio() {
        // As fio 3.33 wrote it.
        let third = "fio version 3 iolog\n21 f add\n133 f open\n136 f read 0 65536\n100756 f write 720896 4096\n502657 f close\n";
        assert_eq!(read(third), Ok(vec![(136_000, false, 0, 65_536), (100_756_000, true, 720_896, 4_096)]));
        let second = "fio version 2 iolog\n/a add\n/a open\n/a read 0 512\n/a wait 1500 0\n/a read 512 512\n/a sync 0 0\n";
        assert_eq!(read(second), Ok(vec![(0, false, 0, 512), (1_500_000, false, 512, 512)]));
    }

    #[test]
    fn text_of_blkparse() {
        let text = "\
  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]
  8,0    3        2     0.000000829   697  P   R [kjournald]
  8,0    3        3     0.000001829   697  Q  WS 223490 + 8 [kjournald]
  8,0    3        4     0.000063339   697  D   W 223490 + 8 [kjournald]
  8,0    1        5     1.500000000   698  Q   R 8 + 16 [cat]
  8,0    1        6     1.500000100   698  Q FWS [jbd2]
  8,0    1        7     1.500000200   698  Q   D 8 + 16 [fstrim]
CPU0 (8,0):
 Reads Queued:           1,        8KiB\t Writes Queued:           1,        4KiB

Total (8,0):
";
        assert_eq!(
            read(text),
            Ok(vec![(1_829, true, 223_490 * 512, 4_096), (1_500_000_000, false, 4_096, 8_192)])
        );
    }

    #[test]
    fn mistakes_have_their_line() {
        for (log, said) in [
            ("fio version 3 iolog\n5 f read 0 512\n4 f read 0 512", "line 3: the time 4.0 µs is before"),
            ("fio version 3 iolog\n-5 f read 0 512", "line 2: the time -5 is negative"),
            ("fio version 3 iolog\nsoon f read 0 512", "line 2: 'soon' is no time"),
            ("fio version 3 iolog\n5 f wait 7", "line 2: 'wait' is no action"),
            ("fio version 3 iolog\n5 f read 0", "line 2: '' is no length"),
            ("fio version 3 iolog\n5 f read 0 0", "line 2: 0 bytes from 0 are no request"),
            ("fio version 3 iolog\n5 f read 18446744073709551615 512", "are no request"),
            ("fio version 3 iolog\n5 f read 18446744073709551616 512", "is no offset"),
            ("fio version 3 iolog\n99999999999999999 f read 0 512", "is no time"),
            ("fio version 3 iolog\n5 f read 0 512\n6 g read 0 512", "line 3: 'g' is another file than 'f'"),
            ("fio version 2 iolog\nf wait -3 0", "line 2: the time -3 is negative"),
            ("fio version 1 iolog\n", "fio version 1 iolog is not read"),
            ("fio version 2 iolog\nf add", "line 2: the log ends without a request"),
            ("", "line 0: the log ends without a request"),
            ("some other text", "line 1: the log ends"),
            ("8,0 1 1 -1.5 7 Q R 8 + 8 [x]", "line 1: the time -1.5 is negative"),
            ("8,0 1 1 2.5 7 Q R 8 + 8 [x]\n8,0 1 1 2.4 7 Q R 8 + 8 [x]", "line 2: the time 2.40 s is before"),
            ("8,0 1 1 2.5 7 Q R 8 + x [x]", "'x' is no number of sectors"),
            ("8,0 1 1 2.5 7 Q R 8 + 8 [x]\n8,1 1 1 2.5 7 Q R 8 + 8 [x]", "'8,1' is another file than '8,0'"),
            ("8,0 1 1 2.0000000001 7 Q R 8 + 8 [x]", "is no time in seconds"),
        ] {
            let found = read(log).expect_err(log);
            assert!(found.contains(said), "{log:?}: {found}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(lines in proptest::collection::vec("(fio version [23] iolog|8,0|-?[0-9]{0,22}|[Qf. +R]|read|wait| ){0,12}", 0..8)) {
            let _ = read(&lines.join("\n"));
        }
    }
}
