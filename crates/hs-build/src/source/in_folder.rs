//! Files that other files name: a stranger's file may name anything.

use std::fs::File;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// How such a file is opened: a FIFO does not wait, a terminal does not become the own one.
pub(super) const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// The folder that a file lies in.
pub(super) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Opens what `name` leads to from the folder of a file.
///
/// # Errors
/// [`Errno::XDEV`] when that does not lie in the folder or below, also by way of links.
pub(super) fn open_beneath(file: &Path, name: &Path) -> Result<File, Errno> {
    let folder_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, folder_of(file), folder_flags, Mode::empty())?;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(folder, name, FLAGS, Mode::empty(), how)?.into())
}
