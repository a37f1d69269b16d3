//! What the service manager is told: the protocol of sd_notify(3), a datagram of `NAME=value` lines.

use std::ffi::OsStr;
use std::io::{IoSlice, Result};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How long a manager that is to keep something may be too busy to hear it.
const KEEP_PATIENCE: Duration = Duration::from_secs(1);

/// The service manager, if there is one that listens.
pub struct Manager(Option<(SocketAddr, UnixDatagram)>);

impl Manager {
    /// The one that `NOTIFY_SOCKET` names.
    pub fn of_this_process() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET").as_deref().and_then(address);
        // Opened now: a server that has settled opens none.
        Self(address.and_then(|address| Some((address, open().ok()?))))
    }

    /// One at this path.
    #[cfg(test)]
    pub(crate) fn at(path: &OsStr) -> Self {
        Self(address(path).map(|address| (address, open().expect("a socket"))))
    }

    /// No manager.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Whether there is one.
    pub const fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// The server works. `status` is one line for a person.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// The server begins to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=ending");
    }

    /// Gives the manager a copy of a descriptor to keep under this name, whatever becomes of this process,
    /// where it keeps any (`FileDescriptorStoreMax=`). Another process of the unit gets it back by [`kept`].
    pub fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) {
        let Some((address, _)) = &self.0 else { return };
        let message = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}");
        if let Err(error) = send_with(address, message.as_bytes(), Some(descriptor)) {
            log::warn!("the service manager does not keep '{name}': {error}");
        }
    }

    /// The manager need not keep what it has under this name.
    pub fn forget(&self, name: &str) {
        let Some((address, _)) = &self.0 else { return };
        let message = format!("FDSTOREREMOVE=1\nFDNAME={name}");
        if let Err(error) = send_with(address, message.as_bytes(), None) {
            log::warn!("the service manager goes on keeping '{name}': {error}");
        }
    }

    fn send(&self, message: &str) {
        let Some((address, socket)) = &self.0 else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            log::warn!("the service manager was not told '{}': {error}", one_line(message));
        }
    }
}

fn open() -> Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not hold the server.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// What must not be lost, several in a row: a manager that is busy is waited for a moment.
fn send_with(address: &SocketAddr, message: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(KEEP_PATIENCE))?;
    socket.connect_addr(address)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(std::io::ErrorKind::OutOfMemory.into());
    }
    sendmsg(&socket, &[IoSlice::new(message)], &mut control, SendFlags::empty())?;
    Ok(())
}

/// The first descriptor that a manager hands on: sd_listen_fds(3).
const FIRST_HANDED_ON: i32 = 3;

/// Takes the descriptors that the manager has kept for this process, with their names. Only once, before this
/// process opens anything by number.
pub fn kept() -> Vec<(String, OwnedFd)> {
    kept_names().unwrap_or_default().into_iter().zip(FIRST_HANDED_ON..).map(take).collect()
}

/// The names of what the manager has kept for this process.
fn kept_names() -> Option<Vec<String>> {
    let variable = |name: &str| std::env::var(name).ok();
    if variable("LISTEN_PID")?.parse() != Ok(std::process::id()) {
        return None;
    }
    let count: usize = variable("LISTEN_FDS")?.parse().ok()?;
    Some(variable("LISTEN_FDNAMES")?.split(':').take(count).map(str::to_owned).collect())
}

fn take((name, number): (String, i32)) -> (String, OwnedFd) {
    // SAFETY: the manager has opened it for this process, and each is taken once.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    let _ = rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC);
    (name, descriptor)
}

/// Of what was kept, these, if all of them are there.
pub fn all_of<const N: usize>(kept: Vec<(String, OwnedFd)>, names: [&str; N]) -> Option<[OwnedFd; N]> {
    let mut kept: Vec<(String, Option<OwnedFd>)> =
        kept.into_iter().map(|(name, descriptor)| (name, Some(descriptor))).collect();
    let found = names.map(|name| kept.iter_mut().find(|(here, _)| here == name)?.1.take());
    let found: Option<Vec<OwnedFd>> = found.into_iter().collect();
    found?.try_into().ok()
}

/// A path, or a name in the abstract namespace after `@`; anything else (vsock) is not for us.
fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(name).ok(),
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        _ => None,
    }
}

/// A line's end would begin another assignment.
fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(manager: &Manager, socket: &UnixDatagram, say: impl Fn(&Manager)) -> String {
        say(manager);
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).expect("a datagram");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn managers_at_paths_and_abstract_names_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let abstract_name = format!("@headstart-test-{}", std::process::id());
        for name in [path.as_os_str(), OsStr::new(&abstract_name)] {
            let address = address(name).expect("an address");
            let socket = UnixDatagram::bind_addr(&address).expect("bound");
            let manager = Manager(Some((address, open().expect("a socket"))));
            let ready = said(&manager, &socket, |manager| manager.ready("a\nMAINPID=1"));
            assert_eq!(ready, "READY=1\nSTATUS=a MAINPID=1");
            assert!(said(&manager, &socket, Manager::stopping).starts_with("STOPPING=1\n"));
        }
        Manager::none().ready("nobody listens");
        for other in ["vsock:2:1234", "", "relative"] {
            assert!(address(OsStr::new(other)).is_none());
        }
    }
}
