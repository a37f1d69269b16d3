//! The mode of a file that must not be read meanwhile: it has no guard, and its missing blocks would read as
//! zeros.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Mode, XattrFlags, fchmod, fremovexattr, fsetxattr, fstat};
use rustix::io::Errno;

use super::marker;

/// The mode that the file had before, in octal digits.
const MODE: &str = "user.headstart.mode";

/// Takes every right away from the file, and notes the mode; notes `usual` where the file has no rights
/// already and no mode is noted.
pub(super) fn withhold(file: impl AsFd, usual: Option<u32>) -> io::Result<()> {
    let mode = fstat(&file)?.st_mode & 0o7777;
    let noted = if mode == 0 { usual.filter(|_| noted(&file).is_none()) } else { Some(mode) };
    if let Some(noted) = noted {
        fsetxattr(&file, MODE, format!("{noted:o}").as_bytes(), XattrFlags::empty())?;
    }
    Ok(fchmod(&file, Mode::empty())?)
}

/// Restores the noted mode, if there is one.
pub(super) fn give_back(file: impl AsFd) -> io::Result<()> {
    let Some(mode) = noted(&file) else { return Ok(()) };
    // If the file has another mode, a user has set it.
    if fstat(&file)?.st_mode & 0o7777 == 0 {
        fchmod(&file, Mode::from_raw_mode(mode))?;
    }
    match fremovexattr(&file, MODE) {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn noted(file: impl AsFd) -> Option<u32> {
    let text = String::from_utf8(marker::value(file, MODE).ok()??).ok()?;
    u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o777)
}
