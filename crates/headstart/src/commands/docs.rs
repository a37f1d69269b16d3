//! `headstart docs`: man pages and completions from the definitions of the flags.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::cli::Docs;
use crate::sources::SOURCES;
use crate::{examples, mount8};

/// Commands that end with the exit status of the command that they start.
const STARTERS: [&str; 1] = ["run"];

/// What each exit status means.
const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "Success."),
    ("1", "Failure. Standard error says what failed, where, and what to try."),
    ("2", "Wrong usage."),
];

/// The same for commands that start another one.
const EXIT_STATUS_OF_STARTERS: &[(&str, &str)] = &[
    ("N", "The exit status of the started command, if it ran."),
    ("128+N", "The started command was ended by signal N."),
    ("127", "The image has no such command."),
    ("126", "The command cannot be executed."),
    ("1", "headstart failed."),
    ("2", "Wrong usage."),
];

const FILES: &[(&str, &str)] = &[
    (
        "/var/cache/headstart/remote, ~/.cache/headstart/remote",
        "Disk cache of remote images: headstart-cache(1).",
    ),
    (
        "/var/cache/headstart/learned, ~/.cache/headstart/learned",
        "Profiles that starts with --learn keep: headstart-run(1).",
    ),
    (
        "/var/lib/headstart/channels, ~/.local/state/headstart/channels",
        "Newest signature seen of each channel.",
    ),
    (
        "/var/lib/headstart/uploads, ~/.local/state/headstart/uploads",
        "Unfinished uploads: headstart-push(1).",
    ),
    ("/run/headstart, $XDG_RUNTIME_DIR/headstart", "Status sockets of servers: headstart-status(1)."),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("XDG_CACHE_HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR", "Where a user's files of the list above are."),
    ("AWS_…, GOOGLE_…, AZURE_…", "Logins for object storage: headstart-push(1) and addresses of images."),
    ("REGISTRY_AUTH_FILE, DOCKER_CONFIG", "Where the logins of registries are."),
    ("NOTIFY_SOCKET", "Set by systemd for services: readiness is reported there."),
];

/// Writes them.
pub(crate) fn run(args: &Docs) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("create {}", args.dir.display()))?;
    let write = |what: &str| format!("write {what} to {}", args.dir.display());
    let mut program = examples::command().disable_help_subcommand(true);
    program.build();
    pages(&program, "", &args.dir).with_context(|| write("man pages"))?;
    for helper in [mount8::mount::command(), mount8::umount::command()] {
        let man = Man::new(helper).section("8");
        man.generate_to(&args.dir).with_context(|| write("man pages"))?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut examples::command(), "headstart", &args.dir)
            .with_context(|| write("completions"))?;
    }
    Ok(())
}

/// The pages of a command with the name `path` (`lab disk`; empty for the program), and of its subcommands.
fn pages(command: &Command, path: &str, dir: &Path) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        let name = inner.get_name();
        let inner_path = if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
        pages(inner, &inner_path, dir)?;
    }
    // clap_mangen leaves out the text of an option that `-h` hides.
    let man = Man::new(command.clone().mut_args(|option| option.hide_short_help(false)));
    page(command, path, &man, &mut File::create(dir.join(man.get_filename()))?)
}

/// clap_mangen's synopsis has neither the names of values nor `--`, so clap's own line of usage stands there.
fn page(command: &Command, path: &str, man: &Man, file: &mut File) -> io::Result<()> {
    man.render_title(file)?;
    man.render_name_section(file)?;
    let usage = command.clone().render_usage().to_string();
    lines("SYNOPSIS", usage.trim_start_matches("Usage: ").lines(), file)?;
    man.render_description_section(file)?;
    man.render_options_section(file)?;
    if command.get_subcommands().any(|inner| !inner.is_hide_set()) {
        man.render_subcommands_section(file)?;
    }
    if path == "build" {
        table("SOURCES", SOURCES, file)?;
    }
    let statuses = if STARTERS.contains(&path) { EXIT_STATUS_OF_STARTERS } else { EXIT_STATUS };
    table("EXIT STATUS", statuses, file)?;
    table("FILES", FILES, file)?;
    table("ENVIRONMENT", ENVIRONMENT, file)?;
    if let Some(examples) = examples::of(path) {
        lines("EXAMPLES", examples.iter().copied(), file)?;
    }
    if !path.is_empty() {
        Roff::new().control("SH", ["SEE ALSO"]).text([bold("headstart"), roman("(1)")]).to_writer(file)?;
    }
    Ok(())
}

/// A section whose lines stay lines.
fn lines<'a>(title: &str, lines: impl Iterator<Item = &'a str>, file: &mut File) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [title]).control("nf", []);
    for line in lines {
        roff.text([roman(line.trim_end())]);
    }
    roff.control("fi", []).to_writer(file)
}

/// A section of terms, each explained.
fn table(title: &str, rows: &[(&str, &str)], file: &mut File) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (term, text) in rows {
        roff.control("TP", []).text([bold(*term)]).text([roman(*text)]);
    }
    roff.to_writer(file)
}
