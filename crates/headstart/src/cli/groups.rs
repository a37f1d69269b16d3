//! The commands in groups, for the help of the program itself.

use std::fmt::Write as _;

use clap::Command;

/// clap lists commands in one row, so the groups stand where it would put text of our own.
pub(super) const TEMPLATE: &str = "{before-help}{about-with-newline}\n{usage-heading} {usage}{after-help}";

/// Each command is in one group, but `help`, which the line of --help names; a test says so.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Make images",
        &[
            "build",
            "profile",
            "optimize, pack",
            "commit",
            "import",
            "export",
            "iso, install",
            "convert",
            "inspect",
            "verify",
        ],
    ),
    (
        "Start from images, or from what is installed",
        &["run", "boot", "resume", "mount", "bundle", "attach, fill", "detach", "overlay", "accelerate"],
    ),
    (
        "Serve, publish, observe",
        &["serve", "snapshotter", "push", "keygen, sign", "report", "status, top", "cache"],
    ),
    ("Try, measure, get help", &["doctor", "demo", "lab", "completions"]),
];

/// Two commands in one line, so that the list fits on a screen.
const PAIRS: &[(&str, &str)] = &[
    ("optimize, pack", "Add a hot region to an image; make one of a disk that stays as it is"),
    ("iso, install", "Make a bootable medium; install a system on a disk, with an image as its root"),
    ("attach, fill", "Show an image's disk as a raw file that fills itself; complete it"),
    ("keygen, sign", "Create a key pair; sign an image, or publish it to a channel"),
    ("status, top", "Show what is mounted and served, once or continuously"),
];

/// The list of commands by group.
pub(crate) fn list(program: &Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "{title}:");
        for name in *names {
            let pair = PAIRS.iter().find(|(pair, _)| pair == name).map(|(_, about)| (*about).to_owned());
            let about = program.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let about = pair.or(about).unwrap_or_default();
            let _ = writeln!(text, "  {name:<12} {about}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn each_command_is_in_one_group() {
        let program = Cli::command();
        let known: BTreeSet<_> = program
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(|command| command.get_name().to_owned())
            .collect();
        let listed = GROUPS.iter().flat_map(|(_, names)| *names).flat_map(|names| names.split(", "));
        let listed: Vec<_> = listed.map(ToOwned::to_owned).collect();
        assert_eq!(listed.len(), known.len());
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), known);
    }
}
