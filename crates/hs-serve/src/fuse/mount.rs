//! Mounting and unmounting a FUSE connection: `mount(2)` as root, `fusermount3` for others.

use std::ffi::{CString, OsString};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

use super::abort::Abort;
use super::device::Device;
use super::session::SessionOptions;
use crate::ServeError;
use crate::mounts::{self, Unmounted, escape_option};

const SUBTYPE: &str = "headstart";
const FUSERMOUNT: &str = "fusermount3";

/// Who mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mounter {
    /// This process, which is root.
    Root,
    /// The setuid helper of the package fuse3.
    Fusermount,
}

impl Mounter {
    /// Root mounts by itself, everybody else through the helper.
    pub(crate) fn for_this_process() -> Self {
        if rustix::process::geteuid().is_root() { Mounter::Root } else { Mounter::Fusermount }
    }
}

/// A fresh mount whose kernel side waits for the answer to INIT.
#[derive(Debug)]
pub(crate) struct FuseMount {
    mounter: Mounter,
    target: PathBuf,
    /// The connection's number: the minor number of the file system's device.
    connection: Option<u32>,
    abort: Option<Arc<Abort>>,
}

impl FuseMount {
    /// Mounts on `directory`, which must exist and have nothing mounted on it.
    pub(crate) fn mount(
        mounter: Mounter,
        directory: &Path,
        options: &SessionOptions,
    ) -> Result<(Self, Device), ServeError> {
        let target = mounts::check_mount_point(directory)?;
        let device = match mounter {
            Mounter::Root => mount_as_root(&target, options)?,
            Mounter::Fusermount => mount_with_helper(&target, options)?,
        };
        Ok((Self::existing(mounter, target), device))
    }

    /// Takes over a mount that another process made.
    pub(crate) fn existing(mounter: Mounter, target: PathBuf) -> Self {
        let connection = mounts::mounted_at(&target).ok().flatten().map(|entry| entry.minor);
        let abort = connection.map(|connection| Arc::new(Abort::of(connection, &target)));
        Self { mounter, target, connection, abort }
    }

    /// Where it is mounted, without links.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Sets how far the kernel reads ahead in files opened from now on.
    pub(crate) fn set_read_ahead(&self, kib: u32) -> Result<(), ServeError> {
        let Some(connection) = self.connection else { return Ok(()) };
        let path = PathBuf::from(format!("/sys/class/bdi/0:{connection}/read_ahead_kb"));
        std::fs::write(&path, kib.to_string()).map_err(|source| ServeError::Io {
            action: "set the read-ahead in",
            path,
            source,
        })
    }

    /// Unmounts. A file system that stays busy is detached and its readers are cut off.
    pub(crate) fn unmount(&self) -> Result<(), ServeError> {
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

    /// What [`FuseMount::abort`] does, for somebody else.
    pub(crate) fn aborter(&self) -> Option<&Arc<Abort>> {
        self.abort.as_ref()
    }
}

fn mount_as_root(target: &Path, options: &SessionOptions) -> Result<Device, ServeError> {
    let device = Device::open()?;
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other,max_read={}",
        device.as_fd().as_raw_fd(),
        options.max_read_bytes
    );
    let failed = |source: io::Error| ServeError::Mount { what: "FUSE".into(), target: target.into(), source };
    let data = CString::new(data).map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    let kind = format!("fuse.{SUBTYPE}");
    rustix::mount::mount(options.source_name.as_str(), target, kind, flags, data.as_c_str()).map_err(
        |errno| match errno {
            rustix::io::Errno::NODEV => ServeError::FuseMissing { path: super::device::FUSE_DEVICE.into() },
            errno => failed(errno.into()),
        },
    )?;
    Ok(device)
}

/// The helper mounts and sends the descriptor over a socket, whose number it is told in the environment.
fn mount_with_helper(target: &Path, options: &SessionOptions) -> Result<Device, ServeError> {
    let io = |action: &'static str| ServeError::io(action, target);
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(io("make a socket for"))?;
    let mut list = b"ro,nosuid,nodev,default_permissions,fsname=".to_vec();
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
            Err(ServeError::Fusermount { target: target.into(), message })
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

/// `fusermount3 -u`, and the lazy way when somebody still uses the file system.
fn unmount_with_helper(target: &Path) -> Result<(), ServeError> {
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
    Err(ServeError::Fusermount { target: target.into(), message })
}

fn helper_error(target: &Path, error: &io::Error) -> ServeError {
    if error.kind() == io::ErrorKind::NotFound {
        ServeError::FusermountMissing
    } else {
        ServeError::Fusermount { target: target.into(), message: error.to_string() }
    }
}
