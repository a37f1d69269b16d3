//! How far the guest's kernel reads ahead in its disk.
//!
//! A kernel reads up to 128 KiB around each page of a file that is missing. That pays where a request is
//! expensive and the next reads are unknown. In a recorded boot they are known, and unneeded read-ahead is
//! recorded, stored and prefetched as well. docs/decisions/045-guest-read-ahead.md has the figures.

use anyhow::bail;
use hs_serve::Prefetching;

use super::{BootDisk, BootSpec, GuestReadAhead, ShownDisk, Vmm, first_program};

/// The read-ahead of a guest whose reads are recorded or known. With less, the guest makes so many requests
/// that the boot is slower even from memory. With more, it reads blocks that it does not use.
const OF_KNOWN_READS_KIB: u32 = 8;
/// Why the guest's read-ahead cannot be set, where it would be set. This starts the guest's kernel to find
/// out, so it is not called while the boot is timed.
///
/// # Errors
/// When it cannot be and was asked for.
pub(super) fn obstacle(spec: &BootSpec) -> anyhow::Result<Option<String>> {
    if spec.guest_read_ahead == GuestReadAhead::Kernel {
        return Ok(None);
    }
    let why = match &spec.vmm {
        Vmm::Uml { kernel } => first_program::obstacle(Some(kernel), &spec.append),
        Vmm::Qemu(_) if spec.records_itself() && !spec.records_read_ahead() => return Ok(None),
        Vmm::Qemu(_) => Some("--vmm qemu has no way to tell the guest".to_owned()),
    };
    match (&why, spec.guest_read_ahead) {
        (Some(why), GuestReadAhead::Kib(_)) => {
            bail!("--guest-read-ahead: {why}; leave it to the guest's kernel with --guest-read-ahead kernel")
        }
        _ => Ok(why),
    }
}

/// The guest's read-ahead in KiB, where there is no [`obstacle`]; `None` for its kernel's own.
pub(super) fn choose(spec: &BootSpec, served: &ShownDisk, obstacle: Option<&str>) -> Option<u32> {
    let asked = match spec.guest_read_ahead {
        GuestReadAhead::Kernel => return None,
        GuestReadAhead::Auto if !is_known(spec, served) => return None,
        GuestReadAhead::Auto => OF_KNOWN_READS_KIB,
        GuestReadAhead::Kib(kib) => kib,
    };
    if let Some(why) = obstacle {
        log::info!("the guest's read-ahead is its kernel's own: {why}");
    }
    obstacle.is_none().then_some(asked)
}

/// Whether the guest's reads are known, or are being recorded.
fn is_known(spec: &BootSpec, served: &ShownDisk) -> bool {
    let BootDisk::Image(_, config) = &spec.disk else { return false };
    let is_hot = served.image().is_some_and(|disk| disk.image().hot_chunk_count() > 0);
    spec.is_recorded || (is_hot && config.prefetching != Prefetching::Off)
}
