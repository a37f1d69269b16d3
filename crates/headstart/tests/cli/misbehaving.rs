//! Servers of one file that do not serve: silent, slow, cut off, overloaded, or without ranges. And a disk
//! with bad sectors.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How a server treats requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manners {
    /// Sends the whole file whatever is asked for.
    NoRanges,
    /// Answers this many requests, and then nothing; connections stay.
    SilentAfter(u64),
    /// After this many requests one byte each five seconds.
    TrickleAfter(u64),
    /// After this many requests connections end in the middle of answers.
    CutAfter(u64),
    /// After this many requests it is overloaded, and says when to come back.
    BusyAfter(u64),
}

impl Manners {
    /// Requests that are answered well.
    const fn well(self) -> u64 {
        match self {
            Self::NoRanges => 0,
            Self::SilentAfter(well)
            | Self::TrickleAfter(well)
            | Self::CutAfter(well)
            | Self::BusyAfter(well) => well,
        }
    }
}

/// One server, which ends when it is dropped; so do its connections, with the process.
pub(crate) struct Misbehaving {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    seen: Arc<AtomicU64>,
}

impl Misbehaving {
    pub(crate) fn start(file: Arc<Vec<u8>>, manners: Manners) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (ended, seen) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (ending, counting) = (Arc::clone(&ended), Arc::clone(&seen));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if ending.load(Relaxed) {
                    return;
                }
                let (file, seen, ended) = (Arc::clone(&file), Arc::clone(&counting), Arc::clone(&ending));
                std::thread::spawn(move || {
                    while answer(&client, &file, manners, &seen, &ended).is_some() {}
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, ended, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/misbehaving.hsi", self.address)
    }

    /// Requests that came.
    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Relaxed)
    }
}

impl Drop for Misbehaving {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers one request; nothing when the connection is over.
fn answer(
    client: &TcpStream,
    file: &[u8],
    manners: Manners,
    seen: &AtomicU64,
    ended: &AtomicBool,
) -> Option<()> {
    let range = request(client)?;
    let is_well = seen.fetch_add(1, Relaxed) < manners.well();
    let mut out = client;
    let first = usize::try_from(range.0).ok()?.min(file.len());
    let last = usize::try_from(range.1).ok()?.min(file.len() - 1);
    let body = file.get(first..=last)?;
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{last}/{}\r\nContent-Length: {}\r\nETag: \"one\"\r\n\r\n",
        file.len(),
        body.len()
    );
    match manners {
        Manners::NoRanges => {
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.len()).ok()?;
            out.write_all(file).ok()
        }
        _ if is_well => {
            out.write_all(head.as_bytes()).ok()?;
            out.write_all(body).ok()
        }
        Manners::SilentAfter(_) => {
            // Until the client is gone.
            let _ = out.read(&mut [0; 1]);
            None
        }
        Manners::TrickleAfter(_) => {
            out.write_all(head.as_bytes()).ok()?;
            for byte in body {
                out.write_all(&[*byte]).ok()?;
                out.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
                if matches!(out.read(&mut [0; 1]), Ok(0)) || ended.load(Relaxed) {
                    return None;
                }
            }
            None
        }
        Manners::CutAfter(_) => {
            out.write_all(head.as_bytes()).ok()?;
            out.write_all(&body[..body.len() / 2]).ok()?;
            None
        }
        Manners::BusyAfter(_) => out
            .write_all(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n")
            .ok(),
    }
}

/// The range of the next request.
fn request(client: &TcpStream) -> Option<(u64, u64)> {
    let mut reader = BufReader::new(client);
    let mut range = (0, u64::MAX);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            return Some(range);
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("range")
        {
            let (first, last) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
            range = (first.parse().ok()?, last.parse().ok()?);
        }
    }
}
