//! Flags of `headstart commit`.

use std::path::PathBuf;

use clap::Args;

use super::codec::{CodecLevel, DEFAULT_CODEC, parse_codec};
use super::image::ImageArg;

/// Flags of `headstart commit`.
#[derive(Debug, Args)]
pub(crate) struct Commit {
    #[command(flatten)]
    pub image: ImageArg,
    /// The file that --keep has made with this image. It is not changed.
    #[arg(value_name = "OVERLAY")]
    pub overlay: PathBuf,
    /// The image to write. It appears when it is complete; an image of that name is replaced.
    #[arg(short, long, value_name = "NEW")]
    pub output: PathBuf,
    /// The disk as it was when this snapshot was taken, and not as it is now. A server may be using it.
    #[arg(long, value_name = "NAME")]
    pub snapshot: Option<String>,
    /// Store only what changed: IMAGE becomes the base of NEW, which can then be read only with it (--base).
    #[arg(long)]
    pub delta: bool,
    /// Codec and level of what changed, as for `build`.
    #[arg(long, default_value = DEFAULT_CODEC, value_parser = parse_codec)]
    pub codec: CodecLevel,
    #[command(flatten)]
    pub signed: super::signing::SignOutput,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}
