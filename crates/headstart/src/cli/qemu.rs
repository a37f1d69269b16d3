//! Flags of guests that QEMU runs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hs_guest::qemu::{self, Accelerator};

/// What executes the guest's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accel {
    /// KVM if a trial shows that the kernel runs under it on this machine, else the translator.
    #[default]
    Auto,
    /// The processor itself, through /dev/kvm.
    Kvm,
    /// QEMU's translator (TCG), about ten times slower.
    Tcg,
}

/// How the guest sees its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bus {
    /// As /dev/vda. Most kernels need an initrd with the driver.
    Virtio,
    /// As /dev/nvme0n1. Debian's cloud kernels need no initrd for it.
    Nvme,
    /// As a disc in a drive, /dev/sr0. For an ISO.
    Cd,
    /// As a USB stick, /dev/sda.
    Usb,
}

/// The firmware that starts an ISO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Firmware {
    /// A BIOS.
    Bios,
    /// UEFI, from the package ovmf.
    Uefi,
}

impl From<Bus> for qemu::Bus {
    fn from(bus: Bus) -> Self {
        match bus {
            Bus::Virtio => Self::Virtio,
            Bus::Nvme => Self::Nvme,
            Bus::Cd => Self::Cd,
            Bus::Usb => Self::Usb,
        }
    }
}

/// A model with its settings. QEMU itself says which there are.
fn cpu_model(text: &str) -> Result<String, String> {
    let is_model =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._,+=".contains(&byte));
    match !text.is_empty() && is_model(text) {
        true => Ok(text.to_owned()),
        false => Err("a model as `qemu-system-x86_64 -cpu help` lists them, such as Nehalem".into()),
    }
}

/// Flags for `--vmm qemu` alone.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct QemuFlags {
    /// The initial RAM disk of --kernel.
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "QEMU")]
    pub initrd: Option<PathBuf>,
    /// What executes the guest's instructions. Default: auto.
    #[arg(long, value_enum, value_name = "HOW", hide_short_help = true, help_heading = "QEMU")]
    pub accel: Option<Accel>,
    /// The guest's processor, as QEMU names it (`max`, `Nehalem`, `host`). Default: max; under the translator
    /// without AVX, whose registers slow it down by a third.
    #[arg(
        long,
        value_name = "MODEL",
        value_parser = cpu_model,
        conflicts_with = "snapshot_out",
        hide_short_help = true,
        help_heading = "QEMU"
    )]
    pub cpu: Option<String>,
    /// How the guest sees its disk. Default: cd for an ISO, else virtio.
    #[arg(long, value_enum, value_name = "BUS", hide_short_help = true, help_heading = "QEMU")]
    pub bus: Option<Bus>,
    /// The firmware that starts an ISO. Default: bios.
    #[arg(long, value_enum, value_name = "FIRMWARE", hide_short_help = true, help_heading = "QEMU")]
    pub firmware: Option<Firmware>,
}

impl Accel {
    /// What was chosen; `None` where a trial decides.
    pub(crate) const fn chosen(self) -> Option<Accelerator> {
        match self {
            Self::Auto => None,
            Self::Kvm => Some(Accelerator::Kvm),
            Self::Tcg => Some(Accelerator::Tcg),
        }
    }
}

impl QemuFlags {
    /// The first of these flags that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--initrd", self.initrd.is_some()),
            ("--accel", self.accel.is_some()),
            ("--cpu", self.cpu.is_some()),
            ("--bus", self.bus.is_some()),
            ("--firmware", self.firmware.is_some()),
        ];
        given.into_iter().find_map(|(flag, given)| given.then_some(flag))
    }
}
