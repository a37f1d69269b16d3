//! A folder in which files can fill themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hs_fill::{FillError, probe};

/// A folder on a file system that asks before a file is read: the usual one for temporary files, or one made
/// for this.
pub(crate) struct FillingFolder {
    path: PathBuf,
    mounted: bool,
    folder: tempfile::TempDir,
}

impl FillingFolder {
    /// Nothing where the kernel has no such events, or there is no root: the test is skipped.
    pub(crate) fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_owned();
        match probe(&path) {
            Ok(()) => Some(Self { path, mounted: false, folder }),
            Err(FillError::FileSystem { .. } | FillError::Io { .. }) => Self::on("ext4"),
            Err(error) => {
                hs_testing::skip(error);
                None
            }
        }
    }

    /// A small file system of this type, in a file of its own. Nothing where the kernel does not have it.
    pub(crate) fn on(kind: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        if !known.split_whitespace().any(|known| known == kind) {
            hs_testing::skip_part(format!("this kernel has no {kind}"));
            return None;
        }
        let (disk, path) = (folder.path().join("disk"), folder.path().join("mounted"));
        // The least that mkfs.xfs makes, and some.
        fs::File::create(&disk).and_then(|file| file.set_len(320 << 20)).expect("a file");
        fs::create_dir(&path).expect("a folder");
        let run = |program: &str, arguments: &[&Path]| {
            let output = Command::new(program).args(arguments).output().expect(program);
            assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        };
        run(&format!("mkfs.{kind}"), &[Path::new("-q"), &disk]);
        run("mount", &[Path::new("-o"), Path::new("loop"), &disk, &path]);
        let mounted = Self { path, mounted: true, folder };
        match probe(mounted.path()) {
            Ok(()) => Some(mounted),
            Err(error) => {
                hs_testing::skip_part(error);
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for FillingFolder {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        }
        let _ = fs::remove_dir_all(self.folder.path());
    }
}
