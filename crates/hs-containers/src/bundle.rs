//! A folder for an OCI runtime, whose root comes from an image when it is read.
//!
//! ```text
//! DIR/config.json            how the command starts
//! DIR/rootfs                 the root: an overlay of
//! DIR/.headstart/tree          the image's tree, mounted by a server of its own
//! DIR/.headstart/upper, work   what is written
//! DIR/.headstart/disk          the image's disk
//! ```

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use hs_linux::mounts::{MountTable, mounted_at, unmount_unused};
use hs_output::whole_file::write_whole;
use hs_service::background;
use hs_service::signals::Ends;
use hs_start::image::ImageSource;
use hs_start::own_command::OwnCommand;

use crate::runtime_config;

/// The folder with what is behind the root.
const OWN: &str = ".headstart";
/// How long a server may take to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest name of a host that Linux takes, in bytes.
const HOST_NAME_BYTES: usize = 64;

/// What a bundle is made of.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The image.
    pub image: ImageSource,
    /// The folder: it is made, or empty.
    pub dir: PathBuf,
    /// The command, in place of the image's own arguments.
    pub command: Vec<OsString>,
    /// The program, in place of the image's own entrypoint.
    pub entrypoint: Option<OsString>,
    /// The command has a terminal.
    pub terminal: bool,
    /// Flags for the server of the mount.
    pub flags: Vec<OsString>,
}

/// The places of a bundle.
struct Places {
    dir: PathBuf,
    root: PathBuf,
    own: PathBuf,
    disk: PathBuf,
    tree: PathBuf,
    upper: PathBuf,
    work: PathBuf,
}

impl Places {
    fn of(dir: &Path) -> Self {
        let own = dir.join(OWN);
        let below = |name: &str| own.join(name);
        let (disk, tree, upper, work) = (below("disk"), below("tree"), below("upper"), below("work"));
        Self { root: dir.join("rootfs"), dir: dir.to_owned(), disk, tree, upper, work, own }
    }

    /// Whether a bundle was made here: others may have folders of these names too.
    fn is_bundle(&self) -> bool {
        let is_folder = |path: &&PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_dir());
        let folders = [&self.own, &self.root, &self.disk, &self.tree, &self.upper, &self.work];
        folders.iter().all(is_folder)
    }
}

/// Makes a bundle. What is mounted stays until [`remove`].
///
/// # Errors
/// When the folder has something in it, the image cannot be mounted, or it says no command, and when one of
/// `signals` comes. Then nothing of it stays.
pub fn make(bundle: &Bundle, signals: &Ends) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("a bundle's root is mounted, which needs root: run with sudo");
    }
    let made_dir = !bundle.dir.exists();
    let not_empty = || {
        format!(
            "{}: the folder is not empty (`headstart bundle --remove` ends a bundle)",
            bundle.dir.display()
        )
    };
    if !made_dir && fs::read_dir(&bundle.dir).with_context(|| shown("look at", &bundle.dir))?.next().is_some()
    {
        bail!(not_empty());
    }
    let hostname = hostname(&bundle.dir)?;
    fs::create_dir_all(&bundle.dir).with_context(|| shown("make", &bundle.dir))?;
    let dir = fs::canonicalize(&bundle.dir).with_context(|| shown("look at", &bundle.dir))?;
    let places = Places::of(&dir);
    // What is written to the root is the command's own.
    match fs::DirBuilder::new().mode(0o700).create(&places.own) {
        // Another process makes a bundle here.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => bail!(not_empty()),
        created => created.with_context(|| shown("make", &places.own))?,
    }
    let made = fill(bundle, &places, &hostname, signals).and_then(|()| match signals.take() {
        None => Ok(()),
        Some(_) => bail!(background::ENDED),
    });
    if made.is_err() {
        if let Err(error) = take_down(&places) {
            log::warn!("{}: not all of it is removed: {error:#}", dir.display());
        }
        if made_dir {
            let _ = fs::remove_dir(&dir);
        }
    }
    made
}

/// The name of the container's host, which is that of the folder, as far as Linux takes it.
fn hostname(dir: &Path) -> anyhow::Result<String> {
    let dir = std::path::absolute(dir).with_context(|| shown("find", dir))?;
    let Some(text) = dir.to_str() else {
        bail!("{}: the path of a bundle must be text, for its name is in config.json", dir.display())
    };
    let name = Path::new(text).file_name().map_or("headstart".into(), |name| name.to_string_lossy());
    let end = (0..=name.len().min(HOST_NAME_BYTES)).rev().find(|&end| name.is_char_boundary(end));
    Ok(name[..end.unwrap_or_default()].to_owned())
}

fn fill(bundle: &Bundle, places: &Places, hostname: &str, signals: &Ends) -> anyhow::Result<()> {
    for folder in [&places.root, &places.disk, &places.tree, &places.upper, &places.work] {
        fs::create_dir(folder).with_context(|| shown("make", folder))?;
    }
    mount_tree(bundle, places, signals)?;
    let command = OwnCommand::find(&places.tree, &bundle.command, bundle.entrypoint.as_ref())?;
    let permissions =
        fs::metadata(&places.tree).with_context(|| shown("look at", &places.tree))?.permissions();
    let mode = fs::Permissions::from_mode(permissions.mode() & 0o7777);
    fs::set_permissions(&places.upper, mode).with_context(|| shown("set up", &places.upper))?;
    hs_linux::rootenv::mount_overlay(&places.tree, &places.upper, &places.work, &places.root).with_context(
        || {
            format!(
                "{}: a root that can be written needs a folder on ext4, XFS, btrfs or tmpfs",
                places.dir.display()
            )
        },
    )?;
    let config = runtime_config::of_command(&command, hostname, bundle.terminal);
    let text = serde_json::to_string_pretty(&config)? + "\n";
    write_whole(&places.dir.join("config.json"), text.as_bytes())
}

