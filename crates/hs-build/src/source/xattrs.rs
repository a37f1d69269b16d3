//! Extended attributes of the source's files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hs_ext4::Attributes;
use rustix::io::Errno;

/// The kernel's limits for a list of names and for a value (`linux/limits.h`).
const LIMIT_BYTES: usize = 65_536;

/// All attributes of `path` itself, not of what it links to, sorted by name: file systems list them in
/// different orders. None where the file system has none.
pub(super) fn read(path: &Path) -> Result<Box<Attributes>, Errno> {
    let names = match filled(|buffer| rustix::fs::llistxattr(path, buffer)) {
        Err(Errno::OPNOTSUPP) => return Ok(Box::default()),
        names => names?,
    };
    let mut attributes = Vec::new();
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let value = filled(|buffer| rustix::fs::lgetxattr(path, OsStr::from_bytes(name), buffer));
        // One that was listed and is gone: the file has changed.
        let value = value.map_err(|error| if error == Errno::NODATA { Errno::NOENT } else { error })?;
        attributes.push((name.to_vec(), value));
    }
    attributes.sort_unstable();
    Ok(attributes.into_boxed_slice())
}

/// What a call fills, of the length that it gives.
fn filled(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    // Most files have none or few, so that the first guess usually fits.
    let mut buffer = vec![0; 256];
    loop {
        match call(&mut buffer[..]) {
            Err(Errno::RANGE) if buffer.len() < LIMIT_BYTES => buffer = vec![0; LIMIT_BYTES],
            Err(error) => return Err(error),
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
        }
    }
}
