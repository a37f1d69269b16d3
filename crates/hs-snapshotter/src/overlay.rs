//! What containerd mounts for a snapshot, and what a snapshot's files take.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::messages::Mount;
use crate::snapshots::Usage;

/// Bytes of a block as stat(2) counts them.
const STAT_BLOCK_BYTES: u64 = 512;

/// The folder of a snapshot: its files, and what overlayfs needs beside them.
pub(crate) struct Layer(PathBuf);

impl Layer {
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Where its files are.
    pub(crate) fn files(&self) -> PathBuf {
        self.0.join("fs")
    }

    fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    /// Makes it. Its root has the owner that the root of what is below it has.
    pub(crate) fn make(&self, is_writable: bool, below: Option<&Path>) -> io::Result<()> {
        fs::create_dir(&self.0)?;
        fs::create_dir(self.files())?;
        // Programs of all users look at files below it.
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o711))?;
        fs::set_permissions(self.files(), fs::Permissions::from_mode(0o755))?;
        if is_writable {
            fs::create_dir(self.work())?;
            fs::set_permissions(self.work(), fs::Permissions::from_mode(0o711))?;
        }
        if let Some(below) = below {
            let root = fs::metadata(below)?;
            std::os::unix::fs::lchown(self.files(), Some(root.uid()), Some(root.gid()))?;
        }
        Ok(())
    }

    /// What is mounted, over folders of which the first hides those behind it.
    pub(crate) fn mounts(&self, is_writable: bool, lower: &[PathBuf]) -> Vec<Mount> {
        let bind = |source: &Path, how: &str| {
            let options = vec![how.to_owned(), "rbind".to_owned()];
            vec![Mount { kind: "bind".to_owned(), source: text(source), options }]
        };
        match (lower, is_writable) {
            ([], true) => return bind(&self.files(), "rw"),
            ([], false) => return bind(&self.files(), "ro"),
            ([only], false) => return bind(only, "ro"),
            _ => {}
        }
        let mut options = Vec::new();
        if Path::new("/sys/module/overlay/parameters/index").exists() {
            options.push("index=off".to_owned());
        }
        if is_writable {
            options.push(format!("workdir={}", text(&self.work())));
            options.push(format!("upperdir={}", text(&self.files())));
        }
        let lower: Vec<String> = lower.iter().map(|folder| text(folder)).collect();
        options.push(format!("lowerdir={}", lower.join(":")));
        vec![Mount { kind: "overlay".to_owned(), source: "overlay".to_owned(), options }]
    }
}

/// Paths begin with the snapshotter's folder, which is UTF-8, and go on with numbers and digits.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Whether paths below `folder` can stand among the options of a mount.
pub(crate) fn can_be_an_option(folder: &Path) -> bool {
    folder.to_str().is_some_and(|text| !text.contains([',', ':', '\\', '"', '\n']))
}

/// What the files of a folder take, each inode once. What is removed meanwhile does not count.
pub(crate) fn usage(folder: &Path) -> io::Result<Usage> {
    let mut seen = BTreeSet::new();
    let mut usage = Usage::default();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        let found = match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found?,
        };
        if seen.insert((found.dev(), found.ino())) {
            usage.inodes += 1;
            usage.size_bytes += found.blocks() * STAT_BLOCK_BYTES;
        }
        if found.is_dir() {
            match fs::read_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                entries => open.extend(entries?.flatten().map(|entry| entry.path())),
            }
        }
    }
    Ok(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_bound_or_laid_over_one_another() {
        let layer = Layer::at("/r/snapshots/3".into());
        let lower = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let shown = |is_writable, names: &[&str]| {
            let [mount] = &layer.mounts(is_writable, &lower(names))[..] else { panic!("one mount") };
            let mut options = mount.options.clone();
            options.retain(|option| option != "index=off");
            format!("{} {} {}", mount.kind, mount.source, options.join(","))
        };
        assert_eq!(shown(true, &[]), "bind /r/snapshots/3/fs rw,rbind");
        assert_eq!(shown(false, &["/t"]), "bind /t ro,rbind");
        assert_eq!(shown(false, &["/a", "/t"]), "overlay overlay lowerdir=/a:/t");
        assert_eq!(
            shown(true, &["/a", "/t"]),
            "overlay overlay workdir=/r/snapshots/3/work,upperdir=/r/snapshots/3/fs,lowerdir=/a:/t"
        );
        assert!(can_be_an_option(Path::new("/var/lib/x")) && !can_be_an_option(Path::new("/a:b")));
    }

    #[test]
    fn files_are_counted_once() {
        let place = tempfile::tempdir().expect("a folder");
        let layer = Layer::at(place.path().join("1"));
        layer.make(true, Some(place.path())).expect("made");
        let file = layer.files().join("a");
        fs::write(&file, [7; 5000]).expect("written");
        fs::hard_link(&file, layer.files().join("b")).expect("linked");
        let usage = usage(&layer.files()).expect("counted");
        assert_eq!(usage.inodes, 2);
        assert!(usage.size_bytes >= 5000 && usage.size_bytes < 3 * 8192, "{usage:?}");
        assert_eq!(super::usage(&layer.files().join("c")).expect("nothing"), Usage::default());
    }
}
