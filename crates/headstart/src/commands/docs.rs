//! `headstart docs`: man pages and completions from the definitions of the flags.

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, Docs};

/// Writes them.
pub(crate) fn run(args: &Docs) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("create {}", args.dir.display()))?;
    let write = |what: &str| format!("write {what} to {}", args.dir.display());
    clap_mangen::generate_to(Cli::command(), &args.dir).with_context(|| write("man pages"))?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Cli::command(), "headstart", &args.dir)
            .with_context(|| write("completions"))?;
    }
    Ok(())
}
