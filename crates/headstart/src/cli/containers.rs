//! Flags of the commands for containers' registries and runtimes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use hs_build::source::Platform;
use hs_remote::Address;
use hs_remote::registry::RegistryAddress;
use hs_start::location::ImageLocation;
use hs_units::ByteSize;

use super::codec::{CodecLevel, DEFAULT_CODEC, parse_codec};
use super::image::{RemoteFlags, location_parser};
use super::insecure::InsecureFlag;

/// Flags of `headstart convert`.
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// The container's image: `docker://NAME[:TAG]`, `oci://HOST/NAME[:TAG]` or `oci+http://HOST/NAME[:TAG]`
    /// (a registry without TLS). A digest in place of the tag names it for good.
    #[arg(value_name = "REF", value_parser = parse_container)]
    pub source: RegistryAddress,
    /// Prefetch what the start in this profile reads, beside the profiles in the registry. Repeatable.
    #[arg(short, long = "profile", value_name = "P")]
    pub profiles: Vec<PathBuf>,
    /// Record a start of the image, or of CMD in it, push the profile too, and prefetch what it reads.
    #[arg(long, conflicts_with = "dry_run")]
    pub record: bool,
    /// With --record: the start is over a second after a line of its output that matches. Default: when it
    /// ends.
    #[arg(long, value_name = "REGEX", requires = "record")]
    pub ready: Option<regex::Regex>,
    /// Of the profiles in the registry, use only those of commands with these words in them. Repeatable.
    #[arg(long = "command", value_name = "WORDS")]
    pub commands: Vec<String>,
    /// The platform, as OS/ARCHITECTURE[/VARIANT]. Default: this machine's.
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Option<Platform>,
    /// Also keep the image in this file.
    #[arg(short, long, value_name = "IMAGE")]
    pub output: Option<PathBuf>,
    /// Have the registry remove earlier conversions of this image. Without it they stay, and the last one is
    /// used.
    #[arg(long)]
    pub replace: bool,
    /// Push a copy of the manifest to DEST whose layers name the conversion, so that containerd tells its
    /// snapshotter. The layers are not sent again within a registry.
    #[arg(long, value_name = "DEST", value_parser = parse_container)]
    pub annotate: Option<RegistryAddress>,
    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// Codec and level, as for `build`.
    #[arg(long, default_value = DEFAULT_CODEC, value_parser = parse_codec, hide_short_help = true)]
    pub codec: CodecLevel,
    /// The most bytes that the layers may have when they are unpacked.
    #[arg(long, value_name = "SIZE", default_value = "256G", hide_short_help = true)]
    pub unpack_limit: ByteSize,
    /// Directory that records unfinished uploads, as for `push`; with --output only.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub upload_state: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// The command that is recorded, in place of the image's own arguments.
    #[arg(last = true, value_name = "CMD", requires = "record")]
    pub command: Vec<OsString>,
}

/// Flags of `headstart bundle`.
#[derive(Debug, Args)]
pub(crate) struct Bundle {
    /// An image: a file or an address, also docker://NAME of a container's image that was converted.
    #[arg(value_parser = location_parser(), value_name = "IMAGE", required_unless_present = "remove")]
    pub image: Option<ImageLocation>,
    /// The directory of the bundle: it is made, or empty.
    #[arg(required_unless_present = "remove")]
    pub dir: Option<PathBuf>,
    /// Unmount and remove the bundle in this directory, with all that was written to its root.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["image", "dir", "entrypoint", "terminal", "command"])]
    pub remove: Option<PathBuf>,
    #[command(flatten)]
    pub remote: RemoteFlags,
    /// Start this program in place of the image's entrypoint. Empty: CMD alone.
    #[arg(long, value_name = "PROGRAM")]
    pub entrypoint: Option<OsString>,
    /// The command gets a terminal, as with `runc run` in a terminal.
    #[arg(short, long)]
    pub terminal: bool,
    /// Trust the image: allow set-user-id programs and device nodes.
    #[arg(long)]
    pub trusted: bool,
    #[command(flatten)]
    pub insecure: InsecureFlag,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// The command, in place of the image's own arguments.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// The address of a container's image.
fn parse_container(text: &str) -> Result<RegistryAddress, String> {
    match Address::parse(text) {
        Ok(Address::Registry(address)) => Ok(address),
        Err(_) if !text.contains("://") => {
            Err(format!("a container's image in a registry is docker://{text}"))
        }
        Ok(_) => Err("a container's image is in a registry: docker://NAME or oci://HOST/NAME".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
