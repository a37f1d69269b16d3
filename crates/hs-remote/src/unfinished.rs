//! Uploads that are under way, noted on disk for a later process. Each has a file that other users may not
//! read, because the address of an upload is all that is needed to continue it.
//!
//! The first line says what is sent where, for a list of interrupted uploads; the others are for the process
//! that continues. The content is not trusted: a note that cannot be parsed counts as none.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

use crate::sha256::Sha256;

/// A note is no longer than this: ten thousand parts have at most two lines of a hundred bytes each.
const MOST_BYTES: u64 = 4 << 20;
/// At most this many files of a folder are read.
const MOST_NOTES: usize = 1000;
/// In seconds since 1970. Later dates are not written.
const YEAR_10_000: u64 = 253_402_300_800;

/// An interrupted upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftUpload {
    /// The image's file.
    pub image: String,
    /// The destination, without secrets.
    pub address: String,
    /// When it began, in seconds since 1970.
    begun: u64,
}

impl LeftUpload {
    fn new(image: &Path, address: String) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { image: image.display().to_string(), address, begun: since.as_secs() }
    }

    /// When it began; `None` when the time is not possible.
    #[must_use]
    pub fn begun(&self) -> Option<SystemTime> {
        let since = Some(self.begun).filter(|since| *since < YEAR_10_000)?;
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(since))
    }

    /// Safe to print on a terminal, whatever the file contains.
    fn printable(self) -> Self {
        let printable = |text: &str| text.chars().filter(|letter| !letter.is_control()).collect();
        Self { image: printable(&self.image), address: printable(&self.address), begun: self.begun }
    }
}

/// The note of one upload. The file is locked: of two processes that send the same at the same time the
/// second notes nothing, and they do not disturb each other.
pub(crate) struct Unfinished {
    noted: Option<(File, PathBuf)>,
    /// The content of the first line.
    what: LeftUpload,
}

impl Unfinished {
    /// The note, in `folder`, of what is sent to `place`, which is called `address` in messages. The folder
    /// need not exist yet; without one nothing is noted.
    pub(crate) fn of(folder: Option<&Path>, place: &str, image: &Path, address: String) -> Self {
        let what = LeftUpload::new(image, address);
        let Some(path) = folder.map(|folder| path_of(folder, place)) else {
            return Self { noted: None, what };
        };
        let opened = open(&path).inspect_err(|error| {
            log::info!("{}: {error}: a later process cannot continue this upload", path.display());
        });
        let mut unfinished = Self { noted: opened.ok().map(|file| (file, path)), what };
        if let Some((was, _)) = unfinished.read() {
            unfinished.what.begun = was.begun;
        }
        unfinished
    }

    /// The note, in `folder`, of what was to be sent to `place`; `None` without a note, or while another
    /// process continues it.
    pub(crate) fn find(folder: &Path, place: &str) -> Option<Self> {
        Self::at(path_of(folder, place))
    }

    /// The notes of all uploads to what is called `address` in messages and that no process continues now.
    pub(crate) fn all_to(folder: &Path, address: &str) -> Vec<Self> {
        notes(folder).filter_map(Self::at).filter(|noted| noted.what.address == address).collect()
    }

