//! `headstart demo`

use crate::cli::Demo;

/// Runs it.
pub fn run(_args: &Demo, _quiet: bool) -> anyhow::Result<()> {
    anyhow::bail!("the demo is being built")
}
