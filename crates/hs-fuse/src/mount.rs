//! Mounting and unmounting a FUSE connection: `mount(2)` as root, `fusermount3` for others.

use std::ffi::OsString;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use hs_linux::LinuxError;
use hs_linux::mounts::{self, Unmounted, escape_option};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

use super::abort::Abort;
use super::device::Device;
use super::session::SessionOptions;
use crate::FuseError;

const SUBTYPE: &str = "headstart";
const FUSERMOUNT: &str = "fusermount3";

/// How the process mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mounter {
    /// This process, which is root.
    Root,
    /// The setuid helper of the package fuse3.
    Fusermount,
}

impl Mounter {
    /// Root mounts directly, other users through the helper.
    pub(crate) fn for_this_process() -> Self {
        if rustix::process::geteuid().is_root() { Mounter::Root } else { Mounter::Fusermount }
    }
}

/// The mount of a FUSE connection.
#[derive(Debug)]
pub(crate) struct FuseMount {
    mounter: Mounter,
    target: PathBuf,
    /// The mount as long as it is not attached at `target`. While this is open the mount is in use.
    detached: Option<OwnedFd>,
    /// The connection's number: the minor number of the file system's device.
    connection: Option<u32>,
    abort: Option<Arc<Abort>>,
}

impl FuseMount {
    /// Makes a mount for `directory`, which must exist and have nothing mounted on it. Its kernel side waits
    /// for the answer to INIT. Root's mount is seen by no process before [`attach`](Self::attach); the helper
    /// attaches its own at once.
    pub(crate) fn make(
        mounter: Mounter,
        directory: &Path,
        options: &SessionOptions,
    ) -> Result<(Self, Device), FuseError> {
        let target = mounts::check_mount_point(directory)?;
        match mounter {
            Mounter::Root => {
                let (mount, device) = mount_as_root(&target, options)?;
                Ok((Self::existing(mounter, target, Some(mount)), device))
            }
            Mounter::Fusermount => {
                let device = mount_with_helper(&target, options)?;
                Ok((Self::existing(mounter, target, None), device))
            }
        }
    }

    /// Takes over a mount that another process made. `detached` is the mount where that process may not have
    /// attached it.
    pub(crate) fn existing(mounter: Mounter, target: PathBuf, detached: Option<OwnedFd>) -> Self {
        let connection = match &detached {
            Some(mount) => connection_of(mount.as_fd()),
            None => mounts::mounted_at(&target).ok().flatten().map(|entry| entry.minor),
        };
        let abort = connection.map(|connection| Arc::new(Abort::of(connection, &target)));
        Self { mounter, target, detached, connection, abort }
    }

    /// The mount, until it is attached.
    pub(crate) fn detached(&self) -> Option<BorrowedFd<'_>> {
        self.detached.as_ref().map(AsFd::as_fd)
    }

    /// Attaches the mount to the directory, unless it is there already.
    pub(crate) fn attach(&mut self) -> Result<(), FuseError> {
        let Some(mount) = &self.detached else { return Ok(()) };
        let there = mounts::mounted_at(&self.target)?;
        if there.is_none_or(|entry| entry.major != 0 || Some(entry.minor) != self.connection) {
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            rustix::mount::move_mount(mount, "", CWD, &self.target, flags)
                .map_err(|errno| failed(&self.target, errno))?;
        }
        self.detached = None;
        Ok(())
    }

    /// Where it is mounted, without links.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Lets files be opened for writing, where the session allows it. The mount was made read-only.
    pub(crate) fn make_writable(&self) -> Result<(), LinuxError> {
        let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
        rustix::mount::mount_remount(&self.target, flags, c"").map_err(|errno| failed(&self.target, errno))
    }

    /// Sets how far the kernel reads ahead in files opened from now on.
    pub(crate) fn set_read_ahead(&self, kib: u32) -> Result<(), LinuxError> {
        let Some(connection) = self.connection else { return Ok(()) };
        let path = PathBuf::from(format!("/sys/class/bdi/0:{connection}/read_ahead_kb"));
        std::fs::write(&path, kib.to_string()).map_err(LinuxError::io("set the read-ahead in", path))
    }

    /// Unmounts. A file system that stays busy is detached and its readers are cut off.
    pub(crate) fn unmount(&self) -> Result<(), FuseError> {
        if self.detached.is_some() {
            // It goes with its descriptors.
            return Ok(());
        }
        // Whatever else is mounted there by now is not ours to unmount.
        let there = mounts::mounted_at(&self.target)?;
        if there.is_none_or(|entry| Some(entry.minor) != self.connection) {
            return Ok(());
        }
        match self.mounter {
            Mounter::Root => {
                // For FUSE, MNT_FORCE cuts the connection: waiting readers get an error.
                if mounts::unmount(&self.target, UnmountFlags::FORCE)? == Unmounted::Detached {
                    log::warn!("{} was in use: its readers were cut off", self.target.display());
                }
                Ok(())
            }
            Mounter::Fusermount => unmount_with_helper(&self.target),
        }
    }

    /// Cuts the connection. It also reaches copies of the mount in other mount namespaces.
    pub(crate) fn abort(&self) {
        if let Some(abort) = &self.abort {
            abort.now();
        }
    }

    /// What [`FuseMount::abort`] uses, for other threads.
    pub(crate) fn aborter(&self) -> Option<&Arc<Abort>> {
        self.abort.as_ref()
    }
}

