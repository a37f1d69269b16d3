//! What runs the guest of the second story: User-mode Linux, or QEMU where that runs none.

use std::path::{Path, PathBuf};

use anyhow::Context;
use hs_output::show::Bar;
use hs_start::boot;

use super::cache::Cache;
use super::root;
use super::tools::{self, MMDEBSTRAP, QEMU, UNSHARE};

/// The kernel that QEMU boots: its name in the cache.
const KERNEL: &str = "boot-kernel";
/// How long a boot by QEMU's translator may take, in seconds.
const QEMU_PATIENCE: &str = "1200";

/// What runs it.
#[derive(Clone, Debug)]
pub(super) enum Guest {
    /// User-mode Linux.
    Uml,
    /// QEMU, with this kernel: the disk has none.
    Qemu {
        /// The kernel.
        kernel: PathBuf,
    },
}

impl Guest {
    /// Chooses the VMM that really works here. If it is QEMU, reports that, and makes its kernel unless it is
    /// kept.
    pub(super) fn choose(cache: &Cache, bar: &Bar) -> anyhow::Result<Self> {
        bar.spin("trying a guest of User-mode Linux");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let tried = hs_guest::uml::find_kernel(None, &path).map_err(anyhow::Error::from);
        match tried.and_then(|kernel| boot::try_uml(&kernel)) {
            Ok(()) => Ok(Self::Uml),
            Err(why) => Self::qemu(cache, bar, &format!("{why:#}")),
        }
    }

    fn qemu(cache: &Cache, bar: &Bar, why: &str) -> anyhow::Result<Self> {
        let kernel = cache.path(KERNEL);
        let is_kept = cache.has(KERNEL, &root::kernel_stamp());
        let tools: &[tools::Tool] = if is_kept { &[QEMU] } else { &[QEMU, MMDEBSTRAP, UNSHARE] };
        tools::check(tools).with_context(|| format!("User-mode Linux runs no guest here: {why}"))?;
        bar.print(format!(
            "User-mode Linux runs no guest here: {why}.\n\
             The second story is told with QEMU, whose boots take longer."
        ));
        if !is_kept {
            root::make_kernel(cache, KERNEL, bar)?;
        }
        Ok(Self::Qemu { kernel })
    }

    /// What boots, for people.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::Uml => "Debian with systemd, in User-mode Linux",
            Self::Qemu { .. } => "Debian with systemd, in QEMU",
        }
    }

    /// Words of `headstart boot` that choose it.
    pub(super) fn flags(&self) -> Vec<&Path> {
        match self {
            Self::Uml => ["--vmm", "uml"].map(Path::new).into(),
            Self::Qemu { kernel } => {
                let words = ["--vmm", "qemu", "--bus", "nvme", "--ready-timeout", QEMU_PATIENCE, "--kernel"];
                words.map(Path::new).into_iter().chain([kernel.as_path()]).collect()
            }
        }
    }
}
