//! From words to flags: what clap does, and what it cannot know.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Error, FromArgMatches};

use crate::cli::Cli;
use crate::examples;

/// The commands whose last arguments are a command of the user's.
const STARTERS: [&str; 2] = ["run", "profile"];

/// What `arguments`, without the program's name, ask for.
pub(crate) fn parse(arguments: &[OsString]) -> Result<(Cli, ArgMatches), Error> {
    let program = OsString::from("headstart");
    let words = std::iter::once(&program).chain(without_help_of_help(arguments));
    let matches =
        examples::command().try_get_matches_from(words).map_err(|error| explain(error, arguments))?;
    Ok((Cli::from_arg_matches(&matches)?, matches))
}

/// Says what is wrong with the arguments, as all messages begin, or prints the help that was asked for.
pub(crate) fn refuse(error: &Error) -> ! {
    if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // clap's own text goes on with "error: ".
        let _ = write!(io::stderr(), "headstart: ");
    }
    error.exit()
}

/// `help -h` and `help run --help` are `help` and `help run`.
fn without_help_of_help(arguments: &[OsString]) -> &[OsString] {
    let is_help = |word: &OsString| word == "-h" || word == "--help";
    match arguments {
        [first, between @ .., last] if first == "help" && is_help(last) => &arguments[..between.len() + 1],
        _ => arguments,
    }
}

/// A command without `--` before it is an argument too many to clap.
fn explain(mut error: Error, arguments: &[OsString]) -> Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return error };
    let is_start = arguments.first().is_some_and(|first| STARTERS.iter().any(|name| first == name));
    let has_dashes = arguments.iter().any(|word| word == "--");
    if error.kind() == ErrorKind::UnknownArgument && is_start && !has_dashes && !word.starts_with('-') {
        let at = arguments.iter().position(|other| other == OsStr::new(word)).unwrap_or(arguments.len());
        let command: Vec<_> = arguments[at..].iter().map(|word| word.to_string_lossy()).collect();
        let tip = format!("put `--` before the command: -- {}", command.join(" "));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}
