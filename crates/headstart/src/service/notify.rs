//! What the service manager is told: the protocol of sd_notify(3), a datagram of `NAME=value` lines.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager, if there is one that listens.
pub(crate) struct Manager(Option<SocketAddr>);

impl Manager {
    /// The one that `NOTIFY_SOCKET` names.
    pub(crate) fn of_this_process() -> Self {
        Self(std::env::var_os("NOTIFY_SOCKET").as_deref().and_then(address))
    }

    /// Nobody.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// The server works. `status` is one line for a person.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// The server begins to end.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=ending");
    }

    fn send(&self, message: &str) {
        let Some(address) = &self.0 else { return };
        let sent = UnixDatagram::unbound().and_then(|socket| {
            // A manager that does not read must not hold the server.
            socket.set_nonblocking(true)?;
            socket.send_to_addr(message.as_bytes(), address)
        });
        if let Err(error) = sent {
            log::warn!("the service manager was not told '{}': {error}", one_line(message));
        }
    }
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
            let manager = Manager(Some(address));
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
