//! Files that are written whole or not at all.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use anyhow::Context;

/// The permissions of a result before the umask takes its bits away, as of any program's output.
const RESULT_MODE: u32 = 0o666;
/// The permissions of what this program keeps for itself.
const PRIVATE_MODE: u32 = 0o600;

/// Writes `bytes` to `path`. A file has its old content or the new, never a part; a pipe or a device, such
/// as /dev/stdout, is written to and not replaced. The umask says who may read the file.
pub fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_with_mode(path, bytes, RESULT_MODE)
}

/// The same for a file that only the owner may read. A missing folder is made, closed to other users as well.
pub fn write_private(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        make_private_folder(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    write_with_mode(path, bytes, PRIVATE_MODE)
}

/// Makes a folder, and those above it that are missing, closed to others.
pub fn make_private_folder(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn write_with_mode(path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let context = || format!("write {}", path.display());
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        let mut special = std::fs::File::options().write(true).open(path).with_context(context)?;
        return special.write_all(bytes).with_context(context);
    }
    let permissions = std::fs::Permissions::from_mode(mode);
    // A result that was made private stays so.
    let replaced = std::fs::metadata(path).ok().filter(|_| mode == RESULT_MODE);
    let mut file = tempfile::Builder::new()
        .prefix(".headstart-")
        .permissions(permissions)
        .tempfile_in(folder)
        .with_context(context)?;
    if let Some(replaced) = replaced {
        let kept = std::fs::Permissions::from_mode(replaced.permissions().mode() & 0o777);
        file.as_file().set_permissions(kept).with_context(context)?;
    }
    file.write_all(bytes).with_context(context)?;
    file.as_file().sync_all().with_context(context)?;
    file.persist(path).map_err(|error| error.error).with_context(context)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_keeps_the_permissions_of_what_it_replaces_and_a_private_file_is_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        let mode = || std::fs::metadata(&path).expect("metadata").permissions().mode() & 0o7777;
        write_whole(&path, b"first").expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("changed");
        write_whole(&path, b"second").expect("written");
        assert_eq!((std::fs::read(&path).expect("read"), mode()), (b"second".to_vec(), 0o640));
        write_private(&path, b"third").expect("written");
        assert_eq!(mode(), 0o600);
    }
}
