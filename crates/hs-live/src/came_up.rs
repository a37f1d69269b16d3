//! A system on a disk with two of them says that it has come up. Until then the boot loader goes back to the
//! other one at the next start.
//!
//! A unit of systemd in `/run` makes a file when the system is up; the keeper sees it and notes the slot in
//! the boot loader's block. So the system needs no program of headstart.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::mount::{UnmountFlags, unmount};

use crate::boot_state::{BootState, Slot};
use crate::words::{DeviceName, Words};
use crate::{device, private_root};

/// What is there when the system has come up. Both roots see this folder.
const FILE: &str = "/run/headstart/up";
/// Units that were made at run time: systemd.unit(5).
const UNITS: &str = "/run/systemd/system";
const UNIT: &str = "headstart-up.service";
/// `boot-complete.target` is where a system orders its own checks: systemd.special(7).
const TEXT: &str = "\
[Unit]
Description=Tell the boot loader that this system has come up
DefaultDependencies=no
Requires=boot-complete.target
After=boot-complete.target multi-user.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c ': >/run/headstart/up'
";
/// How long the boot partition may take to appear: it lies on the disk that the image was found on.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries to note it.
const PAUSE: Duration = Duration::from_secs(60);

/// Lets the system say that it has come up, where it lies in a slot.
pub(crate) fn ask(words: &Words) {
    if words.slot.is_none() || words.boot.is_none() {
        return;
    }
    let wanted_by = Path::new(UNITS).join("multi-user.target.wants");
    let made = fs::create_dir_all(&wanted_by)
        .and_then(|()| fs::write(Path::new(UNITS).join(UNIT), TEXT))
        .and_then(|()| match std::os::unix::fs::symlink(format!("../{UNIT}"), wanted_by.join(UNIT)) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        });
    if let Err(error) = made {
        log::error!("{UNIT}: {error}; after a restart the boot loader takes this system for one that failed");
    }
}

/// What the keeper waits for.
pub(crate) struct CameUp {
    slot: Slot,
    boot: DeviceName,
    file: PathBuf,
    /// When it could not be noted last.
    failed: Option<Instant>,
}

impl CameUp {
    /// Of a system in a slot.
    pub(crate) fn of(words: &Words) -> Option<Self> {
        Some(Self { slot: words.slot?, boot: words.boot.clone()?, file: FILE.into(), failed: None })
    }

    /// Notes it, if the system has come up. What cannot be noted is said, and tried again later.
    pub(crate) fn is_noted(&mut self) -> bool {
        if self.failed.is_some_and(|since| since.elapsed() < PAUSE) || !self.file.exists() {
            return false;
        }
        match self.note() {
            Ok(()) => {
                log::info!("the system in slot {} has come up", self.slot);
                true
            }
            Err(error) => {
                log::error!(
                    "the boot loader cannot be told that the system in slot {} has come up: {error:#}",
                    self.slot
                );
                self.failed = Some(Instant::now());
                false
            }
        }
    }

    fn note(&self) -> anyhow::Result<()> {
        let found = device::wait_for(&self.boot, PATIENCE, Duration::ZERO, |found| Ok(found[0].clone()))?;
        let place = Path::new(private_root::PROBE);
        device::mount(&found, place, true)?;
        let noted = BootState::read(place).and_then(|state| match state.good == self.slot {
            true => Ok(()),
            // An update that was put in place meanwhile stays.
            false => BootState { good: self.slot, ..state }.write(place),
        });
        unmount(place, UnmountFlags::empty()).context("unmount the boot partition")?;
        noted.context("the boot loader's block on the boot partition")
    }
}
