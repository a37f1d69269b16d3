//! Flags of `headstart push`.

use std::path::PathBuf;

use clap::Args;
use hs_store::Address;

/// Flags of `headstart push`.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct Push {
    /// The image: a file. With --abandon it need not be said.
    #[arg(required_unless_present = "abandon")]
    pub image: Option<PathBuf>,
    /// Where it is to lie: oci://HOST/NAME:TAG, oci+http://HOST/NAME:TAG, s3://BUCKET/KEY, gs://BUCKET/KEY or
    /// az://CONTAINER/KEY.
    #[arg(value_parser = Address::parse)]
    pub address: Address,
    /// Replace another object that lies there. Tags of registries move in any case.
    #[arg(long)]
    pub replace: bool,
    /// Send nothing: remove what pushes to this address have left there that were broken off, whatever they were to send.
    #[arg(long, conflicts_with = "replace")]
    pub abandon: bool,
    /// The folder where is noted which uploads are under way, so that a later `push` goes on with one that was broken off; when not
    /// given /var/lib/headstart/uploads for root, and headstart/uploads in a user's state folder.
    #[arg(long, value_name = "DIR")]
    pub upload_state: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
