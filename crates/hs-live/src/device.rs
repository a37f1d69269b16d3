//! Finding the device with a label, and mounting what is on it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::reading::{LONG, Reading};
use crate::words::DeviceName;

/// How often the list of devices is read while the medium is missing.
const LOOK: Duration = Duration::from_millis(20);
/// A device that gave an error may only be busy detecting its medium: it is asked again after so long.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// When a person is told what is waited for.
const SAY_AFTER: Duration = Duration::from_secs(8);
/// How long another program may hold a device for itself: udev's cdrom_id does for a moment, each time that a
/// drive has something to say.
const HELD: Duration = Duration::from_secs(5);
/// How long the partitions of a disk may take to appear after it.
const DIVIDED: Duration = Duration::from_secs(1);
/// Devices that hold no medium of ours: memory and what others have set up.
const NO_MEDIA: [&str; 4] = ["ram", "loop", "zram", "fd"];

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contents {
    /// The driver of its file system.
    file_system: &'static str,
    label: String,
    uuid: String,
    /// A table of partitions lies in front of it.
    is_divided: bool,
}

/// A device with a medium on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDevice {
    /// Its file below `/dev`.
    pub path: PathBuf,
    /// The driver of its file system.
    pub file_system: &'static str,
    /// The label and the UUID of that, as blkid(8) writes them.
    pub label: String,
    /// See `label`.
    pub uuid: String,
    /// It has a table of partitions, which the kernel may show later.
    pub is_divided: bool,
    /// The disk that it is a partition of, when that has the same file system: a hybrid medium. That is not
    /// mounted, since other partitions could not be used then.
    pub disk: Option<String>,
}

/// The disk that a device is a partition of.
fn disk_of(device: &Path) -> Option<String> {
    let entry = sysfs(device)?.canonicalize().ok()?;
    entry.join("partition").exists().then(|| entry.parent()?.file_name()?.to_str().map(str::to_owned))?
}

/// Where the kernel describes a device.
pub(crate) fn sysfs(device: &Path) -> Option<PathBuf> {
    Some(Path::new("/sys/class/block").join(device.file_name()?))
}

/// Whether a device can have partitions: an optical drive cannot.
fn can_be_divided(device: &Path) -> bool {
    let most = sysfs(device).and_then(|entry| std::fs::read_to_string(entry.join("ext_range")).ok());
    most.and_then(|most| most.trim().parse().ok()).is_some_and(|most: u32| most > 1)
}

/// Waits, at most `patience`, until `accept` takes one of the devices of this name. It is asked when the
/// first has been there for `settle`, and each time that there are more of them. Each device is read once,
/// when it appears, since reads of a disc cost seeks. Of a disk and its partition with the same name the
/// partition counts.
///
/// # Errors
/// When none is taken in time: what `accept` said last, or the list of what was seen.
pub fn wait_for<T>(
    name: &DeviceName,
    patience: Duration,
    settle: Duration,
    mut accept: impl FnMut(&[FoundDevice]) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let began = Instant::now();
    let mut seen = SeenDevices::default();
    let (mut first, mut asked) = (None::<Instant>, Vec::new());
    let (mut refused, mut has_said, mut divided) = (None, false, None::<Instant>);
    loop {
        let is_last = began.elapsed() >= patience;
        seen.look(if is_last { LONG } else { LOOK });
        let found = seen.of(name);
        if first.is_none() && !found.is_empty() {
            first = Some(Instant::now());
        }
        let is_divided = found.iter().any(|one| one.is_divided);
        divided = if is_divided { divided.or_else(|| Some(Instant::now())) } else { None };
        let has_settled = first.is_some_and(|first| first.elapsed() >= settle)
            && divided.is_none_or(|divided| divided.elapsed() >= DIVIDED);
        if (has_settled || is_last) && !found.is_empty() && found != asked {
            match accept(&found) {
                Ok(taken) => return Ok(taken),
                Err(error) => {
                    log::warn!("{error:#}; waiting for another medium");
                    refused = Some(error);
                }
            }
            asked = found;
        }
        if is_last {
            return Err(refused.unwrap_or_else(|| {
                anyhow::anyhow!("no device {name} after {} s; {}", patience.as_secs(), seen.list())
            }));
        }
        if !has_said && began.elapsed() >= SAY_AFTER {
            has_said = true;
            log::warn!("waiting for {name}, at most {} s; {}", patience.as_secs(), seen.list());
        }
        std::thread::sleep(LOOK);
    }
}

/// The devices that were read.
#[derive(Default)]
struct SeenDevices(BTreeMap<PathBuf, DeviceState>);

enum DeviceState {
    /// It is being read.
    Asked(Reading<Option<Contents>>),
    Read(Option<Contents>),
    /// It gave an error then.
    Unreadable(Instant),
}

