//! The consoles of guests, and how much of them is kept.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use parking_lot::Mutex;

/// How much console output is kept for a failed boot when no console file was asked for.
const KEPT_CONSOLE_BYTES: usize = 4 << 20;
/// Consoles of failed boots that are kept in one folder: the newest.
const KEPT_CONSOLES: usize = 10;
/// Their names begin and end with these.
const PREFIX: &str = "headstart-console-";
const SUFFIX: &str = ".log";

/// Where the console goes: to a file as it comes, if the user names one; else into memory.
pub enum Log {
    /// That file.
    File(PathBuf, std::fs::File),
    /// Its first part, in memory.
    Memory(Arc<Mutex<Vec<u8>>>),
}

impl Log {
    /// Makes the file, if one is named.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        Ok(match path {
            Some(path) => {
                let file =
                    std::fs::File::create(path).with_context(|| format!("write {}", path.display()))?;
                Self::File(path.to_owned(), file)
            }
            None => Self::Memory(Arc::default()),
        })
    }

    /// What the console is written to.
    pub fn writer(&self) -> Box<dyn Write + Send> {
        match self {
            Self::File(path, file) => match file.try_clone() {
                Ok(file) => Box::new(file),
                Err(error) => {
                    log::warn!("the console is not kept in {}: {error}", path.display());
                    Box::new(std::io::sink())
                }
            },
            Self::Memory(kept) => Box::new(InMemory(Arc::clone(kept))),
        }
    }

    /// Where all of it can be read from now on.
    pub(super) fn keep(&self) -> anyhow::Result<PathBuf> {
        match self {
            Self::File(path, _) => Ok(path.clone()),
            Self::Memory(kept) => {
                let mut file = tempfile::Builder::new().prefix(PREFIX).suffix(SUFFIX).tempfile()?;
                file.write_all(&kept.lock())?;
                let path = file.keep()?.1;
                if let Some(folder) = path.parent() {
                    remove_old(folder, KEPT_CONSOLES);
                }
                Ok(path)
            }
        }
    }
}

/// Keeps the first bytes, up to a limit.
struct InMemory(Arc<Mutex<Vec<u8>>>);

impl Write for InMemory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut kept = self.0.lock();
        let room = KEPT_CONSOLE_BYTES - kept.len();
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Removes the oldest consoles of this user in `folder`, so that `most` are left. One that cannot be
/// removed stays.
fn remove_old(folder: &Path, most: usize) {
    use std::os::unix::fs::MetadataExt;

    let user = rustix::process::geteuid().as_raw();
    let mut kept: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Links are not followed, because other users write to this folder as well.
        let is_ours = |metadata: &std::fs::Metadata| metadata.is_file() && metadata.uid() == user;
        if name.starts_with(PREFIX)
            && name.ends_with(SUFFIX)
            && let Ok(metadata) = entry.metadata()
            && is_ours(&metadata)
            && let Ok(modified) = metadata.modified()
        {
            kept.push((modified, entry.path()));
        }
    }
    kept.sort();
    for (_, path) in kept.iter().rev().skip(most) {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_consoles_of_failed_boots_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for number in 0..5_u32 {
            let file = std::fs::File::create(path(&format!("{PREFIX}{}{SUFFIX}", 9 - number))).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(number) * 100);
            file.set_modified(at).unwrap();
        }
        std::fs::write(path("headstart-console-mine.txt"), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path(&format!("{PREFIX}link{SUFFIX}"))).unwrap();
        remove_old(folder.path(), 2);
        let mut left: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "headstart-console-5.log",
                "headstart-console-6.log",
                "headstart-console-link.log",
                "headstart-console-mine.txt"
            ]
        );
    }
}
