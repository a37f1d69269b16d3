//! Keys as minisign has them.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, bail};
use ct_codecs::{Base64, Decoder};
use minisign::{KeyPair, PublicKey, PublicKeyBox, SecretKey, SecretKeyBox};

use crate::SigningError;

/// A public key, by its text: the line in a `.pub` file that is no comment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key(String);

impl Key {
    /// The text of a key.
    pub fn of(key: &PublicKey) -> Self {
        Self(key.to_base64())
    }

    /// The key of a word: its text, or the file that it is in.
    pub fn from_word(word: &str) -> anyhow::Result<Self> {
        if let Ok(key) = word.parse() {
            return Ok(key);
        }
        let text = std::fs::read_to_string(word).with_context(|| format!("read the public key {word}"))?;
        let found = PublicKeyBox::from_string(&text).and_then(PublicKeyBox::into_public_key);
        let key = found.map_err(|error| unusable(word, "public", &error))?;
        Ok(Self::of(&key))
    }

    pub(super) fn decoded(&self) -> Result<PublicKey, SigningError> {
        PublicKey::from_base64(&self.0).map_err(|error| unusable(&self.0, "public", &error))
    }
}

/// Public keys, any of which may sign: `KEY,KEY,…`. Each may revoke those before it, so the last is kept
/// where the others are not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys(Vec<Key>);

impl Keys {
    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.0.iter()
    }

    /// The one that names what is noted of them, so that a key can be added later.
    pub fn first(&self) -> &Key {
        &self.0[0]
    }

    /// Those that `by` may revoke.
    pub fn before<'a>(&'a self, by: &'a Key) -> impl Iterator<Item = &'a Key> {
        self.0.iter().take_while(move |key| *key != by)
    }
}

impl From<Key> for Keys {
    fn from(key: Key) -> Self {
        Self(vec![key])
    }
}

impl FromStr for Keys {
    type Err = SigningError;

    fn from_str(text: &str) -> Result<Self, SigningError> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, key) in self.0.iter().enumerate() {
            write!(f, "{}{key}", if number == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Key {
    type Err = SigningError;

    fn from_str(text: &str) -> Result<Self, SigningError> {
        let key = Self(text.to_owned());
        key.decoded()?;
        Ok(key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn unusable(what: &str, kind: &'static str, error: &dyn fmt::Display) -> SigningError {
    SigningError::Key { what: what.to_owned(), kind, reason: error.to_string() }
}

/// A new pair: the texts of the secret file and of the public one, and the public key. With a password the
/// secret one is encrypted by it.
pub fn generate(password: Option<String>) -> anyhow::Result<(String, String, Key)> {
    let pair = match &password {
        Some(_) => KeyPair::generate_encrypted_keypair(password.clone()),
        None => KeyPair::generate_unencrypted_keypair(),
    };
    let KeyPair { pk, sk } = pair.context("make a key")?;
    let secret = sk.to_box(Some("headstart secret key")).context("write the secret key")?.into_string();
    let public = pk.to_box().context("write the public key")?.into_string();
    Ok((secret, public, Key::of(&pk)))
}

/// The secret key in a file.
pub fn read_secret(path: &Path, password: Option<String>) -> anyhow::Result<SecretKey> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let name = path.display().to_string();
    let unusable = |error: &dyn fmt::Display| unusable(&name, "secret", error);
    if password.is_some() {
        let sealed = SecretKeyBox::from_string(&text).map_err(|error| unusable(&error))?;
        return Ok(sealed.into_secret_key(password).map_err(|error| unusable(&error))?);
    }
    let line = text.lines().nth(1).unwrap_or_default();
    let bytes = Base64::decode_to_vec(line, None).map_err(|error| unusable(&error))?;
    let key = SecretKey::from_bytes(&bytes).map_err(|error| unusable(&error))?;
    if key.is_encrypted() {
        bail!("{name} is encrypted: give --password-file");
    }
    // minisign leaves the checksum of a key that is not encrypted empty, which the library does not take.
    // What a wrong key signs, its own public half does not vouch for.
    let public = PublicKey::from_secret_key(&key).map_err(|error| unusable(&error))?;
    minisign::sign(Some(&public), &key, std::io::empty(), None, None).map_err(|error| unusable(&error))?;
    Ok(key)
}

/// The first line of a password file.
pub fn read_password(path: Option<&Path>) -> anyhow::Result<Option<String>> {
    let Some(path) = path else { return Ok(None) };
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
}
