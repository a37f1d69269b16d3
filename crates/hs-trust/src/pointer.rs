//! A pointer: a publisher's word that a channel is, since some date and until another, a certain image.
//!
//! It is one file, a minisign signature. What is signed is the image's name and a line feed; when, until
//! when, for which channel and where the image lies stand in the trusted comment, which the signature covers
//! too. So it is published by replacing one file, and `minisign -V -m NAME.txt -x stable.minisig` checks it
//! as well.

use std::io::Cursor;

use hs_format::ImageDigest;
use minisign::{PublicKey, SecretKey, SignatureBox};

use crate::SigningError;
use crate::date::Date;
use crate::keys::{Key, Keys};
use crate::now::Now;

/// What files of pointers end with.
pub const SUFFIX: &str = ".minisig";
/// What trusted comments of pointers begin with: in every form, and in this one.
const FORMS: &str = "headstart-pointer-";
const FORM: &str = "headstart-pointer-1";
/// A pointer has a few hundred bytes.
pub const MOST_BYTES: u64 = 8 << 10;

/// What a pointer says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pointer {
    /// The channel.
    pub channel: String,
    /// Its image.
    pub image: ImageDigest,
    /// Since when.
    pub date: Date,
    /// Until when it may be believed.
    pub expires: Option<Date>,
    /// Where the image lies, from where the pointer does; beside it, without the suffix, when not given.
    pub url: Option<String>,
    /// Keys that are not to be believed any more, as far as the one that signed may say so.
    pub revoked: Vec<Key>,
}

impl Pointer {
    /// The file of the pointer, signed.
    pub fn sign(&self, secret: &SecretKey) -> anyhow::Result<String> {
        let message = Cursor::new(message(self.image));
        let public = PublicKey::from_secret_key(secret)?;
        let untrusted = format!("headstart: {} is {}", self.channel, self.image);
        let signed = minisign::sign(Some(&public), secret, message, Some(&self.comment()), Some(&untrusted))?;
        Ok(signed.into_string())
    }

    /// What the trusted comment is: words with a tab between.
    fn comment(&self) -> String {
        let mut words = vec![
            FORM.to_owned(),
            format!("channel:{}", self.channel),
            format!("image:{}", self.image),
            format!("date:{}", self.date),
        ];
        words.extend(self.expires.as_ref().map(|expires| format!("expires:{expires}")));
        words.extend(self.url.as_ref().map(|url| format!("url:{url}")));
        if !self.revoked.is_empty() {
            let keys: Vec<String> = self.revoked.iter().map(Key::to_string).collect();
            words.push(format!("revoked:{}", keys.join(",")));
        }
        words.join("\t")
    }

    /// The pointer in a file, if one of `keys` has signed it, and which; `name` is what to call the file.
    pub fn verify_by(text: &str, keys: &Keys, name: &str) -> Result<(Self, Key), SigningError> {
        let mut reason = None;
        for key in keys.iter() {
            match Self::verify(text, key, name) {
                Ok(pointer) => return Ok((pointer, key.clone())),
                // Which key it is not signed by is for the first to say, unless there are several.
                Err(SigningError::NotSigned { name, reason: why, .. }) => {
                    let key = keys.to_string();
                    reason.get_or_insert(SigningError::NotSigned { name, key, reason: why });
                }
                Err(error) => return Err(error),
            }
        }
        Err(reason.expect("there is at least one key"))
    }

    /// The pointer in a file, if it is signed by `key`; `name` is what to call the file.
    pub fn verify(text: &str, key: &Key, name: &str) -> Result<Self, SigningError> {
        let malformed = |reason: &dyn std::fmt::Display| SigningError::Malformed {
            name: name.to_owned(),
            reason: reason.to_string(),
        };
        let signature = SignatureBox::from_string(text).map_err(|error| malformed(&error))?;
        let comment = signature.trusted_comment().map_err(|error| malformed(&error))?;
        let pointer = Self::parse(&comment).map_err(|reason| malformed(&reason))?;
        let not_signed = |error: minisign::PError| SigningError::NotSigned {
            name: name.to_owned(),
            key: key.to_string(),
            reason: error.to_string(),
        };
        let message = Cursor::new(message(pointer.image));
        minisign::verify(&key.decoded()?, &signature, message, true, false, false).map_err(not_signed)?;
        Ok(pointer)
    }

