//! Whether the starts of this system are accelerated, and whether a process does it just now.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use hs_linux::LinuxError;

use crate::EarlyError;
use crate::kept::{FOLDER, write_private};

/// The name of a socket that the one process which works has: it needs no file system, and goes with it.
const LOCK: &str = "headstart-accelerate";

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
            if !is_running() {
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

/// The place of the one process that works on the starts of this system. It goes with the object.
#[derive(Debug)]
pub struct OnlyOne(#[expect(dead_code, reason = "held for its name")] UnixListener);

impl OnlyOne {
    /// Takes the place; `None` when another process has it.
    ///
    /// # Errors
    /// Those of making a socket.
    pub fn take() -> io::Result<Option<Self>> {
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(LOCK)?) {
            Ok(lock) => Ok(Some(Self(lock))),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether a process records or asks just now, or lays files anew. It only looks: one that begins in this
/// moment is not kept from it.
#[must_use]
pub fn is_running() -> bool {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    sockets.lines().any(|line| line.ends_with(&format!(" @{LOCK}")))
}
