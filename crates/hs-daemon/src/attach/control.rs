//! How other commands find the guard of a file, and their requests: a socket in the run folder, one word a
//! connection, one line back.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};

use hs_service::run_folder::RunFolder;

/// How long a client may take to send its word.
const PATIENCE: Duration = Duration::from_secs(1);
const MOST_BYTES: u64 = 64;

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Start a server when there is none; answered when it fills.
    Start,
    /// Fill the blocks that no reader has asked for.
    Hydrate,
    /// End the server and the guard.
    End,
}

impl Request {
    const ALL: [Self; 3] = [Self::Start, Self::Hydrate, Self::End];

    const fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Hydrate => "hydrate",
            Self::End => "end",
        }
    }
}

/// The socket of the guard of a file. The file is known by its device and inode, not by its name.
fn place(folder: &RunFolder, file: &Path) -> anyhow::Result<PathBuf> {
    let found = fs::metadata(file).with_context(|| format!("look at {}", file.display()))?;
    Ok(folder.path().join(format!("attach-{:x}-{:x}", found.dev(), found.ino())))
}

/// The socket of the guard of `file`, whether there is one or not.
pub(super) fn socket_of(file: &Path) -> anyhow::Result<PathBuf> {
    place(&RunFolder::existing()?.context("there is no run folder")?, file)
}

/// The guard's end.
pub(super) struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Listens for requests about `file`. The caller holds the file's lock, so an earlier listener is dead.
    pub(super) fn listen(file: &Path) -> anyhow::Result<Self> {
        let path = place(&RunFolder::create()?, file)?;
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).with_context(|| format!("listen at {}", path.display()))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path })
    }

    /// Where messages go when standard error has no reader.
    pub(super) fn log_place(&self) -> PathBuf {
        self.path.with_extension("log")
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The next request and its client, if there is one.
    pub(super) fn next(&self) -> Option<(Request, Asking)> {
        loop {
            let (stream, _) = self.listener.accept().ok()?;
            if let Some(asked) = Self::hear(stream) {
                return Some(asked);
            }
        }
    }

    fn hear(stream: UnixStream) -> Option<(Request, Asking)> {
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        let mut line = String::new();
        BufReader::new(&stream).take(MOST_BYTES).read_line(&mut line).ok()?;
        let request = Request::ALL.into_iter().find(|request| request.word() == line.trim_end())?;
        Some((request, Asking(stream)))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(self.log_place());
    }
}

/// A client that waits for an answer.
pub(super) struct Asking(UnixStream);

impl Asking {
    /// Answers with a line; an empty line means success.
    pub(super) fn answer(mut self, trouble: &str) {
        let _ = writeln!(self.0, "{trouble}");
    }
}

/// Sends a request to the guard of `file`. False when there is none, or it ends before it answers.
///
/// # Errors
/// What went wrong for the guard.
pub fn ask(file: &Path, request: Request) -> anyhow::Result<bool> {
    let Some(folder) = RunFolder::existing()? else { return Ok(false) };
    let mut stream = match UnixStream::connect(place(&folder, file)?) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(false);
        }
        Err(error) => return Err(error).with_context(|| format!("ask the guard of {}", file.display())),
    };
    let mut answer = String::new();
    let asked = writeln!(stream, "{}", request.word())
        .and_then(|()| BufReader::new(&stream).read_line(&mut answer).map(drop));
    match asked {
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
            return Ok(false);
        }
        asked => asked.with_context(|| format!("ask the guard of {}", file.display()))?,
    }
    match answer.trim_end() {
        _ if answer.is_empty() => Ok(false),
        "" => Ok(true),
        trouble => bail!("{trouble}"),
    }
}
