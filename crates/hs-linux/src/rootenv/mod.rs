//! A command in a root of its own: overlay, devices, PID namespace; nothing of it survives.
//!
//! ```text
//! this process            mount namespace of its own (enter_private_mounts)
//!   │ RootEnv::prepare    tmpfs ── upper, work, tmp, shm
//!   │                     overlay(lower, upper) ── /dev /sys /tmp
//!   │ RootEnv::spawn
//!   └─ init (pid 1 of a new PID namespace, this program again: init_main)
//!        │                pivot_root, /proc, gives up privileges, reaps, passes signals on
//!        └─ the command
//! ```
//!
//! Three things make sure that everything goes when this process does, even by SIGKILL: the mounts are
//! in a namespace that only these processes use, init dies with its parent (`PR_SET_PDEATHSIG`, and an
//! end of file on a pipe that this process holds), and with init the kernel ends its whole namespace.
//!
//! What else of the machine the command gets is its [`Confinement`]: no more than a container by default.
//! Network, users and the kernel are the host's in any case but a jail's, which has no network
//! unless it is given the host's.

mod confinement;
mod cpu_time;
mod filter;
mod init;
mod masks;
mod processes;
mod report;
mod signals;
mod spawn;
mod spec;
mod user_namespace;

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use crate::LinuxError;
use crate::mounts::overlay_options;

pub use confinement::{Confinement, JailUser};
pub use init::init_main;
pub use processes::ProcessNow;
pub use signals::tell_of_endings;
pub use spawn::{Child, Exit, SpawnOptions, Stream};
pub use spec::CommandUser;
pub use user_namespace::{advice as user_namespace_advice, is_in_one as in_user_namespace};

/// The hidden first argument with which the program is started as init: the command line must then call
/// [`init_main`] with the arguments that follow, before it does anything else.
pub const INIT_ARGUMENT: &str = "__init";

/// Device nodes every program may expect; they are the host's own.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Folders of the throw-away layer that are `/tmp` and `/dev/shm` in the root.
const TMP: &str = "tmp";
const SHM: &str = "shm";
/// Links every program may expect in `/dev`.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Gives the calling thread, and the threads and processes it starts from now on, a mount namespace of its
/// own. Call it when the program starts, before any thread. No other process sees mounts that are made
/// afterwards, and they go with the last process. Mounts and unmounts of the host are still followed, so that
/// the host's mounts are not kept busy.
///
/// A user who is not root gets a user namespace as well, in which only that user exists, as root. It is
/// enough for FUSE (Linux 4.18), overlay (5.11), tmpfs and bind mounts, not for disks.
///
/// # Errors
/// Root without `CAP_SYS_ADMIN`; others where the kernel, or a security module, refuses them a user
/// namespace. It also refuses one to a process that has threads.
pub fn enter_private_mounts() -> Result<(), LinuxError> {
    if !rustix::process::geteuid().is_root() {
        return user_namespace::enter().and_then(|()| own_mounts()).map_err(user_namespace::refused);
    }
    own_mounts().map_err(|source| LinuxError::Namespace { what: "a mount namespace", source })
}

fn own_mounts() -> std::io::Result<()> {
    // SAFETY: CLONE_NEWNS changes this thread's view of mounts only; no descriptor or memory is affected.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", flags)?)
}

/// Starts `argv` in `root`, a mount with a `/proc` to mount on and a `/dev/null`, in a PID namespace that
/// ends with the command and with this process: whatever it starts, nothing stays. Call
/// [`enter_private_mounts`] first. Returns when it is running.
///
/// # Errors
/// As for [`RootEnv::spawn`].
///
/// # Panics
/// When `argv` is empty.
pub fn spawn_in(
    root: &Path,
    argv: &[std::ffi::OsString],
    options: SpawnOptions,
) -> Result<Child, LinuxError> {
    assert!(!argv.is_empty(), "a command has at least a name");
    spawn::spawn(root, argv, options)
}

/// How a root is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RootOptions {
    /// Set-user-id programs and device nodes of the file system below are honoured, where it was mounted so.
    pub trusted: bool,
    /// Device nodes that are made in `/dev` can be opened.
    pub devices: bool,
    /// What is written goes to the file system below, which is mounted for writing, and not to memory.
    pub writes_below: bool,
    /// Memory for all that is written; the kernel's limit, half of the memory, when not given.
    pub scratch_bytes: Option<u64>,
}

/// A root to run commands in: a read-only file system with a throw-away layer for writes above it.
/// Dropping it takes its mounts down.
#[derive(Debug)]
pub struct RootEnv {
    workdir: PathBuf,
    root: PathBuf,
}

