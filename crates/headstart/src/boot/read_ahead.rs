//! How far the guest's kernel reads ahead in its disk.
//!
//! A kernel reads up to 128 KiB around each page of a file that is missing. That pays where a request is
//! expensive and the next reads are unknown. In a recorded boot they are known, and unneeded read-ahead is
//! recorded, stored and prefetched as well. docs/decisions/045-guest-read-ahead.md has the figures.

use anyhow::bail;
use hs_guest::first_program::{self, FirstProgram};
use hs_guest::uml;
use hs_serve::Prefetching;
use hs_serve::fsmount::FileSystem;

use super::{BootDisk, BootSpec, Served, Vmm};
use crate::cli::GuestReadAhead;

/// What a guest is told whose reads are recorded, or known: less makes it ask so often that the boot takes
/// longer from memory, more brings more that nobody uses.
const OF_KNOWN_READS_KIB: u32 = 8;
/// Words for the kernel about its root; our first program knows nothing of them.
const WORDS_OF_ROOT: [&str; 7] = ["root", "rootflags", "rootfstype", "rootdelay", "ro", "rdinit", "init"];
/// Words for the kernel about an initramfs; there would be two.
const WORDS_OF_INITRAMFS: [&str; 2] = ["initrd", "noinitrd"];

/// Why the guest cannot be told, if it might be. This starts its kernel, to be asked: not while the clock
/// runs.
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

/// What the guest is told, in KiB, where there is no [`obstacle`]; `None` when that is its kernel's own
/// choice.
pub(super) fn choose(spec: &BootSpec, served: &Served, obstacle: Option<&str>) -> Option<u32> {
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

/// An initramfs for a guest that is told so.
pub(super) fn initramfs(spec: &BootSpec, read_ahead_kib: u32, file_system: FileSystem) -> Vec<u8> {
    FirstProgram { read_ahead_kib, file_system: file_system.name(), init: spec.init.clone() }.initramfs()
}

/// Whether it is, or is about to be, known what the guest will read.
fn is_known(spec: &BootSpec, served: &Served) -> bool {
    let BootDisk::Image(_, config) = &spec.disk else { return false };
    let is_recorded = spec.watch.is_some();
    let is_hot = served.image().is_some_and(|disk| disk.reader().image().hot_chunk_count() > 0);
    is_recorded || (is_hot && config.prefetching != Prefetching::Off)
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
