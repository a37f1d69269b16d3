//! Listening sockets of TCP, and what the kernel knows of a socket's other side.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use crate::LinuxError;

/// Listens at every address of a name that this machine has; port 0 is any that is free, the same for all of
/// them. `shown` is the name in errors. Names are looked up in files, so a process that gives up files does
/// this first.
///
/// # Errors
/// When the name has no address of this machine, or a port is taken.
pub fn listen_at(name: impl ToSocketAddrs, shown: &str) -> Result<Vec<TcpListener>, LinuxError> {
    let failed = |source| LinuxError::Listen { address: shown.to_owned(), source };
    let mut listeners = Vec::new();
    let mut bound: Vec<SocketAddr> = Vec::new();
    let mut absent = ErrorKind::NotFound.into();
    for mut address in name.to_socket_addrs().map_err(failed)? {
        if let Some(first) = bound.first() {
            address.set_port(first.port());
        }
        // hosts(5) may have a line twice.
        if bound.contains(&address) {
            continue;
        }
        let listener = match TcpListener::bind(address) {
            Ok(listener) => listener,
            // A name may have an IPv6 address on a machine that has none.
            Err(error) if is_absent(&error) => {
                absent = error;
                continue;
            }
            Err(error) => return Err(failed(error)),
        };
        listener.set_nonblocking(true).map_err(failed)?;
        bound.push(listener.local_addr().map_err(failed)?);
        listeners.push(listener);
    }
    if listeners.is_empty() { Err(failed(absent)) } else { Ok(listeners) }
}

/// This machine does not have the address.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

/// The process at the other side of a socket file, when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProcess {
    /// Its user.
    pub uid: u32,
    /// Its number; 0 for one of another PID namespace.
    pub pid: u32,
}

/// The process that connected to a socket file.
///
/// # Errors
/// When the kernel does not know it.
pub fn peer_process(socket: impl AsFd) -> io::Result<PeerProcess> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to a structure of that size, any bytes of which are
    // valid. The type that rustix gives has no room for a process of another PID namespace, whose number
    // is 0.
    let got = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(PeerProcess { uid: peer.uid, pid: peer.pid as u32 })
}

/// Of `sent_bytes` that a socket has taken, those that have reached the other side: over TCP they are
/// acknowledged, from a socket file they are read. A socket takes more only in large steps, so its own
/// progress says little of a slow client.
pub fn reached_bytes(socket: impl AsFd, sent_bytes: u64) -> u64 {
    let mut waiting: libc::c_int = 0;
    // SAFETY: this ioctl (SIOCOUTQ for sockets) writes one integer, and `waiting` is one.
    let failed = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
    if failed == 0 { sent_bytes.saturating_sub(waiting.max(0) as u64) } else { sent_bytes }
}

/// How long a byte takes to the other side of a TCP connection and its acknowledgement back, at best. `None`
/// where the kernel does not know.
pub fn round_trip(socket: impl AsFd) -> Option<Duration> {
    // `struct tcp_info` of linux/tcp.h, of which libc has only the beginning.
    const MIN_RTT_AT: usize = 148;
    let mut info = [0_u8; 256];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `info`, which has as many, and says in `len` how
    // many.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    let field = info[..len as usize].get(MIN_RTT_AT..MIN_RTT_AT + 4).filter(|_| failed == 0)?;
    let micros = u32::from_ne_bytes(field.try_into().ok()?);
    (micros != u32::MAX).then(|| Duration::from_micros(micros.into()))
}

/// Lets the kernel choose the sizes of a socket's buffers again. Where it knows no such option they stay.
pub fn unlock_buffers(socket: impl AsFd) {
    let nothing: libc::c_int = 0;
    // SAFETY: the kernel reads one integer.
    unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUF_LOCK,
            (&raw const nothing).cast(),
            size_of_val(&nothing) as libc::socklen_t,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_a_name_are_listened_at_by_one_port() {
        let name = ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.1:0", "192.0.2.1:0"];
        let name: Vec<SocketAddr> = name.map(|text| text.parse().expect("an address")).into();
        let listeners = listen_at(&name[..], "two here, one of them twice").expect("listens");
        let found: Vec<SocketAddr> =
            listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].ip() != found[1].ip() && found[0].port() == found[1].port(), "{found:?}");
        // 192.0.2.0/24 is for documents (RFC 5737).
        let refused = listen_at("192.0.2.1:0", "elsewhere").expect_err("not ours").to_string();
        assert!(refused.contains("cannot listen on elsewhere: "), "{refused}");
    }
}
