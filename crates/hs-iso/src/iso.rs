//! A bootable medium, from a directory or an image.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_live::words::IMAGE_PATH;
use hs_output::show::Bar;
use hs_service::signals::Ends;
use hs_start::open::open_image;
use serde::Serialize;

use crate::boot_loader::{self, Loaders, Menu};
use crate::disc::{Disc, DiscPlace};
use crate::drafts::{Drafts, Left};
use crate::parts::{INITRD, KERNEL, SystemSpec};
use crate::{medium, tools};

/// What ISO 9660 has room for.
const MOST_LABEL_CHARACTERS: usize = 32;

/// A medium to be made.
#[derive(Clone, Debug)]
pub struct IsoSpec {
    /// The system.
    pub system: SystemSpec,
    /// The medium.
    pub output: PathBuf,
    /// Its label, by which the initramfs finds it.
    pub label: String,
    /// Further words for the kernel.
    pub append: Vec<String>,
    /// How long the boot menu waits, in seconds.
    pub timeout_s: u32,
    /// The disc that it is written to.
    pub disc: Option<Disc>,
}

/// What was made.
#[derive(Clone, Debug, Serialize)]
pub struct Made {
    /// The medium.
    pub iso: String,
    /// Its bytes.
    pub iso_bytes: u64,
    /// Bytes of the image on it.
    pub image_bytes: u64,
    /// Bytes of the kernel.
    pub kernel_bytes: u64,
    /// Bytes of the initramfs.
    pub initrd_bytes: u64,
    /// The version of the kernel, when it is the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_version: Option<String>,
    /// The image's name.
    pub image_digest: String,
    /// The label.
    pub label: String,
    /// The kernel's command line.
    pub command_line: String,
    /// What the model of the disc's drive says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disc: Option<DiscPlace>,
    /// Starts on BIOS.
    pub bios: bool,
    /// Starts on UEFI.
    pub uefi: bool,
    /// Starts where Secure Boot is on.
    pub secure_boot: bool,
}

