//! Uploads that are under way, noted on disk for a later process: a file for each, which nobody else may read, because an upload's place is all that
//! is needed to go on with it.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use url::Url;

use super::address::RegistryAddress;
use super::sha256::Sha256;

/// A place is no longer than this.
const MOST_BYTES: u64 = 64 << 10;

/// Where the upload of one blob to one repository is noted. The file is locked: of two processes that send the same at the same time the
/// second notes nothing, and they do not disturb each other.
pub(super) struct Unfinished {
    noted: Option<(File, PathBuf)>,
}

impl Unfinished {
    /// In `folder`, which need not be there yet; without one nothing is noted.
    pub(super) fn of(folder: Option<&Path>, address: &RegistryAddress, blob: Sha256) -> Self {
        let place = address.url(&format!("blobs/{blob}")).ok();
        let name = |place: Url| Sha256::of(place.as_str().as_bytes()).to_string().replace(':', "-");
        let Some(path) = folder.zip(place).map(|(folder, place)| folder.join(name(place))) else {
            return Self { noted: None };
        };
        let opened = open(&path).inspect_err(|error| {
            log::info!("{}: {error}: no later process can go on with this upload", path.display());
        });
        Self { noted: opened.ok().map(|file| (file, path)) }
    }

    /// Where it went on when that was noted last, and how large its pieces must be.
    pub(super) fn recall(&self) -> Option<(Url, u64)> {
        let (file, _) = self.noted.as_ref()?;
        let mut text = vec![0; file.metadata().ok()?.len().min(MOST_BYTES) as usize];
        file.read_exact_at(&mut text, 0).ok()?;
        let (place, least_bytes) = std::str::from_utf8(&text).ok()?.trim_end().split_once(' ')?;
        Some((place.parse().ok()?, least_bytes.parse().ok()?))
    }

    /// Notes where it goes on. It is not synced: what a crash spoils is an upload that begins anew.
    pub(super) fn note(&self, place: &Url, least_bytes: u64) {
        let Some((file, path)) = &self.noted else { return };
        let text = format!("{place} {least_bytes}\n");
        let written = file.set_len(0).and_then(|()| file.write_all_at(text.as_bytes(), 0));
        if let Err(error) = written {
            log::info!("{}: {error}", path.display());
        }
    }

    /// There is nothing to go on with.
    pub(super) fn forget(&self) {
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

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_place_is_noted_for_oneself_alone_and_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let address = RegistryAddress::parse("oci://host/a/b:1").expect("an address");
        let uploads = folder.path().join("state/uploads");
        let noted = |blob: &[u8]| Unfinished::of(Some(&uploads), &address, Sha256::of(blob));
        assert_eq!(noted(b"a").recall(), None);
        let place: Url = "https://host/v2/a/b/blobs/uploads/1?_state=x".parse().expect("a place");
        noted(b"a").note(&place, 7);
        assert_eq!((noted(b"a").recall(), noted(b"b").recall()), (Some((place.clone(), 7)), None));
        let files: Vec<_> = fs::read_dir(&uploads).expect("listed").flatten().collect();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].metadata().expect("there").permissions().mode() & 0o777, 0o600);
        // Whoever comes while another sends it neither sees nor changes what that one notes.
        let (first, second) = (noted(b"a"), noted(b"a"));
        second.note(&"https://host/other".parse().expect("a place"), 0);
        second.forget();
        assert_eq!((first.recall(), second.recall()), (Some((place, 7)), None));
        fs::write(files[0].path(), "no place").expect("written");
        assert_eq!(first.recall(), None);
        first.forget();
        drop((first, second));
        assert_eq!(fs::read_dir(&uploads).expect("listed").count(), 0);
    }
}
