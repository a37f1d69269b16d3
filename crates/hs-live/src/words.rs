//! The words of the kernel's command line that describe the root.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hs_start::recording_line::WITH_READ_AHEAD;
use hs_start::start::PrefetchMode;
use hs_trust::date::Date;
use hs_units::ByteSize;

use crate::boot_state::Slot;

/// Where the image lies in the file system of its medium.
pub const IMAGE_PATH: &str = "/headstart/root.hsi";

/// What stands before the place of the root.
const ROOT: &str = "root=headstart:";
/// What all other words begin with.
const PREFIX: &str = "headstart.";
/// How long a medium may take to appear: a stick behind a slow hub takes some seconds, a disc that spins up
/// longer.
const USUAL_WAIT: Duration = Duration::from_secs(60);

/// A machine can do nothing without its server, so it waits for a network that is repaired.
const USUAL_READ_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a start is recorded.
const USUAL_RECORDING: Duration = Duration::from_secs(60);

/// A device, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// The label of the file system on it.
    Label(String),
    /// The UUID of that file system.
    Uuid(String),
    /// The device file.
    Path(PathBuf),
}

impl DeviceName {
    fn parse(text: &str) -> Option<Self> {
        let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        if let Some(label) = text.strip_prefix("LABEL=") {
            return named(label).map(Self::Label);
        }
        if let Some(uuid) = text.strip_prefix("UUID=") {
            return named(uuid).map(Self::Uuid);
        }
        text.starts_with("/dev/").then(|| Self::Path(text.into()))
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(label) => write!(f, "LABEL={label}"),
            Self::Uuid(uuid) => write!(f, "UUID={uuid}"),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

/// Where the image is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootPlace {
    /// In the file system on a device.
    Device {
        /// The device.
        name: DeviceName,
        /// `#hs1-DIGEST` or `#key=KEY`, with the mark; empty without either.
        trust: String,
    },
    /// At an address, trust included.
    Address(String),
}

impl fmt::Display for RootPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { name, trust } => write!(f, "{name}{trust}"),
            Self::Address(address) => f.write_str(address),
        }
    }
}

/// Where what the system writes is kept.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Overlay {
    /// In memory; it is lost when the machine stops.
    #[default]
    Memory,
    /// In a file system on this device.
    Device(DeviceName),
}

/// Where the profile of a recorded start goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordPlace {
    /// A file in the file system on this device.
    Device(DeviceName),
    /// The other end of this serial line.
    Line(PathBuf),
}

impl RecordPlace {
    fn parse(text: &str) -> Option<Self> {
        Some(match DeviceName::parse(text)? {
            DeviceName::Path(path) if text.starts_with(TERMINALS) => Self::Line(path),
            device => Self::Device(device),
        })
    }
}

/// What the names of serial lines begin with.
const TERMINALS: &str = "/dev/tty";
/// Their numbers are smaller: Documentation/admin-guide/devices.txt.
const MOST_LINES: u32 = 192;

/// The command line of a machine whose VMM asks it to record its start, by the value of such an item.
/// [`Words::parse`] takes the last of several words.
#[must_use]
pub fn with_recording(command_line: &str, item: &str) -> String {
    let (line, read_ahead) = match item.trim().strip_suffix(WITH_READ_AHEAD) {
        Some(line) => (line, " headstart.record-read-ahead"),
        None => (item.trim(), ""),
    };
    if line.starts_with(TERMINALS) && !line.contains(char::is_whitespace) {
        return format!("{} headstart.record={line}{read_ahead}", command_line.trim_end());
    }
    log::warn!("this machine is asked to record its start on {line:?}, which is no serial line");
    command_line.to_owned()
}

/// The number of the serial line that such an item names: 1 for `/dev/ttyS1`.
#[must_use]
pub fn serial_line(item: &str) -> Option<u32> {
    item.trim().strip_prefix(TERMINALS)?.strip_prefix('S')?.parse().ok().filter(|line| *line < MOST_LINES)
}

