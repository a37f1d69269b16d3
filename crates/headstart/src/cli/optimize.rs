//! Flags of `headstart optimize`, and how profiles are used.

use std::path::PathBuf;

use clap::Args;
use hs_device::Medium;
use hs_layout::Combine;
use hs_units::ByteSize;

use super::codec::CodecLevel;
use super::codec::parse_codec;
use super::image::ImageArg;
use crate::cli::MediumParser;

/// How profiles are used.
#[derive(Debug, Args)]
pub(crate) struct ProfileUse {
    /// The profiles are of different starts: blocks that all need come first.
    #[arg(long, requires = "profiles")]
    pub variants: bool,
    /// Accept a profile of another disk when this disk has at least this percentage of its blocks.
    #[arg(long, requires = "profiles", value_name = "PERCENT", hide_short_help = true, default_value_t = 50, value_parser = clap::value_parser!(u8).range(..=100))]
    pub min_match: u8,
    /// The medium that will hold the image. The hot region is placed where that medium is fastest.
    #[arg(long = "for", alias = "medium", requires = "profiles", value_name = "MEDIUM", hide_short_help = true, default_value = "none", value_parser = MediumParser)]
    pub medium: Medium,
}

impl ProfileUse {
    /// What several profiles are of each other.
    pub(crate) const fn combine(&self) -> Combine {
        if self.variants { Combine::Variants } else { Combine::Runs }
    }
}

/// Flags of `headstart optimize`.
#[derive(Debug, Args)]
pub(crate) struct Optimize {
    #[command(flatten)]
    pub image: ImageArg,
    /// A recorded start. Several recordings of one start are merged.
    #[arg(short, long = "profile", value_name = "P", required = true)]
    pub profiles: Vec<PathBuf>,
    #[command(flatten)]
    pub use_of: ProfileUse,
    /// The image to write. An image of that name is replaced.
    #[arg(short, long, value_name = "IMAGE2")]
    pub output: PathBuf,
    /// Codec and level of the hot region, as for `build`.
    #[arg(long, default_value = "zstd:19", value_parser = parse_codec)]
    pub codec: CodecLevel,
    /// Drop the hot region that the image has. Without this flag its blocks stay hot, and the profiles add to
    /// them: what all starts share comes first, then the rest of the earlier ones, then what is new.
    #[arg(long)]
    pub replace: bool,
    /// Bytes of the first hot chunk. Small ones arrive sooner.
    #[arg(long, value_name = "SIZE", default_value = "32K", hide_short_help = true)]
    pub first_chunk: ByteSize,
    /// Bytes of the largest hot chunks. Large ones compress better.
    #[arg(long, value_name = "SIZE", default_value = "256K", hide_short_help = true)]
    pub max_chunk: ByteSize,
    #[command(flatten)]
    pub signed: super::signing::SignOutput,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}
