//! Where a server that keeps what is written to a disk is asked to change its snapshots: a socket in a folder
//! that only its user enters. Its name tells the file by its device and inode, since those who ask may see it
//! at another path.
//!
//! A question is `take NAME` or `delete NAME`, up to the end of the stream; the answer `done`, `ends`, or
//! `refused` and why.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::disk::Shared;
use crate::error::KeepError;
use crate::snapshots::SnapshotChange;

/// How long a question may take to come, and an answer: a flush of a slow medium waits a while.
const QUESTION_PATIENCE: Duration = Duration::from_secs(1);
const ANSWER_PATIENCE: Duration = Duration::from_secs(300);
/// More than any question or answer has.
const MOST_BYTES: u64 = 4096;

/// The socket of a server. It goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Control {
    listener: Arc<UnixListener>,
    path: PathBuf,
}

impl Control {
    pub(crate) fn listen(folder: &Path, file: &Metadata) -> io::Result<Self> {
        let path = socket_of(folder, file);
        let hidden = path.with_extension("new");
        let _ = fs::remove_file(&hidden);
        let listener = Arc::new(UnixListener::bind(&hidden)?);
        fs::set_permissions(&hidden, Permissions::from_mode(0o600))?;
        // It appears when it listens, in place of that of a dead server.
        fs::rename(&hidden, &path)?;
        Ok(Self { listener, path })
    }

    pub(crate) fn listener(&self) -> Arc<UnixListener> {
        Arc::clone(&self.listener)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // Which ends the thread that waits for a question.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn socket_of(folder: &Path, file: &Metadata) -> PathBuf {
    folder.join(format!("keep-{:x}-{:x}.sock", file.dev(), file.ino()))
}

/// Answers one question after the other, until the socket goes.
pub(crate) fn run(shared: &Shared, listener: &UnixListener) {
    hs_linux::flush_for_kernel();
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        let mut question = String::new();
        let heard = stream.set_read_timeout(Some(QUESTION_PATIENCE)).and_then(|()| {
            let mut limited = (&stream).take(MOST_BYTES);
            limited.read_to_string(&mut question)
        });
        let answer = heard.map(|_| answer_to(shared, &question));
        // The one who asked may be gone.
        let _ = answer.and_then(|answer| stream.write_all(answer.as_bytes()));
    }
}

fn answer_to(shared: &Shared, question: &str) -> String {
    let name = |name: &str| name.to_owned();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let change = match question.split_once(' ') {
        Some(("take", of)) => {
            SnapshotChange::Take { name: name(of), now_s: now.map_or(0, |now| now.as_secs()) }
        }
        Some(("delete", of)) => SnapshotChange::Delete { name: name(of) },
        _ => return "refused the server does not know that question".to_owned(),
    };
    match shared.change_snapshots(change) {
        Ok(()) => "done".to_owned(),
        Err(KeepError::Io { source, .. }) if source.raw_os_error() == Some(libc::ESHUTDOWN) => {
            "ends".to_owned()
        }
        // It is said with the path that the one who asks knows.
        Err(KeepError::Overlay { source, .. }) => format!("refused {source}"),
        Err(KeepError::Io { action, source, .. }) => format!("refused {action} it: {source}"),
        Err(error) => format!("refused {error}"),
    }
}

/// Asks the server that uses the file at `path`, whose socket is in one of these folders, to make this
/// change. False where no server does, or it is about to end.
///
/// # Errors
/// When the server refuses, or does not answer.
pub fn ask<'a>(
    folders: impl IntoIterator<Item = &'a Path>,
    path: &Path,
    change: &SnapshotChange,
) -> Result<bool, KeepError> {
    let Ok(about) = fs::metadata(path) else { return Ok(false) };
    for folder in folders {
        let socket = socket_of(folder, &about);
        let stream = match UnixStream::connect(&socket) {
            Ok(stream) => stream,
            Err(error) => {
                if error.kind() == ErrorKind::ConnectionRefused {
                    // Of a server that was killed.
                    let _ = fs::remove_file(&socket);
                }
                continue;
            }
        };
        let answer = put(&stream, change).map_err(|error| {
            log::debug!("{}: {error}", socket.display());
            KeepError::NoAnswer { path: path.to_owned() }
        })?;
        return match answer.split_once(' ') {
            None if answer == "done" => Ok(true),
            None if answer == "ends" => Ok(false),
            Some(("refused", said)) => {
                Err(KeepError::Refused { path: path.to_owned(), said: said.to_owned() })
            }
            _ => Err(KeepError::NoAnswer { path: path.to_owned() }),
        };
    }
    Ok(false)
}

fn put(mut stream: &UnixStream, change: &SnapshotChange) -> io::Result<String> {
    let (word, name) = match change {
        SnapshotChange::Take { name, .. } => ("take", name),
        SnapshotChange::Delete { name } => ("delete", name),
    };
    stream.write_all(format!("{word} {name}").as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    let mut answer = String::new();
    stream.take(MOST_BYTES).read_to_string(&mut answer)?;
    Ok(answer)
}