impl SeenDevices {
    /// Looks for devices, and waits for what they say for so long at most.
    fn look(&mut self, patience: Duration) {
        // Another medium may come under a name that was free again.
        self.0.retain(|path, _| path.exists());
        for entry in std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_medium = !NO_MEDIA.iter().any(|kind| name.starts_with(kind));
            let path = Path::new("/dev").join(name);
            if !is_medium || !path.exists() {
                continue;
            }
            let is_asked = match self.0.get(&path) {
                Some(DeviceState::Unreadable(at)) => at.elapsed() >= ASK_AGAIN,
                Some(DeviceState::Asked(_) | DeviceState::Read(_)) => false,
                None => true,
            };
            if is_asked {
                let reading = Reading::begin(&path, |path| Contents::read(&File::open(path)?));
                self.0.insert(path, DeviceState::Asked(reading));
            }
        }
        let end = Instant::now() + patience;
        for seen in self.0.values_mut() {
            let DeviceState::Asked(reading) = seen else { continue };
            match reading.poll(end.saturating_duration_since(Instant::now())) {
                Some(Ok(contents)) => *seen = DeviceState::Read(contents),
                Some(Err(_)) => *seen = DeviceState::Unreadable(Instant::now()),
                None => {}
            }
        }
    }

    fn of(&self, name: &DeviceName) -> Vec<FoundDevice> {
        let matches = |path: &Path, contents: &Contents| match name {
            DeviceName::Label(label) => contents.label == *label,
            DeviceName::Uuid(uuid) => contents.uuid.eq_ignore_ascii_case(uuid),
            DeviceName::Path(wanted) => {
                wanted == path || wanted.canonicalize().is_ok_and(|wanted| wanted == path)
            }
        };
        let all = self.0.iter().filter_map(|(path, seen)| match seen {
            DeviceState::Read(Some(contents)) => Some((path, contents)),
            DeviceState::Read(None) | DeviceState::Asked(_) | DeviceState::Unreadable(_) => None,
        });
        let mut found: Vec<FoundDevice> = all
            .filter(|(path, contents)| matches(path, contents))
            .map(|(path, contents)| {
                let Contents { file_system, label, uuid, is_divided } = contents.clone();
                // A device that is named itself is meant.
                let is_named = matches!(name, DeviceName::Path(_));
                let is_divided = is_divided && !is_named && can_be_divided(path);
                FoundDevice { path: path.clone(), file_system, label, uuid, is_divided, disk: None }
            })
            .collect();
        let paths: Vec<PathBuf> = found.iter().map(|one| one.path.clone()).collect();
        for one in &mut found {
            one.disk = disk_of(&one.path).filter(|disk| paths.iter().any(|path| path.ends_with(disk)));
        }
        let hybrid: Vec<String> = found.iter().filter_map(|one| one.disk.clone()).collect();
        found.retain(|one| !hybrid.iter().any(|disk| one.path.ends_with(disk)));
        found
    }

    fn list(&self) -> String {
        let one = |(path, seen): (&PathBuf, &DeviceState)| {
            let what = match seen {
                DeviceState::Read(Some(contents)) => format!("{} {:?}", contents.file_system, contents.label),
                DeviceState::Read(None) => "nothing known".to_owned(),
                DeviceState::Asked(_) => "no answer yet".to_owned(),
                DeviceState::Unreadable(_) => "no medium, or unreadable".to_owned(),
            };
            format!("{} ({what})", path.display())
        };
        match self.0.is_empty() {
            true => "the kernel shows no disk at all: is its driver in the initramfs?".to_owned(),
            false => format!("seen: {}", self.0.iter().map(one).collect::<Vec<_>>().join(", ")),
        }
    }
}

impl Contents {
    /// Recognises ISO 9660, ext2 to ext4, and FAT; `None` for anything else.
    fn read(device: &impl FileExt) -> io::Result<Option<Self>> {
        // The volume descriptor of ISO 9660 lies at 32 KiB; everything else lies before.
        let mut bytes = vec![0; 0x8800];
        let mut filled = 0;
        while filled < bytes.len() {
            match device.read_at(&mut bytes[filled..], filled as u64)? {
                0 => break,
                read => filled += read,
            }
        }
        bytes.truncate(filled);
        Ok(Self::of(&bytes))
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let at = |from: usize, len: usize| bytes.get(from..from + len);
        if at(0x8001, 5) == Some(b"CD001") {
            // ECMA-119, 8.4: the volume identifier, padded with spaces. The UUID is the creation date, as
            // blkid(8) writes it.
            let label = text(at(0x8000 + 40, 32)?);
            let date = at(0x8000 + 813, 16).map(text).unwrap_or_default();
            let parts = [(0, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14), (14, 16)];
            let parts: Vec<&str> = parts.iter().filter_map(|(from, to)| date.get(*from..*to)).collect();
            return Some(Self {
                file_system: "iso9660",
                label,
                uuid: parts.join("-"),
                is_divided: has_partitions(bytes),
            });
        }
        if at(0x438, 2) == Some(&[0x53, 0xef]) {
            let (label, uuid) = (text(at(0x478, 16)?), uuid_of(at(0x468, 16)?));
            return Some(Self { file_system: "ext4", label, uuid, is_divided: false });
        }
        for (kind, label, serial) in [(0x52, 0x47, 0x43), (0x36, 0x2b, 0x27)] {
            if at(kind, 3) == Some(b"FAT") {
                let serial = at(serial, 4)?;
                let uuid = format!("{:02X}{:02X}-{:02X}{:02X}", serial[3], serial[2], serial[1], serial[0]);
                return Some(Self {
                    file_system: "vfat",
                    label: text(at(label, 11)?),
                    uuid,
                    is_divided: false,
                });
            }
        }
        None
    }
}

