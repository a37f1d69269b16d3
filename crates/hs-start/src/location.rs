//! Where an image lies, and what it must be: `PATH`, `https://HOST/PATH`, `oci://HOST/NAME:TAG`,
//! `s3://BUCKET/KEY`, or `@FILE` with such an address in it. With `#hs1-DIGEST` it must be that very image;
//! with `#key=KEY` it must be an image that the owner of a key has signed.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hs_image::ImageDigest;
use hs_store::Address;
use hs_store::http::HttpError;
use hs_trust::keys::Keys;

/// An image as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageLocation {
    /// Where it lies.
    pub place: ImagePlace,
    /// The name or the keys that the image must have; `None` without either.
    pub trust: Option<Trust>,
}

/// What proves that an image is the right one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The name of the image.
    Name(ImageDigest),
    /// The signature of the owner of one of these keys.
    Keys(Keys),
}

/// Where an image lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImagePlace {
    /// In a file, or a block device.
    File(PathBuf),
    /// On a web server, in a registry, in a store of objects.
    Remote(Address),
}

/// Why a word names no image.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LocationError {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] HttpError),
    /// The file behind `@` gives no address.
    #[error("@{path}: {reason}", path = path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// Why there is none.
        reason: String,
    },
    /// An address is text.
    #[error("an address of an image is text")]
    NotText,
    /// The part behind `#` is no name.
    #[error(
        "'#{0}' is no name of an image: #hs1- and 64 hexadecimal digits are (`headstart verify` prints it), or #key= and \
         a public key"
    )]
    Name(String),
}

impl ImageLocation {
    /// Parses a word. A file may have any name; the word is taken for an image name only if it ends as image
    /// names do. After `@` comes a file that contains an address, so that secrets are in no process's
    /// arguments.
    pub fn parse(word: &OsStr) -> Result<Self, LocationError> {
        match word.as_bytes().strip_prefix(b"@") {
            Some(path) => Self::parse_address(&address_in(Path::new(OsStr::from_bytes(path)))?),
            None => Self::parse_address_or_file(word),
        }
    }

    fn parse_address_or_file(word: &OsStr) -> Result<Self, LocationError> {
        let is_address = word.as_bytes().windows(3).position(|three| three == b"://").is_some_and(|at| {
            at > 0
                && word.as_bytes()[..at]
                    .iter()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
        });
        if !is_address {
            return Ok(Self::of_file(word));
        }
        Self::parse_address(word.to_str().ok_or(LocationError::NotText)?)
    }

    fn parse_address(text: &str) -> Result<Self, LocationError> {
        let (address, trust) = match text.split_once('#') {
            Some((address, name)) => {
                (address, Some(Trust::parse(name).ok_or_else(|| LocationError::Name(name.to_owned()))?))
            }
            None => (text, None),
        };
        Ok(Self { place: ImagePlace::Remote(Address::parse(address)?), trust })
    }

