//! The boot loaders of a medium: GRUB for BIOS, and for UEFI the distribution's signed shim and GRUB where
//! they are installed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::tools::{GRUB, MCOPY, MKFS_FAT, MMD};

/// GRUB's folder on a medium; signed ones look for their configuration there.
pub(crate) const FOLDER: &str = "boot/grub";
/// What GRUB can do before it reads a file, on every firmware.
const MODULES: [&str; 12] = [
    "iso9660",
    "part_msdos",
    "part_gpt",
    "normal",
    "linux",
    "search",
    "search_label",
    "search_fs_file",
    "configfile",
    "serial",
    "echo",
    "test",
];
/// What it needs besides on an installed disk.
const DISK_MODULES: [&str; 3] = ["ext2", "loadenv", "search_fs_uuid"];
/// What it needs besides for BIOS, and for UEFI.
const BIOS_MODULES: [&str; 1] = ["biosdisk"];
const UEFI_MODULES: [&str; 2] = ["fat", "efi_gop"];
const BIOS: &str = "/usr/lib/grub/i386-pc";
const UEFI: &str = "/usr/lib/grub/x86_64-efi";
/// Signed loaders, as Debian and Ubuntu have them.
const SHIM: &str = "/usr/lib/shim/shimx64.efi.signed";
const SIGNED_GRUB: &str = "/usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed";
/// shim's program for keys of the machine's owner.
const MOK_MANAGER: &str = "/usr/lib/shim/mmx64.efi.signed";
/// Room for the tables of a FAT beside the files.
const FAT_SLACK_KIB: u64 = 512;

/// The entries of the boot menu.
pub(crate) struct Menu<'a> {
    /// The name of the system.
    pub(crate) title: &'a str,
    /// The kernel's command line.
    pub(crate) words: &'a str,
    /// How long the menu waits.
    pub(crate) timeout_s: u32,
}

/// The configuration of GRUB.
pub(crate) fn configuration(menu: &Menu<'_>) -> String {
    // A quote would end the title.
    let title = menu.title.replace(['\'', '\n'], " ");
    let mut text = opening(menu.timeout_s);
    let words = quoted(menu.words);
    let entries = [
        (title.clone(), ""),
        (format!("{title}, without prefetch"), " headstart.prefetch=off"),
        ("Check this medium".to_owned(), " headstart.verify"),
    ];
    for (title, more) in entries {
        let _ = write!(
            text,
            "menuentry '{title}' {{\n  linux /boot/vmlinuz {words}{more}\n  initrd /boot/initrd.img\n}}\n"
        );
    }
    text
}

/// Words of the kernel as GRUB's script takes them. Double quotes hold a word together, as for the kernel,
/// whose command line GRUB writes with them again.
fn quoted(words: &str) -> String {
    let mut is_inside = false;
    let split = words.split(|letter: char| {
        is_inside ^= letter == '"';
        letter.is_ascii_whitespace() && !is_inside
    });
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "=:.,/_@%+#-".contains(letter);
    let word = |word: &str| match word.replace('"', "") {
        plain if plain.chars().all(is_plain) && !plain.starts_with('#') => plain,
        other => format!("'{other}'"),
    };
    split.filter(|part| !part.is_empty()).map(word).collect::<Vec<_>>().join(" ")
}

/// Refuses words that GRUB's script cannot give to the kernel as they are.
pub(crate) fn check_words(words: &[String]) -> anyhow::Result<()> {
    let is_wrong = |word: &&String| {
        word.contains(['\'', '\\']) || word.contains(char::is_control) || word.matches('"').count() % 2 == 1
    };
    match words.iter().find(is_wrong) {
        Some(word) => bail!(
            "--append {word:?}: GRUB cannot pass on single quotes, backslashes, control characters, or one double \
             quote alone"
        ),
        None => Ok(()),
    }
}

/// How a configuration begins: the first entry after so many seconds, also on a serial port.
pub(crate) fn opening(timeout_s: u32) -> String {
    format!(
        "set default=0\nset timeout={timeout_s}\n\
         if serial --unit=0 --speed=115200; then\n  terminal_input console serial\n  terminal_output console serial\nfi\n"
    )
}