/// Whether a medium begins with a table of partitions: that of the PC, whose entries have a type in their
/// fifth byte. A GPT has an entry there too (UEFI specification 2.10, 5.2).
fn has_partitions(bytes: &[u8]) -> bool {
    let has_type = |entry: usize| bytes.get(0x1be + 16 * entry + 4).is_some_and(|kind| *kind != 0);
    bytes.get(0x1fe..0x200) == Some(&[0x55, 0xaa]) && (0..4).any(has_type)
}

/// Text in a field of fixed size.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).trim_end().to_owned()
}

fn uuid_of(bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Mounts what is on a device at `target`: read-only for an image, with writes for an overlay. A device that
/// another program holds is waited for.
///
/// # Errors
/// When the kernel has no driver, or refuses the medium.
pub fn mount(found: &FoundDevice, target: &Path, writable: bool) -> anyhow::Result<()> {
    std::fs::create_dir_all(target).with_context(|| format!("make {}", target.display()))?;
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID;
    flags.set(MountFlags::RDONLY, !writable);
    let began = Instant::now();
    loop {
        match rustix::mount::mount(&found.path, target, found.file_system, flags, None) {
            Err(Errno::BUSY) if began.elapsed() < HELD => std::thread::sleep(LOOK),
            mounted => {
                return mounted.with_context(|| {
                    let (file_system, device) = (found.file_system, found.path.display());
                    format!("mount {file_system} from {device} at {}", target.display())
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn medium(fields: &[(usize, &[u8])]) -> Option<Contents> {
        let mut bytes = vec![0; 0x8800];
        for (at, field) in fields {
            bytes[*at..*at + field.len()].copy_from_slice(field);
        }
        Contents::of(&bytes)
    }

    #[test]
    fn labels_are_read_from_each_kind_of_medium() {
        let disc =
            medium(&[(0x8001, b"CD001"), (0x8028, b"HEADSTART       "), (0x832d, b"2026112414300500")]);
        let disc = disc.expect("a disc");
        assert_eq!((disc.file_system, disc.label.as_str()), ("iso9660", "HEADSTART"));
        assert_eq!((disc.uuid.as_str(), disc.is_divided), ("2026-11-24-14-30-05-00", false));
        let hybrid = medium(&[(0x8001, b"CD001"), (0x1c2, &[0xee]), (0x1fe, &[0x55, 0xaa])]);
        assert!(hybrid.expect("a stick").is_divided);
        let disk =
            medium(&[(0x438, &[0x53, 0xef]), (0x468, &[0xab; 16]), (0x478, b"KEEP\0rest")]).expect("a disk");
        assert_eq!((disk.file_system, disk.label.as_str()), ("ext4", "KEEP"));
        assert_eq!(disk.uuid, "abababab-abab-abab-abab-abababababab");
        let stick =
            medium(&[(0x52, b"FAT32"), (0x47, b"STICK      "), (0x43, &[4, 3, 2, 1])]).expect("a stick");
        assert_eq!(
            (stick.file_system, stick.label.as_str(), stick.uuid.as_str()),
            ("vfat", "STICK", "0102-0304")
        );
        assert_eq!(medium(&[]), None);
        // Nothing is too short to be looked at.
        for bytes in 0..64 {
            assert_eq!(Contents::of(&vec![0; bytes]), None);
        }
    }

    #[test]
    fn a_missing_device_is_reported_with_what_was_seen() {
        let name = DeviceName::Label("NO-SUCH-LABEL-ANYWHERE".to_owned());
        let error =
            wait_for(&name, Duration::ZERO, Duration::ZERO, |_| Ok(())).expect_err("none").to_string();
        assert!(error.contains("no device LABEL=NO-SUCH-LABEL-ANYWHERE after 0 s"), "{error}");
    }
}
