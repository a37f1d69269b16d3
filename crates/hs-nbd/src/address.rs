//! Where an NBD server listens.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::str::FromStr;

use hs_linux::sockets::listen_at;
use hs_linux::{LinuxError, SocketFile};

use super::client::Client;

/// The port that IANA has given to NBD.
const PORT: u16 = 10809;

/// `HOST:PORT`, `HOST`, or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// Every address that the name has.
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// 0 for any that is free.
        port: u16,
    },
    /// A socket file.
    Unix(PathBuf),
}

/// What is wrong with the text of an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no address: use HOST:PORT (an IPv6 address in brackets) or unix:PATH")]
pub struct BadAddress {
    /// The text.
    pub text: String,
}

impl FromStr for NbdAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(bad()) } else { Ok(Self::Unix(path.into())) };
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']').ok_or_else(bad)?;
                (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or_else(bad)?) })
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| bad()))?;
        if host.is_empty() || host.contains(['/', '[']) {
            return Err(bad());
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Sockets on which the clients of a server arrive.
pub struct NbdListeners(pub(super) Vec<Listener>);

impl NbdListeners {
    /// Listens at these addresses, at all that a name has. A process that gives up files calls it before:
    /// names are looked up in files.
    ///
    /// # Errors
    /// When an address is taken or not to be had.
    pub fn at(addresses: &[NbdAddress]) -> Result<Self, LinuxError> {
        let mut listeners = Vec::new();
        for address in addresses {
            listeners.extend(Listener::all(address)?);
        }
        Ok(Self(listeners))
    }

    /// Those of a server that died: all of its [`sockets`](crate::NbdServer::sockets), kept open by a
    /// supervisor. Clients that were connected have lost their connection; those that connect meanwhile wait.
    ///
    /// # Errors
    /// When something else than a listening socket is among them.
    pub fn resume(sockets: Vec<OwnedFd>) -> Result<Self, LinuxError> {
        let failed = |source| LinuxError::Io { action: "go on with", path: "the NBD sockets".into(), source };
        let listeners = sockets.into_iter().map(Listener::resume).collect::<Result<_, _>>();
        listeners.map(Self).map_err(failed)
    }
}

/// A socket on which clients arrive. A socket file is removed with it.
pub(super) enum Listener {
    Tcp { listener: TcpListener, address: SocketAddr },
    Unix(SocketFile),
}

impl Listener {
    /// Listens at `address`: a name may have several.
    fn all(address: &NbdAddress) -> Result<Vec<Self>, LinuxError> {
        let failed = |source| LinuxError::Listen { address: address.to_string(), source };
        match address {
            NbdAddress::Unix(path) => Ok(vec![Self::Unix(SocketFile::bind(path)?)]),
            NbdAddress::Tcp { host, port } => {
                let listeners = listen_at((host.as_str(), *port), &address.to_string())?;
                let listening = listeners
                    .into_iter()
                    .map(|listener| Ok(Self::Tcp { address: listener.local_addr()?, listener }));
                listening.collect::<io::Result<_>>().map_err(failed)
            }
        }
    }

    /// A socket that a server that died had listened on, and a supervisor kept.
    fn resume(socket: OwnedFd) -> io::Result<Self> {
        match rustix::net::sockopt::socket_domain(&socket)? {
            rustix::net::AddressFamily::UNIX => Ok(Self::Unix(SocketFile::resume(socket)?)),
            _ => {
                let listener = TcpListener::from(socket);
                let address = listener.local_addr()?;
                Ok(Self::Tcp { listener, address })
            }
        }
    }

    /// Clients are answered from now on.
    pub(super) fn serves(&self) {
        if let Self::Unix(file) = self {
            file.serves();
        }
    }

    /// Takes a client that has arrived.
    pub(super) fn accept(&self) -> io::Result<(OwnedFd, Client)> {
        match self {
            Self::Tcp { listener, .. } => {
                let (stream, address) = listener.accept()?;
                stream.set_nodelay(true)?;
                // A client whose machine died sends nothing any more; without keep-alive its connection would
                // stay.
                rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
                Ok((stream.into(), Client::Address(address)))
            }
            Self::Unix(file) => {
                let stream = file.accept()?;
                let client = Client::of_socket(&stream)?;
                Ok((stream.into(), client))
            }
        }
    }

    /// The address of an export as NBD programs take it (doc/uri.md of the protocol's project).
    pub(super) fn uri(&self, export: &str, tls: bool) -> String {
        let export = escaped(export);
        let scheme = if tls { "nbds" } else { "nbd" };
        match self {
            Self::Tcp { address, .. } => format!("{scheme}://{address}/{export}"),
            Self::Unix(file) => {
                format!("{scheme}+unix:///{export}?socket={}", escaped(&file.path().display().to_string()))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp { listener, .. } => listener.as_fd(),
            Self::Unix(file) => file.as_fd(),
        }
    }
}

/// A part of a URI: everything but what has no meaning there is written as `%XX`.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            shown.push(char::from(byte));
        } else {
            shown.push_str(&format!("%{byte:02X}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

    use super::*;

    #[test]
    fn addresses_parse_and_print() {
        for (text, shown) in [
            ("localhost:1", "localhost:1"),
            ("localhost", "localhost:10809"),
            ("[::1]:7", "[::1]:7"),
            ("[::]", "[::]:10809"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("unix:/run/x:y", "unix:/run/x:y"),
        ] {
            let address: NbdAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), shown);
        }
        for bad in ["", ":1", "unix:", "[::1", "[::1]1", "a:b", "a:99999", "::1", "a:1:2", "/run/x"] {
            assert_eq!(bad.parse::<NbdAddress>().expect_err(bad).text, bad);
        }
    }

    /// The file of a socket without a listener. It never had one: a child process that another test is just
    /// starting would inherit a listening socket until it calls `exec`.
    fn dead_socket(path: &Path) {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let address = SocketAddrUnix::new(path).expect("short");
        socket.and_then(|socket| rustix::net::bind(&socket, &address)).expect("bound");
    }

    #[test]
    fn a_dead_servers_socket_is_taken_over_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a b");
        let address = NbdAddress::Unix(path.clone());
        dead_socket(&path);
        let listener = Listener::all(&address).expect("taken over");
        assert!(listener[0].uri("x y", false).ends_with("/a%20b"), "{}", listener[0].uri("x y", false));
        assert!(listener[0].uri("x y", false).starts_with("nbd+unix:///x%20y?socket=/"));
        let refused = Listener::all(&address).err().expect("it lives").to_string();
        assert!(refused.contains("a server listens"), "{refused}");
        drop(listener);
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 0);

        fs::write(&path, "mine").expect("written");
        let refused = Listener::all(&address).err().expect("a file").to_string();
        assert!(refused.contains("no socket"), "{refused}");
        assert_eq!(fs::read_to_string(&path).expect("still there"), "mine");
        let long = NbdAddress::Unix(folder.path().join("x".repeat(200)));
        assert!(Listener::all(&long).is_err());
    }

    #[test]
    fn a_socket_that_another_server_has_made_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let first = Listener::all(&NbdAddress::Unix(path.clone())).expect("listens");
        fs::remove_file(&path).expect("removed by a person");
        let second = Listener::all(&NbdAddress::Unix(path.clone())).expect("listens");
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_is_left_for_the_next_server_by_one_that_never_serves() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let first = Listener::all(&NbdAddress::Unix(path.clone())).expect("listens");
        let kept =
            || Listener::resume(first[0].as_fd().try_clone_to_owned().expect("kept")).expect("resumed");
        drop(kept());
        assert!(path.exists());
        let next = kept();
        next.serves();
        drop(next);
        assert!(!path.exists());
    }
}
