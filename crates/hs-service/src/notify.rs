//! What the service manager is told: the protocol of sd_notify(3), a datagram of `NAME=value` lines.

use std::ffi::OsStr;
use std::io::{IoSlice, Result};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager, if there is one that listens.
pub struct Manager(Option<(SocketAddr, UnixDatagram)>);

impl Manager {
    /// The one that `NOTIFY_SOCKET` names.
    pub fn of_this_process() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET").as_deref().and_then(address);
        // Opened now: a server that has settled opens none.
        Self(address.and_then(|address| Some((address, open().ok()?))))
    }

    /// No manager.
    pub const fn none() -> Self {
        Self(None)
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
        if let Err(error) = send_with(address, message.as_bytes(), descriptor) {
            log::warn!("the service manager does not keep '{name}': {error}");
        }
    }

    /// The manager need not keep what it has under this name.
    pub fn forget(&self, name: &str) {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
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

fn send_with(address: &SocketAddr, message: &[u8], descriptor: BorrowedFd<'_>) -> Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let socket = open()?;
    socket.connect_addr(address)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(std::io::ErrorKind::OutOfMemory.into());
    }
    sendmsg(&socket, &[IoSlice::new(message)], &mut control, SendFlags::empty())?;
    Ok(())
}

/// The first descriptor that a manager hands on: sd_listen_fds(3).
const FIRST_HANDED_ON: i32 = 3;

/// Takes the descriptors that the manager has kept for this process under these names, if it has all of them.
/// Only once, before this process opens anything by number.
pub fn kept<const N: usize>(names: [&str; N]) -> Option<[OwnedFd; N]> {
    let variable = |name: &str| std::env::var(name).ok();
    if variable("LISTEN_PID")?.parse() != Ok(std::process::id()) {
        return None;
    }
    let count: usize = variable("LISTEN_FDS")?.parse().ok()?;
    let have = variable("LISTEN_FDNAMES")?;
    let have: Vec<&str> = have.split(':').take(count).collect();
    let place = |name: &str| have.iter().position(|here| *here == name);
    let places: Vec<usize> = names.iter().map_while(|name| place(name)).collect();
    let places: [usize; N] = places.try_into().ok()?;
    Some(places.map(|place| {
        // SAFETY: the manager has opened them for this process, and this is called once.
        let descriptor = unsafe { OwnedFd::from_raw_fd(FIRST_HANDED_ON + place as i32) };
        let _ = rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC);
        descriptor
    }))
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
