//! What the kernel says of a mount that fails: the number that `mount(2)` returns says little.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A record is at most this long.
const RECORD_BYTES: usize = 8192;
/// Lines that are passed on.
const MOST_LINES: usize = 3;

/// The kernel's log from a moment on, where this process may read it.
pub(crate) struct KernelLog(File);

impl KernelLog {
    pub(crate) fn from_now() -> Option<Self> {
        let mut log = File::options()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open("/dev/kmsg")
            .ok()?;
        log.seek(SeekFrom::End(0)).ok()?;
        Some(Self(log))
    }

    /// What was said since then of the device, as a part of a sentence; empty when nothing was.
    pub(crate) fn about(mut self, device: &Path) -> String {
        let name = device.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut said: Vec<String> = Vec::new();
        let mut record = vec![0; RECORD_BYTES];
        while let Ok(len @ 1..) = self.0.read(&mut record) {
            if let Some(text) = text_of(&record[..len]).filter(|text| names(text, &name))
                && said.len() < MOST_LINES
            {
                said.push(text);
            }
        }
        if said.is_empty() { String::new() } else { format!("; the kernel says: {}", said.join("; ")) }
    }
}

/// The text of a record: "priority,number,time,flags;text", and lines of keys behind it.
fn text_of(record: &[u8]) -> Option<String> {
    let record = String::from_utf8_lossy(record);
    let (_, text) = record.split_once(';')?;
    Some(text.lines().next()?.trim().to_owned())
}

/// Whether the text names the device, and not only one whose name begins with it.
fn names(text: &str, device: &str) -> bool {
    !device.is_empty()
        && text.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|word| word == device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_taken_apart() {
        let record = b"3,2345,987,-;EXT4-fs (loop1): bad block size 1024\n SUBSYSTEM=block\n";
        let text = text_of(record).unwrap();
        assert_eq!(text, "EXT4-fs (loop1): bad block size 1024");
        assert!(
            names(&text, "loop1") && !names(&text, "loop") && !names(&text, "loop10") && !names(&text, "")
        );
        assert_eq!(text_of(b"no record"), None);
    }
}
