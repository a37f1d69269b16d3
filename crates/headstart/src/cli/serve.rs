//! Flags of `headstart serve`.

use std::ffi::OsString;

use clap::{ArgGroup, Args};
use hs_device::Medium;
use hs_serve::nbd::NbdAddress;

use super::background_fill::BackgroundFillFlag;
use super::cache::CacheFlags;
use super::http::HttpFlags;
use super::image::RemoteFlags;
use super::prefetch::PrefetchLimits;
use super::serving::Serving;
use super::tls::TlsFlags;
use crate::medium::Damage;
use crate::medium::MediumParser;

/// Flags of `headstart serve`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("listen").args(["nbd", "http"]).required(true).multiple(true))]
pub(crate) struct Serve {
    /// An image, or NAME=IMAGE; a path whose first part has a `=` in it begins with `./`.
    #[arg(required = true, value_name = "[NAME=]IMAGE")]
    pub images: Vec<OsString>,
    #[command(flatten)]
    pub remote: RemoteFlags,
    /// Listen for NBD clients here: HOST:PORT (10809 when no port is given, 0 for any that is free; an IPv6 address in
    /// brackets) or unix:PATH. It can be given several times.
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Vec<NbdAddress>,
    #[command(flatten)]
    pub http: HttpFlags,
    #[command(flatten)]
    pub tls: TlsFlags,
    /// Read the images from an emulated medium, each from one of its own.
    #[arg(long, value_name = "M", default_value = "none", value_parser = MediumParser)]
    pub medium: Medium,
    #[command(flatten)]
    pub damage: Damage,
    /// Prefetch nothing.
    #[arg(long)]
    pub no_prefetch: bool,
    #[command(flatten)]
    pub limits: PrefetchLimits,
    #[command(flatten)]
    pub serving: Serving,
    #[command(flatten)]
    pub cache: CacheFlags,
    #[command(flatten)]
    pub filling: BackgroundFillFlag,
    /// Print a summary as one JSON object at the end.
    #[arg(long)]
    pub json: bool,
}
