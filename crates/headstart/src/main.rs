//! The headstart command line.

mod cli;
mod commands;
mod demo;
mod doctor;
mod log_output;
mod medium;
mod show;
mod signals;
mod start;
mod summary;
mod workdir;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, Lab};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == hs_serve::rootenv::INIT_ARGUMENT) {
        hs_serve::rootenv::init_main(arguments);
    }
    allocate_kindly();
    let cli = Cli::parse();
    log_output::start(cli.quiet, cli.verbose);
    match run(&cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("headstart: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let quiet = cli.quiet;
    match &cli.command {
        Command::Build(args) => commands::build::run(args, quiet)?,
        Command::Import(args) => commands::import::run(args, quiet)?,
        Command::Export(args) => commands::export::run(args, quiet)?,
        Command::Optimize(args) => commands::optimize::run(args, quiet)?,
        Command::Verify(args) => commands::verify::run(args, quiet)?,
        Command::Inspect(args) => commands::inspect::run(args)?,
        Command::Mount(args) => commands::mount::run(args, quiet)?,
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
