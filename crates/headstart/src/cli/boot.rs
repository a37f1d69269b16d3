//! Flags of `headstart boot`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hs_device::Medium;
use hs_units::ByteSize;

use super::cache::CacheFlags;
use super::guest_read_ahead::GuestReadAhead;
use super::image::ImageArg;
use super::insecure::InsecureFlag;
use super::prefetch::PrefetchLimits;
use super::qemu::QemuFlags;
use super::seconds;
use crate::medium::Damage;
use crate::medium::MediumParser;

/// What runs the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Vmm {
    /// User-mode Linux if a guest of a few instructions really ran on it, else QEMU. A --kernel of the
    /// usual kind and the flags of QEMU alone choose QEMU.
    Auto,
    /// User-mode Linux, from the package user-mode-linux.
    Uml,
    /// QEMU, from the package qemu-system-x86: a whole machine with kernels of the usual kind, which reads the disk over NBD.
    Qemu,
}

/// Flags of `headstart boot`.
#[derive(Debug, Args)]
#[command(mut_arg("image", |arg| arg.value_name("DISK").help("An image, as a file or an address, or a raw disk of one file system without partitions")))]
pub(crate) struct Boot {
    #[command(flatten)]
    pub disk: ImageArg,
    #[command(flatten)]
    pub insecure: InsecureFlag,
    /// What runs the guest.
    #[arg(long, value_enum, value_name = "VMM", default_value = "auto")]
    pub vmm: Vmm,
    /// Read the disk from an emulated medium, such as flat-10ms-25mbs-serial; `none` is the real one.
    #[arg(long, value_name = "M", default_value = "none", value_parser = MediumParser)]
    pub medium: Medium,
    #[command(flatten)]
    pub damage: Damage,
    /// Bring the whole disk into the page cache before the clock starts: the limit for any medium.
    #[arg(long, conflicts_with_all = ["medium", "bad_sectors", "record"])]
    pub warm: bool,
    /// Ready when a line of the console matches, without its colours.
    ///
    /// Beware of lines that come after the login prompts: systemd says nothing more once a getty runs on a
    /// virtual console, which might be the one that it writes to. A pattern for multi-user.target alone
    /// then waits for ever, and which of the two comes first is chance.
    #[arg(long, value_name = "REGEX", default_value = hs_guest::console::READY)]
    pub ready: regex::Regex,
    /// Give up when the guest is not ready after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds::parse)]
    pub ready_timeout: std::time::Duration,
    /// Let the guest go on for so many seconds after ready, then end it.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds::parse)]
    pub grace: std::time::Duration,
    /// The guest's memory.
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub memory: ByteSize,
    /// Memory for what the guest writes to its disk, which is thrown away.
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub scratch: ByteSize,
    /// The guest's kernel. When not given, User-mode Linux is `linux.uml` from PATH, and QEMU boots the kernel in the
    /// disk's own /boot, with the initrd beside it.
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    #[command(flatten)]
    pub qemu: QemuFlags,
    /// The guest's first program, instead of the usual init.
    #[arg(long, value_name = "PROGRAM")]
    pub init: Option<String>,
    /// A further word for the kernel's command line; it can be given several times.
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub append: Vec<String>,
    /// How far the guest's kernel reads ahead in its disk, in KiB; with User-mode Linux.
    ///
    /// `kernel` is what it chooses, mostly 128. `auto` is 8 while a boot is recorded, and where one is prefetched, since what
    /// is known need not be guessed: less is stored and brought. It is `kernel` otherwise, and where words with --append
    /// say what the root is. Record with `kernel` what other guests than these will boot.
    #[arg(long, value_name = "KIB", default_value = "auto")]
    pub guest_read_ahead: GuestReadAhead,
    /// Keep what the console said in FILE; of a failed boot it is kept in any case.
    #[arg(long, value_name = "FILE")]
    pub console: Option<PathBuf>,
    /// Record the boot from the kernel's first read until the end of the grace time; nothing is prefetched then.
    #[arg(long, value_name = "P")]
    pub record: Option<PathBuf>,
    /// Prefetch nothing.
    #[arg(long)]
    pub no_prefetch: bool,
    #[command(flatten)]
    pub limits: PrefetchLimits,
    #[command(flatten)]
    pub cache: CacheFlags,
    /// Print the run summary as one JSON object.
    #[arg(long)]
    pub json: bool,
}
