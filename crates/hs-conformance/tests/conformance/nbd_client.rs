//! As much of an NBD client as the suite needs, written from the protocol's specification and not from
//! the server.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// A connection on which requests are answered one after the other.
pub(crate) struct NbdClient {
    stream: Stream,
    structured: bool,
    cookie: u64,
    /// Size of the export, and its flags.
    pub(crate) bytes: u64,
    pub(crate) flags: u16,
}

/// What a connection says and hears, in the clear or not.
pub(crate) enum Stream {
    Clear(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, UnixStream>>),
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// Greets the server in the clear.
pub(crate) fn greet(socket: &Path) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    let greeting: [u8; 18] = number(&mut stream)?;
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    stream.write_all(&3_u32.to_be_bytes())?;
    Ok(stream)
}

/// Greets it and agrees on TLS, which is still to begin.
pub(crate) fn ask_for_tls(socket: &Path) -> io::Result<UnixStream> {
    let mut stream = greet(socket)?;
    stream.write_all(b"IHAVEOPT\0\0\0\x05\0\0\0\0")?;
    let answer: [u8; 20] = number(&mut stream)?;
    assert_eq!(answer[8..], [0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0]);
    Ok(stream)
}

fn number<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl NbdClient {
    /// Connects and chooses an export; structured replies come with `base:allocation`.
    pub(crate) fn open(socket: &Path, export: &str, structured: bool) -> io::Result<Self> {
        Self::choose(Stream::Clear(greet(socket)?), export, structured)
    }

    /// The same under TLS, with structured replies.
    pub(crate) fn open_tls(socket: &Path, export: &str, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let name = "localhost".try_into().expect("a name");
        let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        let stream = StreamOwned::new(connection, ask_for_tls(socket)?);
        Self::choose(Stream::Tls(Box::new(stream)), export, true)
    }

    fn choose(stream: Stream, export: &str, structured: bool) -> io::Result<Self> {
        let mut client = Self { stream, structured, cookie: 0, bytes: 0, flags: 0 };
        let mut name = (export.len() as u32).to_be_bytes().to_vec();
        name.extend(export.as_bytes());
        if structured {
            client.option(8, &[])?;
            let context = b"base:allocation";
            let length = (context.len() as u32).to_be_bytes();
            client.option(10, &[&name[..], &1_u32.to_be_bytes(), &length, context].concat())?;
        }
        client.option(7, &[&name[..], &[0, 0]].concat())?;
        Ok(client)
    }

    /// The socket itself, for tests that break the protocol.
    pub(crate) fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    fn option(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        let header = [&b"IHAVEOPT"[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes()];
        self.stream.write_all(&header.concat())?;
        self.stream.write_all(data)?;
        loop {
            let header: [u8; 20] = number(&mut self.stream)?;
            assert_eq!(header[8..12], option.to_be_bytes());
            let kind = u32::from_be_bytes(header[12..16].try_into().expect("four"));
            let length = u32::from_be_bytes(header[16..].try_into().expect("four"));
            let mut data = vec![0; length as usize];
            self.stream.read_exact(&mut data)?;
            match kind {
                1 => return Ok(()),
                3 if data.starts_with(&[0, 0]) => {
                    self.bytes = u64::from_be_bytes(data[2..10].try_into().expect("eight"));
                    self.flags = u16::from_be_bytes(data[10..12].try_into().expect("two"));
                }
                3 | 4 => {}
                _ => return Err(io::Error::other(format!("option {option} was answered with {kind:#x}"))),
            }
        }
    }

    /// Asks without waiting for the answer.
    pub(crate) fn ask(&mut self, flags: u16, command: u16, offset: u64, len: u32) -> io::Result<()> {
        self.cookie += 1;
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        self.stream.write_all(&bytes)
    }

    /// Reads; an error of the protocol is the inner one.
    pub(crate) fn read(&mut self, offset: u64, len: u32) -> io::Result<Result<Vec<u8>, u32>> {
        self.ask(0, 0, offset, len)?;
        if !self.structured {
            return self.simple(len);
        }
        // Bytes that no chunk of the reply brings keep this value, which no test expects.
        let mut found = vec![0xee; len as usize];
        Ok(self.chunks(offset, &mut found)?.map(|_| found))
    }

    /// A request that is answered without data.
    pub(crate) fn command(&mut self, command: u16, offset: u64, len: u32) -> io::Result<Result<(), u32>> {
        self.ask(0, command, offset, len)?;
        if self.structured { Ok(self.chunks(0, &mut [])?.map(drop)) } else { Ok(self.simple(0)?.map(drop)) }
    }

    /// Lengths and states of `base:allocation`.
    pub(crate) fn allocation(&mut self, one: bool, offset: u64, len: u32) -> io::Result<Vec<(u32, u32)>> {
        self.ask(if one { 8 } else { 0 }, 7, offset, len)?;
        self.chunks(0, &mut [])?.map_err(|errno| io::Error::from_raw_os_error(errno as i32))
    }

    fn simple(&mut self, len: u32) -> io::Result<Result<Vec<u8>, u32>> {
        let header: [u8; 16] = number(&mut self.stream)?;
        assert_eq!(header[..4], 0x6744_6698_u32.to_be_bytes());
        assert_eq!(header[8..], self.cookie.to_be_bytes());
        let errno = u32::from_be_bytes(header[4..8].try_into().expect("four"));
        if errno != 0 {
            return Ok(Err(errno));
        }
        let mut data = vec![0; len as usize];
        self.stream.read_exact(&mut data)?;
        Ok(Ok(data))
    }

    /// Takes chunks until the last; data goes into `found`, whose first byte is that of `from`.
    fn chunks(&mut self, from: u64, found: &mut [u8]) -> io::Result<Result<Vec<(u32, u32)>, u32>> {
        let mut error = None;
        let mut extents = Vec::new();
        loop {
            let header: [u8; 20] = number(&mut self.stream)?;
            assert_eq!(header[..4], 0x668e_33ef_u32.to_be_bytes());
            assert_eq!(header[8..16], self.cookie.to_be_bytes());
            let [_, done] = [header[4], header[5]];
            let kind = u16::from_be_bytes([header[6], header[7]]);
            let mut rest = u32::from_be_bytes(header[16..].try_into().expect("four"));
            match kind {
                0 => assert_eq!(rest, 0),
                1 => {
                    let offset = u64::from_be_bytes(number(&mut self.stream)?);
                    rest -= 8;
                    let at = (offset - from) as usize;
                    self.stream.read_exact(&mut found[at..at + rest as usize])?;
                }
                5 => {
                    let _context: [u8; 4] = number(&mut self.stream)?;
                    for _ in 0..(rest - 4) / 8 {
                        let extent = [number(&mut self.stream)?, number(&mut self.stream)?];
                        let [len, state] = extent.map(u32::from_be_bytes);
                        extents.push((len, state));
                    }
                }
                _ if kind & 0x8000 != 0 => {
                    let errno = u32::from_be_bytes(number(&mut self.stream)?);
                    error.get_or_insert(errno);
                    let mut text = vec![0; rest as usize - 4];
                    self.stream.read_exact(&mut text)?;
                }
                _ => return Err(io::Error::other(format!("a chunk of kind {kind}"))),
            }
            if done == 1 {
                return Ok(error.map_or(Ok(extents), Err));
            }
        }
    }
}
