//! Errors of guests.

use std::io;
use std::path::PathBuf;

use hs_linux::LinuxError;
use hs_linux::rootenv::Exit;
use hs_units::ByteSize;

/// What failed and what to try. Variants carry the data; the message is for users.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    /// User-mode Linux is not installed.
    #[error("linux.uml was not found: install the package user-mode-linux, or give --kernel FILE")]
    UmlMissing,
    /// The kernel that was named is not a file.
    #[error("there is no kernel at {}: give --kernel the path of a User-mode Linux program", path.display())]
    KernelMissing {
        /// Its path.
        path: PathBuf,
    },
    /// QEMU is not installed.
    #[error("qemu-system-x86_64 was not found: install the package qemu-system-x86")]
    QemuMissing,
    /// A file for the guest does not exist.
    #[error("there is no file {}: give {flag} another", path.display())]
    FileMissing {
        /// Its path.
        path: PathBuf,
        /// The flag that named it.
        flag: &'static str,
    },
    /// The guest was to boot the kernel in its disk, which contains none.
    #[error(
        "{} holds no kernel (/vmlinuz or /boot/vmlinuz): install one in the system that it is built from, or give \
         --kernel FILE; 'apt-get download' and 'dpkg-deb -x' of a linux-image package give one, and with \
         linux-image-cloud-amd64 and --bus nvme it needs no --initrd",
        disk.display()
    )]
    NoKernel {
        /// The disk.
        disk: PathBuf,
    },
    /// This process may not use KVM, or there is none.
    #[error("/dev/kvm cannot be opened: {source}")]
    KvmUnusable {
        /// The system's error.
        source: io::Error,
    },
    /// The guest's kernel did not come far in a trial.
    #[error("a kernel that was tried under KVM did not look for a disk; it said last: {}", said.as_deref().unwrap_or("nothing"))]
    KvmUnproven {
        /// The last line of its console.
        said: Option<String>,
    },
    /// QEMU ran nothing in a trial.
    #[error("a trial of QEMU with {accelerator} failed: {why}")]
    QemuUnproven {
        /// The accelerator.
        accelerator: &'static str,
        /// What happened.
        why: String,
    },
    /// No guest of User-mode Linux ran in a trial.
    #[error("a trial of {} ran no guest: {why}", kernel.display())]
    UmlUnproven {
        /// The program.
        kernel: PathBuf,
        /// The reason, as far as it is known.
        why: String,
    },
    /// What is loaded into the guest's program could not be kept in memory.
    #[error("cannot write a preload of the guest's program: {0}")]
    Preload(io::Error),
    /// A path that cannot be written on the guest's command line.
    #[error("User-mode Linux cannot use {}: its path contains a space or a comma", path.display())]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// The root for the VMM could not be made.
    #[error("cannot {action} {} for the guest's own root: {source}", path.display())]
    Jail {
        /// The operation that failed.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The guest's processes could not be started.
    #[error("cannot start the guest: {0}")]
    Start(#[from] LinuxError),
    /// The monitor of QEMU does not work.
    #[error("cannot {action} QEMU's monitor: {source}")]
    Monitor {
        /// The operation that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// QEMU does not do what it was told.
    #[error("QEMU refuses '{command}': {why}")]
    MonitorRefused {
        /// The command.
        command: &'static str,
        /// Its own reason.
        why: String,
    },
    /// The agent in the guest cannot be told.
    #[error("cannot tell the guest's agent that it was resumed: {source}")]
    Agent {
        /// The system's error.
        source: io::Error,
    },
    /// The thread that reads the console could not be started.
    #[error("cannot read the guest's console: {0}")]
    Console(io::Error),
    /// Nothing can be typed at the console.
    #[error("cannot type at the guest's console: {0}")]
    Type(io::Error),
    /// The kernel gave up.
    #[error("the guest's kernel gave up: {line}")]
    Panic {
        /// Its message.
        line: String,
    },
    /// The guest's init gave up and waits for a user.
    #[error("the guest did not start and waits for a user: {line}")]
    Emergency {
        /// Its message.
        line: String,
    },
    /// It ended before it was ready.
    #[error("the guest ended before it was ready ({})", describe(*exit))]
    Ended {
        /// Its exit status.
        exit: Exit,
    },
    /// It was not ready in time.
    #[error(
        "the guest was not ready after {seconds:.0} s: no line of its console matched '{pattern}'; \
         give another --ready or a longer --ready-timeout"
    )]
    NotReady {
        /// How long it had.
        seconds: f64,
        /// The pattern.
        pattern: String,
    },
    /// It was ready, and has recorded nothing.
    #[error("the guest's start was not recorded: {why}")]
    NotRecorded {
        /// The reason.
        why: String,
    },
    /// The guest's writes have filled their scratch.
    #[error("the guest has filled its {scratch} of scratch: give a larger --scratch")]
    ScratchFull {
        /// The size of the scratch.
        scratch: ByteSize,
    },
}

fn describe(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
    }
}