/// What a medium can be started by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loaders {
    /// The first sectors of a hybrid medium, for BIOS.
    pub(crate) hybrid: Option<PathBuf>,
    /// The loader for BIOS, in the tree.
    pub(crate) bios: Option<&'static str>,
    /// The file system with the loaders for UEFI. It has a partition of its own.
    pub(crate) uefi: Option<PathBuf>,
    /// Whether UEFI starts it also where Secure Boot is on.
    pub(crate) is_signed: bool,
}

/// Whether this machine has a boot loader for any firmware.
pub(crate) fn is_there() -> bool {
    has_bios() || has_signed() || Path::new(UEFI).is_dir()
}

fn has_bios() -> bool {
    Path::new(BIOS).join("cdboot.img").is_file()
}

fn has_signed() -> bool {
    [SHIM, SIGNED_GRUB].iter().all(|file| Path::new(file).is_file())
}

/// Puts the boot loaders that this machine has into a tree, and what is not in it into `scratch`.
pub(crate) fn install(tree: &Path, scratch: &Path, menu: &Menu<'_>) -> anyhow::Result<Loaders> {
    let folder = tree.join(FOLDER);
    std::fs::create_dir_all(&folder).context("make the boot loader's folder")?;
    std::fs::write(folder.join("grub.cfg"), configuration(menu)).context("write grub.cfg")?;
    let mut loaders = Loaders::default();
    if has_bios() {
        bios(&folder)?;
        loaders.bios = Some("boot/grub/bios.img");
        loaders.hybrid = Some(Path::new(BIOS).join("boot_hybrid.img")).filter(|file| file.is_file());
    }
    if let Some(files) = uefi(tree, scratch, menu.title, BY_FILE, &UEFI_MODULES)? {
        loaders.uefi = Some(fat(scratch, &files)?);
        loaders.is_signed = has_signed();
    }
    Ok(loaders)
}

/// The files for UEFI's folder, if this machine has some.
fn uefi(
    tree: &Path,
    scratch: &Path,
    title: &str,
    early: &str,
    modules: &[&str],
) -> anyhow::Result<Option<Vec<(&'static str, PathBuf)>>> {
    if has_signed() {
        let signed = [("BOOTX64.EFI", SHIM), ("grubx64.efi", SIGNED_GRUB), ("mmx64.efi", MOK_MANAGER)];
        let present = signed.into_iter().filter(|(_, file)| Path::new(file).is_file());
        // By this file signed GRUBs of Debian know their medium.
        std::fs::create_dir_all(tree.join(".disk")).context("make .disk")?;
        std::fs::write(tree.join(".disk/info"), format!("{title}\n")).context("write .disk/info")?;
        return Ok(Some(present.map(|(name, file)| (name, file.into())).collect()));
    }
    if !Path::new(UEFI).is_dir() {
        return Ok(None);
    }
    let grub = scratch.join("BOOTX64.EFI");
    image(UEFI, "x86_64-efi", early, modules, scratch, &grub)?;
    Ok(Some(vec![("BOOTX64.EFI", grub)]))
}

/// What a BIOS starts a disk by.
#[derive(Clone, Debug)]
pub(crate) struct BiosLoader {
    /// The program of the first sector.
    pub(crate) sector: Vec<u8>,
    /// What that loads.
    pub(crate) core: Vec<u8>,
}

/// What an installed disk can be started by.
#[derive(Debug)]
pub(crate) struct ForDisk {
    /// For BIOS, to be placed.
    pub(crate) bios: Option<BiosLoader>,
    /// The file system for the EFI partition.
    pub(crate) uefi: Option<PathBuf>,
    /// Whether UEFI starts it also where Secure Boot is on.
    pub(crate) is_signed: bool,
}

