//! Flags of `headstart export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::image::ImageArg;

/// What `headstart export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiskFormat {
    /// The disk, byte for byte, with holes where it is zero.
    Raw,
    /// cloop version 2: blocks of 64 KiB by zlib; the disk is filled up to a whole block.
    Cloop,
    /// qcow2 version 3, for QEMU.
    Qcow2,
}

/// Flags of `headstart export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(flatten)]
    pub image: ImageArg,
    /// The file to write; it appears when it is complete.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Its format.
    #[arg(long, value_enum)]
    pub format: DiskFormat,
    /// Compress the clusters of a qcow2 file, with zstd; QEMU reads them from version 5.1 on.
    #[arg(long)]
    pub compress: bool,
    /// Threads that decompress and compress; one for each core when not given.
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