/// Makes the medium. Call `hs_linux::rootenv::enter_private_mounts` before. `signals` end the process, and
/// leave nothing.
///
/// # Errors
/// When a tool or a part of the system is missing, or one fails; the output is whole or not there.
pub fn make(spec: &IsoSpec, quiet: bool, signals: Ends) -> anyhow::Result<Made> {
    tools::check(spec.system.directory().is_some())?;
    check_label(&spec.label)?;
    boot_loader::check_words(&spec.append)?;
    let folder =
        spec.output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    check_outside(&spec.system, folder, &spec.output)?;
    let work = tempfile::Builder::new().prefix(".headstart-iso-").tempdir_in(folder);
    let work = work.with_context(|| format!("make a folder in {}", folder.display()))?;
    let (tree, scratch) = (work.path().join("tree"), work.path().join("scratch"));
    let image = tree.join(&IMAGE_PATH[1..]);
    for folder in [&scratch, &tree.join("boot"), image.parent().unwrap_or(&tree)] {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let left = Left { drafts: vec![work.path().to_owned()], said: "no medium is made" };
    let _interruption = Drafts::watch(signals, left)?;
    let bar = Bar::new(quiet);
    let kernel_version = spec.system.place_kernel(&tree.join("boot"), work.path(), &bar)?;
    // Nothing is written to it.
    spec.system.place_image(&image, 0, &bar)?;
    let opened = open_image(&image)?;
    let digest = opened.image_digest().to_string();
    let command_line = command_line(spec, &digest);
    let title = spec.label.replace('_', " ");
    let menu = Menu { title: &title, words: &command_line, timeout_s: spec.timeout_s };
    let loaders = boot_loader::install(&tree, &scratch, &menu)?;
    let hot_bytes: u64 = opened.superblock().hot.iter().map(|segment| segment.range().len).sum();
    let disc = place_on_disc(spec, &tree, &loaders, hot_bytes)?;
    bar.spin("writing the medium");
    let draft = work.path().join("medium.iso");
    medium::write(&tree, &spec.label, &loaders, &draft)?;
    drop(bar);
    let bytes = |path: &Path| {
        path.metadata().map(|file| file.len()).with_context(|| format!("look at {}", path.display()))
    };
    let made = Made {
        iso: spec.output.display().to_string(),
        iso_bytes: bytes(&draft)?,
        image_bytes: bytes(&image)?,
        kernel_bytes: bytes(&tree.join("boot").join(KERNEL))?,
        initrd_bytes: bytes(&tree.join("boot").join(INITRD))?,
        kernel_version,
        image_digest: digest,
        label: spec.label.clone(),
        command_line,
        disc,
        bios: loaders.bios.is_some(),
        uefi: loaders.uefi.is_some(),
        secure_boot: loaders.is_signed,
    };
    std::fs::File::open(&draft).and_then(|file| file.sync_all()).context("write the medium")?;
    std::fs::rename(&draft, &spec.output).with_context(|| format!("write {}", spec.output.display()))?;
    Ok(made)
}

/// Fills the disc, where its drive reads the outer edge faster. A start reads `hot_bytes` of the image.
fn place_on_disc(
    spec: &IsoSpec,
    tree: &Path,
    loaders: &Loaders,
    hot_bytes: u64,
) -> anyhow::Result<Option<DiscPlace>> {
    let Some(disc) = &spec.disc else { return Ok(None) };
    let boot_bytes = medium::used_bytes(&tree.join("boot")).context("count the files of the boot")?;
    let place = disc.place(boot_bytes + hot_bytes);
    if place.as_ref().is_none_or(|place| place.is_outer) {
        medium::fill(tree, loaders, disc.bytes)?;
    } else {
        medium::check_fits(tree, loaders, disc.bytes)?;
    }
    Ok(place)
}

/// The last console is the one that programs write to; a machine without a serial port has the first only.
fn command_line(spec: &IsoSpec, digest: &str) -> String {
    let mut words = vec![
        format!("root=headstart:LABEL={}#{digest}", spec.label),
        "console=ttyS0,115200".to_owned(),
        "console=tty0".to_owned(),
    ];
    words.extend(spec.append.iter().cloned());
    words.join(" ")
}

/// The medium must not be a part of its own image. That is said before anything is made.
fn check_outside(system: &SystemSpec, folder: &Path, output: &Path) -> anyhow::Result<()> {
    let Some(root) = system.directory() else { return Ok(()) };
    let real = |path: &Path| path.canonicalize().with_context(|| format!("open {}", path.display()));
    if real(folder)?.starts_with(real(root)?) {
        bail!(
            "{}: this lies inside the system {}; write it somewhere else",
            output.display(),
            root.display()
        );
    }
    Ok(())
}

/// A label is a word of the kernel's command line, and what ISO 9660 allows.
fn check_label(label: &str) -> anyhow::Result<()> {
    let allowed = |character: char| {
        character.is_ascii_uppercase() || character.is_ascii_digit() || "_-.".contains(character)
    };
    if label.is_empty() || label.len() > MOST_LABEL_CHARACTERS || !label.chars().all(allowed) {
        bail!(
            "--label {label}: up to {MOST_LABEL_CHARACTERS} capital letters, digits, '_', '-' and '.' are a label"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(label: &str) -> IsoSpec {
        IsoSpec {
            system: SystemSpec {
                source: Path::new("/srv/root").into(),
                kernel: None,
                live: None,
                initrd_kind: crate::InitrdKind::default(),
            },
            output: "x.iso".into(),
            label: label.to_owned(),
            append: vec!["quiet".to_owned()],
            timeout_s: 1,
            disc: None,
        }
    }

    #[test]
    fn the_command_line_names_the_image() {
        let words = command_line(&spec("LIVE"), "hs1-ab");
        assert_eq!(words, "root=headstart:LABEL=LIVE#hs1-ab console=ttyS0,115200 console=tty0 quiet");
        let parsed = hs_live::words::Words::parse(&words).expect("the initramfs understands it");
        assert_eq!(parsed.place.to_string(), "LABEL=LIVE#hs1-ab");
    }

    #[test]
    fn labels_are_words() {
        for good in ["HEADSTART", "A-1_2.3"] {
            check_label(good).expect(good);
        }
        for bad in ["", "a", "A B", "A#B", &"A".repeat(33)] {
            assert!(check_label(bad).is_err(), "{bad}");
        }
    }
}
