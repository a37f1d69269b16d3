//! Mounts the medium again when it was pulled out and put back. The server opens its image again then. Also
//! notes that the system in a slot has come up.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use hs_service::careful;
use hs_store::ShownDevice;
use rustix::mount::{UnmountFlags, unmount};

use crate::came_up::CameUp;
use crate::words::{RootPlace, Words};
use crate::{root, server};

/// The command under which this program starts itself.
pub const COMMAND: &str = "keep";
/// How often the device is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// After so long what was seen is said again.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Starts the keeper of the medium with the image `digest` in this process's root, that of the server.
///
/// # Errors
/// When it cannot be started.
pub fn start(command_line: &str, digest: &str) -> anyhow::Result<()> {
    let started = server::inside(&[COMMAND, command_line, digest]).stdout(Stdio::null()).spawn();
    started.map(drop).context("start the keeper of the medium")
}

/// The keeper itself.
///
/// # Errors
/// When there is no medium to keep.
pub fn run<T>(command_line: &str, digest: &str) -> anyhow::Result<T> {
    let mut words = Words::parse(command_line)?;
    words.wait = PATIENCE;
    let RootPlace::Device { name, .. } = &words.place else { bail!("{COMMAND} needs a root on a device") };
    careful::survive_low_memory();
    // Of several media with the label, the one that was there before.
    let trust = format!("#{digest}");
    let base = Path::new("/");
    let medium = root::medium(base);
    let mut came_up = CameUp::of(&words);
    loop {
        let device = device_of(&medium)?;
        while device.as_ref().is_some_and(|device| !device.is_gone()) {
            if came_up.as_mut().is_some_and(CameUp::is_noted) {
                came_up = None;
            }
            std::thread::sleep(LOOK);
        }
        log::warn!("{name} is gone: put it back");
        if let Err(error) = unmount(&medium, UnmountFlags::DETACH) {
            log::warn!("unmount {}: {error}", medium.display());
        }
        while let Err(error) = root::on_device(base, name, &trust, &words) {
            log::warn!("{error:#}");
        }
        log::warn!("{name} is back");
    }
}

/// The device whose file system is mounted there; none if it is gone already.
fn device_of(medium: &Path) -> anyhow::Result<Option<ShownDevice>> {
    let metadata = medium.metadata().with_context(|| format!("look at {}", medium.display()))?;
    Ok(ShownDevice::of(metadata.dev()))
}
