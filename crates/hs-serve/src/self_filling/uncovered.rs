//! Who reads a file without the kernel asking: loop devices, and file systems mounted from the file itself. Both were
//! tried on Linux 6.18: no event comes, and the reader sees zeros.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::FillError;

/// Fails when somebody uses `path`, which `metadata` is of, in such a way.
pub(super) fn refuse(path: &Path, metadata: &fs::Metadata) -> Result<(), FillError> {
    match user(metadata) {
        Some(user) => Err(FillError::UncoveredUse { path: path.to_owned(), user }),
        None => Ok(()),
    }
}

/// Who uses the file that `metadata` is of in such a way; nobody as far as this process can see otherwise.
pub(super) fn user(metadata: &fs::Metadata) -> Option<String> {
    let same = |path: &Path| {
        fs::metadata(path).is_ok_and(|other| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino()))
    };
    loop_devices().find(|(_, backing)| same(backing)).map(|(name, _)| format!("/dev/{name}")).or_else(|| {
        mounts().find(|(source, _)| same(source)).map(|(_, target)| format!("a mount at {target}"))
    })
}

fn loop_devices() -> impl Iterator<Item = (String, PathBuf)> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        Some((entry.file_name().to_string_lossy().into_owned(), backing.trim_end().into()))
    })
}

/// Sources that are files, as mounts of EROFS can have (Linux 6.12), and where they are mounted.
fn mounts() -> impl Iterator<Item = (PathBuf, String)> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let found: Vec<_> = table.lines().filter_map(file_source).collect();
    found.into_iter()
}

/// mountinfo: fields, ` - `, type, source; the fifth field is where it is mounted.
fn file_source(line: &str) -> Option<(PathBuf, String)> {
    let (before, after) = line.split_once(" - ")?;
    let (kind, source) = after.split_once(' ')?;
    let source = source.split(' ').next()?;
    let target = before.split(' ').nth(4)?;
    (kind == "erofs" && source.starts_with('/')).then(|| (source.replace("\\040", " ").into(), target.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_of_files_count() {
        let line = "99 28 0:53 / /mnt/x ro,relatime shared:5 - erofs /srv/a\\040b.img ro,user_xattr";
        assert_eq!(file_source(line), Some(("/srv/a b.img".into(), "/mnt/x".into())));
        for other in
            ["99 28 0:53 / /mnt/x ro - tmpfs none rw", "99 28 7:0 / /m ro - ext4 /dev/loop0 ro", "", "x - y"]
        {
            assert_eq!(file_source(other), None, "{other}");
        }
    }
}
