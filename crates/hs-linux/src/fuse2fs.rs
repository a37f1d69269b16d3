//! `fuse2fs`, which mounts an ext4 where the kernel's driver may not be used: in a user namespace.
//!
//! It reads `disk.img` like any program, through the page cache, so what is to be prefetched for it is
//! pushed there. Its own files are cached once more, as with every file system in FUSE.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use crossbeam_channel::{Sender, bounded};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::LinuxError;
use crate::Volume;
use crate::fsmount::FileSystem;
use crate::mounts::{self, MountTable, Unmounted};

const PROGRAM: &str = "fuse2fs";
/// Folders that the `PATH` of a user often lacks.
const MORE_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// How long names and attributes are kept, in seconds: the disk never changes.
const CACHE_S: u32 = 1 << 30;
/// What it may say that is kept for an error.
const SAID_BYTES: u64 = 64 << 10;

/// An ext4 that `fuse2fs` has mounted read-only. Dropping it unmounts and waits for the program's end;
/// when the file system is still in use, its readers get errors from then on.
#[derive(Debug)]
pub struct Fuse2fs {
    target: PathBuf,
    process: OwnedFd,
    keeper: Option<JoinHandle<String>>,
}

impl Fuse2fs {
    /// Mounts the file system of `volume` in `disk` at `target`; the kernel reads `read_ahead_kib` ahead in
    /// its files.
    ///
    /// # Errors
    /// It is no ext4, the program is not installed, or it refused, or the mount point cannot be used.
    pub fn mount(
        disk: &Path,
        volume: &Volume,
        target: &Path,
        read_ahead_kib: u32,
    ) -> Result<Self, LinuxError> {
        let file_system = volume.file_system;
        if file_system != FileSystem::Ext4 {
            return Err(LinuxError::OnlyExt4 { file_system });
        }
        let target = mounts::check_mount_point(target)?;
        // `no_default_opts`: by default it has the kernel ask for the attributes at every look. In the
        // user namespace there is one user and one group: a file of any other could not be written,
        // nor a directory be written in, so all are this one's.
        let offset = match volume.range.offset {
            0 => String::new(),
            offset => format!(",offset={offset}"),
        };
        let options = format!(
            "ro,norecovery,nosuid,nodev,no_default_opts,kernel_cache,use_ino,default_permissions,\
             uid=0,gid=0,attr_timeout={CACHE_S},entry_timeout={CACHE_S},subtype=ext4{offset}"
        );
        let read_ahead = format!("{options},max_readahead={}", read_ahead_kib << 10);
        match Self::mount_with(disk, &target, &read_ahead) {
            // libfuse 2 knows it, libfuse 3 does not.
            Err(LinuxError::Fuse2fs { message, .. }) if message.contains("unknown option") => {
                log::debug!("fuse2fs: {message}");
                Self::mount_with(disk, &target, &options)
            }
            outcome => outcome,
        }
    }

    fn mount_with(disk: &Path, target: &Path, options: &str) -> Result<Self, LinuxError> {
        let program = find().ok_or(LinuxError::Fuse2fsMissing)?;
        let arguments: [OsString; 5] = ["-f".into(), "-o".into(), options.into(), disk.into(), target.into()];
        let failed = |message: String| LinuxError::Fuse2fs { target: target.into(), message };
        // Opened before the mount can be there: from now on, the kernel notifies of every change.
        let mut table = MountTable::open()?;
        let (sender, started) = bounded(1);
        // PR_SET_PDEATHSIG means the death of the *thread* that made the child: this one outlives it.
        let keeper = std::thread::Builder::new()
            .name("fuse2fs-keeper".into())
            .spawn(move || keep(&program, &arguments, &sender).unwrap_or_else(|error| error.to_string()))
            .map_err(|error| failed(error.to_string()))?;
        let Ok(process) = started.recv() else {
            return Err(failed(said_by(keeper)));
        };
        let mut mount = Self { target: target.into(), process, keeper: Some(keeper) };
        while !table.has(target)? {
            let mut events = [PollFd::new(&mount.process, PollFlags::IN), table.changes()];
            match poll(&mut events, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno.to_string())),
            }
            if !events[0].revents().is_empty() {
                return Err(failed(mount.keeper.take().map(said_by).unwrap_or_default()));
            }
        }
        Ok(mount)
    }

    /// Where it is mounted, without links.
    pub fn target(&self) -> &Path {
        &self.target
    }
}

impl Drop for Fuse2fs {
    fn drop(&mut self) {
        let Some(keeper) = self.keeper.take() else { return };
        // For FUSE, MNT_FORCE cuts the connection: waiting readers get an error.
        match mounts::unmount(&self.target, UnmountFlags::FORCE) {
            Ok(Unmounted::Clean) => {}
            // A mount that is used elsewhere keeps its server; this one holds nothing that is worth it.
            outcome => {
                if let Err(error) = outcome {
                    log::error!("{error}");
                }
                let _ = rustix::process::pidfd_send_signal(&self.process, Signal::KILL);
            }
        }
        let said = said_by(keeper);
        if !said.is_empty() {
            log::debug!("fuse2fs: {said}");
        }
    }
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(MORE_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(PROGRAM))
        .find(|program| program.is_file())
}

/// The keeper thread: starts the program, tells its pidfd, and waits for its end. Returns what it said.
fn keep(program: &Path, arguments: &[OsString], started: &Sender<OwnedFd>) -> io::Result<String> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // A terminal's Ctrl-C is the command's; the file system below it must go on.
        .process_group(0);
    // SAFETY: the closure makes one system call, which is allowed after fork.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let mut child = command.spawn()?;
    // The child has not been waited for, so the process number still belongs to it.
    let process = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    match process {
        Ok(process) => drop(started.send(process)),
        Err(errno) => {
            child.kill()?;
            child.wait()?;
            return Err(errno.into());
        }
    }
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        read_some(stderr, &mut said)?;
    }
    let status = child.wait()?;
    let said = String::from_utf8_lossy(&said).trim().replace('\n', "; ");
    Ok(match (said.is_empty(), status.success()) {
        (true, false) => status.to_string(),
        _ => said,
    })
}

/// Reads to the end, so that the writer never waits, and keeps the beginning.
fn read_some(source: impl Read, said: &mut Vec<u8>) -> io::Result<()> {
    let mut source = source;
    source.by_ref().take(SAID_BYTES).read_to_end(said)?;
    io::copy(&mut source, &mut io::sink())?;
    Ok(())
}

fn said_by(keeper: JoinHandle<String>) -> String {
    keeper.join().unwrap_or_else(|_| "its keeper panicked".into())
}
