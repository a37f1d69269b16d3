//! Flags of `headstart build` and `headstart import`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use hs_build::source::Platform;
use hs_start::location::ImageLocation;
use hs_units::ByteSize;

use super::codec::{CodecLevel, DEFAULT_CODEC, parse_codec};
use super::optimize::ProfileUse;

/// Flags of `headstart build`.
#[derive(Debug, Args)]
pub(crate) struct Build {
    /// What to build from: a directory, a disk, a tar archive or a container's image. Its content says which
    /// it is; --help has a table of all of them.
    #[arg(value_name = "SOURCE")]
    pub source: OsString,
    /// The image to write. It appears when it is complete; an image of that name is replaced.
    #[arg(short, long, value_name = "IMAGE")]
    pub output: PathBuf,
    /// Also optimize for the start in this profile, as `optimize` does. Repeatable.
    #[arg(short, long = "profile", value_name = "P")]
    pub profiles: Vec<PathBuf>,
    /// Lay the files that the start in this profile read before all others, in the order of their first
    /// reads: starts that nothing was recorded of find them together. The profile may be of another state of
    /// the tree, since paths count.
    #[arg(long, value_name = "P", hide_short_help = true, conflicts_with_all = ["like", "base"])]
    pub order: Option<PathBuf>,
    #[command(flatten)]
    pub use_of: ProfileUse,
    /// Codec and level: zstd:1 to zstd:22, lz4:0 to lz4:12, zlib:1 to zlib:9, or store. For a release use
    /// zstd:19, which is smaller and several times slower to build.
    #[arg(long, default_value = DEFAULT_CODEC, value_parser = parse_codec)]
    pub codec: CodecLevel,
    /// Bytes that are compressed together, a power of two from 4K to 4M. Larger compresses better and makes
    /// reads of single blocks slower.
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = parse_window, hide_short_help = true)]
    pub window: ByteSize,
    /// An earlier image of the same tree (file or address). Files that did not change stay where they are on
    /// its disk, so machines that have its chunks in their caches fetch only what is new.
    ///
    /// Its hot region stays too, unless --profile gives another one. Free space beside files that stay keeps
    /// the bytes of deleted files. Windows are those of that image.
    #[arg(long, value_name = "IMAGE", value_parser = super::image::location_parser(), conflicts_with_all = ["base", "window"])]
    pub like: Option<ImageLocation>,
    /// Do not store blocks that the disk of this image has (file or address). The image can then be read only
    /// with that one: give both to each command. Files lie as with --like, and its hot region stays as there.
    #[arg(long, value_name = "BASE", value_parser = super::image::location_parser(), hide_short_help = true)]
    pub base: Option<ImageLocation>,
    /// Take the file as a raw disk whatever it contains.
    #[arg(long, hide_short_help = true)]
    pub raw: bool,
    /// Only this partition of the disk, which the image's disk then is: its number, its label or UUID or that
    /// of its file system, or its type (esp, root, 0x83).
    #[arg(long, value_name = "PARTITION")]
    pub partition: Option<String>,
    /// Also build from a disk that is mounted for writing. Its file system changes while it is read, so the
    /// image may hold a state that never was.
    #[arg(long, hide_short_help = true)]
    pub mounted: bool,
    /// Open the backing files that a qcow2 file names wherever they lie, not only in its own folder. A
    /// stranger's file could name any file of this machine.
    #[arg(long, hide_short_help = true)]
    pub follow_backing: bool,
    /// Take a container's image, or a raw disk (ext4, squashfs, ISO 9660, XFS, ...), as the files in it. Root
    /// mounts a disk to read them.
    #[arg(long = "as", value_name = "KIND", hide_short_help = true, conflicts_with = "raw")]
    pub taken_as: Option<TakenAs>,
    /// The platform of a container's image, as OS/ARCHITECTURE[/VARIANT]. Default: this machine's.
    #[arg(long, value_name = "PLATFORM", hide_short_help = true)]
    pub platform: Option<Platform>,
    /// Only the lowest N layers of a container's image.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub layers: Option<usize>,
    /// The most bytes that an archive may have when it is unpacked: a small file may unpack to without end.
    #[arg(long, value_name = "SIZE", default_value = "256G", hide_short_help = true)]
    pub unpack_limit: ByteSize,
    /// Free space in the file system that is made of a directory or an archive.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub free: ByteSize,
    /// Threads that compress. Default: one per core.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub threads: Option<std::num::NonZeroUsize>,
    #[command(flatten)]
    pub signed: super::signing::SignOutput,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What a source is to be taken as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TakenAs {
    /// A tree of files.
    Tree,
}

/// Flags of `headstart import`.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// A cloop file of version 2 or 3, or a raw disk image.
    pub file: PathBuf,
    /// The image to write. It appears when it is complete.
    #[arg(short, long, value_name = "IMAGE")]
    pub output: PathBuf,
    /// Codec and level, as for `build`.
    #[arg(long, default_value = DEFAULT_CODEC, value_parser = parse_codec)]
    pub codec: CodecLevel,
    /// Bytes that are compressed together, as for `build`.
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = parse_window)]
    pub window: ByteSize,
    /// Take the file as a raw disk whatever it contains.
    #[arg(long, hide_short_help = true)]
    pub raw: bool,
    /// Threads that compress. Default: one per core.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The sizes that a cold window may have.
fn parse_window(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if size.0.is_power_of_two() && hs_build::WINDOW_BYTES.contains(&size.0) {
        return Ok(size);
    }
    Err("a window is a power of two from 4K to 4M".to_owned())
}
