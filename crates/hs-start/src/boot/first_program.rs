//! The guest's first program: what it is to do, and whether the guest can begin with it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use hs_guest::first_program::{self, FirstProgram, GuestRoot};
use hs_guest::uml;
use hs_linux::Volume;

use super::qemu::{KernelOf, QemuSpec};
use super::{BootSpec, Vmm};

/// Words of the kernel's command line about its root, which our first program does not implement.
const WORDS_OF_ROOT: [&str; 6] = ["root", "rootflags", "rootfstype", "rootdelay", "ro", "init"];
/// Words for the kernel about an initramfs; there would be two.
const WORDS_OF_INITRAMFS: [&str; 3] = ["rdinit", "initrd", "noinitrd"];
/// The serial line on which a guest tells of its processes: the console of QEMU's guests is the first.
const LINE_OF_UML: u32 = 0;
const LINE_OF_QEMU: u32 = 1;

/// Why a guest cannot begin with it: of User-mode Linux with this kernel, which has no other, or of QEMU.
pub(super) fn obstacle(kernel_of_uml: Option<&Path>, append: &[String]) -> Option<String> {
    let words = if kernel_of_uml.is_some() { &WORDS_OF_ROOT[..] } else { &[] };
    let is_word = |word: &&String| {
        let key = word.split('=').next().unwrap_or_default();
        words.contains(&key) || WORDS_OF_INITRAMFS.contains(&key)
    };
    if let Some(word) = append.iter().find(is_word) {
        return Some(format!("--append {word} has the guest begin in another way"));
    }
    let Some(kernel) = kernel_of_uml else {
        return (!first_program::is_possible()).then(|| "it is made for other processors".to_owned());
    };
    (!first_program::is_possible() || !uml::takes_initramfs(kernel))
        .then(|| format!("{} takes no initramfs", kernel.display()))
}

/// Whether the guest is to tell of its processes, and can.
pub(super) fn is_watched(spec: &BootSpec) -> bool {
    if spec.processes.is_none() {
        return false;
    }
    let obstacle = match &spec.vmm {
        Vmm::Uml { kernel } => obstacle(Some(kernel), &spec.append),
        Vmm::Qemu(_) if spec.save.is_some() => Some("it is saved as it is".to_owned()),
        Vmm::Qemu(_) if spec.records_itself() => {
            Some("it gives its profile on the serial line on which it would tell of them".to_owned())
        }
        // Its initramfs is asked.
        Vmm::Qemu(QemuSpec { kernel: KernelOf::Medium { .. }, .. }) => None,
        Vmm::Qemu(_) => obstacle(None, &spec.append),
    };
    if let Some(why) = &obstacle {
        say_unwatched(why);
    }
    obstacle.is_none()
}

/// The guest does not tell of its processes.
pub(super) fn say_unwatched(why: &str) {
    log::warn!("the trace has no processes of the guest, but those that run it: {why}");
}

/// That of a guest of User-mode Linux, where it has something to do.
pub(super) fn of_uml(
    spec: &BootSpec,
    read_ahead_kib: Option<u32>,
    root: &Volume,
    is_watched: bool,
) -> Option<FirstProgram> {
    let (file_system, partition) = (root.file_system.name(), root.partition);
    let root = GuestRoot { read_ahead_kib, file_system, partition, init: spec.init.clone() };
    let watch = is_watched.then_some(LINE_OF_UML);
    (is_watched || read_ahead_kib.is_some()).then_some(FirstProgram { root: Some(root), watch })
}

/// Writes an initial RAM disk that begins with it, and goes on to `initrd`.
pub(super) fn before(initrd: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let mut archive = FirstProgram { root: None, watch: Some(LINE_OF_QEMU) }.initramfs();
    let read = || format!("read {}", initrd.display());
    archive.extend(std::fs::read(initrd).with_context(read)?);
    let path = folder.join("watched-initrd");
    std::fs::write(&path, archive).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_the_way_is_named() {
        let why = |kernel: Option<&str>, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.into()).collect();
            obstacle(kernel.map(Path::new), &words)
        };
        let uml = Some("/bin/true");
        for word in ["ro", "rootflags=noatime", "root=/dev/ubdb", "initrd=/boot/initrd.img"] {
            assert!(why(uml, &["quiet", word]).is_some_and(|why| why.contains(word)), "{word}");
        }
        assert!(why(uml, &["rot", "quiet"]).is_some_and(|why| why.contains("/bin/true takes no initramfs")));
        assert_eq!(why(None, &["ro", "root=/dev/vda1"]).is_some(), !first_program::is_possible());
        assert!(why(None, &["rdinit=/bin/sh"]).is_some());
    }
}