impl RootEnv {
    /// Mounts a root over `lower` (a mounted file system, or a directory). `workdir` is made if need be and
    /// holds the mounts; nothing is written below it. Call [`enter_private_mounts`] first, or the mounts
    /// are visible to the whole machine.
    ///
    /// # Errors
    /// Not root, no overlay driver, or an image whose `/dev`, `/proc`, `/sys` or `/tmp` is no directory.
    pub fn prepare(lower: &Path, workdir: &Path, options: RootOptions) -> Result<Self, LinuxError> {
        let io = |action: &'static str, path: &Path| {
            let path = path.to_path_buf();
            move |source| LinuxError::Io { action, path, source }
        };
        let lower = fs::canonicalize(lower).map_err(io("look at", lower))?;
        fs::create_dir_all(workdir).map_err(io("make", workdir))?;
        let workdir = fs::canonicalize(workdir).map_err(io("look at", workdir))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let limit = options.scratch_bytes.map(|bytes| format!(",size={bytes},nr_inodes={}", inodes(bytes)));
        mount_at(&workdir, "tmpfs", flags, format!("mode=700{}", limit.unwrap_or_default()).as_bytes())?;
        // From here on, Drop takes down what has been mounted so far.
        let env = Self { root: workdir.join("root"), workdir };
        let (upper, work) = (env.workdir.join("upper"), env.workdir.join("work"));
        let (tmp, shm) = (env.workdir.join(TMP), env.workdir.join(SHM));
        for directory in [&env.root, &upper, &work, &tmp, &shm] {
            fs::create_dir(directory).map_err(io("make", directory))?;
        }
        for directory in [&tmp, &shm] {
            let everyone = fs::Permissions::from_mode(0o1777);
            fs::set_permissions(directory, everyone).map_err(io("set up", directory))?;
        }
        // The overlay's own root directory takes over the permissions of the upper one.
        if options.writes_below {
            rustix::mount::mount_bind(&lower, &env.root).map_err(|errno| LinuxError::Mount {
                what: "the root".into(),
                target: env.root.clone(),
                source: errno.into(),
                said: String::new(),
            })?;
            env.furnish(options)?;
            return Ok(env);
        }
        let permissions = fs::metadata(&lower).map_err(io("look at", &lower))?.permissions();
        fs::set_permissions(&upper, permissions).map_err(io("set up", &upper))?;
        let mut data = overlay_options(&lower, &upper, &work);
        if in_user_namespace() {
            // There, overlay must keep its notes where users may write.
            data.extend(b",userxattr");
        }
        let flags = if options.trusted { MountFlags::empty() } else { flags };
        mount_at(&env.root, "overlay", flags, &data)?;
        env.furnish(options)?;
        Ok(env)
    }

    /// The root as seen from outside. Writes go to the throw-away layer.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the throw-away layer is full: what is written to it now fails.
    pub fn is_full(&self) -> bool {
        rustix::fs::statvfs(&self.workdir).is_ok_and(|found| found.f_bavail == 0 || found.f_ffree == 0)
    }

    /// Starts `argv` in this root and returns when it is running. Its program is looked up in the `PATH` of
    /// its own environment, inside the root.
    ///
    /// # Errors
    /// [`LinuxError::Command`] when the root has no such program or it cannot be executed; others when the
    /// namespaces or the inside of the root cannot be made.
    ///
    /// # Panics
    /// When `argv` is empty.
    pub fn spawn(&self, argv: &[std::ffi::OsString], options: SpawnOptions) -> Result<Child, LinuxError> {
        assert!(!argv.is_empty(), "a command has at least a name");
        spawn::spawn(&self.root, argv, options)
    }

    /// Mounts what every root has. `/proc` is left to init, which alone sees the new PID namespace.
    fn furnish(&self, options: RootOptions) -> Result<(), LinuxError> {
        let io = |action: &'static str| LinuxError::io(action, &self.root);
        let directory = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.root, directory, Mode::empty()).map_err(io("open"))?;
        drop(directory_in(&root, "proc")?);

        let sys = directory_in(&root, "sys")?;
        let bound = if in_user_namespace() {
            // What the host has mounted below must not be uncovered.
            rustix::mount::mount_bind_recursive("/sys", path_of(&sys))
        } else {
            rustix::mount::mount_bind("/sys", path_of(&sys))
        };
        bound.map_err(io("bind /sys in"))?;
        // Opened again, the path leads to the mount and no longer below it.
        let sys = directory_in(&root, "sys")?;
        let read_only = MountFlags::BIND
            | MountFlags::RDONLY
            | MountFlags::NOSUID
            | MountFlags::NODEV
            | MountFlags::NOEXEC;
        rustix::mount::mount_remount(path_of(&sys), read_only, "").map_err(io("protect /sys in"))?;

        // What is written there counts as scratch as well.
        let tmp = directory_in(&root, "tmp")?;
        rustix::mount::mount_bind(self.workdir.join(TMP), path_of(&tmp)).map_err(io("bind /tmp in"))?;

        let dev = directory_in(&root, "dev")?;
        // The nodes in it are mounts of their own, so that this does not close them.
        let no_others = if options.devices { MountFlags::empty() } else { MountFlags::NODEV };
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC | no_others;
        mount_at(&path_of(&dev), "tmpfs", flags, b"mode=755,size=1m")?;
        furnish_dev(&directory_in(&root, "dev")?, &self.workdir.join(SHM))
    }
}

