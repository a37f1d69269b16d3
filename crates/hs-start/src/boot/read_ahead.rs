//! How far the guest's kernel reads ahead in its disk.
//!
//! A kernel reads up to 128 KiB around each page of a file that is missing. That pays where a request is
//! expensive and the next reads are unknown. In a recorded boot they are known, and unneeded read-ahead is
//! recorded, stored and prefetched as well. docs/decisions/045-guest-read-ahead.md has the figures.

use anyhow::bail;
use hs_guest::first_program::{self, FirstProgram};
use hs_guest::uml;
use hs_linux::fsmount::FileSystem;
use hs_serve::Prefetching;

use super::{BootDisk, BootSpec, GuestReadAhead, ShownDisk, Vmm};

/// The read-ahead of a guest whose reads are recorded or known. With less, the guest makes so many requests
/// that the boot is slower even from memory. With more, it reads blocks that it does not use.
const OF_KNOWN_READS_KIB: u32 = 8;
/// Words of the kernel's command line about its root, which our first program does not implement.
const WORDS_OF_ROOT: [&str; 7] = ["root", "rootflags", "rootfstype", "rootdelay", "ro", "rdinit", "init"];
/// Words for the kernel about an initramfs; there would be two.
const WORDS_OF_INITRAMFS: [&str; 2] = ["initrd", "noinitrd"];

/// Why the guest's read-ahead cannot be set, where it would be set. This starts the guest's kernel to find
/// out, so it is not called while the boot is timed.
///
/// # Errors
/// When it cannot be and was asked for.
pub(super) fn obstacle(spec: &BootSpec) -> anyhow::Result<Option<String>> {
    if spec.guest_read_ahead == GuestReadAhead::Kernel {
        return Ok(None);
    }
    let why = obstacle_in(&spec.vmm, &spec.append);
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

/// An initramfs that sets this read-ahead in the guest.
pub(super) fn initramfs(spec: &BootSpec, read_ahead_kib: u32, file_system: FileSystem) -> Vec<u8> {
    FirstProgram { read_ahead_kib, file_system: file_system.name(), init: spec.init.clone() }.initramfs()
}

/// Whether the guest's reads are known, or are being recorded.
fn is_known(spec: &BootSpec, served: &ShownDisk) -> bool {
    let BootDisk::Image(_, config) = &spec.disk else { return false };
    let is_hot = served.image().is_some_and(|disk| disk.image().hot_chunk_count() > 0);
    spec.is_recorded || (is_hot && config.prefetching != Prefetching::Off)
}

fn obstacle_in(vmm: &Vmm, append: &[String]) -> Option<String> {
    let Vmm::Uml { kernel } = vmm else { return Some("--vmm qemu has no way to tell the guest".to_owned()) };
    let is_word = |word: &&String| {
        let key = word.split('=').next().unwrap_or_default();
        WORDS_OF_ROOT.contains(&key) || WORDS_OF_INITRAMFS.contains(&key)
    };
    if let Some(word) = append.iter().find(is_word) {
        return Some(format!("--append {word} has the guest begin in another way"));
    }
    (!first_program::is_possible() || !uml::takes_initramfs(kernel))
        .then(|| format!("{} takes no initramfs", kernel.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_the_way_is_named() {
        let vmm = Vmm::Uml { kernel: "/bin/true".into() };
        let why =
            |words: &[&str]| obstacle_in(&vmm, &words.iter().map(|&word| word.into()).collect::<Vec<_>>());
        for word in ["ro", "rootflags=noatime", "root=/dev/ubdb", "initrd=/boot/initrd.img"] {
            assert!(why(&["quiet", word]).is_some_and(|why| why.contains(word)), "{word}");
        }
        assert!(why(&["rot", "quiet"]).is_some_and(|why| why.contains("/bin/true takes no initramfs")));
    }
}
