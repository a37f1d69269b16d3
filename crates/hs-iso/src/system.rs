//! The system whose root is made bootable: mounted, with an overlay in which an initramfs can be made.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use hs_fuse::ServedImage;
use hs_linux::rootenv::{RootEnv, RootOptions, SpawnOptions, Stream};
use hs_serve::{MountFsOptions, MountedFs, Prefetching};
use hs_service::workdir::Workdir;
use hs_start::image::ImageSource;
use hs_start::medium::{self, Damage};
use hs_start::start;
use rustix::fs::{Mode, OFlags, ResolveFlags};

/// Where programs of the system are.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where the system lies.
#[derive(Clone, Debug)]
pub(crate) enum SystemPlace {
    /// In a directory.
    Directory(PathBuf),
    /// In an image.
    Image(Box<ImageSource>),
}

/// A system with an overlay above it; everything that is written to it is gone afterwards.
///
/// The fields are dropped in order.
pub(crate) struct System {
    root: RootEnv,
    _fs: Option<MountedFs>,
    _served: Option<Box<ServedImage>>,
    _work: Workdir,
}

impl System {
    /// Mounts it. Call `hs_linux::rootenv::enter_private_mounts` before.
    pub(crate) fn open(place: &SystemPlace, needed: &[PathBuf]) -> anyhow::Result<Self> {
        let work = Workdir::new(needed)?;
        let (served, fs, lower) = match place {
            SystemPlace::Directory(path) => (None, None, path.clone()),
            SystemPlace::Image(image) => {
                let on_medium = medium::open(&**image, &hs_device::Medium::None, &Damage::default())?;
                let config = start::config(image, Prefetching::Off, None, &hs_device::Medium::None)?;
                let config = on_medium.config(&config);
                let disk = work.folder("disk")?;
                let served = ServedImage::start(Arc::clone(&on_medium.store), &disk, &config, None)?;
                let target = work.folder("fs")?;
                let fs = served.mount_fs(&target, &MountFsOptions { trusted: true, ..Default::default() })?;
                (Some(Box::new(served)), Some(fs), target)
            }
        };
        let options = RootOptions { trusted: true, ..RootOptions::default() };
        let root = RootEnv::prepare(&lower, &work.folder("root")?, options)?;
        Ok(Self { root, _fs: fs, _served: served, _work: work })
    }

    /// Opens a file of the system. Links are followed as the system itself follows them.
    pub(crate) fn open_file(&self, inside: &str) -> std::io::Result<File> {
        self.resolve(inside, OFlags::RDONLY | OFlags::CLOEXEC)
    }

    /// Whether the system has this file or folder.
    pub(crate) fn has(&self, inside: &str) -> bool {
        self.resolve(inside, OFlags::PATH | OFlags::CLOEXEC).is_ok()
    }

    /// The text of a file of the system; empty when there is none.
    pub(crate) fn read_text(&self, inside: &str) -> String {
        use std::io::Read;
        let mut bytes = Vec::new();
        let read = self.open_file(inside).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Copies a file of the system to this machine.
    pub(crate) fn copy_out(&self, inside: &str, to: &Path) -> anyhow::Result<()> {
        let mut from = self.open_file(inside).with_context(|| format!("read {inside} of the system"))?;
        let mut file = File::create(to).with_context(|| format!("create {}", to.display()))?;
        std::io::copy(&mut from, &mut file).map(drop).with_context(|| format!("copy {inside} of the system"))
    }

    /// Writes a file of the overlay.
    pub(crate) fn write(&self, inside: &str, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
        let folder = inside.rsplit_once('/').map_or("/", |(folder, _)| folder);
        self.run(&["mkdir", "-p", folder])?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let mut file =
            self.resolve(inside, flags).with_context(|| format!("create {inside} in the system"))?;
        let permissions = std::fs::Permissions::from_mode(mode);
        file.write_all(bytes)
            .and_then(|()| file.set_permissions(permissions))
            .with_context(|| format!("write {inside} in the system"))
    }

    /// Names of what is in a folder of the system; none when there is no such folder.
    fn list(&self, inside: &str) -> Vec<String> {
        let Ok(folder) = self.resolve(inside, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC) else {
            return Vec::new();
        };
        let entries = rustix::fs::Dir::read_from(&folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// A path of the system never leads out of it, whatever links are in it.
    fn resolve(&self, inside: &str, flags: OFlags) -> std::io::Result<File> {
        let root = rustix::fs::open(
            self.root.root(),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o600) } else { Mode::empty() };
        Ok(rustix::fs::openat2(&root, inside, flags, mode, ResolveFlags::IN_ROOT)?.into())
    }

    /// Runs a command of the system, contained, and gives what it printed.
    pub(crate) fn run(&self, command: &[&str]) -> anyhow::Result<String> {
        use std::io::Read;
        let environment = [("PATH", PATH), ("HOME", "/root"), ("LANG", "C.UTF-8")];
        let options = SpawnOptions {
            stdin: Stream::Null,
            stdout: Stream::Pipe,
            stderr: Stream::Output,
            env: Some(environment.map(|(key, value)| (key.into(), value.into())).to_vec()),
            ..SpawnOptions::default()
        };
        let words: Vec<_> = command.iter().map(std::ffi::OsString::from).collect();
        let mut child = self.root.spawn(&words, options)?;
        let mut said = String::new();
        if let Some(mut output) = child.stdout.take() {
            let mut bytes = Vec::new();
            output.read_to_end(&mut bytes).with_context(|| format!("read what {} says", command[0]))?;
            said = String::from_utf8_lossy(&bytes).into_owned();
        }
        let exit = child.wait()?;
        if !exit.success() {
            bail!("{} of the system failed with exit code {}:\n{}", command[0], exit.code(), said.trim_end());
        }
        Ok(said)
    }

    /// The newest kernel of the system: its version, with `/boot/vmlinuz-VERSION` and its modules.
    pub(crate) fn kernel_version(&self) -> anyhow::Result<String> {
        let mut versions = self.list("/lib/modules");
        versions.retain(|version| self.has(&kernel_path(version)));
        versions.sort_by_key(|version| numbers(version));
        versions.pop().context(
            "the system has no kernel in /boot with its modules in /lib/modules: install one there \
             (linux-image-amd64 in Debian), or give --kernel and --initrd",
        )
    }
}

/// Where Debian and others keep the kernel of a version.
pub(crate) fn kernel_path(version: &str) -> String {
    format!("/boot/vmlinuz-{version}")
}

/// Versions are compared number by number.
fn numbers(version: &str) -> Vec<u64> {
    let parts = version.split(|character: char| !character.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let mut versions = ["6.1.0-9-amd64", "6.12.3-amd64", "6.1.0-31-amd64"];
        versions.sort_by_key(|version| numbers(version));
        assert_eq!(versions, ["6.1.0-9-amd64", "6.1.0-31-amd64", "6.12.3-amd64"]);
    }
}