impl Drop for RootEnv {
    fn drop(&mut self) {
        // The whole tree at once; what is no longer in use is gone when this returns.
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        if let Err(errno) = rustix::mount::unmount(&self.workdir, flags) {
            log::error!("cannot unmount {}: {errno}", self.workdir.display());
        }
    }
}

/// As many files as pages, which is the kernel's own ratio, and a few for the mounts themselves.
const fn inodes(bytes: u64) -> u64 {
    bytes / 4096 + 64
}

/// Fills a fresh `/dev`; `shm` is its folder for shared memory.
fn furnish_dev(dev: &OwnedFd, shm: &Path) -> Result<(), LinuxError> {
    let base = path_of(dev);
    for name in DEVICES {
        let host = Path::new("/dev").join(name);
        if fs::symlink_metadata(&host).is_err() {
            continue;
        }
        rustix::fs::mknodat(dev, name, FileType::RegularFile, Mode::from_raw_mode(0o666), 0)
            .map_err(LinuxError::io("make a place for", &host))?;
        rustix::mount::mount_bind(&host, base.join(name)).map_err(LinuxError::io("bind", &host))?;
    }
    for (name, target) in DEVICE_LINKS {
        rustix::fs::symlinkat(target, dev, name).map_err(LinuxError::io("make the link", name))?;
    }
    // In a user namespace the group tty (5) does not exist.
    let terminals = match in_user_namespace() {
        true => &b"newinstance,ptmxmode=0666,mode=620"[..],
        false => b"newinstance,ptmxmode=0666,mode=620,gid=5",
    };
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    for name in ["pts", "shm"] {
        rustix::fs::mkdirat(dev, name, Mode::from_raw_mode(0o755)).map_err(LinuxError::io("make", name))?;
    }
    mount_at(&base.join("pts"), "devpts", flags, terminals)?;
    let bound = base.join("shm");
    rustix::mount::mount_bind(shm, &bound)
        .and_then(|()| rustix::mount::mount_remount(&bound, MountFlags::BIND | MountFlags::NODEV | flags, ""))
        .map_err(LinuxError::io("bind", "/dev/shm"))
}

/// Opens directory `name` of the root, making it if need be. Links are followed inside the root only:
/// an image must not be able to point a mount at the host.
fn directory_in(root: &OwnedFd, name: &'static str) -> Result<OwnedFd, LinuxError> {
    let failed = |errno: Errno| LinuxError::RootDirectory { name, source: errno.into() };
    match rustix::fs::mkdirat(root, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(root, name, flags, Mode::empty(), ResolveFlags::IN_ROOT).map_err(failed)
}

/// A path that leads to an open descriptor, whatever happens to names meanwhile.
fn path_of(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// `mount(2)` of a file system without a device.
/// Mounts an overlay over `lower`, which stays as it is: what is written goes to `upper`.
///
/// # Errors
/// Not root, no overlay driver, or a file system of `upper` that cannot be the upper one.
pub fn mount_overlay(lower: &Path, upper: &Path, work: &Path, target: &Path) -> Result<(), LinuxError> {
    mount_at(target, "overlay", MountFlags::empty(), &overlay_options(lower, upper, work))
}

fn mount_at(target: &Path, kind: &str, flags: MountFlags, data: &[u8]) -> Result<(), LinuxError> {
    let failed = |source: std::io::Error| match source.raw_os_error() {
        Some(libc::EPERM) => LinuxError::NeedsRoot { what: "mounting a root" },
        _ => LinuxError::Mount { what: kind.into(), target: target.into(), source, said: String::new() },
    };
    let data = CString::new(data).map_err(|_| failed(std::io::ErrorKind::InvalidInput.into()))?;
    rustix::mount::mount(kind, target, kind, flags, data.as_c_str()).map_err(|errno| failed(errno.into()))
}
