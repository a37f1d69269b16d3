//! Flags of `headstart accelerate now`.

use std::path::PathBuf;

use clap::Args;

/// Flags of `headstart accelerate now`. With --json, one object is printed: `outcome` (moved, in_order,
/// would_pay, no_place or stopped), `files`, `moved_files`, `moved_bytes`, `before` and `after` (each with
/// `seeks`, `runs` and `bytes`), `fragments_before`, `fragments_after`, `space_pieces`, `space_first_byte`,
/// and `left`: for each reason why files stay where they are, how many (`files`) and the first of them
/// (`named`).
#[derive(Clone, Debug, Args)]
pub(crate) struct Relocate {
    /// Where the file system is mounted.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// The list of a start, instead of the one of boots.
    #[arg(long, value_name = "FILE")]
    pub list: Option<PathBuf>,
    /// A profile instead of a list: of an image of this very file system.
    #[arg(short, long, value_name = "P", conflicts_with = "list")]
    pub profile: Option<PathBuf>,
    /// Also on flash, where the order of blocks makes no difference, on a volume with snapshots, and while
    /// the machine runs on its battery.
    #[arg(long = "force")]
    pub anyway: bool,
    /// Only tell how scattered the start lies, and whether another layout pays.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}
