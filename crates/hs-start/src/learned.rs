//! Profiles that starts keep for the next one with the same command from the same image.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use hs_format::chunk_digest;
use hs_image::Image;
use hs_output::own_folders::OwnFolders;
use hs_output::whole_file::write_private;
use hs_serve::ServedDisk;
use hs_trace::{Profile, ProfileHead};

/// So many digits of its digest stand for a command in the name of its profile.
const COMMAND_DIGITS: usize = 16;
/// Larger profiles are neither kept nor read: this one has a million reads.
const MOST_PROFILE_BYTES: u64 = 32 << 20;
/// Profiles that are kept, at most.
const MOST_PROFILES: usize = 256;
/// Their bytes, at most.
const MOST_BYTES: u64 = 128 << 20;

/// The folder of learned profiles.
#[derive(Clone, Debug)]
pub struct LearnedFolder(PathBuf);

impl LearnedFolder {
    /// The folder that the user names, or the default.
    ///
    /// # Errors
    /// When this user has no home.
    pub fn of(asked: Option<&Path>) -> anyhow::Result<Self> {
        let folder = asked.map(Path::to_owned).or_else(|| OwnFolders::CACHE.find("learned"));
        folder.map(Self).context("--learn: this user has no home to keep profiles in: give --learned DIR")
    }

    /// Gives a disk that has just been opened what the last start with this command has read; returns how
    /// many windows that is. A profile that cannot be used is as good as none.
    pub fn teach(&self, disk: &ServedDisk, command: &[OsString]) -> u64 {
        let path = self.path(disk.image(), command);
        match read(&path, disk.image()) {
            Ok(Some(profile)) => disk.learn(profile.first_access_runs()),
            Ok(None) => 0,
            Err(error) => {
                log::warn!("{}: {error:#}; the start is made without it, and replaces it", path.display());
                0
            }
        }
    }

    /// Keeps the profile of a start for the next one with this command, in place of the last; the oldest
    /// profiles go.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, image: &Image, command: &[OsString], profile: &Profile) -> anyhow::Result<()> {
        let bytes = profile.encode()?;
        if bytes.len() as u64 > MOST_PROFILE_BYTES {
            bail!("a profile of {} bytes is too large", bytes.len());
        }
        write_private(&self.path(image, command), &bytes)?;
        self.remove_oldest();
        Ok(())
    }

    /// The image is named by its verified digest, so that no other image gets its profile.
    fn path(&self, image: &Image, command: &[OsString]) -> PathBuf {
        let words: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        // No word has a zero byte.
        let command = chunk_digest(&words.join(&0)).to_string();
        self.0.join(format!("{}-{}.hsp", image.image_digest(), &command[..COMMAND_DIGITS]))
    }

    /// Other files that lie in the folder stay.
    fn remove_oldest(&self) {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten().map(|entry| entry.path());
        let profiles = entries.filter(|path| is_learned(path));
        let mut profiles: Vec<(SystemTime, u64, PathBuf)> = profiles
            .filter_map(|path| {
                let metadata = fs::symlink_metadata(&path).ok()?;
                Some((metadata.modified().ok()?, metadata.len(), path))
            })
            .collect();
        profiles.sort_unstable_by(|a, b| b.cmp(a));
        let (mut kept, mut bytes) = (0, 0);
        for (_, len, path) in profiles {
            (kept, bytes) = (kept + 1, bytes + len);
            if kept > MOST_PROFILES || bytes > MOST_BYTES {
                // Another start may have removed it.
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Whether a file is named as [`LearnedFolder::path`] names them.
fn is_learned(path: &Path) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".hsp"));
    let parts = name.and_then(|name| name.rsplit_once('-'));
    parts.is_some_and(|(image, command)| {
        command.len() == COMMAND_DIGITS
            && image.len() > COMMAND_DIGITS
            && is_hex(command)
            && is_hex(image.strip_prefix("hs1-").unwrap_or(image))
    })
}

/// The profile at `path`, if there is one, checked against the image.
fn read(path: &Path, image: &Image) -> anyhow::Result<Option<Profile>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(MOST_PROFILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_PROFILE_BYTES {
        bail!("the file is too large for a learned profile");
    }
    let context = "this is not a usable profile";
    let head = ProfileHead::decode(&bytes).context(context)?;
    head.check_disk(image.disk_digest(), image.disk_bytes())?;
    Ok(Some(Profile::decode(&bytes).context(context)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_profiles_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let learned = LearnedFolder::of(Some(folder.path())).expect("it is named");
        let name = |number: usize| folder.path().join(format!("{number:064x}-0123456789abcdef.hsp"));
        for number in 0..MOST_PROFILES + 3 {
            fs::write(name(number), "x").expect("a file");
            let file = File::options().append(true).open(name(number)).expect("it is there");
            let age = std::time::Duration::from_secs((MOST_PROFILES + 3 - number) as u64);
            file.set_modified(SystemTime::now() - age).expect("its time");
        }
        File::create(name(5)).and_then(|file| file.set_len(MOST_BYTES)).expect("a large one, the newest");
        let others = ["other", "mine.hsp", "mine-0123456789abcdef.hsp"];
        others.iter().for_each(|other| fs::write(folder.path().join(other), "").expect("another file"));
        learned.remove_oldest();
        assert!(name(5).exists() && others.iter().all(|other| folder.path().join(other).exists()));
        let left = fs::read_dir(folder.path()).expect("it is there").count();
        assert_eq!(left, 1 + others.len(), "the other profiles are older");
    }
}
