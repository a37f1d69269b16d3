//! Flags of `headstart push`.

use std::path::PathBuf;

use clap::Args;
use hs_remote::Address;

/// Flags of `headstart push`.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct Push {
    /// The image: a file. Or a profile, for a container's image in a registry: it lies beside that image, and
    /// `headstart convert` uses it. Not needed with --abandon.
    #[arg(required_unless_present = "abandon")]
    pub image: Option<PathBuf>,
    /// Where to upload: oci://HOST/NAME:TAG, oci+http://HOST/NAME:TAG, s3://BUCKET/KEY, gs://BUCKET/KEY or
    /// az://CONTAINER/KEY. Of a profile: docker://NAME or oci://HOST/NAME:TAG of the container's image.
    #[arg(value_parser = Address::parse)]
    pub address: Address,
    /// Replace an existing object. Tags of registries always move.
    #[arg(long)]
    pub replace: bool,
    /// Upload nothing; remove the parts that interrupted uploads to this address have left.
    #[arg(long, conflicts_with = "replace")]
    pub abandon: bool,
    /// Directory that records unfinished uploads, so that a later `push` resumes them. Default:
    /// /var/lib/headstart/uploads for root, headstart/uploads in a user's state directory.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub upload_state: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}
