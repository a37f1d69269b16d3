//! The channel to the agent in a guest (`dist/resume`), which hears of it that the guest was resumed.
//!
//! Nothing is read from it. QEMU keeps what is sent until a program in the guest has opened its port.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::GuestError;

/// Random bytes for the guest. They are the seed of its random numbers.
const SEED_BYTES: usize = 32;
/// QEMU has connected when its monitor answers; a guest that broke out of it may do what it likes.
const PATIENCE: Duration = Duration::from_secs(5);

/// A socket for the agent of one guest.
#[derive(Debug)]
pub struct AgentSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl AgentSocket {
    /// Listens at `path`.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(path: PathBuf) -> Result<Self, GuestError> {
        let listener = UnixListener::bind(&path).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { listener, path })
    }

    /// Where QEMU connects to.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells the agent, once QEMU has connected, that its guest is another one now: one line, with a seed.
    /// The guest sees it when the returned connection is open and it runs.
    ///
    /// # Errors
    /// When QEMU has not connected, or there is no seed.
    pub fn tell_resumed(&self) -> Result<AgentChannel, GuestError> {
        let (mut stream, _) = self.listener.accept().map_err(failed)?;
        stream.set_nonblocking(false).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut seed = [0; SEED_BYTES];
        File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut seed)).map_err(failed)?;
        let seed: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
        stream.write_all(format!("resumed {seed}\n").as_bytes()).map_err(failed)?;
        Ok(AgentChannel { _stream: stream })
    }
}

/// An open channel: when it closes, the guest's port is closed at this end.
#[derive(Debug)]
pub struct AgentChannel {
    _stream: std::os::unix::net::UnixStream,
}

fn failed(source: std::io::Error) -> GuestError {
    GuestError::Agent { source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn each_resume_has_a_seed_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let socket = AgentSocket::listen(folder.path().join("agent")).unwrap();
        assert!(socket.tell_resumed().is_err());
        let told = || {
            let mut qemu = UnixStream::connect(socket.path()).unwrap();
            drop(socket.tell_resumed().unwrap());
            let mut line = String::new();
            qemu.read_to_string(&mut line).unwrap();
            line
        };
        let lines = [told(), told()];
        assert!(lines.iter().all(|line| line.starts_with("resumed ") && line.len() == 73), "{lines:?}");
        assert_ne!(lines[0], lines[1]);
    }
}
