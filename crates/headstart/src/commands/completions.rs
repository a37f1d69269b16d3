//! `headstart completions`

use hs_output::show;

use crate::cli::Completions;
use crate::examples;

/// Prints a shell's completion script for the program's arguments.
pub(crate) fn run(args: &Completions) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut examples::command(), "headstart", &mut script);
    show::line(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}
