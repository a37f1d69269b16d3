//! Who a client is: the address of its machine, or the user of its process.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// As a client is named in messages, and told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// Over TCP.
    Address(SocketAddr),
    /// Over a socket file: whose process it was that connected.
    User { uid: u32, pid: u32 },
}

impl Client {
    pub(super) fn of_socket(socket: impl AsFd) -> std::io::Result<Self> {
        let peer = rustix::net::sockopt::socket_peercred(socket)?;
        Ok(Self::User { uid: peer.uid.as_raw(), pid: peer.pid.as_raw_nonzero().get() as u32 })
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::User { uid, pid } => write!(f, "user {uid} (process {pid})"),
        }
    }
}