    /// What a file says that may be a pointer. **Nothing of it is verified.**
    pub fn claimed(text: &str) -> Option<Self> {
        Self::parse(&SignatureBox::from_string(text).ok()?.trusted_comment().ok()?).ok()
    }

    /// Nothing here is to be believed before the signature is checked.
    fn parse(comment: &str) -> Result<Self, String> {
        let mut words = comment.split('\t');
        match words.next() {
            Some(FORM) => {}
            Some(form) if form.starts_with(FORMS) => {
                return Err(format!("it is of another form than {FORM}: use a newer headstart"));
            }
            _ => return Err(format!("its trusted comment does not begin with {FORM}")),
        }
        let (mut channel, mut image, mut date, mut expires, mut url) = (None, None, None, None, None);
        let mut revoked: Option<Vec<Key>> = None;
        for word in words {
            let (name, value) = word.split_once(':').ok_or_else(|| format!("'{word}'"))?;
            let wrong = || format!("{name}: '{value}'");
            let twice = match name {
                "channel" => channel.replace(value.to_owned()).is_some(),
                "image" => image.replace(value.parse().map_err(|_| wrong())?).is_some(),
                "date" => date.replace(value.parse().map_err(|_| wrong())?).is_some(),
                "expires" => expires.replace(value.parse().map_err(|_| wrong())?).is_some(),
                "url" => url.replace(value.to_owned()).is_some(),
                "revoked" => {
                    let keys: Result<_, _> = value.split(',').map(str::parse).collect();
                    revoked.replace(keys.map_err(|_| wrong())?).is_some()
                }
                // A later version may say more, as long as the form is this one.
                _ => false,
            };
            if twice {
                return Err(format!("{name} twice"));
            }
        }
        match (channel, image, date) {
            (Some(channel), Some(image), Some(date)) => {
                Ok(Self { channel, image, date, expires, url, revoked: revoked.unwrap_or_default() })
            }
            _ => Err("it lacks a channel, an image or a date".to_owned()),
        }
    }

    /// Keys that are revoked by this, signed by one of `keys`: it may say so of those that are named before
    /// it.
    pub fn revoked_by(&self, keys: &Keys, by: &Key) -> Vec<Key> {
        keys.before(by).filter(|key| self.revoked.contains(key)).cloned().collect()
    }

    /// Refuses a pointer of another channel, one that has expired, one from the future, and one that is older
    /// than `least`.
    pub fn check(
        &self,
        name: &str,
        channel: &str,
        now: &Now,
        least: Option<&Date>,
    ) -> Result<(), SigningError> {
        let name = name.to_owned();
        if self.channel != channel {
            let (expected, found) = (channel.to_owned(), self.channel.clone());
            return Err(SigningError::OtherChannel { name, expected, found });
        }
        if let Some(expires) = self.expires.as_ref().filter(|expires| **expires < now.date) {
            return Err(SigningError::Expired { name, expires: expires.clone() });
        }
        if now.is_future(&self.date) {
            return Err(SigningError::FromTheFuture { name, date: self.date.clone(), now: now.date.clone() });
        }
        if let Some(least) = least.filter(|least| self.date < **least) {
            let (found, least) = (self.date.clone(), least.clone());
            return Err(SigningError::RolledBack {
                name,
                found,
                least,
                why: "which --min-date asks for".to_owned(),
            });
        }
        Ok(())
    }
}

/// What is signed.
fn message(image: ImageDigest) -> String {
    format!("{image}\n")
}

#[cfg(test)]
mod tests {
    use minisign::KeyPair;

    use super::*;

    const NAME: &str = "hs1-6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";

    fn pointer() -> Pointer {
        Pointer {
            channel: "stable".to_owned(),
            image: NAME.parse().expect("a name"),
            date: "2026-11-22".parse().expect("a date"),
            expires: Some("2026-12-22".parse().expect("a date")),
            url: Some("fast.hsi".to_owned()),
            revoked: Vec::new(),
        }
    }

