//! What an image is built from, as the user names it.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::bail;
use hs_build::source::{Source, SourceOptions};
use hs_output::show::Bar;

use crate::progress;

/// The name of what comes from standard input.
pub const STANDARD_INPUT: &str = "standard input";

/// A source as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceName {
    /// A file, device or directory; what it is, its content says.
    Path(PathBuf),
    /// An archive from standard input.
    StandardInput,
    /// A container's image in a folder that is a layout, with its name where there are several.
    Layout(PathBuf, Option<String>),
    /// A container's image in an archive, with its name where there are several.
    ImageArchive(PathBuf, Option<String>),
    /// A container's image in a registry: an address that [`hs_remote::Address`] understands.
    Registry(String),
}

impl SourceName {
    /// The source that this word names. A file whose name looks like an address is named with `./` before.
    #[must_use]
    pub fn parse(word: &OsStr) -> Self {
        let path = || Self::Path(word.into());
        if word == "-" {
            return Self::StandardInput;
        }
        let Some((scheme, rest)) = word.to_str().and_then(|text| text.split_once(':')) else { return path() };
        match (scheme, rest.strip_prefix("//")) {
            ("oci" | "oci+http", Some(_)) => Self::Registry(format!("{scheme}:{rest}")),
            ("docker", Some(name)) => Self::Registry(hs_remote::docker_address(name)),
            ("oci", None) => {
                let (folder, name) = with_name(rest);
                Self::Layout(folder, name)
            }
            ("oci-archive" | "docker-archive", _) => {
                let (file, name) = with_name(rest);
                Self::ImageArchive(file, name)
            }
            _ => path(),
        }
    }

    /// The file or folder that it lies in.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) | Self::Layout(path, _) | Self::ImageArchive(path, _) => Some(path),
            Self::StandardInput | Self::Registry(_) => None,
        }
    }

    /// How it is called in messages.
    #[must_use]
    pub fn shown(&self) -> PathBuf {
        match self {
            Self::StandardInput => STANDARD_INPUT.into(),
            Self::Registry(address) => address.into(),
            other => other.path().unwrap_or(Path::new("")).to_owned(),
        }
    }

    /// Opens it.
    ///
    /// # Errors
    /// When it is not there, or cannot be taken.
    pub fn open(&self, options: &SourceOptions, bar: &Bar) -> anyhow::Result<Source> {
        let show = |done| progress::of_source(bar, done);
        Ok(match self {
            Self::Path(path) => Source::open(path, options, &show)?,
            Self::StandardInput => {
                if std::io::stdin().is_terminal() {
                    bail!("{STANDARD_INPUT} is a terminal: `tar -c DIR | headstart build - -o IMAGE`");
                }
                // Its lock belongs to a thread.
                let stdin = rustix::io::dup(std::io::stdin())?;
                Source::open_stream(Box::new(std::fs::File::from(stdin)), &self.shown(), options, &show)?
            }
            Self::Layout(folder, name) => Source::open_layout(folder, name.as_deref(), options, &show)?,
            Self::ImageArchive(path, name) if path.as_os_str() == "-" && name.is_none() => {
                Self::StandardInput.open(options, bar)?
            }
            Self::ImageArchive(path, name) => {
                Source::open_image_archive(path, name.as_deref(), options, &show)?
            }
            Self::Registry(address) => crate::container::open(address, options, &show)?,
        })
    }
}

/// A path, and the name behind the first colon after it, unless the file's own name has one.
fn with_name(text: &str) -> (PathBuf, Option<String>) {
    match text.split_once(':') {
        Some((path, name)) if !Path::new(text).exists() => (path.into(), Some(name.to_owned())),
        _ => (text.into(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sources() {
        let path = |text: &str| PathBuf::from(text);
        let registry = |text: &str| SourceName::Registry(text.to_owned());
        for (word, expected) in [
            ("root.tar", SourceName::Path(path("root.tar"))),
            ("./oci:x", SourceName::Path(path("./oci:x"))),
            ("-", SourceName::StandardInput),
            ("oci:dir", SourceName::Layout(path("dir"), None)),
            ("oci:/a/dir:v1.2", SourceName::Layout(path("/a/dir"), Some("v1.2".into()))),
            ("oci-archive:a.tar", SourceName::ImageArchive(path("a.tar"), None)),
            ("docker-archive:a.tar:x/y:3", SourceName::ImageArchive(path("a.tar"), Some("x/y:3".into()))),
            ("oci://h:5000/a:1", registry("oci://h:5000/a:1")),
            ("oci+http://h/a", registry("oci+http://h/a")),
            ("docker://python:3.12", registry("oci://docker.io/library/python:3.12")),
            ("docker://me/x", registry("oci://docker.io/me/x")),
            ("docker://localhost:5000/x", registry("oci://localhost:5000/x")),
        ] {
            assert_eq!(SourceName::parse(word.as_ref()), expected, "{word}");
        }
    }
}
