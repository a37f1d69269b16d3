//! A client that writes, and knows what was answered.

use std::io::{Error, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const ZERO: u16 = 6;
/// Answered when it is on the medium.
pub(crate) const FUA: u16 = 1;

/// A connection to the first export at a socket; its replies are simple.
pub(crate) struct NbdWriter {
    stream: UnixStream,
    pub(crate) bytes: u64,
    pub(crate) flags: u16,
}

impl NbdWriter {
    pub(crate) fn connect(socket: &Path) -> Result<Self, Error> {
        let mut stream = UnixStream::connect(socket)?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")?;
        let mut about = [0; 10];
        stream.read_exact(&mut about)?;
        let (bytes, flags) = about.split_at(8);
        let bytes = u64::from_be_bytes(bytes.try_into().expect("eight"));
        let flags = u16::from_be_bytes(flags.try_into().expect("two"));
        Ok(Self { stream, bytes, flags })
    }

    fn ask(&mut self, flags: u16, command: u16, offset: u64, len: u32, data: &[u8]) -> Result<u32, Error> {
        let mut message = vec![0x25, 0x60, 0x95, 0x13];
        message.extend(flags.to_be_bytes());
        message.extend(command.to_be_bytes());
        message.extend(7_u64.to_be_bytes());
        message.extend(offset.to_be_bytes());
        message.extend(len.to_be_bytes());
        message.extend(data);
        self.stream.write_all(&message)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        assert_eq!(reply[..4], [0x67, 0x44, 0x66, 0x98]);
        Ok(u32::from_be_bytes(reply[4..8].try_into().expect("four")))
    }

    /// The error number of a write; 0 where it was done.
    pub(crate) fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> Result<u32, Error> {
        self.ask(flags, WRITE, offset, data.len() as u32, data)
    }

    pub(crate) fn flush(&mut self) -> Result<u32, Error> {
        self.ask(0, FLUSH, 0, 0, &[])
    }

    pub(crate) fn trim(&mut self, offset: u64, len: u32) -> Result<u32, Error> {
        self.ask(0, TRIM, offset, len, &[])
    }

    pub(crate) fn zero(&mut self, flags: u16, offset: u64, len: u32) -> Result<u32, Error> {
        self.ask(flags, ZERO, offset, len, &[])
    }

    /// Whether a read is answered with an error.
    pub(crate) fn cannot_read(&mut self, offset: u64, len: u32) -> bool {
        self.ask(0, READ, offset, len, &[]).expect("answered") != 0
    }

    pub(crate) fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, Error> {
        assert_eq!(self.ask(0, READ, offset, len, &[])?, 0);
        let mut data = vec![0; len as usize];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }
}
