//! An image that is served, with the name that clients ask for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, bail};
use hs_start::image::{ImageSource, RemoteOptions};

/// An image and the name of its export.
#[derive(Clone)]
pub(super) struct NamedImage {
    pub(super) name: String,
    pub(super) image: ImageSource,
}

impl NamedImage {
    /// `NAME=IMAGE`, or an image whose file has a name.
    pub(super) fn parse(word: &OsStr, remote: &RemoteOptions) -> anyhow::Result<Self> {
        let bytes = word.as_bytes();
        let cut = bytes.iter().position(|byte| *byte == b'=').filter(|at| !bytes[..*at].contains(&b'/'));
        let (given, word) = match cut {
            Some(at) => (Some(OsStr::from_bytes(&bytes[..at])), OsStr::from_bytes(&bytes[at + 1..])),
            None => (None, word),
        };
        let image = ImageSource::parse(word, remote)?;
        let of_image = image.image.file_name();
        let name = given.or(of_image.as_deref()).unwrap_or_default();
        let name =
            name.to_str().with_context(|| format!("{}: NBD has no name for it", image.display()))?.to_owned();
        let name = match cut {
            Some(_) => name,
            None => name.strip_suffix(".hsi").unwrap_or(&name).to_owned(),
        };
        if name.is_empty() || word.is_empty() {
            bail!("'{}' is neither an image nor NAME=IMAGE", image.display());
        }
        Ok(Self { name, image })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(word: &str) -> (String, String) {
        let named = NamedImage::parse(OsStr::new(word), &RemoteOptions::default()).expect(word);
        (named.name, named.image.display().to_string())
    }

    #[test]
    fn exports_are_called_as_files_or_as_told() {
        for (word, name, path) in [
            ("fast.hsi", "fast", "fast.hsi"),
            ("/srv/fast.hsi", "fast", "/srv/fast.hsi"),
            ("/srv/raw", "raw", "/srv/raw"),
            ("root=/srv/fast.hsi", "root", "/srv/fast.hsi"),
            ("a.hsi=b=c.hsi", "a.hsi", "b=c.hsi"),
            ("./a=b.hsi", "a=b", "./a=b.hsi"),
            ("https://host/dir/fast.hsi", "fast", "https://host/dir/fast.hsi"),
            ("root=http://host/", "root", "http://host/"),
        ] {
            assert_eq!(named(word), (name.to_owned(), path.to_owned()));
        }
        for bad in ["", "=x", "x=", "/", ".hsi"] {
            assert!(NamedImage::parse(OsStr::new(bad), &RemoteOptions::default()).is_err(), "{bad}");
        }
        assert!(NamedImage::parse(OsStr::from_bytes(b"\xff.hsi"), &RemoteOptions::default()).is_err());
    }
}