/// The words.
#[derive(Clone, Debug)]
pub struct Words {
    /// Where the image is.
    pub place: RootPlace,
    /// Its path in the file system of a device.
    pub image_path: String,
    /// Memory for prefetched blocks; what the machine has decides when `None`.
    pub budget: Option<ByteSize>,
    /// Where prefetched blocks go.
    pub prefetch: PrefetchMode,
    /// Signatures older than this are refused.
    pub min_date: Option<Date>,
    /// Whether an image from the network needs neither name nor signature.
    pub insecure: bool,
    /// How long the medium may take to appear, or the server to answer.
    pub wait: Duration,
    /// A read from a server that has waited this long fails.
    pub read_timeout: Duration,
    /// Where writes go.
    pub overlay: Overlay,
    /// The file for writes in the device's file system. The root is then the image's file system itself.
    pub keep: Option<String>,
    /// The slot of the system, on a disk with two.
    pub slot: Option<Slot>,
    /// The boot partition of that disk.
    pub boot: Option<DeviceName>,
    /// Record what the start reads.
    pub record: Option<RecordPlace>,
    /// For so long.
    pub record_for: Duration,
    /// With what the kernel reads ahead.
    pub record_read_ahead: bool,
    /// The root's journal may be one that was not replayed.
    pub ignore_journal: bool,
    /// Check the image instead of starting from it.
    pub verify: bool,
    /// Words that begin as ours and are none.
    pub unknown: Vec<String>,
}

/// Why a command line describes no root.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordsError {
    /// Nothing is asked of us.
    #[error("the kernel's command line has no root=headstart:…")]
    NoRoot,
    /// The place is none.
    #[error(
        "root=headstart:{0} names no image: LABEL=NAME, UUID=…, /dev/… and addresses (https://…, oci://…) do, \
         with #hs1-DIGEST or #key=KEY behind them"
    )]
    Place(String),
    /// The value of a word is wrong.
    #[error("{word}: {reason}")]
    Value {
        /// The word.
        word: String,
        /// What is wrong.
        reason: String,
    },
}

impl Words {
    /// The words of a kernel's command line. The last of several that say the same counts, as in the kernel.
    ///
    /// # Errors
    /// When there is no `root=headstart:`, or a value is wrong. Words that are not known are kept in
    /// [`Words::unknown`].
    pub fn parse(command_line: &str) -> Result<Self, WordsError> {
        let place =
            command_line.split_ascii_whitespace().filter_map(|word| word.strip_prefix(ROOT)).next_back();
        let mut words = Self {
            place: parse_place(place.ok_or(WordsError::NoRoot)?)?,
            read_timeout: USUAL_READ_TIMEOUT,
            image_path: IMAGE_PATH.to_owned(),
            budget: None,
            prefetch: PrefetchMode::Warm,
            min_date: None,
            insecure: false,
            wait: USUAL_WAIT,
            overlay: Overlay::Memory,
            keep: None,
            slot: None,
            boot: None,
            record: None,
            record_for: USUAL_RECORDING,
            record_read_ahead: false,
            ignore_journal: false,
            verify: false,
            unknown: Vec::new(),
        };
        for word in command_line.split_ascii_whitespace() {
            if let Some(ours) = word.strip_prefix(PREFIX) {
                words.take(word, ours)?;
            }
        }
        Ok(words)
    }

