//! Flags of `headstart boot`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hs_start::boot::{GuestReadAhead, VmmChoice, VmmName};
use hs_units::ByteSize;

use super::cache::CacheFlags;
use super::emulation::EmulationFlags;
use super::guest_network::NetworkFlags;
use super::image::ImageArg;
use super::insecure::InsecureFlag;
use super::keep::KeepFlag;
use super::learn::LearnFlags;
use super::prefetch::PrefetchLimits;
use super::qemu::{Accel, Firmware, QemuFlags};
use super::seconds;

/// What runs the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Vmm {
    /// User-mode Linux if a trial guest runs on this machine, else QEMU. A kernel that is no User-mode Linux,
    /// flags of QEMU and a partition table with sectors of 4096 bytes choose QEMU.
    Auto,
    /// User-mode Linux, from the package user-mode-linux.
    Uml,
    /// QEMU, from the package qemu-system-x86. The guest runs a distribution's kernel and reads the disk over
    /// NBD.
    Qemu,
}

/// The help of the disk.
const DISK: &str = "An image (file or address, as for `run`), a raw disk, or a bootable ISO";

/// Flags of `headstart boot`.
#[derive(Debug, Args)]
#[command(mut_arg("image", |arg| arg.value_name("DISK").help(DISK).long_help(DISK)))]
pub(crate) struct Boot {
    #[command(flatten)]
    pub disk: ImageArg,
    #[command(flatten)]
    pub insecure: InsecureFlag,
    /// The partition with the guest's root: its number, its label or UUID or that of its file system, or its
    /// type (esp, root, 0x83), as for `run`. The guest has the whole disk.
    ///
    /// Without this flag a disk with partitions is refused with a list of them.
    #[arg(long, value_name = "PARTITION", hide_short_help = true)]
    pub partition: Option<String>,
    /// What runs the guest.
    #[arg(long, value_enum, value_name = "VMM", default_value = "auto")]
    pub vmm: Vmm,
    #[command(flatten)]
    pub emulation: EmulationFlags,
    /// Read the whole disk into the page cache before the boot begins: the lower limit of any boot time.
    #[arg(long, conflicts_with_all = ["medium", "bad_sectors", "record"], hide_short_help = true)]
    pub warm: bool,
    /// The guest is ready when a line on its console matches. Colours are removed first.
    ///
    /// Choose no line that comes after the login prompt: systemd prints nothing more once a getty runs on the
    /// console that it writes to.
    #[arg(long, value_name = "REGEX", default_value = hs_guest::console::READY)]
    pub ready: regex::Regex,
    /// Fail when the guest is not ready after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds::parse)]
    pub ready_timeout: std::time::Duration,
    /// Keep the guest running for this many seconds after it is ready, then end it.
    #[arg(long = "run-after-ready", alias = "grace", value_name = "SECONDS", default_value = "0", value_parser = seconds::parse, hide_short_help = true)]
    pub grace: std::time::Duration,
    /// Memory of the guest.
    #[arg(long, value_name = "SIZE", default_value = "512M", help_heading = "Guest")]
    pub memory: ByteSize,
    /// Memory for the guest's writes to its disk. They are discarded at the end.
    #[arg(long, value_name = "SIZE", default_value = "1G", help_heading = "Guest", hide_short_help = true)]
    pub scratch: ByteSize,
    #[command(flatten)]
    pub keep: KeepFlag,
    /// The guest's kernel. Default: `linux.uml` from PATH for User-mode Linux; for QEMU the kernel and initrd
    /// in the disk's /boot.
    #[arg(long, value_name = "FILE", help_heading = "Guest")]
    pub kernel: Option<PathBuf>,
    #[command(flatten)]
    pub qemu: QemuFlags,
    /// The guest's first program. Default: the system's init.
    #[arg(long, value_name = "PROGRAM", help_heading = "Guest", hide_short_help = true)]
    pub init: Option<String>,
    /// A word to add to the kernel's command line. Repeatable.
    #[arg(
        long,
        value_name = "WORD",
        allow_hyphen_values = true,
        help_heading = "Guest",
        hide_short_help = true
    )]
    pub append: Vec<String>,
    #[command(flatten)]
    pub network: NetworkFlags,
    /// Read-ahead of the guest's kernel, in KiB. User-mode Linux only; 0 also where an ISO is recorded, which
    /// gives exact pages.
    ///
    /// `kernel` keeps the guest kernel's own value, usually 128. `auto` is 8 while a boot is recorded or
    /// prefetched, because the profile already knows what is needed, and `kernel` otherwise. Record with
    /// `kernel` for guests that something else will boot.
    #[arg(long, value_name = "KIB", default_value = "auto", help_heading = "Guest", hide_short_help = true)]
    pub guest_read_ahead: GuestReadAhead,
    /// Write the console's output to FILE. The output of a failed boot is always kept.
    #[arg(long, help_heading = "Guest", value_name = "FILE", hide_short_help = true)]
    pub console: Option<PathBuf>,
    /// Record the boot into profile P, from the kernel's first read until --run-after-ready ends. Turns
    /// prefetch off. A guest that boots from an ISO of `headstart iso` records itself.
    #[arg(long, value_name = "P", conflicts_with = "learn")]
    pub record: Option<PathBuf>,
    /// Write the guest's reads, what was prefetched, its stages and its processes to FILE as CSV, for
    /// `headstart report` and `headstart inspect`. Of an ISO: the reads of the medium, each with its file and
    /// its stage.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub trace: Option<PathBuf>,
    /// Save the guest when it is ready into FILE, a snapshot from which `resume` lets it go on. QEMU only.
    ///
    /// The snapshot has the guest's memory, with all keys and passwords in it. A guest that is still busy
    /// when it is saved is busy in each resume: let it come to rest by --run-after-ready.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["warm", "record", "keep"], hide_short_help = true)]
    pub snapshot_out: Option<PathBuf>,
    /// Store the whole snapshot. By default pages that the disk has too are not stored again, if the disk is
    /// a file: commands that read such a snapshot need the disk as its --base.
    #[arg(long, requires = "snapshot_out", hide_short_help = true)]
    pub no_base: bool,
    /// Do not prefetch: fetch only what is read.
    #[arg(long, help_heading = "Prefetch and cache", hide_short_help = true)]
    pub no_prefetch: bool,
    #[command(flatten)]
    pub limits: PrefetchLimits,
    #[command(flatten)]
    pub learn: LearnFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    /// Print the run summary as JSON.
    #[arg(long)]
    pub json: bool,
}

