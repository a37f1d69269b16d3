//! This program under another name: what mount(8) and umount(8) call for file systems of this type.

pub(crate) mod mount;
pub(crate) mod umount;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Exit codes of mount(8).
const WRONG_USAGE: u8 = 1;
const FAILED: u8 = 32;

/// Whose place this process takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Helper {
    /// `/sbin/mount.headstart`
    Mount,
    /// `/sbin/umount.fuse.headstart`, by the type that the kernel's table of mounts shows.
    Umount,
}

impl Helper {
    /// By the name under which this process was started.
    pub(crate) fn of_this_process() -> Option<Self> {
        std::env::args_os().next().and_then(|name| Self::named(Path::new(&name)))
    }

    fn named(program: &Path) -> Option<Self> {
        let name = program.file_name()?.as_bytes().strip_suffix(b".headstart")?;
        match name {
            b"mount" | b"mount.fuse" => Some(Self::Mount),
            b"umount" | b"umount.fuse" => Some(Self::Umount),
            _ => None,
        }
    }

    /// Does what it is for.
    pub(crate) fn run(self, arguments: &[OsString]) -> ExitCode {
        let code = match self {
            Self::Mount => mount::run(arguments),
            Self::Umount => umount::run(arguments),
        };
        ExitCode::from(code)
    }
}

/// The arguments of `program`; else its exit code, after what there is to say.
fn parse<A: clap::Parser>(program: &str, arguments: &[OsString]) -> Result<A, u8> {
    let program = OsString::from(program);
    A::try_parse_from(std::iter::once(&program).chain(arguments)).map_err(|error| {
        let _ = error.print();
        if error.use_stderr() { WRONG_USAGE } else { 0 }
    })
}

/// Enters a mount namespace, by its file or the id of a process in it.
fn enter(namespace: &Path) -> std::io::Result<()> {
    let number = namespace.to_str().and_then(|text| text.parse::<u32>().ok());
    let path = number.map_or_else(|| namespace.to_owned(), |number| format!("/proc/{number}/ns/mnt").into());
    let file = File::open(path)?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decide() {
        let named = |name: &str| Helper::named(Path::new(name));
        assert_eq!(named("/sbin/mount.headstart"), Some(Helper::Mount));
        assert_eq!(named("umount.fuse.headstart"), Some(Helper::Umount));
        for other in ["headstart", "/usr/bin/headstart", "headstart-init", ".headstart", "mount", ""] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
