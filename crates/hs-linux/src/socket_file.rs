//! A socket in the file system.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{FlockOperation, flock};

use crate::LinuxError;

/// A listening socket, and its file, to which only its owner may connect. Dropping it removes the file.
#[derive(Debug)]
pub struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    inode: (u64, u64),
    /// Another process has the socket as well, and may start a server when this one cannot serve.
    is_left: AtomicBool,
}

impl SocketFile {
    /// The socket gets its name when it listens. What a dead server has left there is replaced, anything
    /// else is not; the lock of the folder keeps two servers from replacing one another.
    ///
    /// # Errors
    /// When something else lies there, or the socket cannot be made.
    pub fn bind(path: &Path) -> Result<Self, LinuxError> {
        let failed = |source| LinuxError::Listen { address: format!("unix:{}", path.display()), source };
        let name = path.file_name().ok_or_else(|| failed(ErrorKind::InvalidInput.into()))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let lock = File::open(folder).map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
        let taken = |what| LinuxError::SocketTaken { path: path.to_owned(), what };
        match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(found) if !found.file_type().is_socket() => return Err(taken("it is no socket")),
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    log::info!("{}: a server that is gone has left this socket", path.display());
                }
                Ok(_) => return Err(taken("a server listens on it")),
                Err(error) => return Err(failed(error)),
            },
        }
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        let hidden = folder.join(hidden);
        let _ = fs::remove_file(&hidden);
        let listener = UnixListener::bind(&hidden).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        // Before it has its name: only its owner may connect, whatever the umask is.
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let placed = fs::rename(&hidden, path).and_then(|()| path.symlink_metadata());
        let found = placed.inspect_err(|_| drop(fs::remove_file(&hidden))).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        Ok(Self { listener, path, inode: (found.dev(), found.ino()), is_left: AtomicBool::new(false) })
    }

    /// One that a server that died had listened on, and a supervisor kept. Dropping it leaves the file for
    /// the next server, until this one [serves](Self::serves).
    ///
    /// # Errors
    /// When it has no name.
    pub fn resume(socket: OwnedFd) -> io::Result<Self> {
        let listener = UnixListener::from(socket);
        let nameless = || io::Error::from(ErrorKind::InvalidInput);
        // It listens under the name that it had before it was renamed.
        let bound = listener.local_addr()?.as_pathname().ok_or_else(nameless)?.to_owned();
        let name = bound.file_name().and_then(|name| name.to_str()).ok_or_else(nameless)?;
        let path = bound.with_file_name(name.strip_prefix('.').unwrap_or(name));
        let path = path.canonicalize().unwrap_or(path);
        // The file may have been removed; then there is nothing to remove at the end.
        let inode = path.symlink_metadata().map_or((0, 0), |found| (found.dev(), found.ino()));
        Ok(Self { listener, path, inode, is_left: AtomicBool::new(true) })
    }

    /// Clients are answered from now on: dropping it removes the file.
    pub fn serves(&self) {
        self.is_left.store(false, Relaxed);
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes a connection that waits.
    ///
    /// # Errors
    /// `WouldBlock` when none waits; others as accept(2) has them.
    pub fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept()?.0)
    }
}

impl AsFd for SocketFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if *self.is_left.get_mut() {
            return;
        }
        // Another server may have taken the name since the file was removed.
        if self.path.symlink_metadata().is_ok_and(|found| (found.dev(), found.ino()) == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
