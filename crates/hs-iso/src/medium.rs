//! From a tree of files to a hybrid ISO: xorriso's emulation of mkisofs.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use anyhow::Context;
use hs_units::ByteSize;

use crate::boot_loader::Loaders;
use crate::tools::XORRISO;

/// Files in the order in which a start reads them: a disc is read from the inside out, and needs no seek.
const ORDER: [&str; 6] = [
    FILL,
    "/boot/grub/bios.img",
    "/boot/grub/efi.img",
    "/boot/grub/grub.cfg",
    "/boot/vmlinuz",
    "/boot/initrd.img",
];
/// What nothing reads: with it in front, all others lie at the outer edge of a disc.
const FILL: &str = "/.fill";
const SECTOR_BYTES: u64 = 2_048;
/// The structures of ISO 9660, beside its files.
const STRUCTURES_BYTES: u64 = 2 << 20;

/// Fills a disc of so many bytes with a file of zeros. A drive that turns at one speed reads the outer edge
/// more than twice as fast as the inner one.
pub(crate) fn fill(tree: &Path, disc_bytes: u64) -> anyhow::Result<()> {
    let free_bytes = check_fits(tree, disc_bytes)?;
    let path = tree.join(&FILL[1..]);
    let file = File::create(&path).and_then(|file| file.set_len(free_bytes & !(SECTOR_BYTES - 1)));
    file.with_context(|| format!("make {}", path.display()))
}

/// Checks that the medium fits on a disc of so many bytes; gives how many are left.
pub(crate) fn check_fits(tree: &Path, disc_bytes: u64) -> anyhow::Result<u64> {
    let used = STRUCTURES_BYTES + used_bytes(tree).context("count what is on the medium")?;
    if used > disc_bytes {
        let (used, disc) = (ByteSize(used), ByteSize(disc_bytes));
        anyhow::bail!("the medium has {used}, and a disc of {disc} was named: --disc");
    }
    Ok(disc_bytes - used)
}

/// Bytes of the sectors of all files.
pub(crate) fn used_bytes(folder: &Path) -> std::io::Result<u64> {
    let mut sum = 0;
    for entry in folder.read_dir()? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() {
            used_bytes(&entry.path())?
        } else {
            metadata.len().next_multiple_of(SECTOR_BYTES)
        };
    }
    Ok(sum)
}

/// Writes the medium.
pub(crate) fn write(tree: &Path, label: &str, loaders: &Loaders, output: &Path) -> anyhow::Result<()> {
    let order: Vec<_> = ORDER.into_iter().filter(|path| tree.join(&path[1..]).exists()).collect();
    XORRISO.run(arguments(tree, label, &order, loaders, output))
}

fn arguments(tree: &Path, label: &str, order: &[&str], loaders: &Loaders, output: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |text: &[&str]| words.extend(text.iter().map(OsString::from));
    add(&["-as", "mkisofs", "-quiet", "-r", "-iso-level", "3", "-V", label]);
    for (weight, path) in (1..=order.len()).rev().zip(order) {
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
        let words = arguments(Path::new("/tree"), "A", &ORDER, &loaders, Path::new("/x.iso"));
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let weight = |path: &str| {
            let at = words.iter().position(|word| word == path).expect(path);
            words[at - 1].parse::<u32>().expect("a weight")
        };
        assert!(weight("/boot/vmlinuz") > weight("/boot/initrd.img"));
        assert!(weight(FILL) > weight("/boot/grub/bios.img"));
        assert_eq!(words[words.len() - 3..], ["-o", "/x.iso", "/tree"]);
        // Without a loader for BIOS that for UEFI is the first.
        let alone = arguments(
            Path::new("/t"),
            "A",
            &[],
            &Loaders { bios: None, hybrid: None, ..loaders },
            Path::new("/x"),
        );
        assert!(!alone.contains(&"-eltorito-alt-boot".into()) && alone.contains(&"-e".into()));
    }
}
