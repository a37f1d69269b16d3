//! Rules for udev, so that it does not examine the medium.
//!
//! To find out what a device holds, udev reads two dozen places of it, also at its end. On a disc each costs
//! a seek, and a prefetch beside them another one. But what the medium holds is known here. So until it is
//! found, udev examines no block device (`UDEV_DISABLE_PERSISTENT_STORAGE_RULES_FLAG` in its own
//! 60-persistent-storage.rules), and afterwards all but the medium, whose properties it is told. The rules
//! lie below `/run`, where also the udev of the real root finds them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::device::{FoundDevice, sysfs};

/// Before 60-persistent-storage.rules.
const FILE: &str = "/run/udev/rules.d/59-headstart.rules";
/// The property by which udev leaves a device alone.
const LEFT_ALONE: &str = "UDEV_DISABLE_PERSISTENT_STORAGE_RULES_FLAG";

/// From now on udev examines no block device. It must not run yet: it reads rules when it starts.
pub fn examine_nothing() {
    write(&format!("SUBSYSTEM==\"block\", ENV{{{LEFT_ALONE}}}=\"1\"\n"));
}

/// From now on udev examines all devices but this one, and knows what it holds.
pub(crate) fn name_medium(found: &FoundDevice) {
    match rule_of(found) {
        Some(rule) => write(&rule),
        None => examine_everything(),
    }
}

/// No medium was found: udev examines all devices.
pub(crate) fn examine_everything() {
    if let Err(error) = fs::remove_file(FILE) {
        log::debug!("{FILE}: {error}");
    }
}

fn write(rules: &str) {
    let path = Path::new(FILE);
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, rules));
    if let Err(error) = written {
        // Then it examines the medium, which takes longer.
        log::debug!("{FILE}: {error}");
    }
}

/// A rule of this very medium: another one in the same drive has another sequence number. Kernels before 5.15
/// have none, and then there is no rule.
fn rule_of(found: &FoundDevice) -> Option<String> {
    let name = found.path.file_name()?.to_str()?;
    let entry = sysfs(&found.path)?;
    // A partition has the number of its disk.
    let number =
        ["diskseq", "../diskseq"].iter().find_map(|file| fs::read_to_string(entry.join(file)).ok())?;
    let number = number.trim().parse().ok()?;
    let disk = found.disk.as_deref().map(|disk| rule_of_disk(disk, number)).unwrap_or_default();
    Some(disk + &rule(name, number, found))
}

/// A hybrid medium's disk has the same label, and its links are to lead to the partition.
fn rule_of_disk(name: &str, sequence: u64) -> String {
    format!(
        "SUBSYSTEM==\"block\", KERNEL==\"{name}\", ATTRS{{diskseq}}==\"{sequence}\", ENV{{{LEFT_ALONE}}}=\"1\"\n"
    )
}

fn rule(name: &str, sequence: u64, found: &FoundDevice) -> String {
    let FoundDevice { file_system, label, uuid, .. } = found;
    let mut rule = format!(
        "SUBSYSTEM==\"block\", KERNEL==\"{name}\", ATTRS{{diskseq}}==\"{sequence}\", ENV{{{LEFT_ALONE}}}=\"1\", \
         ENV{{ID_FS_USAGE}}=\"filesystem\", ENV{{ID_FS_TYPE}}=\"{file_system}\""
    );
    for (property, folder, text) in [("LABEL", "by-label", label), ("UUID", "by-uuid", uuid)] {
        let encoded = encoded(text);
        if !encoded.is_empty() {
            let plain = plain(text);
            let _ = write!(
                rule,
                ", ENV{{ID_FS_{property}}}=\"{plain}\", ENV{{ID_FS_{property}_ENC}}=\"{encoded}\", \
                 SYMLINK+=\"disk/{folder}/{encoded}\""
            );
        }
    }
    rule + "\n"
}

/// As udev names links (`encode_devnode_name` in systemd): what is not in its list is `\x` and two digits.
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"#+-.:=@_".contains(&byte);
    let one = |byte: u8| if is_plain(byte) { char::from(byte).into() } else { format!("\\x{byte:02x}") };
    text.bytes().map(one).collect()
}

/// Without what would mean something in a rule.
fn plain(text: &str) -> String {
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || " #+-.:=@_".contains(*letter);
    text.chars().map(|letter| if is_plain(&letter) { letter } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_medium_is_named_and_nothing_in_its_label_is_a_rule() {
        let found = FoundDevice {
            path: "/dev/sr0".into(),
            file_system: "iso9660",
            label: "MY \"DISC\", RUN+=\"$x%k".to_owned(),
            uuid: "2026-11-24".to_owned(),
            is_divided: false,
            disk: None,
        };
        let rule = rule("sr0", 7, &found);
        assert_eq!(rule.matches('\n').count(), 1);
        assert!(rule.starts_with("SUBSYSTEM==\"block\", KERNEL==\"sr0\", ATTRS{diskseq}==\"7\", ENV{UDEV_"));
        let label = r"MY\x20\x22DISC\x22\x2c\x20RUN+=\x22\x24x\x25k";
        assert!(rule.contains(&format!("SYMLINK+=\"disk/by-label/{label}\"")), "{rule}");
        assert!(rule.contains("ENV{ID_FS_LABEL}=\"MY _DISC__ RUN+=__x_k\""), "{rule}");
        assert!(
            rule.contains("ENV{ID_FS_UUID}=\"2026-11-24\"") && rule.matches('"').count().is_multiple_of(2)
        );
    }
}