impl Boot {
    /// The first flag for a guest whose kernel is loaded from outside.
    pub(crate) fn flag_of_kernel(&self) -> Option<&'static str> {
        let given = [
            ("--append", !self.append.is_empty()),
            ("--init", self.init.is_some()),
            ("--partition", self.partition.is_some()),
        ];
        given.into_iter().find_map(|(flag, given)| given.then_some(flag))
    }

    /// Whether they say what starts first in the guest, perhaps in an initial RAM disk of its own.
    pub(crate) fn names_first_program(&self) -> bool {
        let is_named = |word: &String| word.starts_with("init=") || word.starts_with("rdinit=");
        self.init.is_some() || self.qemu.initrd.is_some() || self.append.iter().any(is_named)
    }

    /// What they say of the VMM; `is_medium` of a disk that firmware can start.
    pub(crate) fn vmm_choice(&self, is_medium: bool, has_large_sectors: bool) -> VmmChoice {
        VmmChoice {
            vmm: match self.vmm {
                Vmm::Auto => VmmName::Auto,
                Vmm::Uml => VmmName::Uml,
                Vmm::Qemu => VmmName::Qemu,
            },
            kernel: self.kernel.clone(),
            initrd: self.qemu.initrd.clone(),
            accel: self.qemu.accel.and_then(Accel::chosen),
            cpu: self.qemu.cpu.clone(),
            bus: self.qemu.bus.map(Into::into),
            is_medium,
            has_large_sectors,
            uefi: self.qemu.firmware == Some(Firmware::Uefi),
            network: self.network.of_boot(),
            flag_of_qemu: self
                .qemu
                .given()
                .or(self.snapshot_out.is_some().then_some("--snapshot-out"))
                .or(self.network.network.then_some("--network")),
        }
    }
}
