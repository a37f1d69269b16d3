//! Who a client is: the address of its machine, or the user of its process.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use hs_engine::queue::ClientKey;

use crate::image_disk::user_key;

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

    /// Whose share of the medium its reads are from: a machine has one, however many connections it opens, and so has
    /// a user of this machine.
    pub(super) fn key(self) -> ClientKey {
        // An IPv6 address has more bits than a key.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        ClientKey(match self {
            Self::User { uid, .. } => return user_key(uid),
            Self::Address(address) => match address.ip().to_canonical() {
                IpAddr::V4(ip) => 2 << 32 | u64::from(ip.to_bits()),
                IpAddr::V6(ip) => ip.to_bits() as u64 ^ ((ip.to_bits() >> 64) as u64).wrapping_mul(SPREAD),
            },
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_belongs_to_a_machine_or_a_user() {
        let address = |text: &str| Client::Address(text.parse().unwrap()).key();
        assert_eq!(address("192.0.2.1:1"), address("192.0.2.1:2"));
        assert_eq!(address("192.0.2.1:1"), address("[::ffff:192.0.2.1]:3"));
        assert_ne!(address("192.0.2.1:1"), address("192.0.2.2:1"));
        assert_ne!(address("[2001:db8::1]:1"), address("[2001:db8:0:1::1]:1"));
        let user = |uid, pid| Client::User { uid, pid }.key();
        assert_eq!(user(1000, 1), user(1000, 2));
        assert_ne!(user(1000, 1), user(1001, 1));
    }
}
