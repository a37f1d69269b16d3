//! Flags of `headstart iso`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hs_device::Medium;
use hs_iso::Generator;
use hs_units::ByteSize;

use super::image::ImageArg;
use crate::cli::MediumParser;

/// Flags of `headstart iso`.
#[derive(Debug, Args)]
#[command(mut_arg("image", |arg| arg.value_name("ROOT|IMAGE").help(SOURCE).long_help(SOURCE)))]
pub(crate) struct Iso {
    #[command(flatten)]
    pub source: ImageArg,
    /// The medium to write.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// The label of the medium, by which the initramfs finds it: capital letters, digits, `_`, `-` and `.`.
    #[arg(long, value_name = "LABEL", default_value = "HEADSTART")]
    pub label: String,
    /// A word to add to the kernel's command line. Repeatable.
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub append: Vec<String>,
    /// How long the boot menu waits.
    #[arg(long, value_name = "SECONDS", default_value = "2")]
    pub timeout: u32,
    /// The size of the disc that this is for. It is filled, so that all that is read lies at its outer edge,
    /// if its drive reads that faster.
    #[arg(long, value_name = "SIZE")]
    pub disc: Option<ByteSize>,
    /// The drive of that disc, a model as for --emulate.
    #[arg(long = "for", requires = "disc", value_name = "MEDIUM", default_value = "cd-24x-cav", value_parser = MediumParser)]
    pub drive: Medium,
    /// What makes the initramfs. Default: initramfs-tools if the system has it, else dracut.
    #[arg(long, value_enum, value_name = "TOOL", conflicts_with = "initrd")]
    pub initramfs: Option<Initramfs>,
    /// Put drivers and programs for the network into the initramfs, so that it can also take a root from an
    /// address. It is twice as large then.
    #[arg(long, conflicts_with = "initrd")]
    pub network: bool,
    /// The kernel, with --initrd. Default: the newest in /boot of the system.
    #[arg(long, value_name = "FILE", requires = "initrd")]
    pub kernel: Option<PathBuf>,
    /// The initramfs, with headstart-live in it. Default: one is made by the system's own tools.
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub initrd: Option<PathBuf>,
    /// The program headstart-live. Default: the installed one.
    #[arg(long, value_name = "FILE", hide = true)]
    pub live: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What makes an initramfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Initramfs {
    /// mkinitramfs of Debian and Ubuntu.
    InitramfsTools,
    /// dracut of Fedora, SUSE and others.
    Dracut,
}

impl From<Initramfs> for Generator {
    fn from(named: Initramfs) -> Self {
        match named {
            Initramfs::InitramfsTools => Self::InitramfsTools,
            Initramfs::Dracut => Self::Dracut,
        }
    }
}

/// The help of the source.
const SOURCE: &str = "A directory with a root file system, or an image of one";
