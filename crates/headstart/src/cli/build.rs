//! Flags of `headstart build` and `headstart import`.

use std::path::PathBuf;

use clap::Args;
use hs_units::ByteSize;

use super::codec::{CodecLevel, DEFAULT_CODEC, parse_codec};
use super::optimize::ProfileUse;

/// Flags of `headstart build`.
#[derive(Debug, Args)]
pub(crate) struct Build {
    /// A raw disk image, a block device, or a directory (which becomes an ext4 file system).
    pub source: PathBuf,
    /// The image to write; it appears when it is complete.
    #[arg(short, long, value_name = "IMAGE")]
    pub output: PathBuf,
    /// Also add a hot region for the start that this profile recorded, as `optimize` would.
    #[arg(short, long = "profile", value_name = "P")]
    pub profiles: Vec<PathBuf>,
    #[command(flatten)]
    pub use_of: ProfileUse,
    /// Codec and level of the cold region: `zstd:LEVEL` (1 to 22), `lz4:LEVEL` (0 to 12), `zlib:LEVEL`
    /// (1 to 9) or `store`. For a release `zstd:19`: smaller, and several times as slow.
    #[arg(long, default_value = DEFAULT_CODEC, value_parser = parse_codec)]
    pub codec: CodecLevel,
    /// Bytes of a cold window, a power of two: what one read of one block costs against how well it
    /// compresses.
    #[arg(long, default_value = "128K", value_parser = parse_window)]
    pub window: ByteSize,
    /// Take the file as a raw disk whatever it holds.
    #[arg(long)]
    pub force: bool,
    /// Free space in a file system made from a directory.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub free: ByteSize,
    /// Where the scratch file of a directory goes; beside the output when not given.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Threads that compress; one for each core when not given.
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    #[command(flatten)]
    pub signed: super::signing::SignOutput,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart import`.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// A cloop file of version 2 or 3, or a raw disk image.
    pub file: PathBuf,
    /// The image to write; it appears when it is complete.
    #[arg(short, long, value_name = "IMAGE")]
    pub output: PathBuf,
    /// Codec and level, as for `build`.
    #[arg(long, default_value = DEFAULT_CODEC, value_parser = parse_codec)]
    pub codec: CodecLevel,
    /// Bytes of a cold window, as for `build`.
    #[arg(long, default_value = "128K", value_parser = parse_window)]
    pub window: ByteSize,
    /// Take the file as a raw disk whatever it holds.
    #[arg(long)]
    pub force: bool,
    /// Threads that compress; one for each core when not given.
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// The sizes that a cold window may have.
fn parse_window(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if size.0.is_power_of_two() && hs_image::WINDOW_BYTES.contains(&size.0) {
        return Ok(size);
    }
    Err("a window is a power of two from 4K to 4M".to_owned())
}
