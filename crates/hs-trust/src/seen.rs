//! What was seen of channels, so that they cannot be rolled back: for each key and channel, date and image.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::SigningError;
use crate::date::Date;
use crate::keys::{Key, Keys};
use crate::pointer::Pointer;
use hs_output::own_folders::OwnFolders;
use hs_output::whole_file::{make_private_folder, write_private};

/// The folder in which it is kept. It is no cache: clearing it forgets what protects.
#[derive(Clone, Debug)]
pub struct SeenFolder(PathBuf);

/// A pointer and its file's text.
#[derive(Clone, Copy, Debug)]
pub struct SignedPointer<'a> {
    /// What it says.
    pub pointer: &'a Pointer,
    /// The text.
    pub text: &'a str,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ChannelRecord {
    channel: String,
    key: String,
    date: Date,
    image: String,
    /// The signature itself, for when there is no network.
    text: String,
    /// Keys that are not to be believed any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    revoked: Vec<String>,
}

impl SeenFolder {
    /// The folder that was asked for, or the usual one; none when it was refused, or this user has no home.
    pub fn of(asked: Option<&Path>) -> Option<Self> {
        if let Some(asked) = asked {
            return (asked != Path::new("none")).then(|| Self(asked.to_owned()));
        }
        OwnFolders::STATE.find("channels").map(Self)
    }

    /// Where it is.
    pub fn into_path(self) -> PathBuf {
        self.0
    }

    /// The newest date that one of these keys has signed of any channel: for what they sign it is later than
    /// that. What other keys have signed does not count. A date that was noted while this machine's clock was
    /// wrong may be any, and would make what honest publishers sign expired. Nor do those of keys that were
    /// revoked, by what was seen or by `revoked`.
    pub fn newest(&self, keys: &Keys, revoked: &[Key]) -> Option<Date> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let texts = entries.filter_map(|entry| fs::read(entry.path()).ok());
        let known: Vec<String> = keys.iter().map(Key::to_string).collect();
        let seen = texts.filter_map(|text| serde_json::from_slice::<ChannelRecord>(&text).ok());
        let seen: Vec<ChannelRecord> = seen.filter(|seen| known.contains(&seen.key)).collect();
        let is_revoked = |key: &String| {
            revoked.iter().any(|revoked| revoked.to_string() == *key)
                || seen.iter().any(|seen| seen.revoked.contains(key))
        };
        seen.iter().filter(|seen| !is_revoked(&seen.key)).map(|seen| seen.date.clone()).max()
    }

    fn place(&self, key: &Key, channel: &str) -> PathBuf {
        let digest = hs_format::chunk_digest(format!("{key}\n{channel}").as_bytes());
        self.0.join(format!("{digest}.json"))
    }

    /// The signature that was seen last.
    pub fn recall(&self, keys: &Keys, channel: &str) -> anyhow::Result<String> {
        let text = fs::read(self.place(keys.first(), channel)).ok();
        let seen = text.and_then(|text| serde_json::from_slice::<ChannelRecord>(&text).ok());
        let seen = seen.with_context(|| {
            format!("--offline: the channel '{channel}' of the key {keys} is not known: open it once with the network")
        })?;
        Ok(seen.text)
    }

    /// The text of the pointer that was seen last, where `found` moves the channel to another image and
    /// revokes no key. Notes nothing.
    ///
    /// # Errors
    /// As for [`SeenFolder::advance`].
    pub fn left_by(
        &self,
        name: &str,
        keys: &Keys,
        by: &Key,
        found: &SignedPointer<'_>,
    ) -> anyhow::Result<Option<String>> {
        let place = self.place(keys.first(), &found.pointer.channel);
        let Some(seen) = self.read(&place)? else { return Ok(None) };
        let found = seen.followed_by(name, ChannelRecord::new(keys, by, found), &place)?;
        Ok((found.image != seen.image && found.revoked == seen.revoked).then_some(seen.text))
    }

    /// Refuses a pointer that is older than one that was seen, or of the same date and another image, and one
    /// by a key that was revoked; else notes it. What cannot be noted is an error: the next one could be
    /// rolled back.
    pub fn advance(
        &self,
        name: &str,
        keys: &Keys,
        by: &Key,
        found: &SignedPointer<'_>,
    ) -> anyhow::Result<()> {
        make_private_folder(&self.0).with_context(|| self.what())?;
        let place = self.place(keys.first(), &found.pointer.channel);
        let lock = File::create(self.0.join("lock")).with_context(|| self.what())?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).with_context(|| self.what())?;
        let mut found = ChannelRecord::new(keys, by, found);
        if let Some(seen) = self.read(&place)? {
            found = seen.followed_by(name, found, &place)?;
            if found == seen {
                return Ok(());
            }
        }
        write_private(&place, &serde_json::to_vec(&found)?)
    }

    fn read(&self, place: &Path) -> anyhow::Result<Option<ChannelRecord>> {
        match fs::read(place) {
            Ok(text) => Ok(Some(
                serde_json::from_slice(&text)
                    .with_context(|| format!("{} is damaged: remove it to begin anew", place.display()))?,
            )),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| self.what()),
        }
    }

    /// What fails here.
    fn what(&self) -> String {
        format!("note what was seen of the channel in {}", self.0.display())
    }
}

