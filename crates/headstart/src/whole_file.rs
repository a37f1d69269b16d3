//! Files that are written whole or not at all.

use std::io::Write;
use std::path::Path;

use anyhow::Context;

/// Writes `bytes` to `path`. A file has its old content or the new, never a part; a pipe or a device, such
/// as /dev/stdout, is written to and not replaced.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let context = || format!("write {}", path.display());
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        let mut special = std::fs::File::options().write(true).open(path).with_context(context)?;
        return special.write_all(bytes).with_context(context);
    }
    let mut file =
        tempfile::Builder::new().prefix(".headstart-").tempfile_in(folder).with_context(context)?;
    file.write_all(bytes).with_context(context)?;
    file.as_file().sync_all().with_context(context)?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(readable).with_context(context)?;
    file.persist(path).map_err(|error| error.error).with_context(context)?;
    Ok(())
}
