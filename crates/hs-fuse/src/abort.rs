//! Ending a FUSE connection from outside: whatever waits for an answer gets an error, also what no signal
//! reaches.
//!
//! The kernel has a control file for each connection, in a file system of its own (fusectl). It need not be
//! mounted anywhere: root makes a mount of it that has no name (fsmount(2)). An open control file belongs to
//! its one connection, so it does nothing to another that has the same number later. Where there is none,
//! `umount2` with `MNT_FORCE` does the same.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use hs_linux::mounts;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags};

/// Where the control files are when the control file system is mounted.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The means to end one connection.
#[derive(Debug)]
pub struct Abort {
    control: Option<OwnedFd>,
    connection: u32,
    target: PathBuf,
}

impl Abort {
    /// That of the connection with this number, mounted at `target`, an absolute path without links.
    #[must_use]
    pub fn of(connection: u32, target: &Path) -> Self {
        let control = open_private(connection)
            .or_else(|errno| {
                log::debug!("the control files of FUSE cannot be mounted: {errno}");
                let path = format!("{CONNECTIONS}/{connection}/abort");
                rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            })
            .inspect_err(|errno| log::debug!("connection {connection} has no control file: {errno}"))
            .ok();
        Self { control, connection, target: target.to_owned() }
    }

    /// The same for a connection that another process reports; `None` if that connection is not mounted there
    /// any more, when its number may belong to another one.
    #[must_use]
    pub fn of_mounted(connection: u32, target: &Path) -> Option<Self> {
        let found = Self::of(connection, target);
        // A number is given again only when its connection is gone: one that is there still was there before.
        let there = mounts::mounted_at(target).ok().flatten()?;
        (there.major == 0 && there.minor == connection).then_some(found)
    }

    /// Its control file, if there is one: [`Abort::by`] ends the connection with it.
    #[must_use]
    pub fn control(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(AsFd::as_fd)
    }

    /// The connection's number, and where it is mounted.
    #[must_use]
    pub fn place(&self) -> (u32, &Path) {
        (self.connection, &self.target)
    }

    /// Ends the connection that a control file belongs to.
    pub fn by(control: BorrowedFd<'_>) {
        if let Err(errno) = rustix::io::write(control, b"1") {
            log::debug!("a FUSE connection could not be ended: {errno}");
        }
    }

    /// Ends the connection: requests that wait for an answer, and all later ones, fail.
    pub fn now(&self) {
        if let Some(control) = self.control() {
            return Self::by(control);
        }
        let there = mounts::mounted_at(&self.target).ok().flatten();
        if there.is_some_and(|entry| entry.major == 0 && entry.minor == self.connection) {
            // It ends the connection before it finds out whether the mount is busy.
            let _ = rustix::mount::unmount(&self.target, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
        }
    }
}

/// The control file, through a private mount of the control file system.
fn open_private(connection: u32) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(&mount, format!("{connection}/abort"), flags, Mode::empty())
}

impl From<OwnedFd> for Abort {
    /// By a control file that another process has opened.
    fn from(control: OwnedFd) -> Self {
        Self { control: Some(control), connection: 0, target: PathBuf::new() }
    }
}
