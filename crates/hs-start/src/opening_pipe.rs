//! What opens an image, from a process that has brought it while this one was started.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_remote::registry::{Opening, Repository, described};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::remote::{CacheFolder, Purpose};

/// How long the other process is waited for; then the server is asked by this one.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes that are taken: of a manifest, of the image's beginning and of its index.
const MOST_BYTES: u64 = 8 << 20;

/// The end of a pipe that this process reads.
#[derive(Clone)]
pub struct OpeningPipe(Arc<Mutex<Option<OwnedFd>>>);

/// It may bring a login.
impl fmt::Debug for OpeningPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpeningPipe")
    }
}

impl OpeningPipe {
    /// That of this descriptor.
    #[must_use]
    pub fn new(end: OwnedFd) -> Self {
        Self(Arc::new(Mutex::new(Some(end))))
    }

    /// What it brings, the first time; nothing where that does not come, or only in part.
    pub(crate) fn take(&self) -> Option<Opening> {
        let end = self.0.lock().take()?;
        let bytes = read_within(end, PATIENCE)
            .inspect_err(|error| log::debug!("what opens the image was not brought: {error}"));
        Opening::parse(bytes.ok()?.into())
    }
}

/// All that comes until the other end is closed.
fn read_within(end: OwnedFd, patience: Duration) -> std::io::Result<Vec<u8>> {
    let (until, mut bytes) = (Instant::now() + patience, Vec::new());
    let mut pipe = File::from(end);
    let mut piece = vec![0; 64 << 10];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut events = [PollFd::new(&pipe, PollFlags::IN)];
        match poll(&mut events, Timespec::try_from(left).ok().as_ref()) {
            Err(Errno::INTR) => continue,
            Ok(0) => return Err(std::io::ErrorKind::TimedOut.into()),
            _ => {}
        }
        match pipe.read(&mut piece)? {
            0 => return Ok(bytes),
            read => bytes.extend_from_slice(&piece[..read]),
        }
        if bytes.len() as u64 > MOST_BYTES {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
    }
}

/// Asks for what opens the image of this manifest, as far as the server's cache on disk does not have it, and
/// writes it for a server that is being started. Where that fails, the server asks for itself.
pub fn bring(repository: &Repository, manifest: &[u8], cache: Option<&CacheFolder>, to: OwnedFd) {
    let name = described(manifest).ok().and_then(|(_, _, name)| name?.parse().ok());
    let is_kept = name.zip(cache).is_some_and(|(name, cache)| cache.has(&name));
    let brought = repository.opening(manifest, Purpose::Serve.opening_bytes(is_kept), !is_kept);
    let written = brought.map_err(std::io::Error::other).and_then(|opening| {
        // In a few large pieces.
        let mut to = std::io::BufWriter::with_capacity(64 << 10, File::from(to));
        opening.write_to(&mut to)?;
        std::io::Write::flush(&mut to)
    });
    if let Err(error) = written {
        log::debug!("what opens an image was not brought: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    #[test]
    fn what_is_cut_off_or_does_not_come_is_nothing() {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let (reader, writer) = pipe();
        drop(writer);
        let empty = OpeningPipe::new(reader);
        assert!(empty.take().is_none() && empty.take().is_none());
        for cut in
            [&b"{"[..], b"{}\n", b"{\"manifest_bytes\":9,\"authorization\":null,\"answers\":[]}\nshort"]
        {
            let (reader, writer) = pipe();
            File::from(writer).write_all(cut).expect("written");
            assert!(OpeningPipe::new(reader).take().is_none(), "{cut:?}");
        }
        let (reader, _writer) = pipe();
        let late = read_within(reader, Duration::from_millis(1)).expect_err("late");
        assert_eq!(late.kind(), std::io::ErrorKind::TimedOut);
        let (reader, writer) = pipe();
        // Its end breaks off the writer.
        let writing = std::thread::spawn(move || {
            let mut writer = File::from(writer);
            while writer.write_all(&[0; 1 << 16]).is_ok() {}
        });
        let much = read_within(reader, PATIENCE).expect_err("too much");
        assert_eq!(much.kind(), std::io::ErrorKind::FileTooLarge);
        writing.join().expect("it ends");
    }
}
