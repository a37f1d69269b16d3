//! Flags of `headstart export`.

use std::path::{Path, PathBuf};

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

impl DiskFormat {
    /// The format that the ending of a file's name says.
    pub(crate) fn of_file(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "raw" | "img" => Some(Self::Raw),
            "cloop" => Some(Self::Cloop),
            "qcow2" => Some(Self::Qcow2),
            _ => None,
        }
    }
}

/// Flags of `headstart export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(flatten)]
    pub image: ImageArg,
    /// The file to write. It appears when it is complete.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Format of the file. Default: by its name (.raw or .img, .cloop, .qcow2).
    #[arg(long, value_enum)]
    pub format: Option<DiskFormat>,
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
