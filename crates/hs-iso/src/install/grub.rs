//! What GRUB starts on an installed disk, and the sectors by which a BIOS starts GRUB.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail};
use hs_live::boot_state::Slot;
use hs_live::words::{DeviceName, Words};
use hs_units::ByteRange;

use crate::boot_loader::{self, BiosLoader};

/// Bytes of a boot sector's program; the disk's signature and the partition table follow.
pub(super) const CODE_BYTES: usize = 440;
const SECTOR_BYTES: u64 = 512;
/// In GRUB's boot sector: where its core begins, and a jump over a check of the drive's number, which
/// `grub-bios-setup` takes out for disks (include/grub/i386/pc/boot.h).
const KERNEL_SECTOR: usize = 0x5c;
const DRIVE_CHECK: usize = 0x66;
const NOP: u8 = 0x90;
/// In the first sector of the core: where its second one lies.
const FIRST_BLOCK: usize = SECTOR_BYTES as usize - 12;

/// What a disk says whose installation was interrupted.
const INCOMPLETE: &[u8] =
    b"headstart: the installation of this disk was interrupted. Install it again.\r\n\0";
/// Prints the text behind it, by the BIOS, and stops.
const PRINT: [u8; 25] = [
    0x31, 0xc0, // xor ax, ax
    0x8e, 0xd8, // mov ds, ax
    0xfc, // cld
    0xbe, 0x19, 0x7c, // mov si, 0x7c00 + 25
    0xac, // next: lodsb
    0x84, 0xc0, // test al, al
    0x74, 0x09, // jz end
    0xb4, 0x0e, // mov ah, 0x0e
    0xbb, 0x07, 0x00, // mov bx, 7
    0xcd, 0x10, // int 0x10
    0xeb, 0xf2, // jmp next
    0xf4, // end: hlt
    0xeb, 0xfd, // jmp end
];

/// The boot sector's program of a disk that is not complete.
pub(super) fn incomplete() -> [u8; CODE_BYTES] {
    let mut code = [0; CODE_BYTES];
    code[..PRINT.len()].copy_from_slice(&PRINT);
    code[PRINT.len()..PRINT.len() + INCOMPLETE.len()].copy_from_slice(INCOMPLETE);
    code
}

/// Whether a disk begins with that.
pub(super) fn is_incomplete(start: &[u8]) -> bool {
    start.starts_with(&incomplete())
}

/// The boot sector's program and the core for a core that lies in `place`.
pub(super) fn place(loader: &BiosLoader, place: ByteRange) -> anyhow::Result<([u8; CODE_BYTES], Vec<u8>)> {
    let mut core = loader.core.clone();
    if loader.sector.len() < CODE_BYTES || core.len() < SECTOR_BYTES as usize {
        bail!("GRUB's boot sector or its core is too short");
    }
    if core.len() as u64 > place.len {
        bail!("GRUB's core has {} bytes, and its partition {}", core.len(), place.len);
    }
    let first = place.offset / SECTOR_BYTES;
    core[FIRST_BLOCK..FIRST_BLOCK + 8].copy_from_slice(&(first + 1).to_le_bytes());
    let mut code = [0; CODE_BYTES];
    code.copy_from_slice(&loader.sector[..CODE_BYTES]);
    code[KERNEL_SECTOR..KERNEL_SECTOR + 8].copy_from_slice(&first.to_le_bytes());
    code[DRIVE_CHECK..DRIVE_CHECK + 2].fill(NOP);
    Ok((code, core))
}

/// What the menu is made of. It is written once; each slot has words of its own.
pub(super) struct Menu<'a> {
    pub(super) data_uuid: &'a str,
    /// Further words for the kernel.
    pub(super) words: &'a [String],
    pub(super) timeout_s: u32,
}

/// GRUB's script ends a word at a quote, and a menu has lines.
pub(super) fn check_words(words: &[String]) -> anyhow::Result<()> {
    match words.iter().find(|word| word.contains(['\'', '\n'])) {
        Some(word) => bail!("--append {word}: a quote or a new line is no part of a word"),
        None => Ok(()),
    }
}

/// Writes the menu to the boot partition.
pub(super) fn write_menu(boot: &Path, menu: &Menu<'_>) -> anyhow::Result<()> {
    let path = boot.join(boot_loader::FOLDER).join("grub.cfg");
    std::fs::create_dir_all(boot.join(boot_loader::FOLDER)).context("make the boot loader's folder")?;
    std::fs::write(&path, text(menu)).with_context(|| format!("write {}", path.display()))
}

