//! Whether the starts of this system are accelerated, and whether a process does it just now.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hs_linux::{LinuxError, LockHolder, RootLock};

use crate::EarlyError;
use crate::kept::{FOLDER, write_private};

/// Of the one process that works. No other user can take it, and so keep boots from being recorded.
const LOCK: &str = "/run/headstart-accelerate.lock";

/// The switch of a system.
#[derive(Clone, Debug)]
pub struct Switch {
    folder: PathBuf,
}

impl Switch {
    /// The switch of the system whose root is mounted at `root`.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        Self { folder: root.join(FOLDER) }
    }

    /// The folder with everything that is kept.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn marker(&self) -> PathBuf {
        self.folder.join("on")
    }

    /// Whether it is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.marker().exists()
    }

    /// Switches it on.
    ///
    /// # Errors
    /// Those of writing the marker.
    pub fn on(&self) -> Result<(), EarlyError> {
        write_private(
            &self.marker(),
            b"The starts of this system are accelerated: headstart accelerate status\n",
        )
    }

    /// Switches it off and removes everything that was kept. What records just now ends within a second or
    /// two and keeps nothing.
    ///
    /// # Errors
    /// Those of removing.
    pub fn off(&self) -> Result<(), EarlyError> {
        let failed = |error: io::Error| LinuxError::io("remove", &self.folder)(error).into();
        match fs::remove_file(self.marker()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        for _ in 0..100 {
            if at_work().is_none() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }
}

/// Whether a switch that was on has been switched off since.
#[derive(Debug)]
pub struct SinceOn {
    switch: Switch,
    was_on: bool,
}

impl SinceOn {
    /// Looks at the switch of the system whose root is mounted at `root`.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        let switch = Switch::of(root);
        Self { was_on: switch.is_on(), switch }
    }

    /// Whether it was on, and is not any more.
    #[must_use]
    pub fn is_switched_off(&self) -> bool {
        self.was_on && !self.switch.is_on()
    }
}

/// The place of the one process that works on the starts of this system. It goes with the object.
#[derive(Debug)]
pub struct OnlyOne(#[expect(dead_code, reason = "held for its lock")] RootLock);

impl OnlyOne {
    /// Takes the place; `None` when another process has it, which [`at_work`] tells.
    ///
    /// # Errors
    /// Those of [`RootLock::take`].
    pub fn take() -> Result<Option<Self>, LinuxError> {
        Ok(RootLock::take(Path::new(LOCK))?.map(Self))
    }
}

/// The process that records or asks just now, or lays files anew. It only looks: one that begins in this
/// moment is not kept from it.
#[must_use]
pub fn at_work() -> Option<LockHolder> {
    RootLock::holder(Path::new(LOCK))
}
