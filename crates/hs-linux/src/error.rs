//! Everything that can go wrong between this program and the kernel, as one type.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::fsmount::FileSystem;

/// What failed, where, and what to try. Variants carry the data; the message is for a person.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinuxError {
    /// The mount point does not exist.
    #[error("mount point {} does not exist: make it first (mkdir -p)", path.display())]
    MountPointMissing {
        /// The mount point.
        path: PathBuf,
    },
    /// The mount point is a file.
    #[error("mount point {} is not a directory", path.display())]
    MountPointNotDirectory {
        /// The mount point.
        path: PathBuf,
    },
    /// The mount point has files in it, which the mount would cover.
    #[error(
        "mount point {} has files in it, which the mount would cover: give an empty directory",
        path.display()
    )]
    MountPointNotEmpty {
        /// The mount point.
        path: PathBuf,
    },
    /// Something is mounted there already.
    #[error(
        "{} is already a mount point ({file_system}): choose another directory, or unmount it first (umount {})",
        path.display(), path.display()
    )]
    MountPointTaken {
        /// The mount point.
        path: PathBuf,
        /// The type of the file system mounted there.
        file_system: String,
    },
    /// The mount point holds the rest of a FUSE server that died.
    #[error("{} is a mount whose server died: clear it with umount -l {}", path.display(), path.display())]
    MountPointDead {
        /// The mount point.
        path: PathBuf,
    },
    /// `mount(2)` refused.
    #[error("cannot mount {what} on {}: {source}", target.display())]
    Mount {
        /// What was to be mounted.
        what: String,
        /// The mount point.
        target: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// `umount2(2)` refused.
    #[error("cannot unmount {}: {source}", target.display())]
    Unmount {
        /// The mount point.
        target: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file system cannot be written to.
    #[error(
        "{file_system} is a file system that cannot be written to: use an image of an ext4 to keep changes"
    )]
    NotWritable {
        /// The file system.
        file_system: FileSystem,
    },
    /// An option whose value cannot work.
    #[error("{option} cannot be {value}: {needed}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        needed: &'static str,
    },
    /// Loop devices do not exist here.
    #[error(
        "{} is missing: load the module (modprobe loop), or, in a container, pass the loop devices in",
        path.display()
    )]
    LoopMissing {
        /// The device that was looked for.
        path: PathBuf,
    },
    /// Only root may do this.
    #[error("{what} needs root: run with sudo")]
    NeedsRoot {
        /// What was tried.
        what: &'static str,
    },
    /// The kernel did not attach a file to a loop device.
    #[error("cannot attach {} to a loop device: {source}", file.display())]
    LoopAttach {
        /// The file.
        file: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The disk holds no file system that can be recognised.
    #[error("{} holds no file system headstart knows (ext4, squashfs, erofs, xfs, btrfs, iso9660)", path.display())]
    FileSystemUnknown {
        /// The disk.
        path: PathBuf,
    },
    /// The disk is cut into partitions.
    #[error(
        "{} has a {table} partition table: headstart mounts disks that hold one file system; export the partition first",
        path.display()
    )]
    Partitioned {
        /// The disk.
        path: PathBuf,
        /// `GPT` or `MBR`.
        table: &'static str,
    },
    /// The kernel has no driver for the file system of the disk.
    #[error("this kernel cannot mount {file_system}: load its module (modprobe {file_system})")]
    FileSystemUnsupported {
        /// The file system.
        file_system: FileSystem,
    },
    /// Not root, and the kernel refuses the user namespace in which others may mount.
    #[error("without root this needs a user namespace, and there is none to be had: {source}; {advice}")]
    UserNamespace {
        /// What the kernel said.
        source: io::Error,
        /// What to do, by the kernel's settings.
        advice: &'static str,
    },
    /// In a user namespace, and the program that mounts an ext4 there is not installed.
    #[error(
        "fuse2fs, which mounts an ext4 without root, was not found: install the package fuse2fs, or run as root"
    )]
    Fuse2fsMissing,
    /// `fuse2fs` did not mount.
    #[error("fuse2fs could not mount the image's ext4 on {}: {message}", target.display())]
    Fuse2fs {
        /// The mount point.
        target: PathBuf,
        /// What it said.
        message: String,
    },
    /// In a user namespace, where the kernel mounts no file system of a disk.
    #[error("without root only an ext4 can be mounted, and this disk holds {file_system}: run as root")]
    OnlyExt4 {
        /// The file system.
        file_system: FileSystem,
    },
    /// A namespace could not be made.
    #[error("cannot make {what}: {source}{}", what_to_do(source))]
    Namespace {
        /// Which namespace.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A directory that every root has cannot be used in this one.
    #[error("the image's /{name} cannot be used as a directory: {source}")]
    RootDirectory {
        /// The directory, relative to the root.
        name: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The command does not exist in the image, or cannot be executed.
    #[error("cannot run {} in the image: {source}", command.display())]
    Command {
        /// The command.
        command: OsString,
        /// What the kernel said; `NotFound` when there is no such command.
        source: io::Error,
    },
    /// Setting up the inside of the root failed.
    #[error("cannot set up the image's root ({step}): {source}")]
    RootSetup {
        /// The step.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The first process inside the root ended without saying how its command ended.
    #[error("the root's first process ended unexpectedly ({detail})")]
    InitDied {
        /// How it ended.
        detail: String,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// A file in the place of a socket must not be replaced.
    #[error("{} exists and {what}: choose another path", path.display())]
    SocketTaken {
        /// The socket's path.
        path: PathBuf,
        /// Why it stays.
        what: &'static str,
    },
    /// Something else the operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The action, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl LinuxError {
    /// For `map_err`: what was being done to which file.
    pub fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(rustix::io::Errno) -> LinuxError {
        let path = path.into();
        move |errno| LinuxError::Io { action, path, source: errno.into() }
    }
}

/// What lets a namespace be made that the kernel has refused.
fn what_to_do(refused: &io::Error) -> &'static str {
    match refused.kind() {
        io::ErrorKind::PermissionDenied => "; this needs root, and in a container CAP_SYS_ADMIN",
        // Its propagation is that of a mount.
        io::ErrorKind::InvalidInput => {
            "; / is no mount point here, as in a chroot: `mount --bind DIR DIR` before `chroot DIR` makes it one"
        }
        _ => "",
    }
}
