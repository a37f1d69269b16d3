//! Flags of `headstart mount`.

use std::path::PathBuf;

use clap::Args;

use super::access::AccessFlags;
use super::background_fill::BackgroundFillFlag;
use super::cache::CacheFlags;
use super::emulation::EmulationFlags;
use super::image::ImageArg;
use super::insecure::InsecureFlag;
use super::keep::KeepFlag;
use super::live_page::LivePageFlag;
use super::prefetch::PrefetchFlags;
use super::serving::Serving;
use super::volume::VolumeFlags;

/// Flags of `headstart mount`.
#[derive(Debug, Args)]
pub(crate) struct Mount {
    #[command(flatten)]
    pub image: ImageArg,
    /// An empty directory. disk.img appears in it.
    pub dir: PathBuf,
    /// Also mount the disk's file system here: nosuid, nodev, and read-only without --keep.
    #[arg(long, value_name = "DIR2")]
    pub fs: Option<PathBuf>,
    #[command(flatten)]
    pub volume: VolumeFlags,
    #[command(flatten)]
    pub keep: KeepFlag,
    /// Stay in the foreground until umount, Ctrl-C or SIGTERM.
    #[arg(short, long)]
    pub foreground: bool,
    /// The default of --prefetch is warm with --fs and push without.
    #[command(flatten)]
    pub prefetch: PrefetchFlags,
    #[command(flatten)]
    pub access: AccessFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    #[command(flatten)]
    pub filling: BackgroundFillFlag,
    #[command(flatten)]
    pub emulation: EmulationFlags,
    /// Trust the image: allow set-user-id programs and device nodes, and do not warn.
    #[arg(long)]
    pub trusted: bool,
    #[command(flatten)]
    pub insecure: InsecureFlag,
    /// First remove mounts that a dead server has left at DIR and DIR2.
    #[arg(long)]
    pub clear_dead: bool,
    /// Write the kernel's reads and what was prefetched to FILE as CSV when the mount ends, for `headstart
    /// report`.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub trace: Option<PathBuf>,
    /// When the mount is ready, print it as JSON.
    ///
    /// One object: `image`, `disk_digest`, `image_digest`, `dir`, `disk` (the path of disk.img), `fs`,
    /// `file_system` and `device` (directory, type and loop device; null without --fs), `prefetch`,
    /// `medium`, `pid`, `supervisor`, `status_socket`, `metrics`, `ui` (the live page) and `log`.
    #[arg(long)]
    pub json: bool,
    #[arg(long, hide = true)]
    pub(crate) ready_fd: Option<i32>,
    #[command(flatten)]
    pub page: LivePageFlag,
    #[command(flatten)]
    pub serving: Serving,
}
