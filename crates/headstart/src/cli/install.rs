//! Flags of `headstart install`.

use std::path::PathBuf;

use clap::Args;
use hs_start::location::ImageLocation;
use hs_units::ByteSize;

use super::image::{RemoteFlags, location_parser};
use super::iso::Initramfs;

/// Flags of `headstart install`.
#[derive(Debug, Args)]
pub(crate) struct Install {
    /// The disk: a device, or a file with a raw disk.
    #[arg(value_name = "DISK")]
    pub disk: PathBuf,
    /// Install this system: a directory with a root file system, or an image of one. DISK must be empty.
    #[arg(long, value_name = "ROOT|IMAGE", value_parser = location_parser(), conflicts_with = "update")]
    pub root: Option<ImageLocation>,
    /// Put this image beside the system that is there, and start it next time: a file, an address, or a
    /// channel (ADDRESS#key=KEY).
    #[arg(long, value_name = "IMAGE|CHANNEL", value_parser = location_parser())]
    pub update: Option<ImageLocation>,
    /// Update although what was written to the installed system is not in the new one. It stays with the old
    /// one. What was written to a system that is replaced goes with it.
    #[arg(long, requires = "update")]
    pub without_writes: bool,
    /// Make DISK a file of this size.
    #[arg(long, value_name = "SIZE", requires = "root", conflicts_with = "update")]
    pub size: Option<ByteSize>,
    /// Free space of a root that is built from a directory. Default: a quarter of the disk.
    #[arg(long, value_name = "SIZE", requires = "root", conflicts_with = "update")]
    pub free: Option<ByteSize>,
    /// Destroy what is on DISK. One that is mounted is refused all the same.
    #[arg(id = "destroys", long = "force", requires = "root", conflicts_with = "update")]
    pub force: bool,
    /// A word to add to the kernel's command line, also after updates. Repeatable.
    #[arg(
        long,
        value_name = "WORD",
        allow_hyphen_values = true,
        requires = "root",
        conflicts_with = "update"
    )]
    pub append: Vec<String>,
    /// How long the boot menu waits.
    #[arg(long, value_name = "SECONDS", default_value = "2", conflicts_with = "update")]
    pub timeout: u32,
    /// What makes the initramfs. Default: initramfs-tools if the system has it, else dracut.
    #[arg(long, value_enum, value_name = "TOOL", conflicts_with = "initrd")]
    pub initramfs: Option<Initramfs>,
    /// The kernel, with --initrd. Default: the newest in /boot of the system.
    #[arg(long, value_name = "FILE", requires = "initrd")]
    pub kernel: Option<PathBuf>,
    /// The initramfs, with headstart-live in it. Default: one is made by the system's own tools.
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub initrd: Option<PathBuf>,
    /// The program headstart-live. Default: the installed one.
    #[arg(long, value_name = "FILE", hide = true)]
    pub live: Option<PathBuf>,
    #[command(flatten)]
    pub remote: RemoteFlags,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}
