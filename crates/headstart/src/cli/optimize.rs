//! Flags of `headstart optimize`, and how profiles are used.

use std::path::PathBuf;

use clap::Args;
use hs_device::Medium;
use hs_units::ByteSize;

use super::codec::CodecLevel;
use super::codec::parse_codec;
use super::image::ImageArg;
use crate::medium::MediumParser;

/// How profiles are used.
#[derive(Debug, Args)]
pub(crate) struct ProfileUse {
    /// The profiles are of different starts: what they share comes first, then what each has alone.
    #[arg(long, requires = "profiles")]
    pub variants: bool,
    /// A profile of another disk is used for what this one has of it, but not with less than so many per
    /// cent of its blocks.
    #[arg(long, requires = "profiles", value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(..=100))]
    pub min_match: u8,
    /// The medium that the image will lie on: the hot region goes where this delivers it soonest.
    #[arg(long, requires = "profiles", value_name = "M", default_value = "none", value_parser = MediumParser)]
    pub medium: Medium,
}

/// Flags of `headstart optimize`.
#[derive(Debug, Args)]
pub(crate) struct Optimize {
    #[command(flatten)]
    pub image: ImageArg,
    /// A recorded start; several recordings of one start are merged into one order.
    #[arg(short, long = "profile", value_name = "P", required = true)]
    pub profiles: Vec<PathBuf>,
    #[command(flatten)]
    pub use_of: ProfileUse,
    /// The image to write.
    #[arg(short, long, value_name = "IMAGE2")]
    pub output: PathBuf,
    /// Codec and level of the hot region, as for `build`.
    #[arg(long, default_value = "zstd:19", value_parser = parse_codec)]
    pub codec: CodecLevel,
    /// Bytes of the first hot chunk, which should come soon.
    #[arg(long, default_value = "32K", hide_short_help = true)]
    pub first_chunk: ByteSize,
    /// Bytes of the largest hot chunks, which should compress well.
    #[arg(long, default_value = "256K", hide_short_help = true)]
    pub max_chunk: ByteSize,
    #[command(flatten)]
    pub signed: super::signing::SignOutput,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