/// A trial restarts when it fails, and is not tried again: it is taken out of the block before it begins.
const CHOICE: &str = "\
load_env good next
if [ \"$good\" != b ]; then set good=a; fi
set slot=$good
set trial=
if [ -n \"$next\" ]; then
  set tried=$next
  set next=
  if save_env next; then
    set slot=$tried
    set trial='panic=10 rd.shell=0 rd.emergency=reboot'
  fi
fi
set other=a
if [ \"$slot\" = a ]; then set other=b; fi
source /slots/$slot/boot.cfg
";

fn text(menu: &Menu<'_>) -> String {
    // The last console is the one that programs write to.
    let mut append = "console=ttyS0,115200 console=tty0".to_owned();
    menu.words.iter().for_each(|word| append.extend([" ", word]));
    let mut text = boot_loader::opening(menu.timeout_s);
    let _ = write!(text, "set fallback=1\n{CHOICE}set append='{append}'\n");
    let mut entry = |title: &str, before: &str, slot: &str, more: &str| {
        let _ = write!(
            text,
            "menuentry \"{title}\" {{\n{before}  linux /slots/${slot}/vmlinuz $words $append{more}\n  \
             initrd /slots/${slot}/initrd.img\n}}\n"
        );
    };
    entry("$title", "", "slot", " $trial");
    entry("The system in slot $other", "  source /slots/$other/boot.cfg\n", "other", "");
    entry("$title, without prefetch", "", "slot", " headstart.prefetch=off");
    let record = format!(" headstart.record=UUID={}", menu.data_uuid);
    entry("$title, and record what it reads", "", "slot", &record);
    text
}

/// What belongs to one slot: its own words for the kernel.
pub(super) struct SlotWords<'a> {
    pub(super) slot: Slot,
    pub(super) image_digest: &'a str,
    pub(super) writes: &'a str,
    pub(super) data_uuid: &'a str,
    pub(super) boot_uuid: &'a str,
}

impl SlotWords<'_> {
    /// The words.
    fn words(&self) -> String {
        let Self { slot, image_digest, writes, data_uuid, boot_uuid } = self;
        format!(
            "root=headstart:UUID={data_uuid}#{image_digest} headstart.image=/{} headstart.keep=/{writes} \
             headstart.slot={slot} headstart.boot=UUID={boot_uuid}",
            super::slots::image_path(*slot)
        )
    }

    /// The script that sets them.
    pub(super) fn script(&self) -> String {
        let shown = self.image_digest.get(..12).unwrap_or(self.image_digest);
        format!("set title='headstart, slot {} ({shown})'\nset words='{}'\n", self.slot, self.words())
    }
}

/// The slot of the system that runs, when it runs from the disk with this boot partition.
pub(super) fn running_slot(command_line: &str, boot_uuid: &str) -> Option<Slot> {
    let words = Words::parse(command_line).ok()?;
    let is_this = words
        .boot
        .is_some_and(|boot| matches!(boot, DeviceName::Uuid(uuid) if uuid.eq_ignore_ascii_case(boot_uuid)));
    words.slot.filter(|_| is_this)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initramfs_understands_the_words_of_a_slot() {
        let slot = SlotWords {
            slot: Slot::B,
            image_digest: "hs1-0123456789abcdef",
            writes: "writes/ab.hsk",
            data_uuid: "d-1",
            boot_uuid: "12AB-34CD",
        };
        let words = Words::parse(&slot.words()).expect("words");
        assert_eq!(words.place.to_string(), "UUID=d-1#hs1-0123456789abcdef");
        assert_eq!((words.image_path.as_str(), words.slot), ("/slots/b/root.hsi", Some(Slot::B)));
        assert_eq!(words.keep.as_deref(), Some("/writes/ab.hsk"));
        assert!(words.unknown.is_empty(), "{words:?}");
        assert_eq!(running_slot(&slot.words(), "12ab-34cd"), Some(Slot::B));
        assert_eq!(running_slot(&slot.words(), "FFFF-FFFF"), None);
        assert_eq!(running_slot("root=/dev/sda1", "12AB-34CD"), None);
    }

    #[test]
    fn the_menu_is_a_script_of_grub() {
        let words = ["quiet".to_owned()];
        let menu = text(&Menu { data_uuid: "d-1", words: &words, timeout_s: 3 });
        assert!(menu.contains("console=tty0 quiet'\n") && menu.contains("set timeout=3\n"), "{menu}");
        assert!(menu.contains("linux /slots/$slot/vmlinuz $words $append $trial\n"), "{menu}");
        assert_eq!(menu.matches("menuentry ").count(), 4);
        if !hs_testing::machine_has(&["grub-script-check"]) {
            return;
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &menu).expect("written");
        let checked = std::process::Command::new("grub-script-check").arg(file.path()).status();
        assert!(checked.expect("it starts").success());
        assert!(check_words(&["a'b".to_owned()]).is_err());
    }

    #[test]
    fn a_core_is_found_where_it_lies() {
        let loader = BiosLoader { sector: vec![7; 512], core: vec![9; 1024] };
        let (code, core) = place(&loader, ByteRange::new(1 << 20, 1 << 20)).expect("placed");
        assert_eq!(code[KERNEL_SECTOR..KERNEL_SECTOR + 8], 2048_u64.to_le_bytes());
        assert_eq!(core[FIRST_BLOCK..FIRST_BLOCK + 8], 2049_u64.to_le_bytes());
        assert!(place(&loader, ByteRange::new(1 << 20, 512)).is_err());
        assert!(place(&BiosLoader { core: vec![], ..loader }, ByteRange::new(1 << 20, 512)).is_err());
    }

    #[test]
    fn an_incomplete_disk_says_so() {
        assert!(is_incomplete(&incomplete()) && !is_incomplete(&[0; 512]) && !is_incomplete(&[]));
        // The program prints what lies behind it, to its zero.
        assert!(incomplete()[PRINT.len()..].starts_with(b"headstart: "));
        assert_eq!(usize::from(PRINT[6]), PRINT.len());
    }
}