    #[test]
    fn what_is_signed_is_read_again_and_nothing_else_is() {
        let pair = KeyPair::generate_unencrypted_keypair().expect("keys");
        let other = KeyPair::generate_unencrypted_keypair().expect("keys");
        let (key, stranger) = (Key::of(&pair.pk), Key::of(&other.pk));
        let text = pointer().sign(&pair.sk).expect("signed");
        assert_eq!(Pointer::verify(&text, &key, "x").expect("signed"), pointer());
        assert!(matches!(Pointer::verify(&text, &stranger, "x"), Err(SigningError::NotSigned { .. })));
        // Whatever byte of what is believed is another, it is not signed any more.
        let trusted = text.find("trusted comment: headstart-pointer").expect("there");
        let believed = text.match_indices("trusted comment: ").map(|(at, _)| at).max().expect("there");
        assert!(believed >= trusted);
        let comment_end = believed + text[believed..].find('\n').expect("a line");
        for at in believed + "trusted comment: ".len()..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let Ok(changed) = String::from_utf8(bytes) else { continue };
            // Base64 has a few unused bits at its end.
            let found = Pointer::verify(&changed, &key, "x");
            assert!(
                found.is_err() || at >= comment_end && found.is_ok_and(|found| found == pointer()),
                "byte {at}"
            );
        }
        for wrong in ["", "hs1-", "untrusted comment: x\n", &text[..text.len() / 2]] {
            assert!(
                matches!(Pointer::verify(wrong, &key, "x"), Err(SigningError::Malformed { .. })),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_signature_of_something_else_is_no_pointer() {
        let pair = KeyPair::generate_unencrypted_keypair().expect("keys");
        for comment in
            ["timestamp:1", "headstart-pointer-1\tchannel:stable", "headstart-pointer-2\tchannel:stable"]
        {
            let message = Cursor::new(format!("{NAME}\n"));
            let signed =
                minisign::sign(Some(&pair.pk), &pair.sk, message, Some(comment), None).expect("signed");
            let error = Pointer::verify(&signed.into_string(), &Key::of(&pair.pk), "x").expect_err(comment);
            assert!(matches!(error, SigningError::Malformed { .. }), "{error}");
        }
    }

    #[test]
    fn channels_dates_and_ends_count() {
        let date = |text: &str| text.parse::<Date>().expect("a date");
        let check = |channel, now, least: Option<&str>| {
            pointer().check("x", channel, &Now::by_a_right_clock(date(now)), least.map(date).as_ref())
        };
        assert!(check("stable", "2026-12-01", None).is_ok());
        assert!(check("stable", "2026-12-01", Some("2026-11-22")).is_ok());
        assert!(matches!(check("beta", "2026-12-01", None), Err(SigningError::OtherChannel { .. })));
        assert!(matches!(check("stable", "2026-12-23", None), Err(SigningError::Expired { .. })));
        let old = check("stable", "2026-12-01", Some("2026-11-23"));
        assert!(matches!(old, Err(SigningError::RolledBack { .. })));
        // The last second is a good one, and so is the first.
        assert!(check("stable", "2026-12-22", Some("2026-11-22")).is_ok());
        assert!(matches!(check("stable", "2026-12-22T00:00:01Z", None), Err(SigningError::Expired { .. })));
        // A day early may be a clock that is a little wrong, more is not.
        assert!(check("stable", "2026-11-21", None).is_ok());
        let early = check("stable", "2026-11-20T23:59:59Z", None);
        assert!(matches!(early, Err(SigningError::FromTheFuture { .. })));
    }

    #[test]
    fn no_word_is_said_twice() {
        let comment = pointer().comment();
        assert_eq!(Pointer::parse(&comment).as_ref(), Ok(&pointer()));
        for word in comment.split('\t').skip(1) {
            let (name, _) = word.split_once(':').expect("a word");
            let twice = format!("{comment}\t{word}");
            assert_eq!(Pointer::parse(&twice), Err(format!("{name} twice")), "{twice}");
        }
        // What a later version says besides, it may say as often as it likes.
        assert!(Pointer::parse(&format!("{comment}\tnew:1\tnew:2")).is_ok());
    }

    #[test]
    fn any_of_several_keys_may_sign() {
        let pairs = [(); 3].map(|()| KeyPair::generate_unencrypted_keypair().expect("keys"));
        let texts = [0, 1, 2].map(|number| Key::of(&pairs[number].pk).to_string());
        let keys: Keys = texts[..2].join(",").parse().expect("two keys");
        let revoking = Pointer { revoked: vec![texts[0].parse().expect("a key")], ..pointer() };
        for (number, pair) in pairs.iter().enumerate() {
            let found = Pointer::verify_by(&revoking.sign(&pair.sk).expect("signed"), &keys, "x");
            match number {
                2 => assert!(matches!(found, Err(SigningError::NotSigned { .. }))),
                _ => assert_eq!(
                    found.expect("signed"),
                    (revoking.clone(), texts[number].parse().expect("a key"))
                ),
            }
        }
    }
}