/// Starts the server of the image's tree.
fn mount_tree(bundle: &Bundle, places: &Places, signals: &Ends) -> anyhow::Result<()> {
    let image = match (bundle.image.image.whole_address(), &bundle.image.image.trust) {
        (Some(address), Some(trust)) => format!("{address}#{trust}").into(),
        (Some(address), None) => address.into(),
        (None, _) => bundle.image.word().into_os_string(),
    };
    let mut arguments: Vec<OsString> = ["--quiet", "mount"].map(OsString::from).to_vec();
    arguments.extend(bundle.flags.iter().cloned());
    arguments.extend([
        "--fs".into(),
        places.tree.clone().into(),
        "--".into(),
        image,
        places.disk.clone().into(),
    ]);
    match background::start(&arguments, "mount", Some(signals))? {
        0 => Ok(()),
        _ => bail!("the image could not be mounted at {}", places.tree.display()),
    }
}

/// Ends a bundle: unmounts its root, ends its server, and removes the folder, with all that was written.
///
/// # Errors
/// When it is none, or a container still uses its root.
pub fn remove(dir: &Path) -> anyhow::Result<()> {
    let dir = fs::canonicalize(dir).with_context(|| shown("look at", dir))?;
    let places = Places::of(&dir);
    if !places.is_bundle() {
        bail!("{}: this is no bundle that `headstart bundle` has made", dir.display());
    }
    take_down(&places)?;
    match fs::remove_dir(&dir) {
        // What others have put there is theirs.
        Err(error) if error.kind() != std::io::ErrorKind::DirectoryNotEmpty => {
            Err(error).with_context(|| shown("remove", &dir))
        }
        _ => Ok(()),
    }
}

fn take_down(places: &Places) -> anyhow::Result<()> {
    for target in [&places.root, &places.tree, &places.disk] {
        while mounted_at(target)?.is_some() {
            unmount(target)?;
            if target != &places.root {
                wait_until_gone(&places.disk)?;
            }
        }
    }
    let config = places.dir.join("config.json");
    gone(fs::remove_file(&config), &config)?;
    // Nothing is in it but what is mounted there.
    gone(fs::remove_dir(&places.root), &places.root)?;
    gone(fs::remove_dir_all(&places.own), &places.own)
}

/// What was not there is gone.
fn gone(removed: std::io::Result<()>, path: &Path) -> anyhow::Result<()> {
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| shown("remove", path)),
    }
}

fn unmount(target: &Path) -> anyhow::Result<()> {
    if !unmount_unused(target)? {
        bail!("{} is in use: end the container first (`runc delete -f NAME`)", target.display());
    }
    Ok(())
}

/// Waits until the server has taken its own mount down.
fn wait_until_gone(path: &Path) -> anyhow::Result<()> {
    if !MountTable::open()?.wait_until_gone(path, PATIENCE)? {
        bail!("{} is still mounted after {} s", path.display(), PATIENCE.as_secs());
    }
    Ok(())
}

fn shown(what: &str, path: &Path) -> String {
    format!("{what} {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bundle_is_removed() {
        let place = tempfile::tempdir().expect("a folder");
        for folder in [".headstart/notes", "rootfs"] {
            fs::create_dir_all(place.path().join(folder)).expect("made");
        }
        fs::write(place.path().join("config.json"), "{}").expect("written");
        let refused = remove(place.path()).expect_err("no bundle").to_string();
        assert!(refused.contains("no bundle"), "{refused}");
        for name in [".headstart/notes", "rootfs", "config.json"] {
            assert!(place.path().join(name).exists(), "{name}");
        }
        // Nor is what lies in a root that is not mounted.
        for folder in ["disk", "tree", "upper", "work"] {
            fs::create_dir(place.path().join(OWN).join(folder)).expect("made");
        }
        fs::write(place.path().join("rootfs/file"), "").expect("written");
        assert!(remove(place.path()).is_err());
        assert!(place.path().join("rootfs/file").exists() && place.path().join(OWN).exists());
        fs::remove_file(place.path().join("rootfs/file")).expect("removed");
        remove(place.path()).expect("a bundle");
        assert!(!place.path().exists());
    }

    #[test]
    fn a_long_name_is_cut_and_one_that_is_no_text_refused() {
        let name = hostname(Path::new(&format!("/run/{}", "ä".repeat(40)))).expect("a name");
        assert_eq!(name, "ä".repeat(32));
        let name = hostname(Path::new(&format!("/run/a{}", "ä".repeat(40)))).expect("a name");
        assert_eq!(name, format!("a{}", "ä".repeat(31)));
        assert_eq!(hostname(Path::new("/run/app")).expect("a name"), "app");
        let bytes = std::os::unix::ffi::OsStrExt::from_bytes(b"/run/\xff");
        assert!(hostname(Path::new::<std::ffi::OsStr>(bytes)).is_err());
    }
}