    fn take(&mut self, word: &str, ours: &str) -> Result<(), WordsError> {
        let (key, value) = ours.split_once('=').unwrap_or((ours, ""));
        let wrong = |reason: String| WordsError::Value { word: word.to_owned(), reason };
        match key {
            "image" if value.starts_with('/') => self.image_path = value.to_owned(),
            "image" => return Err(wrong("a path in the medium's file system begins with /".to_owned())),
            "budget" => self.budget = Some(value.parse().map_err(|error| wrong(format!("{error}")))?),
            "prefetch" => self.prefetch = prefetch_mode(value).ok_or_else(|| wrong(MODES.to_owned()))?,
            "min-date" => self.min_date = Some(value.parse().map_err(|error| wrong(format!("{error}")))?),
            "wait" => self.wait = seconds(value).ok_or_else(|| wrong(NO_SECONDS.to_owned()))?,
            "read-timeout" => {
                let given = seconds(value).filter(|timeout| !timeout.is_zero());
                self.read_timeout = given.ok_or_else(|| wrong(NO_SECONDS.to_owned()))?;
            }
            "overlay" if value == "memory" => self.overlay = Overlay::Memory,
            "overlay" => {
                let name = DeviceName::parse(value);
                let reason = "memory, LABEL=NAME, UUID=… or /dev/… is where writes go".to_owned();
                self.overlay = Overlay::Device(name.ok_or_else(|| wrong(reason))?);
            }
            "keep" if value.starts_with('/') => self.keep = Some(value.to_owned()),
            "keep" => return Err(wrong("a path in the medium's file system begins with /".to_owned())),
            "slot" => {
                self.slot = Some(Slot::parse(value).ok_or_else(|| wrong("a and b are slots".to_owned()))?);
            }
            "boot" => {
                let reason = "LABEL=NAME, UUID=… or /dev/… is the boot partition".to_owned();
                self.boot = Some(DeviceName::parse(value).ok_or_else(|| wrong(reason))?);
            }
            "record" => {
                let reason = "LABEL=NAME, UUID=… or /dev/… is where a profile is written".to_owned();
                self.record = Some(RecordPlace::parse(value).ok_or_else(|| wrong(reason))?);
            }
            "record-for" => self.record_for = seconds(value).ok_or_else(|| wrong(NO_SECONDS.to_owned()))?,
            "record-read-ahead" => self.record_read_ahead = true,
            "ignore-journal" => self.ignore_journal = true,
            "insecure" => self.insecure = true,
            "verify" => self.verify = true,
            _ => self.unknown.push(word.to_owned()),
        }
        Ok(())
    }
}

const NO_SECONDS: &str = "it takes a whole number of seconds, at most 1000000000";

/// At most thirty years, which can be added to any moment.
fn seconds(value: &str) -> Option<Duration> {
    value.parse().ok().filter(|seconds| *seconds <= 1_000_000_000).map(Duration::from_secs)
}

/// The modes that make sense for a root.
const MODES: &str = "warm, push, hold or off is where prefetched blocks go";

fn prefetch_mode(value: &str) -> Option<PrefetchMode> {
    let modes = [PrefetchMode::Off, PrefetchMode::Warm, PrefetchMode::Hold, PrefetchMode::Push];
    modes.into_iter().find(|mode| mode.name() == value)
}

