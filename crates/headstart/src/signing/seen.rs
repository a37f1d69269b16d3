//! What was seen of channels, so that nobody can roll them back: for each key and channel, date and image.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::SigningError;
use super::date::Date;
use super::keys::Key;
use super::pointer::Pointer;
use crate::own_folders::OwnFolders;

/// The folder in which it is kept. It is no cache: clearing it forgets what protects.
#[derive(Clone, Debug)]
pub(crate) struct SeenFolder(PathBuf);

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    channel: String,
    key: String,
    date: Date,
    image: String,
    /// The signature itself, for when there is no network.
    text: String,
}

impl SeenFolder {
    /// The folder that was asked for, or the usual one; none when this user has no home.
    pub(crate) fn of(asked: Option<&Path>) -> Option<Self> {
        if let Some(asked) = asked {
            return Some(Self(asked.to_owned()));
        }
        OwnFolders::STATE.find("channels").map(Self)
    }

    fn place(&self, key: &Key, channel: &str) -> PathBuf {
        let digest = hs_format::chunk_digest(format!("{key}\n{channel}").as_bytes());
        self.0.join(format!("{digest}.json"))
    }

    /// The signature that was seen last.
    pub(crate) fn recall(&self, key: &Key, channel: &str) -> anyhow::Result<String> {
        let text = fs::read(self.place(key, channel)).ok();
        let seen = text.and_then(|text| serde_json::from_slice::<Seen>(&text).ok());
        let seen = seen.with_context(|| {
            format!("--offline: the channel '{channel}' of the key {key} is not known: open it once with the network")
        })?;
        Ok(seen.text)
    }

    /// Refuses a pointer that is older than one that was seen, or of the same date and another image; else notes it. What
    /// cannot be noted is an error: the next one could be rolled back.
    pub(crate) fn advance(&self, name: &str, key: &Key, pointer: &Pointer, text: &str) -> anyhow::Result<()> {
        let context = || format!("note what was seen of the channel in {}", self.0.display());
        fs::create_dir_all(&self.0).with_context(context)?;
        let place = self.place(key, &pointer.channel);
        let lock = File::create(self.0.join("lock")).with_context(context)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).with_context(context)?;
        let found = Seen {
            channel: pointer.channel.clone(),
            key: key.to_string(),
            date: pointer.date.clone(),
            image: pointer.image.to_string(),
            text: text.to_owned(),
        };
        match fs::read(&place) {
            Ok(text) => {
                let seen: Seen = serde_json::from_slice(&text)
                    .with_context(|| format!("{} is damaged: remove it to begin anew", place.display()))?;
                if found == seen {
                    return Ok(());
                }
                compare(name, &seen, &found)?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(context),
        }
        crate::whole_file::write_whole(&place, &serde_json::to_vec(&found)?)
    }
}

fn compare(name: &str, seen: &Seen, found: &Seen) -> Result<(), SigningError> {
    if found.date < seen.date {
        return Err(SigningError::RolledBack {
            name: name.to_owned(),
            found: found.date.clone(),
            least: seen.date.clone(),
            why: "which was seen before",
        });
    }
    if found.date == seen.date && found.image != seen.image {
        return Err(SigningError::Ambiguous {
            name: name.to_owned(),
            date: found.date.clone(),
            seen: seen.image.clone(),
            found: found.image.clone(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";

    fn pointer(channel: &str, date: &str, image: char) -> Pointer {
        Pointer {
            channel: channel.to_owned(),
            image: format!("hs1-{}", image.to_string().repeat(64)).parse().expect("a name"),
            date: date.parse().expect("a date"),
            expires: None,
            url: None,
        }
    }

    #[test]
    fn a_channel_only_moves_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let seen = SeenFolder::of(Some(&folder.path().join("deep/er"))).expect("a folder");
        let key: Key = KEY.parse().expect("a key");
        let advance = |pointer| seen.advance("x", &key, &pointer, "text");
        advance(pointer("stable", "2026-11-22", 'a')).expect("the first");
        advance(pointer("stable", "2026-11-22", 'a')).expect("the same");
        let ambiguous = advance(pointer("stable", "2026-11-22", 'b')).expect_err("two of a date");
        assert!(matches!(ambiguous.downcast_ref(), Some(SigningError::Ambiguous { .. })), "{ambiguous:#}");
        advance(pointer("stable", "2026-11-23", 'b')).expect("newer");
        let back = advance(pointer("stable", "2026-11-22", 'a')).expect_err("older");
        assert!(matches!(back.downcast_ref(), Some(SigningError::RolledBack { .. })), "{back:#}");
        advance(pointer("beta", "2026-11-01", 'a')).expect("another channel has its own date");
        assert_eq!(seen.recall(&key, "stable").expect("seen"), "text");
        assert!(seen.recall(&key, "gamma").is_err());
    }
}