    /// The name that the image must have, as far as it is known without a request.
    pub fn name(&self) -> Option<ImageDigest> {
        match self.trust {
            Some(Trust::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// The address with its secrets, if it is one.
    pub fn whole_address(&self) -> Option<String> {
        match &self.place {
            ImagePlace::File(_) => None,
            ImagePlace::Remote(address) => Some(address.whole()),
        }
    }

    /// The file name that it would have in a folder.
    pub fn file_name(&self) -> Option<OsString> {
        match &self.place {
            ImagePlace::File(path) => path.file_name().map(OsStr::to_owned),
            ImagePlace::Remote(address) => Some(address.file_name()?.into()),
        }
    }

    fn of_file(word: &OsStr) -> Self {
        let bytes = word.as_bytes();
        let trusted = bytes.iter().rposition(|byte| *byte == b'#').and_then(|at| {
            let trust = Trust::parse(std::str::from_utf8(&bytes[at + 1..]).ok()?)?;
            Some((OsStr::from_bytes(&bytes[..at]), trust))
        });
        match trusted {
            Some((path, trust)) => Self { place: ImagePlace::File(path.into()), trust: Some(trust) },
            None => Self { place: ImagePlace::File(word.into()), trust: None },
        }
    }
}

/// The address that is the first line of a file.
fn address_in(path: &Path) -> Result<String, LocationError> {
    let failed = |reason: String| LocationError::InFile { path: path.to_owned(), reason };
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(file, MOST_ADDRESS_BYTES), &mut text)
        .map_err(|error| failed(error.to_string()))?;
    let line = text.lines().next().unwrap_or_default().trim();
    if !line.contains("://") {
        return Err(failed("its first line is no address".to_owned()));
    }
    Ok(line.to_owned())
}

/// No server takes a longer address.
const MOST_ADDRESS_BYTES: u64 = 64 << 10;

impl Trust {
    fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("key=") {
            Some(key) => key.parse().ok().map(Self::Keys),
            None => text.parse().ok().map(Self::Name),
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Keys(keys) => write!(f, "key={keys}"),
        }
    }
}

impl From<&Path> for ImageLocation {
    fn from(path: &Path) -> Self {
        Self { place: ImagePlace::File(path.to_owned()), trust: None }
    }
}

/// For messages: without secrets and without the name.
impl fmt::Display for ImageLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            ImagePlace::File(path) => path.display().fmt(f),
            ImagePlace::Remote(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "hs1-6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
    const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";

    fn parsed(word: &str) -> ImageLocation {
        ImageLocation::parse(OsStr::new(word)).expect(word)
    }

    #[test]
    fn files_and_addresses_with_and_without_a_name() {
        assert_eq!(parsed("a/b.hsi"), Path::new("a/b.hsi").into());
        let named = parsed(&format!("a#b.hsi#{NAME}"));
        assert_eq!(named.place, ImagePlace::File("a#b.hsi".into()));
        assert_eq!(named.name().map(|name| name.to_string()).as_deref(), Some(NAME));
        let keyed = parsed(&format!("https://h/stable.minisig#key={KEY}"));
        assert_eq!(
            (keyed.name(), keyed.trust.map(|trust| trust.to_string())),
            (None, Some(format!("key={KEY}")))
        );
        // A file may be called nearly anything.
        for word in ["a.hsi#hs1-12", "#", "x#y", ":// ", "a b://c"] {
            assert_eq!(parsed(word), Path::new(word).into());
        }
        let remote = parsed(&format!("https://me:secret@host/b.hsi?token=x#{NAME}"));
        assert!(remote.name().is_some());
        assert_eq!(remote.to_string(), "https://host/b.hsi?…");
        assert!(parsed("http://host/b.hsi").trust.is_none());
        for (word, file_name) in [
            ("oci://host:5000/images/demo:1", "demo"),
            ("oci+http://localhost/demo", "demo"),
            ("s3://bucket/a/b.hsi", "b.hsi"),
            ("gs://bucket/b.hsi", "b.hsi"),
            ("az://container/b.hsi", "b.hsi"),
        ] {
            let location = parsed(&format!("{word}#{NAME}"));
            assert!(location.name().is_some() && location.to_string().starts_with(word), "{word}");
            assert_eq!(location.file_name().as_deref(), Some(OsStr::new(file_name)), "{word}");
        }
    }

    #[test]
    fn what_names_nothing_says_why() {
        for (word, why) in [
            ("https://host/b.hsi#hs1-12", "no name of an image"),
            ("https://host/b.hsi#key=abc", "no name of an image"),
            ("https://host/b.hsi#", "no name of an image"),
            ("ftp://host/b.hsi", "http"),
            ("oci://host", "no name of a repository"),
            ("s3://bucket", "a bucket and a key"),
            ("https://", "no address"),
        ] {
            let error = ImageLocation::parse(OsStr::new(word)).expect_err(word).to_string();
            assert!(error.contains(why), "{word}: {error}");
        }
    }
}
