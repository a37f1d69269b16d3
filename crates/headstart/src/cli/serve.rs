//! Flags of `headstart serve`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use hs_nbd::NbdAddress;
use hs_ublk::DeviceNumber;

use super::background_fill::BackgroundFillFlag;
use super::cache::CacheFlags;
use super::emulation::EmulationFlags;
use super::http::HttpFlags;
use super::image::RemoteFlags;
use super::keep::KeepFlag;
use super::live_page::LivePageFlag;
use super::prefetch::PrefetchLimits;
use super::serving::Serving;
use super::tls::TlsFlags;

/// Flags of `headstart serve`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("listen").args(["nbd", "http", "uffd", "vhost_user_blk", "ublk"]).required(true).multiple(true))]
pub(crate) struct Serve {
    /// Images, each a file or an address; NAME= sets the export's name. Write `./` before a path with `=` in
    /// its first part.
    #[arg(required = true, value_name = "[NAME=]IMAGE")]
    pub images: Vec<OsString>,
    #[command(flatten)]
    pub remote: RemoteFlags,
    /// Serve the disks over NBD at this address: HOST, HOST:PORT or unix:PATH. Default port 10809; port 0
    /// takes any free port. IPv6 addresses in brackets. Repeatable.
    #[arg(long, value_name = "ADDRESS", help_heading = "Listen (at least one)")]
    pub nbd: Vec<NbdAddress>,
    /// Serve the disk as the memory of guests at this socket, by userfaultfd, to VMMs that speak
    /// Firecracker's handshake. One image; a snapshot's memory is the beginning of its disk.
    #[arg(long, value_name = "SOCKET", help_heading = "Listen (at least one)", hide_short_help = true)]
    pub uffd: Option<PathBuf>,
    /// Serve the disk as a virtio block device of guests at this socket (mode 0600), to VMMs that speak
    /// vhost-user: QEMU, Cloud Hypervisor and others. The VMM has to share the guest's memory. One image.
    #[arg(long, value_name = "SOCKET", help_heading = "Listen (at least one)")]
    pub vhost_user_blk: Option<PathBuf>,
    /// Queues that a guest may have at most; each that it uses takes a thread.
    #[arg(
        long,
        value_name = "N",
        help_heading = "Listen (at least one)",
        default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=64),
        requires = "vhost_user_blk",
        hide_short_help = true,
    )]
    pub vhost_queues: u16,
    /// Show the disk as the block device /dev/ublkbNUMBER of this machine, read-only; `any` takes a free
    /// number. Needs root and Linux 6.5 with the module ublk_drv. One image.
    #[arg(long, value_name = "NUMBER", help_heading = "Listen (at least one)", hide_short_help = true)]
    pub ublk: Option<DeviceNumber>,
    #[command(flatten)]
    pub keep: KeepFlag,
    #[command(flatten)]
    pub http: HttpFlags,
    #[command(flatten)]
    pub tls: TlsFlags,
    #[command(flatten)]
    pub emulation: EmulationFlags,
    /// Do not prefetch: fetch only what is read.
    #[arg(long, help_heading = "Prefetch and cache")]
    pub no_prefetch: bool,
    #[command(flatten)]
    pub limits: PrefetchLimits,
    #[command(flatten)]
    pub page: LivePageFlag,
    #[command(flatten)]
    pub serving: Serving,
    #[command(flatten)]
    pub cache: CacheFlags,
    #[command(flatten)]
    pub filling: BackgroundFillFlag,
    /// Print a summary as JSON at the end.
    #[arg(long)]
    pub json: bool,
}
