//! Flags of `headstart mount`.

use std::path::PathBuf;

use clap::Args;
use hs_device::Medium;

use super::access::AccessFlags;
use super::background_fill::BackgroundFillFlag;
use super::cache::CacheFlags;
use super::image::ImageArg;
use super::insecure::InsecureFlag;
use super::prefetch::PrefetchFlags;
use super::serving::Serving;
use crate::medium::Damage;
use crate::medium::MediumParser;

/// Flags of `headstart mount`.
#[derive(Debug, Args)]
pub(crate) struct Mount {
    #[command(flatten)]
    pub image: ImageArg,
    /// An empty directory, in which disk.img appears.
    pub dir: PathBuf,
    /// Also mount the file system in the disk here (loop device, read-only, nosuid, nodev).
    #[arg(long, value_name = "DIR2")]
    pub fs: Option<PathBuf>,
    /// Stay in the foreground; `umount`, Ctrl-C or SIGTERM ends it.
    #[arg(short, long)]
    pub foreground: bool,
    /// How prefetch behaves; the default is warm with --fs and push without.
    #[command(flatten)]
    pub prefetch: PrefetchFlags,
    #[command(flatten)]
    pub access: AccessFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    #[command(flatten)]
    pub filling: BackgroundFillFlag,
    /// Read the image from an emulated medium.
    #[arg(long, value_name = "M", default_value = "none", value_parser = MediumParser)]
    pub medium: Medium,
    #[command(flatten)]
    pub damage: Damage,
    /// Honour set-user-id programs and device nodes in the image.
    #[arg(long)]
    pub trusted: bool,
    #[command(flatten)]
    pub insecure: InsecureFlag,
    /// First clear away what a server that died has left at DIR and DIR2.
    #[arg(long)]
    pub clear_dead: bool,
    #[arg(long, hide = true)]
    pub(crate) ready_fd: Option<i32>,
    #[command(flatten)]
    pub serving: Serving,
}
