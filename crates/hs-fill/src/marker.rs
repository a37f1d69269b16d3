//! What a file itself says of how far it is filled: extended attributes (xattr(7)), which `getfattr` shows
//! and copying programs leave behind.

use std::io;
use std::os::fd::AsFd;
use std::str::FromStr;

use hs_format::ImageDigest;
use hs_units::Digest;
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

/// Has holes where blocks are missing; the value is the digest of the disk.
const INCOMPLETE: &str = "user.headstart.incomplete";
/// Holds the whole disk, whose digest was computed and is this.
const COMPLETE: &str = "user.headstart.complete";
/// A program has written to it before it was complete.
const CHANGED: &str = "user.headstart.changed";
/// Holds all that its image has, which is not the disk that the image claims; the value is the digest that
/// was computed.
const CONTRADICTED: &str = "user.headstart.contradicted";
/// The name of the image that it is filled from, which is certain.
const IMAGE: &str = "user.headstart.image";
/// No value is longer.
const MOST_VALUE_BYTES: usize = 128;

/// How far a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// Blocks of the disk of this digest are missing.
    Incomplete(Digest),
    /// Nothing is missing.
    Complete(Digest),
    /// It is no disk of an image any more.
    Changed,
    /// Nothing is missing, and it is the disk of this digest, not of the one that the image claims.
    Contradicted(Digest),
}

/// What the file says; nothing when it is none of ours.
pub(super) fn read(file: impl AsFd) -> io::Result<Option<Marker>> {
    if value(&file, CHANGED)?.is_some() {
        return Ok(Some(Marker::Changed));
    }
    if let Some(digest) = digest(&file, CONTRADICTED)? {
        return Ok(Some(Marker::Contradicted(digest)));
    }
    if let Some(digest) = digest(&file, COMPLETE)? {
        return Ok(Some(Marker::Complete(digest)));
    }
    Ok(digest(&file, INCOMPLETE)?.map(Marker::Incomplete))
}

/// Marks the file.
pub(super) fn write(file: impl AsFd, marker: Marker) -> io::Result<()> {
    let set = |name, value: &str| fsetxattr(&file, name, value.as_bytes(), XattrFlags::empty());
    match marker {
        Marker::Incomplete(digest) => set(INCOMPLETE, &digest.to_string())?,
        Marker::Changed => set(CHANGED, "1")?,
        // Both at once say complete.
        Marker::Complete(digest) => {
            set(COMPLETE, &digest.to_string())?;
            fremovexattr(&file, INCOMPLETE)?;
        }
        Marker::Contradicted(digest) => {
            set(CONTRADICTED, &digest.to_string())?;
            fremovexattr(&file, INCOMPLETE)?;
        }
    }
    Ok(())
}

/// Notes in the file from which image it is filled.
pub(super) fn write_image(file: impl AsFd, name: ImageDigest) -> io::Result<()> {
    Ok(fsetxattr(file, IMAGE, name.to_string().as_bytes(), XattrFlags::empty())?)
}

fn digest(file: impl AsFd, name: &str) -> io::Result<Option<Digest>> {
    let Some(value) = value(file, name)? else { return Ok(None) };
    Ok(std::str::from_utf8(&value).ok().and_then(|text| Digest::from_str(text).ok()))
}

pub(super) fn value(file: impl AsFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = [0; MOST_VALUE_BYTES];
    match fgetxattr(file, name, &mut bytes) {
        Ok(length) => Ok(Some(bytes[..length].to_vec())),
        Err(Errno::NODATA) => Ok(None),
        // A value that is longer than any of ours.
        Err(Errno::RANGE) => Ok(Some(Vec::new())),
        Err(errno) => Err(errno.into()),
    }
}
