//! From a tree of files to a hybrid ISO: xorriso's emulation of mkisofs.

use std::ffi::OsString;
use std::path::Path;

use crate::boot_loader::Loaders;
use crate::tools::XORRISO;

/// Files in the order in which a start reads them: a disc is read from the inside out, and needs no seek.
const ORDER: [&str; 5] =
    ["/boot/grub/bios.img", "/boot/grub/efi.img", "/boot/grub/grub.cfg", "/boot/vmlinuz", "/boot/initrd.img"];

/// Writes the medium.
pub(crate) fn write(tree: &Path, label: &str, loaders: &Loaders, output: &Path) -> anyhow::Result<()> {
    XORRISO.run(arguments(tree, label, loaders, output))
}

fn arguments(tree: &Path, label: &str, loaders: &Loaders, output: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |text: &[&str]| words.extend(text.iter().map(OsString::from));
    add(&["-as", "mkisofs", "-quiet", "-r", "-iso-level", "3", "-V", label]);
    for (weight, path) in (1..=ORDER.len()).rev().zip(ORDER) {
        add(&["--sort-weight", &weight.to_string(), path]);
    }
    if let Some(bios) = loaders.bios {
        add(&[
            "-b",
            bios,
            "-c",
            "boot/boot.cat",
            "-no-emul-boot",
            "-boot-load-size",
            "4",
            "-boot-info-table",
        ]);
        add(&["--grub2-boot-info"]);
    }
    if let Some(hybrid) = &loaders.hybrid {
        words.extend(["--grub2-mbr".into(), hybrid.into()]);
    }
    let mut add = |text: &[&str]| words.extend(text.iter().map(OsString::from));
    if let Some(uefi) = loaders.uefi {
        if loaders.bios.is_some() {
            add(&["-eltorito-alt-boot"]);
        }
        add(&["-e", uefi, "-no-emul-boot", "-isohybrid-gpt-basdat"]);
    }
    words.extend(["-o".into(), output.into(), tree.into()]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_read_first_come_first() {
        let loaders = Loaders {
            bios: Some("boot/grub/bios.img"),
            uefi: Some("boot/grub/efi.img"),
            hybrid: Some("/usr/lib/grub/i386-pc/boot_hybrid.img".into()),
            is_signed: false,
        };
        let words = arguments(Path::new("/tree"), "A", &loaders, Path::new("/x.iso"));
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let weight = |path: &str| {
            let at = words.iter().position(|word| word == path).expect(path);
            words[at - 1].parse::<u32>().expect("a weight")
        };
        assert!(weight("/boot/vmlinuz") > weight("/boot/initrd.img"));
        assert_eq!(words[words.len() - 3..], ["-o", "/x.iso", "/tree"]);
        // Without a loader for BIOS that for UEFI is the first.
        let alone = arguments(
            Path::new("/t"),
            "A",
            &Loaders { bios: None, hybrid: None, ..loaders },
            Path::new("/x"),
        );
        assert!(!alone.contains(&"-eltorito-alt-boot".into()) && alone.contains(&"-e".into()));
    }
}
