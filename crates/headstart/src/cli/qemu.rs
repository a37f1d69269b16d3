//! Flags of guests that QEMU runs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hs_guest::qemu;

/// What executes the guest's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accel {
    /// KVM where a trial has proven that this kernel runs under it here, else the translator.
    #[default]
    Auto,
    /// The processor itself, through /dev/kvm.
    Kvm,
    /// QEMU's translator, some ten times slower.
    Tcg,
}

/// How the guest sees its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bus {
    /// As /dev/vda; for most kernels the driver is a module, in their initrd.
    #[default]
    Virtio,
    /// As /dev/nvme0n1; Debian's kernels for clouds have the driver, and ext4, without an initrd.
    Nvme,
}

impl From<Bus> for qemu::Bus {
    fn from(bus: Bus) -> Self {
        match bus {
            Bus::Virtio => Self::Virtio,
            Bus::Nvme => Self::Nvme,
        }
    }
}

/// Flags for `--vmm qemu` alone.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct QemuFlags {
    /// With --vmm qemu and --kernel: the initial RAM disk of that kernel.
    #[arg(long, value_name = "FILE")]
    pub initrd: Option<PathBuf>,
    /// With --vmm qemu: what executes the guest; auto when not given.
    #[arg(long, value_enum, value_name = "HOW")]
    pub accel: Option<Accel>,
    /// With --vmm qemu: how the guest sees its disk; virtio when not given.
    #[arg(long, value_enum, value_name = "BUS")]
    pub bus: Option<Bus>,
}

impl QemuFlags {
    /// The first of these flags that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--initrd", self.initrd.is_some()),
            ("--accel", self.accel.is_some()),
            ("--bus", self.bus.is_some()),
        ];
        given.into_iter().find_map(|(flag, given)| given.then_some(flag))
    }
}