impl ChannelRecord {
    fn new(keys: &Keys, by: &Key, found: &SignedPointer<'_>) -> Self {
        let SignedPointer { pointer, text } = *found;
        Self {
            channel: pointer.channel.clone(),
            key: by.to_string(),
            date: pointer.date.clone(),
            image: pointer.image.to_string(),
            text: text.to_owned(),
            revoked: pointer.revoked_by(keys, by).iter().map(Key::to_string).collect(),
        }
    }

    /// What is to be noted behind this one, unless that may not follow it.
    fn followed_by(&self, name: &str, mut found: Self, place: &Path) -> Result<Self, SigningError> {
        if self.revoked.contains(&found.key) {
            return Err(SigningError::Revoked { name: name.to_owned(), key: found.key });
        }
        let known = std::mem::take(&mut found.revoked);
        found.revoked.clone_from(&self.revoked);
        found.revoked.extend(known.into_iter().filter(|key| !self.revoked.contains(key)));
        // What a revoked key has signed is of any date: with it a thief would hold the channel permanently.
        if !found.revoked.contains(&self.key) {
            compare(name, self, &found, place)?;
        }
        Ok(found)
    }
}

fn compare(
    name: &str,
    seen: &ChannelRecord,
    found: &ChannelRecord,
    place: &Path,
) -> Result<(), SigningError> {
    if found.date < seen.date {
        return Err(SigningError::RolledBack {
            name: name.to_owned(),
            found: found.date.clone(),
            least: seen.date.clone(),
            why: format!("which was seen before, as {} says", place.display()),
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
            revoked: Vec::new(),
        }
    }

    #[test]
    fn a_channel_only_moves_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let seen = SeenFolder::of(Some(&folder.path().join("deep/er"))).expect("a folder");
        let key: Key = KEY.parse().expect("a key");
        let keys = Keys::from(key.clone());
        let advance =
            |pointer| seen.advance("x", &keys, &key, &SignedPointer { pointer: &pointer, text: "text" });
        advance(pointer("stable", "2026-11-22", 'a')).expect("the first");
        advance(pointer("stable", "2026-11-22", 'a')).expect("the same");
        let ambiguous = advance(pointer("stable", "2026-11-22", 'b')).expect_err("two of a date");
        assert!(matches!(ambiguous.downcast_ref(), Some(SigningError::Ambiguous { .. })), "{ambiguous:#}");
        advance(pointer("stable", "2026-11-23", 'b')).expect("newer");
        let back = advance(pointer("stable", "2026-11-22", 'a')).expect_err("older");
        assert!(matches!(back.downcast_ref(), Some(SigningError::RolledBack { .. })), "{back:#}");
        advance(pointer("beta", "2026-11-01", 'a')).expect("another channel has its own date");
        assert_eq!(seen.recall(&keys, "stable").expect("seen"), "text");
        assert!(seen.recall(&keys, "gamma").is_err());
        assert_eq!(seen.newest(&keys, &[]), "2026-11-23".parse().ok());
    }

    #[test]
    fn what_a_channel_leaves_is_known_before_it_moves() {
        let folder = tempfile::tempdir().expect("a folder");
        let seen = SeenFolder::of(Some(folder.path())).expect("a folder");
        let pairs = [(); 2].map(|()| minisign::KeyPair::generate_unencrypted_keypair().expect("keys"));
        let [daily, spare] = pairs.map(|pair| Key::of(&pair.pk));
        let keys: Keys = format!("{daily},{spare}").parse().expect("two keys");
        let left = |by: &Key, pointer: &Pointer| {
            seen.left_by("x", &keys, by, &SignedPointer { pointer, text: "new" })
        };
        let first = pointer("stable", "2026-11-22", 'a');
        assert_eq!(left(&daily, &first).expect("the first"), None);
        seen.advance("x", &keys, &daily, &SignedPointer { pointer: &first, text: "old" }).expect("noted");
        for _ in 0..2 {
            let next = left(&daily, &pointer("stable", "2026-11-23", 'b')).expect("newer");
            assert_eq!(next.as_deref(), Some("old"), "nothing is noted");
        }
        assert_eq!(left(&daily, &pointer("stable", "2026-11-23", 'a')).expect("the same image"), None);
        assert!(left(&daily, &pointer("stable", "2026-11-21", 'b')).is_err(), "older");
        let revoking = Pointer { revoked: vec![daily.clone()], ..pointer("stable", "2026-11-23", 'b') };
        assert_eq!(left(&spare, &revoking).expect("newer"), None, "who revokes is followed at once");
        seen.advance("x", &keys, &spare, &SignedPointer { pointer: &revoking, text: "old" }).expect("noted");
        assert!(left(&daily, &pointer("stable", "2026-11-24", 'c')).is_err(), "revoked");
    }

    /// A date of another key may be any, if this machine's clock was wrong when it was seen.
    #[test]
    fn what_one_key_signs_says_nothing_of_the_time_to_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let seen = SeenFolder::of(Some(folder.path())).expect("a folder");
        let pairs = [(); 3].map(|()| minisign::KeyPair::generate_unencrypted_keypair().expect("keys"));
        let [daily, spare, stranger] = pairs.map(|pair| Key::of(&pair.pk));
        let keys: Keys = format!("{daily},{spare}").parse().expect("two keys");
        let advance = |keys: &Keys, by: &Key, pointer: &Pointer| {
            seen.advance("x", keys, by, &SignedPointer { pointer, text: "text" })
        };
        let others = Keys::from(stranger.clone());
        advance(&others, &stranger, &pointer("beta", "2098-01-01", 'b')).expect("seen");
        assert_eq!(seen.newest(&keys, &[]), None);
        assert_eq!(seen.newest(&others, &[]), "2098-01-01".parse().ok());
        advance(&keys, &daily, &pointer("stable", "2026-11-22", 'a')).expect("seen");
        assert_eq!(seen.newest(&keys, &[]), "2026-11-22".parse().ok());
        // A thief of the daily key, while the clock is wrong.
        advance(&keys, &daily, &pointer("stable", "2097-01-01", 'c')).expect("seen");
        let honest = pointer("stable", "2026-11-23", 'd');
        let back = advance(&keys, &spare, &honest).expect_err("older than what was seen");
        assert!(format!("{back:#}").contains(&folder.path().display().to_string()), "{back:#}");
        // Who has the spare key ends it.
        assert_eq!(seen.newest(&keys, std::slice::from_ref(&daily)), None);
        advance(&keys, &spare, &Pointer { revoked: vec![daily.clone()], ..honest }).expect("begun anew");
        assert_eq!(seen.newest(&keys, &[]), "2026-11-23".parse().ok());
        assert!(advance(&keys, &spare, &pointer("stable", "2026-11-22", 'a')).is_err());
        assert!(advance(&keys, &daily, &pointer("stable", "2097-01-02", 'c')).is_err());
    }

    #[test]
    fn a_later_key_revokes_an_earlier_one_and_not_the_other_way_round() {
        let folder = tempfile::tempdir().expect("a folder");
        let seen = SeenFolder::of(Some(folder.path())).expect("a folder");
        let pairs = [(); 2].map(|()| minisign::KeyPair::generate_unencrypted_keypair().expect("keys"));
        let [daily, spare] = pairs.map(|pair| Key::of(&pair.pk));
        let keys: Keys = format!("{daily},{spare}").parse().expect("two keys");
        let advance = |by: &Key, date: &str, revoked: &[&Key]| {
            let revoked = revoked.iter().map(|key| (*key).clone()).collect();
            let pointer = Pointer { revoked, ..pointer("stable", date, 'a') };
            seen.advance("x", &keys, by, &SignedPointer { pointer: &pointer, text: date })
        };
        advance(&daily, "2026-11-20", &[]).expect("the first");
        advance(&daily, "2026-11-21", &[&spare, &daily]).expect("it says more than it may");
        advance(&spare, "2026-11-22", &[]).expect("so this is not revoked");
        advance(&daily, "2026-11-23", &[]).expect("nor is this");
        advance(&spare, "2026-11-24", &[&daily]).expect("the thief's key is named");
        for date in ["2026-11-24", "2026-11-25", "2027-01-01"] {
            let refused = advance(&daily, date, &[]).expect_err("revoked");
            assert!(matches!(refused.downcast_ref(), Some(SigningError::Revoked { .. })), "{refused:#}");
        }
        // What was said once holds when it is not said again.
        advance(&spare, "2026-11-26", &[]).expect("the other key");
        assert!(advance(&daily, "2026-11-27", &[]).is_err());
    }
}
