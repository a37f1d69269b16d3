//! Why a snapshot is not resumed.

use hs_units::ByteSize;

/// What does not fit, and what to try. All of it is found before the guest runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// The image holds something else.
    #[error(
        "{snapshot}: this is no snapshot of a guest: `headstart boot IMAGE --snapshot-out FILE` makes one"
    )]
    NoSnapshot {
        /// The image.
        snapshot: String,
    },
    /// The description is not one that is known.
    #[error("{snapshot}: its description cannot be used: {why}")]
    Description {
        /// The image.
        snapshot: String,
        /// What is wrong with it.
        why: String,
    },
    /// What the guest wrote to its disk leads elsewhere.
    #[error("{snapshot}: what its guest wrote to the disk cannot be used: {why}")]
    Overlay {
        /// The image.
        snapshot: String,
        /// What is wrong with it.
        why: String,
    },
    /// It was booted from another disk.
    #[error(
        "{snapshot} was saved with the disk {expected} ({disk_name}), and {disk} is the disk {found}: give the \
         image that it was booted from with --disk"
    )]
    OtherDisk {
        /// The image.
        snapshot: String,
        /// The digest of its disk.
        expected: String,
        /// The name that its disk had.
        disk_name: String,
        /// The disk that was given.
        disk: String,
        /// The digest of that.
        found: String,
    },
    /// No disk was given, and none lies beside the snapshot.
    #[error(
        "{snapshot} was booted from {disk_name}, and there is no file of that name beside it: give that \
         image, or its address, with --disk"
    )]
    NoDisk {
        /// The image.
        snapshot: String,
        /// The name that its disk had.
        disk_name: String,
    },
    /// This QEMU cannot be the machine.
    #[error(
        "{snapshot} is of the machine {machine} of QEMU {saved}, which the QEMU here cannot be: resume it with \
         QEMU {saved} or later"
    )]
    OtherMachine {
        /// The image.
        snapshot: String,
        /// The machine.
        machine: String,
        /// The version that saved it.
        saved: String,
    },
    /// It was executed by something that is not here.
    #[error("{snapshot} was executed by {accelerator}, which does not work here: {why}")]
    NoAccelerator {
        /// The image.
        snapshot: String,
        /// What executed it.
        accelerator: String,
        /// Why it cannot.
        why: String,
    },
    /// A network is asked for, and the guest has no card.
    #[error(
        "the guest of {snapshot} has no network card: `headstart boot` gives one with --network, before it is \
         saved"
    )]
    NoNetwork {
        /// The image.
        snapshot: String,
    },
    /// The disk in the file of an overlay is not the one that the guest knows any more.
    #[error(
        "{file} was written to since it was begun for the guest of {snapshot}, whose memory knows its disk as it \
         was then: `headstart boot {disk} --keep {file}` starts from the disk as it is now; `headstart overlay \
         revert {file} {name}` takes back what was written since, and the guest can go on; or name another file"
    )]
    DiskChanged {
        /// The file.
        file: String,
        /// The image.
        snapshot: String,
        /// The disk that the guest was booted from.
        disk: String,
        /// The disk as the guest knows it, in the file.
        name: String,
    },
    /// The file of an overlay was begun by something else.
    #[error(
        "{file} does not have the disk of the guest of {snapshot} as it was saved: name a file that is not there \
         yet, which begins with it; `headstart boot {disk} --keep {file}` starts from the disk in {file}"
    )]
    OtherChanges {
        /// The file.
        file: String,
        /// The image.
        snapshot: String,
        /// The disk that the guest was booted from.
        disk: String,
    },
    /// It does not fit into this machine's memory.
    #[error("the guest of {snapshot} has {needed} of memory, and this machine has {available} to spare")]
    NoMemory {
        /// The image.
        snapshot: String,
        /// What the guest has.
        needed: ByteSize,
        /// What there is.
        available: ByteSize,
    },
}
