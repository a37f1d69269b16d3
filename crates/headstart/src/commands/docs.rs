//! `headstart docs`: man pages and completions from the definitions of the flags.

use std::path::Path;

use anyhow::Context;
use clap_complete::Shell;

use crate::cli::Docs;
use crate::{examples, mount8};

/// The generator calls what stands behind the flags a section EXTRA.
fn name_examples(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "1") {
            let page = std::fs::read_to_string(&path)?;
            std::fs::write(&path, page.replace(".SH EXTRA\nExamples:", ".SH EXAMPLES"))?;
        }
    }
    Ok(())
}

/// Writes them.
pub(crate) fn run(args: &Docs) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("create {}", args.dir.display()))?;
    let write = |what: &str| format!("write {what} to {}", args.dir.display());
    clap_mangen::generate_to(examples::command(), &args.dir).with_context(|| write("man pages"))?;
    let mut page = Vec::new();
    let helper = clap_mangen::Man::new(mount8::mount::command()).section("8");
    helper.render(&mut page).with_context(|| write("man pages"))?;
    std::fs::write(args.dir.join("mount.headstart.8"), page).with_context(|| write("man pages"))?;
    name_examples(&args.dir).with_context(|| write("man pages"))?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut examples::command(), "headstart", &args.dir)
            .with_context(|| write("completions"))?;
    }
    Ok(())
}