fn parse_place(text: &str) -> Result<RootPlace, WordsError> {
    if text.contains("://") {
        return Ok(RootPlace::Address(text.to_owned()));
    }
    let at = text.find('#').unwrap_or(text.len());
    let (name, trust) = text.split_at(at);
    let name = DeviceName::parse(name).ok_or_else(|| WordsError::Place(text.to_owned()))?;
    Ok(RootPlace::Device { name, trust: trust.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_addresses_are_told_apart() {
        let place = |line: &str| Words::parse(line).expect(line).place;
        let labelled = place("quiet root=headstart:LABEL=HEADSTART#hs1-ab splash");
        let name = DeviceName::Label("HEADSTART".to_owned());
        assert_eq!(labelled, RootPlace::Device { name, trust: "#hs1-ab".to_owned() });
        assert_eq!(labelled.to_string(), "LABEL=HEADSTART#hs1-ab");
        let device = place("root=headstart:/dev/sr0");
        assert_eq!(
            device,
            RootPlace::Device { name: DeviceName::Path("/dev/sr0".into()), trust: String::new() }
        );
        let address = "https://h/a.hsi#key=RWQ";
        assert_eq!(place(&format!("root=headstart:{address}")), RootPlace::Address(address.to_owned()));
        // The last one counts.
        let last = place("root=/dev/sda1 root=headstart:UUID=1 root=headstart:UUID=2");
        assert_eq!(last.to_string(), "UUID=2");
    }

    #[test]
    fn values_are_taken_and_the_rest_is_kept() {
        let words = Words::parse(
            "root=headstart:LABEL=A headstart.budget=64M headstart.min-date=2026-11-22 headstart.wait=5 \
             headstart.read-timeout=7 \
             headstart.overlay=LABEL=KEEP headstart.keep=/w.hsk headstart.slot=b headstart.boot=UUID=AB-C \
             headstart.prefetch=off headstart.image=/x.hsi headstart.insecure \
             headstart.verify headstart.ignore-journal headstart.record=LABEL=KEEP headstart.record-for=9 headstart.colour=red head.start=1",
        )
        .expect("words");
        assert_eq!(words.budget, Some(ByteSize(64 << 20)));
        assert!(words.min_date.is_some() && words.insecure && words.verify && words.ignore_journal);
        assert_eq!((words.wait, words.prefetch), (Duration::from_secs(5), PrefetchMode::Off));
        assert_eq!((words.keep.as_deref(), words.slot), (Some("/w.hsk"), Some(Slot::B)));
        assert_eq!(words.boot, Some(DeviceName::Uuid("AB-C".to_owned())));
        assert_eq!(words.read_timeout, Duration::from_secs(7));
        assert_eq!(words.record, Some(RecordPlace::Device(DeviceName::Label("KEEP".to_owned()))));
        assert_eq!(words.record_for, Duration::from_secs(9));
        assert_eq!(words.overlay, Overlay::Device(DeviceName::Label("KEEP".to_owned())));
        assert_eq!(
            (words.image_path.as_str(), &words.unknown[..]),
            ("/x.hsi", &["headstart.colour=red".to_owned()][..])
        );
    }

    #[test]
    fn what_a_vmm_asks_for_is_a_serial_line() {
        let line = "root=headstart:LABEL=A headstart.record=LABEL=KEEP\n";
        let recorded = Words::parse(&with_recording(line, "/dev/ttyS1\n")).expect("words").record;
        assert_eq!(recorded, Some(RecordPlace::Line("/dev/ttyS1".into())));
        let words = Words::parse(&with_recording(line, "/dev/ttyS1 read-ahead")).expect("words");
        assert_eq!(words.record, recorded);
        assert!(words.record_read_ahead && words.unknown.is_empty());
        for item in ["", "LABEL=KEEP", "/dev/sda", "/dev/ttyS1 root=headstart:LABEL=B"] {
            assert_eq!(with_recording(line, item), line);
        }
    }

    #[test]
    fn a_line_for_processes_is_a_number() {
        assert_eq!(serial_line("/dev/ttyS1\n"), Some(1));
        for item in ["", "/dev/ttyS", "/dev/ttyS192", "/dev/ttyS-1", "/dev/tty1", "/dev/ttyS1 2", "/dev/sda"]
        {
            assert_eq!(serial_line(item), None, "{item}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, why) in [
            ("root=/dev/sda1 ro", "no root=headstart:"),
            ("root=headstart:", "names no image"),
            ("root=headstart:LABEL=", "names no image"),
            ("root=headstart:sda1", "names no image"),
            ("root=headstart:LABEL=A headstart.budget=many", "headstart.budget=many"),
            ("root=headstart:LABEL=A headstart.wait=long", "whole number of seconds"),
            ("root=headstart:LABEL=A headstart.wait=99999999999", "whole number of seconds"),
            ("root=headstart:LABEL=A headstart.read-timeout=0", "whole number of seconds"),
            ("root=headstart:LABEL=A headstart.overlay=disk", "where writes go"),
            ("root=headstart:LABEL=A headstart.keep=x", "begins with /"),
            ("root=headstart:LABEL=A headstart.slot=c", "are slots"),
            ("root=headstart:LABEL=A headstart.boot=x", "the boot partition"),
            ("root=headstart:LABEL=A headstart.record=x", "a profile is written"),
            ("root=headstart:LABEL=A headstart.image=x", "begins with /"),
            ("root=headstart:LABEL=A headstart.prefetch=fast", "warm, push"),
            ("root=headstart:LABEL=A headstart.min-date=soon", "headstart.min-date=soon"),
        ] {
            let error = Words::parse(line).expect_err(line).to_string();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