/// A mount that is attached nowhere, and the device that serves it: fsopen(2), Linux 5.2.
fn mount_as_root(target: &Path, options: &SessionOptions) -> Result<(OwnedFd, Device), FuseError> {
    let device = Device::open()?;
    let context =
        rustix::mount::fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| match errno {
            Errno::NODEV => FuseError::FuseMissing { path: super::device::FUSE_DEVICE.into() },
            errno => failed(target, errno).into(),
        })?;
    let values = [
        ("source", options.source_name.clone()),
        ("subtype", SUBTYPE.to_owned()),
        ("fd", device.as_fd().as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", "0".to_owned()),
        ("group_id", "0".to_owned()),
        ("max_read", options.max_read_bytes.to_string()),
    ];
    let made = || {
        for (key, value) in &values {
            rustix::mount::fsconfig_set_string(&context, *key, value.as_str())?;
        }
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        for flag in ["default_permissions", "allow_other"] {
            rustix::mount::fsconfig_set_flag(&context, flag)?;
        }
        if !options.access.opens_for_writing() {
            rustix::mount::fsconfig_set_flag(&context, "ro")?;
            attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        rustix::mount::fsconfig_create(&context)?;
        rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    let mount = made().map_err(|errno| failed(target, errno))?;
    Ok((mount, device))
}

fn failed(target: &Path, errno: Errno) -> LinuxError {
    LinuxError::Mount {
        what: "FUSE".into(),
        target: target.into(),
        source: errno.into(),
        said: String::new(),
    }
}

/// The connection's number, from what the kernel knows without asking the server.
fn connection_of(mount: BorrowedFd<'_>) -> Option<u32> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(mount, "", flags, StatxFlags::empty()).ok()?;
    (found.stx_dev_major == 0).then_some(found.stx_dev_minor)
}

/// The helper mounts and sends the descriptor over a socket; an environment variable has the socket's number.
fn mount_with_helper(target: &Path, options: &SessionOptions) -> Result<Device, FuseError> {
    let io = |action: &'static str| LinuxError::io(action, target);
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(io("make a socket for"))?;
    let mut list = if options.access.opens_for_writing() { b"rw".to_vec() } else { b"ro".to_vec() };
    list.extend(b",nosuid,nodev,default_permissions,fsname=");
    list.extend(escape_option(Path::new(&options.source_name), b""));
    list.extend(format!(",subtype={SUBTYPE},max_read={}", options.max_read_bytes).bytes());
    let mut child = Command::new(FUSERMOUNT)
        .arg("-o")
        .arg(OsString::from_vec(list))
        .arg("--")
        .arg(target)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| helper_error(target, &error))?;
    // The helper's end is closed here (the command took it), so a helper that fails is an end of file.
    let received = receive_descriptor(&ours);
    let mut message = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // What it printed only makes the error more helpful.
        let _ = stderr.read_to_string(&mut message);
    }
    let status = child.wait().map_err(|error| helper_error(target, &error))?;
    match received {
        Ok(Some(fd)) if status.success() => {
            rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).map_err(io("keep the device of"))?;
            Ok(Device::from_fd(fd))
        }
        _ => {
            let message = match message.trim() {
                "" => status.to_string(),
                printed => printed.to_owned(),
            };
            Err(FuseError::Fusermount { target: target.into(), message })
        }
    }
}

fn receive_descriptor(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// `fusermount3 -u`, and a lazy unmount when the file system is still in use.
fn unmount_with_helper(target: &Path) -> Result<(), FuseError> {
    let mut message = String::new();
    for flags in [&["-u"][..], &["-u", "-z"]] {
        let output = Command::new(FUSERMOUNT)
            .args(flags)
            .arg("--")
            .arg(target)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| helper_error(target, &error))?;
        if output.status.success() {
            return Ok(());
        }
        message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    }
    Err(FuseError::Fusermount { target: target.into(), message })
}

fn helper_error(target: &Path, error: &io::Error) -> FuseError {
    if error.kind() == io::ErrorKind::NotFound {
        FuseError::FusermountMissing
    } else {
        FuseError::Fusermount { target: target.into(), message: error.to_string() }
    }
}
