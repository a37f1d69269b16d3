//! `headstart demo`

use std::ffi::OsString;

use anyhow::bail;
use clap::Parser;
use hs_demo::Commands;
use hs_resume::record;
use hs_start::start::CommandOutput;

use super::{boot, profile, resume, run};
use crate::cli::{Cli, Command, Demo, Story};

/// Reads the words of the demo's commands as if a user had typed them.
const COMMANDS: Commands = Commands {
    run: |words| match read(words)? {
        Command::Run(args) => run::spec(&args),
        _ => bail!("the demo asks for another command"),
    },
    profile: |words| match read(words)? {
        Command::Profile(args) => Ok(profile::record(&args, CommandOutput::Nowhere)?.0),
        _ => bail!("the demo asks for another command"),
    },
    boot: |words| match read(words)? {
        Command::Boot(args) => boot::spec(&args, false),
        _ => bail!("the demo asks for another command"),
    },
    record_boot: |words| match read(words)? {
        Command::Boot(args) => Ok(boot::record(&args)?.0),
        _ => bail!("the demo asks for another command"),
    },
    resume: |words| match read(words)? {
        Command::Resume(args) => resume::spec(&args),
        _ => bail!("the demo asks for another command"),
    },
    record_resume: |words| match read(words)? {
        Command::Resume(args) => record::record(resume::spec(&args)?),
        _ => bail!("the demo asks for another command"),
    },
};

fn read(words: &[OsString]) -> anyhow::Result<Command> {
    let program = OsString::from("headstart");
    Ok(Cli::try_parse_from(std::iter::once(&program).chain(words))?.command)
}

/// Runs it.
pub(crate) fn run(args: &Demo, quiet: bool) -> anyhow::Result<()> {
    let demo = hs_demo::Demo {
        has_start: matches!(args.story, Story::Start | Story::Both),
        has_boot: matches!(args.story, Story::Boot | Story::Both),
        has_resume: args.story == Story::Resume,
        out: args.out.clone(),
        cache: args.cache.clone(),
        medium: args.medium,
        boot_medium: args.boot_medium,
        repeats: args.repeats,
        json: args.json,
        boot_root: args.boot_root,
        commands: COMMANDS,
    };
    hs_demo::run(&demo, quiet)
}
