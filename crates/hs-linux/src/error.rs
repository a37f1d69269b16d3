//! Everything that can go wrong between this program and the kernel, as one type.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use hs_volumes::{ChoiceError, FsKind, Table};

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
    #[error("cannot mount {what} on {}: {source}{said}", target.display())]
    Mount {
        /// What was to be mounted.
        what: String,
        /// The mount point.
        target: PathBuf,
        /// The number of the error.
        source: io::Error,
        /// What the kernel's log says of it, as a part of the sentence.
        said: String,
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
    /// The kernel has no block devices that programs serve.
    #[error(
        "{} is missing: load the module (modprobe ublk_drv; Linux 6.5 or newer), or, in a container, pass the \
         device in",
        path.display()
    )]
    UblkMissing {
        /// The device that was looked for.
        path: PathBuf,
    },
    /// The kernel's block devices for programs lack something.
    #[error("this kernel's ublk is too old: Linux 6.5 or newer is needed (it lacks features {lacks:#x})")]
    UblkTooOld {
        /// The features that it lacks (`UBLK_F_...`).
        lacks: u64,
    },
    /// There is a block device of this number.
    #[error("/dev/ublkb{number} is there already: choose another number, or `any`")]
    UblkTaken {
        /// The number.
        number: u32,
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
    #[error(
        "{}{} holds no file system headstart knows (ext2/3/4, squashfs, EROFS, XFS, btrfs, ISO 9660, FAT)",
        of_partition(*partition), path.display()
    )]
    FileSystemUnknown {
        /// The disk.
        path: PathBuf,
        /// The partition that was chosen.
        partition: Option<u32>,
    },
    /// The disk holds something that no files can be mounted from.
    #[error(
        "{}{} holds {kind}, which headstart does not mount{}",
        of_partition(*partition), path.display(), way_to_files(*kind)
    )]
    NotMountable {
        /// The disk.
        path: PathBuf,
        /// The partition that was chosen.
        partition: Option<u32>,
        /// What it holds.
        kind: FsKind,
    },
    /// The disk has partitions, and none was chosen.
    #[error(
        "{} has a {} partition table with {}, and no file system of its own:\n{table}\n`mount --fs`, `run` \
         and `boot` take one of them by --partition{}; `headstart build DISK --partition{} -o PART.hsi` makes an image of it \
         alone, which is prefetched best",
        path.display(), table.scheme, count(table), example(table), example(table)
    )]
    Partitioned {
        /// The disk.
        path: PathBuf,
        /// Its partitions.
        table: Box<Table>,
    },
    /// A partition was chosen that cannot be had.
    #[error("{}: {choice}", path.display())]
    Partition {
        /// The disk.
        path: PathBuf,
        /// What is wrong with the choice.
        choice: ChoiceError,
    },
    /// What was written last is in the journal only.
    #[error(
        "the {file_system} in {} was not unmounted before it was copied: its journal holds changes that are not in \
         place yet, which can be replayed in memory by root only. Give the disk that the image was built from to \
         {}, and build the image anew; or see the file system without these changes, by --ignore-journal",
        path.display(), who_replays(*file_system)
    )]
    JournalNotReplayed {
        /// The disk.
        path: PathBuf,
        /// Its file system.
        file_system: FileSystem,
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
    #[error("the image's /{name} cannot be used as a directory: {source}{}", room_for(source))]
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
    /// A command of this machine does not exist, or cannot be executed.
    #[error("cannot run {}: {source}", command.display())]
    OwnCommand {
        /// The command.
        command: OsString,
        /// What the kernel said; `NotFound` when there is no such command.
        source: io::Error,
    },
    /// The command's working directory is not there.
    #[error("cannot enter the working directory {} in the image: {source}", folder.display())]
    WorkingDirectory {
        /// The directory, inside the root.
        folder: PathBuf,
        /// What the kernel said.
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
    pub fn io<E: Into<io::Error>>(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> LinuxError {
        let path = path.into();
        move |source| LinuxError::Io { action, path, source: source.into() }
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

/// How a partition comes before the name of its disk.
fn of_partition(number: Option<u32>) -> String {
    number.map(|number| format!("partition {number} of ")).unwrap_or_default()
}

fn count(table: &Table) -> String {
    match table.partitions.len() {
        1 => "one partition".to_owned(),
        many => format!("{many} partitions"),
    }
}

/// The partition that is most likely meant, as a word of a command.
fn example(table: &Table) -> String {
    table.likely().or(table.partitions.first()).map(|one| format!(" {}", one.number)).unwrap_or_default()
}

/// What makes files of something that has none by itself.
fn way_to_files(kind: FsKind) -> &'static str {
    match kind {
        FsKind::Luks => ": open it (`cryptsetup open`), and build an image of the device that this makes",
        FsKind::Lvm => {
            ": activate its group (`vgchange -ay`), and build an image of one of its volumes, /dev/GROUP/VOLUME"
        }
        FsKind::Swap => "",
        _ => ": mount it otherwise, and build an image of the directory",
    }
}

/// What puts the changes in a journal in place.
fn who_replays(file_system: FileSystem) -> &'static str {
    match file_system {
        FileSystem::Ext4 => "`e2fsck -p`, or mount it once and unmount it",
        _ => "`mount` once, and unmount it",
    }
}

/// What to do where a file system that is written to has no room.
fn room_for(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::StorageFull {
        "; an image has room for what is written (--keep) if it was built with --free SIZE"
    } else {
        ""
    }
}
