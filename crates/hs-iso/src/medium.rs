//! From a tree of files to a hybrid ISO: xorriso's emulation of mkisofs.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use anyhow::Context;
use hs_units::ByteSize;

use crate::boot_loader::Loaders;
use crate::tools::XORRISO;

/// Files in the order in which a start reads them: a disc is read from the inside out, and needs no seek.
/// The loader for UEFI is a partition behind them.
const ORDER: [&str; 5] =
    [FILL, "/boot/grub/bios.img", "/boot/grub/grub.cfg", "/boot/vmlinuz", "/boot/initrd.img"];
/// What nothing reads: with it in front, all others lie at the outer edge of a disc.
const FILL: &str = "/.fill";
const SECTOR_BYTES: u64 = 2_048;
/// The first sector of the partition with the medium's file system. That can be mounted from there and from
/// the whole medium; but where it is mounted from the whole, other partitions cannot be used.
const PARTITION_SECTOR: &str = "16";
/// The type of a partition from which UEFI starts (UEFI specification 2.10, table 5-8).
const EFI_SYSTEM_PARTITION: &str = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B";
/// The structures of ISO 9660, beside its files.
const STRUCTURES_BYTES: u64 = 2 << 20;

/// Fills a disc of so many bytes with a file of zeros. A drive that turns at one speed reads the outer edge
/// more than twice as fast as the inner one.
pub(crate) fn fill(tree: &Path, loaders: &Loaders, disc_bytes: u64) -> anyhow::Result<()> {
    let free_bytes = check_fits(tree, loaders, disc_bytes)?;
    let path = tree.join(&FILL[1..]);
    let file = File::create(&path).and_then(|file| file.set_len(free_bytes & !(SECTOR_BYTES - 1)));
    file.with_context(|| format!("make {}", path.display()))
}

/// Checks that the medium fits on a disc of so many bytes; gives how many are left.
pub(crate) fn check_fits(tree: &Path, loaders: &Loaders, disc_bytes: u64) -> anyhow::Result<u64> {
    let files = used_bytes(tree).context("count what is on the medium")?;
    let partition = match &loaders.uefi {
        Some(file) => file.metadata().context("look at the loader for UEFI")?.len(),
        None => 0,
    };
    let used = STRUCTURES_BYTES + files + partition;
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
    add(&["-partition_offset", PARTITION_SECTOR]);
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
        words.extend(["--grub2-mbr".into(), hybrid.into(), "--mbr-force-bootable".into()]);
    }
    if let Some(uefi) = &loaders.uefi {
        // Firmware finds it on a disc by El Torito, on a stick as a partition.
        words.extend(["-append_partition".into(), "2".into(), EFI_SYSTEM_PARTITION.into(), uefi.into()]);
        let mut add = |text: &[&str]| words.extend(text.iter().map(OsString::from));
        // The partition lies behind the files, where padding is for.
        add(&["-appended_part_as_gpt", "-no-pad"]);
        if loaders.bios.is_some() {
            add(&["-eltorito-alt-boot"]);
        }
        add(&["-e", "--interval:appended_partition_2:all::", "-no-emul-boot"]);
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
            uefi: Some("/scratch/efi.img".into()),
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
