//! Shared objects that are loaded into a guest's program before its libraries.
//!
//! One is ours, [shipped inside this program](ours): with it `linux.uml` runs where the processor has more
//! registers than User-mode Linux supports. The preloads of this process itself (`LD_PRELOAD`) come after it.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::xstate;

/// The variable that names them.
const VARIABLE: &str = "LD_PRELOAD";

/// Built by this crate's build script; empty for processors without User-mode Linux.
static OURS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// A shared object, byte for byte: the guest's root may contain no file of this machine.
#[derive(Clone, PartialEq, Eq)]
pub struct Preload(Cow<'static, [u8]>);

impl Preload {
    /// What is in it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Preload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Preload({} bytes)", self.0.len())
    }
}

/// Ours, with which `linux.uml` runs on more processors; `None` where there is no User-mode Linux.
#[must_use]
pub fn ours() -> Option<Preload> {
    (!OURS.is_empty()).then_some(Preload(Cow::Borrowed(OURS)))
}

/// What `linux.uml` needs here: [`ours`] if a trial has shown that it supports too few registers, and the
/// preloads of this process.
#[must_use]
pub fn for_uml() -> Vec<Preload> {
    let is_needed = xstate::area().is_ok_and(|area| area.is_too_large);
    let mut preloads: Vec<Preload> = ours().filter(|_| is_needed).into_iter().collect();
    preloads.extend(named_in(&std::env::var_os(VARIABLE).unwrap_or_default()));
    preloads
}

/// Those that `variable` names by their paths. An object named without a path is one of the system's
/// libraries.
fn named_in(variable: &OsStr) -> Vec<Preload> {
    let paths = variable.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    let paths = paths.filter(|path| path.contains(&b'/')).map(OsStr::from_bytes);
    let read = |path: &OsStr| match std::fs::read(path) {
        Ok(bytes) => Some(Preload(Cow::Owned(bytes))),
        Err(error) => {
            log::warn!("{VARIABLE} names {}, which cannot be read: {error}", path.display());
            None
        }
    };
    paths.filter_map(read).collect()
}

/// Writes `preloads` to `folder`, and returns the variable that names them there: none when there are none.
///
/// # Errors
/// When they cannot be written.
pub(crate) fn placed(preloads: &[Preload], folder: &Path) -> io::Result<Option<(OsString, OsString)>> {
    let mut names = OsString::new();
    for (number, preload) in preloads.iter().enumerate() {
        let path = folder.join(format!("preload-{number}.so"));
        fs::write(&path, preload.bytes())?;
        // The guest's user reads it, whatever this process's umask is.
        fs::set_permissions(&path, Permissions::from_mode(0o444))?;
        if !names.is_empty() {
            names.push(":");
        }
        names.push(path);
    }
    Ok((!names.is_empty()).then(|| (VARIABLE.into(), names)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_by_a_path_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.so");
        std::fs::write(&path, "one").unwrap();
        let mut variable = OsString::from("libc.so.6 /no/such/file.so:");
        variable.push(&path);
        assert_eq!(named_in(&variable), [Preload(Cow::Borrowed(b"one"))]);
        assert!(named_in(OsStr::new("")).is_empty());
    }

    #[test]
    fn what_is_placed_can_be_read_by_the_names_in_the_variable() {
        let folder = tempfile::tempdir().unwrap();
        let preloads = [b"one", b"two"].map(|bytes| Preload(Cow::Borrowed(bytes)));
        let (name, value) = placed(&preloads, folder.path()).unwrap().unwrap();
        assert_eq!(name, "LD_PRELOAD");
        let paths: Vec<&str> = value.to_str().unwrap().split(':').collect();
        let read: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        assert_eq!(read, [b"one", b"two"]);
        assert!(paths.iter().all(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777 == 0o444));
        assert_eq!(placed(&[], folder.path()).unwrap(), None);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn ours_is_a_shared_object() {
        assert!(ours().unwrap().bytes().starts_with(b"\x7fELF\x02\x01\x01"));
    }
}