    fn at(path: PathBuf) -> Option<Self> {
        let file = File::options().read(true).write(true).custom_flags(FLAGS).open(&path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let (what, _) = read(&file)?;
        Some(Self { noted: Some((file, path)), what })
    }

    /// Whether a later process can continue it.
    pub(crate) const fn is_noted(&self) -> bool {
        self.noted.is_some()
    }

    fn read(&self) -> Option<(LeftUpload, String)> {
        read(&self.noted.as_ref()?.0)
    }

    /// What was noted last.
    pub(crate) fn recall(&self) -> Option<String> {
        self.read().map(|(_, rest)| rest).filter(|rest| !rest.is_empty())
    }

    /// Replaces the note by these lines. They are not synced: after a crash a damaged note means that the
    /// upload begins again.
    pub(crate) fn note(&self, lines: &str) {
        let first = serde_json::to_string(&self.what).expect("strings and numbers are JSON");
        self.write(|file| {
            file.set_len(0)?;
            file.write_all_at(format!("{first}\n{lines}\n").as_bytes(), 0)
        });
    }

    /// Notes one more line.
    pub(crate) fn add(&self, line: &str) {
        self.write(|file| file.write_all_at(format!("{line}\n").as_bytes(), file.metadata()?.len()));
    }

    fn write(&self, write: impl FnOnce(&File) -> io::Result<()>) {
        let Some((file, path)) = &self.noted else { return };
        if let Err(error) = write(file) {
            log::info!("{}: {error}", path.display());
        }
    }

    /// Removes the note: there is nothing to continue.
    pub(crate) fn forget(&self) {
        if let Some((file, _)) = &self.noted {
            let _ = file.set_len(0);
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some((file, path)) = &self.noted
            && file.metadata().is_ok_and(|metadata| metadata.len() == 0)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Symbolic links are not followed, and opening a pipe does not block.
const FLAGS: i32 = (OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits()) as i32;

fn path_of(folder: &Path, place: &str) -> PathBuf {
    folder.join(Sha256::of(place.as_bytes()).to_string().replace(':', "-"))
}

/// Files that may be notes.
fn notes(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.take(MOST_NOTES).map(|entry| entry.path())
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(FLAGS)
        .open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// The first line of a note, and the others.
fn read(file: &File) -> Option<(LeftUpload, String)> {
    let mut text = vec![0; file.metadata().ok()?.len().min(MOST_BYTES) as usize];
    file.read_exact_at(&mut text, 0).ok()?;
    let (first, rest) = std::str::from_utf8(&text).ok()?.split_once('\n')?;
    Some((serde_json::from_str(first).ok()?, rest.to_owned()))
}

/// Uploads that are noted in `folder` and that no process continues now, the oldest first.
#[must_use]
pub fn left_uploads(folder: &Path) -> Vec<LeftUpload> {
    let mut left: Vec<_> = notes(folder).filter_map(|path| left_upload(&path)).collect();
    left.sort_by(|one, other| (one.begun, &one.address).cmp(&(other.begun, &other.address)));
    left
}

fn left_upload(path: &Path) -> Option<LeftUpload> {
    let file = File::options().read(true).custom_flags(FLAGS).open(path).ok()?;
    // A process that begins the same upload in this moment notes nothing, as if another process were sending
    // it.
    flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
    read(&file).map(|(what, _)| what.printable())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn noted(folder: &Path, place: &str) -> Unfinished {
        Unfinished::of(Some(folder), place, Path::new("a.hsi"), format!("to {place}"))
    }

    #[test]
    fn a_place_is_noted_for_oneself_alone_and_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let uploads = folder.path().join("state/uploads");
        assert_eq!(noted(&uploads, "a").recall(), None);
        noted(&uploads, "a").note("1");
        noted(&uploads, "a").add("2");
        assert_eq!(
            (noted(&uploads, "a").recall().as_deref(), noted(&uploads, "b").recall()),
            (Some("1\n2\n"), None)
        );
        let files: Vec<_> = fs::read_dir(&uploads).expect("listed").flatten().collect();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].metadata().expect("there").permissions().mode() & 0o777, 0o600);
        // While one process sends, a second one neither sees nor changes its note.
        let (first, second) = (noted(&uploads, "a"), noted(&uploads, "a"));
        second.note("3");
        second.forget();
        assert_eq!((first.recall().as_deref(), second.recall()), (Some("1\n2\n"), None));
        assert!(first.is_noted() && !second.is_noted());
        first.forget();
        drop((first, second));
        assert_eq!(fs::read_dir(&uploads).expect("listed").count(), 0);
    }

    #[test]
    fn what_makes_no_sense_is_no_note() {
        let folder = tempfile::tempdir().expect("a folder");
        noted(folder.path(), "a").note("1");
        let path = fs::read_dir(folder.path()).expect("listed").flatten().next().expect("a note").path();
        let good = fs::read(&path).expect("read");
        for wrong in
            [&b"no place"[..], b"{}\n1\n", b"\xff\xfe\n", b"\n\n", &good[..good.len() - 3], &[0; 100]]
        {
            fs::write(&path, wrong).expect("written");
            assert_eq!(noted(folder.path(), "a").recall(), None, "{wrong:?}");
            assert_eq!(left_uploads(folder.path()), []);
        }
        let hostile = br#"{"image":"a\u001b[2J","address":"b\n","begun":18446744073709551615}"#;
        fs::write(&path, [hostile, &b"\n1\n"[..]].concat()).expect("written");
        let left = left_uploads(folder.path());
        assert_eq!((left[0].image.as_str(), left[0].address.as_str(), left[0].begun()), ("a[2J", "b", None));
        // A symbolic link is not followed.
        let target = folder.path().join("other");
        fs::write(&target, &good).expect("written");
        fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(&target, &path).expect("a link");
        let linked = noted(folder.path(), "a");
        linked.note("2");
        assert!(!linked.is_noted() && fs::read(&target).expect("read") == good);
    }

    #[test]
    fn what_was_broken_off_is_told_and_what_is_under_way_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(left_uploads(&folder.path().join("none")), []);
        let under_way = noted(folder.path(), "a");
        under_way.note("1");
        noted(folder.path(), "b").note("1");
        let left = left_uploads(folder.path());
        assert_eq!((left.len(), left[0].address.as_str(), left[0].image.as_str()), (1, "to b", "a.hsi"));
        let ago = left[0].begun().and_then(|begun| SystemTime::now().duration_since(begun).ok());
        assert!(ago.is_some_and(|ago| ago < Duration::from_secs(3600)), "{ago:?}");
        // No other process can give it up either.
        assert!(
            Unfinished::find(folder.path(), "a").is_none() && Unfinished::find(folder.path(), "c").is_none()
        );
        drop(under_way);
        assert_eq!(left_uploads(folder.path()).len(), 2);
        let found = Unfinished::all_to(folder.path(), "to a");
        assert_eq!((found.len(), found[0].recall().as_deref()), (1, Some("1\n")));
        drop(found);
        Unfinished::find(folder.path(), "a").expect("a note").forget();
        assert_eq!(left_uploads(folder.path()), left);
    }
}
