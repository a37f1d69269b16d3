//! Flags of `headstart export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::image::ImageArg;

/// What `headstart export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiskFormat {
    /// The disk byte for byte, sparse where it is zero.
    Raw,
    /// cloop version 2: blocks of 64 KiB, zlib. The disk is padded to a whole block.
    Cloop,
    /// qcow2 version 3, for QEMU.
    Qcow2,
}

/// Flags of `headstart export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(flatten)]
    pub image: ImageArg,
    /// The file to write. It appears when it is complete.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Format of the file.
    #[arg(long, value_enum)]
    pub format: DiskFormat,
    /// Compress a qcow2 file with zstd. Needs QEMU 5.1 to read.
    #[arg(long)]
    pub compress: bool,
    /// Threads that decompress and compress. Default: one per core.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}
