//! A bootable medium, from a directory or an image.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_build::BuildOptions;
use hs_build::source::{Source, SourceOptions};
use hs_live::words::IMAGE_PATH;
use hs_output::installed::with_pages;
use hs_output::show::Bar;
use hs_start::image::ImageSource;
use hs_start::open::open_image;
use hs_start::progress;
use serde::Serialize;

use crate::boot_loader::{self, Loaders, Menu};
use crate::disc::{Disc, DiscPlace};
use crate::initrd::InitrdKind;
use crate::system::{System, SystemPlace, kernel_path};
use crate::{initrd, medium, tools};

/// What ISO 9660 has room for.
const MOST_LABEL_CHARACTERS: usize = 32;

/// A medium to be made.
#[derive(Clone, Debug)]
pub struct IsoSpec {
    /// A directory with a root file system, or an image.
    pub source: ImageSource,
    /// The medium.
    pub output: PathBuf,
    /// Its label, by which the initramfs finds it.
    pub label: String,
    /// Further words for the kernel.
    pub append: Vec<String>,
    /// Kernel and initramfs, when they are not those of the system.
    pub kernel: Option<(PathBuf, PathBuf)>,
    /// The program headstart-live, when it is not the installed one.
    pub live: Option<PathBuf>,
    /// Which initramfs is made.
    pub initrd_kind: InitrdKind,
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

/// Makes the medium. Call `hs_linux::rootenv::enter_private_mounts` before.
///
/// # Errors
/// When a tool or a part of the system is missing, or one fails; the output is whole or not there.
pub fn make(spec: &IsoSpec, quiet: bool) -> anyhow::Result<Made> {
    tools::check(directory(&spec.source).is_some())?;
    check_label(&spec.label)?;
    let folder =
        spec.output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let work = tempfile::Builder::new().prefix(".headstart-iso-").tempdir_in(folder);
    let work = work.with_context(|| format!("make a folder in {}", folder.display()))?;
    let (tree, scratch) = (work.path().join("tree"), work.path().join("scratch"));
    let image = tree.join(&IMAGE_PATH[1..]);
    for folder in [&scratch, &tree.join("boot"), image.parent().unwrap_or(&tree)] {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let bar = Bar::new(quiet);
    let kernel_version = kernel(spec, &tree, work.path(), &bar)?;
    place_image(spec, &image, &bar)?;
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
        kernel_bytes: bytes(&tree.join("boot/vmlinuz"))?,
        initrd_bytes: bytes(&tree.join("boot/initrd.img"))?,
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

/// Puts kernel and initramfs into the tree. Gives the version of a kernel that is the system's.
fn kernel(spec: &IsoSpec, tree: &Path, work: &Path, bar: &Bar) -> anyhow::Result<Option<String>> {
    let copy = |from: &Path, name: &str| {
        std::fs::copy(from, tree.join("boot").join(name)).with_context(|| format!("copy {}", from.display()))
    };
    if let Some((kernel, initrd)) = &spec.kernel {
        copy(kernel, "vmlinuz")?;
        copy(initrd, "initrd.img")?;
        return Ok(None);
    }
    let live = spec.live.clone().map_or_else(initrd::live_program, Ok)?;
    bar.spin("making the initramfs");
    let place = match directory(&spec.source) {
        Some(path) => {
            SystemPlace::Directory(path.canonicalize().with_context(|| format!("open {}", path.display()))?)
        }
        None => SystemPlace::Image(Box::new(spec.source.clone())),
    };
    let mut needed = vec![work.to_owned(), live.clone()];
    needed.extend(hs_start::remote::places_here(&spec.source));
    let system = System::open(&place, &needed)?;
    let version = system.kernel_version()?;
    initrd::make(&system, &version, &live, &spec.initrd_kind, &tree.join("boot/initrd.img"))?;
    system.copy_out(&kernel_path(&version), &tree.join("boot/vmlinuz"))?;
    Ok(Some(version))
}

fn directory(source: &ImageSource) -> Option<&Path> {
    source.file().filter(|path| path.is_dir())
}

/// Builds the image from a directory, or copies it.
fn place_image(spec: &IsoSpec, image: &Path, bar: &Bar) -> anyhow::Result<()> {
    if let Some(root) = directory(&spec.source) {
        let options = SourceOptions {
            // Nothing is written to it.
            free_bytes: 0,
            output: Some(image.to_owned()),
            ..SourceOptions::default()
        };
        let source = Source::open(root, &options, &|step| progress::of_source(bar, step))?;
        hs_build::build(&source, image, &BuildOptions::default(), &|step| progress::of_image(bar, step))?;
        return Ok(());
    }
    let file = spec.source.file().with_context(|| {
        with_pages(
            "an image at an address: download it first, or boot from the address itself (docs/NETBOOT.md)",
        )
    })?;
    // Opening it tells a file that is none.
    if open_image(&spec.source)?.superblock().base.is_some() {
        bail!("{}: some of its blocks lie on another disk, which the medium would not have", file.display());
    }
    bar.spin("copying the image");
    std::fs::copy(file, image).map(drop).with_context(|| format!("copy {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(label: &str) -> IsoSpec {
        IsoSpec {
            source: Path::new("/srv/root").into(),
            output: "x.iso".into(),
            label: label.to_owned(),
            append: vec!["quiet".to_owned()],
            kernel: None,
            live: None,
            initrd_kind: InitrdKind::default(),
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
