//! The headstart command line.

mod cli;
mod commands;
mod demo;
mod doctor;
mod examples;
mod log_output;
mod medium;
mod mount8;
mod service;
mod show;
mod signals;
mod start;
mod summary;
mod workdir;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;

use crate::cli::{Cli, Command, Lab};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == hs_serve::rootenv::INIT_ARGUMENT) {
        hs_serve::rootenv::init_main(arguments);
    }
    allocate_kindly();
    if let Some(helper) = mount8::Helper::of_this_process() {
        return helper.run();
    }
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let cli = parse(&arguments).unwrap_or_else(|error| error.exit());
    log_output::start(cli.quiet, cli.verbose);
    run(&cli, &arguments).unwrap_or_else(|error| {
        log_output::failure(&format!("{error:#}"));
        ExitCode::from(1)
    })
}

/// Arguments without the program's name.
fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let program = OsString::from("headstart");
    let matches = examples::command().try_get_matches_from(std::iter::once(&program).chain(arguments))?;
    Cli::from_arg_matches(&matches)
}

fn run(cli: &Cli, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let quiet = cli.quiet;
    match &cli.command {
        Command::Build(args) => commands::build::run(args, quiet)?,
        Command::Optimize(args) => commands::optimize::run(args, quiet)?,
        Command::Verify(args) => commands::verify::run(args, quiet)?,
        Command::Inspect(args) => commands::inspect::run(args)?,
        Command::Status(args) => commands::status::run(args)?,
        Command::Mount(args) => return commands::mount::run(args, arguments, quiet).map(exit_code),
        Command::Lab(Lab::Disk(args)) => commands::lab::disk(args, quiet)?,
        Command::Demo(args) => demo::run(args, quiet)?,
        Command::Docs(args) => commands::docs::run(args)?,
        Command::Run(args) => return commands::run::run(args).map(exit_code),
        Command::Profile(args) => return commands::profile::run(args, quiet).map(exit_code),
        Command::Doctor(args) => return doctor::run(args.json).map(|works| exit_code(i32::from(!works))),
    }
    Ok(ExitCode::SUCCESS)
}

fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Chunks are allocated and freed all the time. By default each would be mapped and unmapped, which
/// costs a page fault for every 4 KiB; and each thread would keep a heap of its own.
fn allocate_kindly() {
    // SAFETY: mallopt only sets parameters of the allocator, before there are threads.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}