/// Makes the loaders of a disk. The file system with this UUID, which is mounted at `boot`, has the
/// configuration.
pub(crate) fn for_disk(boot: &Path, scratch: &Path, boot_uuid: &str) -> anyhow::Result<ForDisk> {
    let early = format!("search --fs-uuid --set=root {boot_uuid}\nset prefix=($root)/{FOLDER}\n");
    let modules = |more: &[&'static str]| [&DISK_MODULES[..], more].concat();
    let mut bios = None;
    if has_bios() {
        let core = scratch.join("core.img");
        image(BIOS, "i386-pc", &early, &modules(&BIOS_MODULES), scratch, &core)?;
        let sector = std::fs::read(Path::new(BIOS).join("boot.img")).context("read GRUB's boot.img")?;
        bios = Some(BiosLoader { sector, core: std::fs::read(core).context("read GRUB's core")? });
    }
    let files = uefi(boot, scratch, "headstart", &early, &modules(&UEFI_MODULES))?;
    let uefi = files.map(|files| fat(scratch, &files)).transpose()?;
    Ok(ForDisk { bios, is_signed: uefi.is_some() && has_signed(), uefi })
}

/// GRUB for BIOS: the code that reads itself from a disc, and its core.
fn bios(folder: &Path) -> anyhow::Result<()> {
    let core = folder.join("bios.img");
    image(BIOS, "i386-pc", BY_FILE, &BIOS_MODULES, folder, &core)?;
    let mut loader = std::fs::read(Path::new(BIOS).join("cdboot.img")).context("read GRUB's cdboot.img")?;
    loader.extend(std::fs::read(&core).context("read GRUB's core")?);
    std::fs::write(&core, loader).context("write GRUB")
}

/// A core finds its folder on the medium it comes from, or else by a file.
const BY_FILE: &str = "if [ ! -e $prefix/grub.cfg ]; then\n  search --file --set=root /boot/grub/grub.cfg\n  \
                       set prefix=($root)/boot/grub\nfi\n";

/// A core of GRUB whose first configuration is `first`.
fn image(
    from: &str,
    format: &str,
    first: &str,
    modules: &[&str],
    scratch: &Path,
    output: &Path,
) -> anyhow::Result<()> {
    let early = scratch.join("early.cfg");
    std::fs::write(&early, first).context("write GRUB's first configuration")?;
    let mut arguments: Vec<std::ffi::OsString> =
        ["-O", format, "-d", from, "-p", "/boot/grub", "-c"].map(Into::into).to_vec();
    arguments.push(early.clone().into());
    arguments.push("-o".into());
    arguments.push(output.into());
    arguments.extend(MODULES.iter().chain(modules).map(Into::into));
    let made = GRUB.run(&arguments);
    std::fs::remove_file(&early).context("remove a draft")?;
    made
}

/// A FAT file system with these files in `EFI/BOOT`.
fn fat(scratch: &Path, files: &[(&str, PathBuf)]) -> anyhow::Result<PathBuf> {
    let mut kib = FAT_SLACK_KIB;
    for (_, file) in files {
        kib += file.metadata().with_context(|| format!("look at {}", file.display()))?.len().div_ceil(1024);
    }
    let output = scratch.join("efi.img");
    let at = output.clone().into_os_string();
    // A fixed serial number: the same input makes the same medium.
    let size = kib.to_string();
    MKFS_FAT.run([
        &"-C".into(),
        &"-n".into(),
        &"ESP".into(),
        &"-i".into(),
        &"48530001".into(),
        &at,
        &size.into(),
    ])?;
    MMD.run([&"-i".into(), &at, &"::/EFI".into(), &"::/EFI/BOOT".into()])?;
    for (name, file) in files {
        let to = format!("::/EFI/BOOT/{name}");
        MCOPY.run([&"-i".into(), &at, file.as_os_str(), to.as_ref()])?;
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_menu_starts_and_checks() {
        let menu = Menu { title: "Kim's system", words: "root=headstart:LABEL=A quiet", timeout_s: 3 };
        let text = configuration(&menu);
        assert!(text.contains("menuentry 'Kim s system' {"), "{text}");
        assert!(text.contains("linux /boot/vmlinuz root=headstart:LABEL=A quiet\n"), "{text}");
        assert!(text.contains("quiet headstart.verify\n") && text.contains("set timeout=3\n"), "{text}");
    }

    #[test]
    fn words_reach_the_kernel_as_they_are() {
        let words = "root=headstart:LABEL=A#hs1-ab a;b {c} x=$y #d quiet  splash dyndbg=\"file a.c +p\" e|f";
        let script = quoted(words);
        assert_eq!(
            script,
            "root=headstart:LABEL=A#hs1-ab 'a;b' '{c}' 'x=$y' '#d' quiet splash 'dyndbg=file a.c +p' 'e|f'"
        );
        check_words(&[words.to_owned()]).expect("right");
        for bad in ["it's", r"a\b", "a\nb", "a\"b"] {
            check_words(&[bad.to_owned()]).expect_err(bad);
        }
    }
}
