//! The headstart command line.

// `eprintln!` panics when standard error has no reader; `hs_output::note!` does not.
#![warn(clippy::print_stderr)]

mod arguments;
mod cli;
mod commands;
mod examples;
mod mount8;
mod outputs;
mod sources;

use std::ffi::OsString;
use std::process::ExitCode;

use hs_linux::LinuxError;
use hs_output::{log_output, plain_words, show};
use hs_service::{ending, own_arguments};

use crate::cli::{Cli, Command, Lab};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == hs_linux::rootenv::INIT_ARGUMENT => hs_linux::rootenv::init_main(arguments),
        Some(first) if first == ending::GUARD_ARGUMENT => ending::guard_main(arguments),
        Some(first) if first == hs_ublk::KEEPER_ARGUMENT => hs_ublk::keeper_main(arguments),
        _ => {}
    }
    hs_linux::allocate_kindly();
    hs_linux::fail_beyond_size_limit();
    let arguments = own_arguments::of_this_process();
    if let Some(helper) = mount8::Helper::of_this_process() {
        return helper.run(&arguments);
    }
    let (cli, matches) = arguments::parse(&arguments).unwrap_or_else(|error| arguments::refuse(&error));
    // A program that was started through /proc/self/exe is called `exe` in lists of processes.
    let _ = rustix::thread::set_name(c"headstart");
    log_output::start(cli.quiet, cli.verbose);
    let ended = outputs::check(&matches).and_then(|()| run(&cli, &arguments));
    let ended = ended.and_then(|code| show::written().map(|()| code));
    ended.unwrap_or_else(|error| {
        log_output::failure(&plain_words::plain(&chain(&error)));
        failure_code(&error)
    })
}

/// The error and its causes, without those that it has said itself.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// 1, or what shells say of a command that is not there (127) or cannot be run (126).
fn failure_code(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<LinuxError>() {
        Some(LinuxError::Command { source, .. } | LinuxError::OwnCommand { source, .. }) => {
            let is_missing = source.kind() == std::io::ErrorKind::NotFound;
            ExitCode::from(if is_missing { 127 } else { 126 })
        }
        _ => ExitCode::from(1),
    }
}

fn run(cli: &Cli, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let quiet = cli.quiet;
    match &cli.command {
        Command::Boot(args) => commands::boot::run(args, quiet)?,
        Command::Resume(args) => commands::resume::run(args, quiet)?,
        Command::Build(args) => commands::build::run(args, quiet)?,
        Command::Import(args) => commands::import::run(args, quiet)?,
        Command::Export(args) => commands::export::run(args, quiet)?,
        Command::Commit(args) => commands::commit::run(args, quiet)?,
        Command::Optimize(args) => commands::optimize::run(args, quiet)?,
        Command::Pack(args) => commands::pack::run(args, quiet)?,
        Command::Verify(args) => commands::verify::run(args, quiet)?,
        Command::Inspect(args) => commands::inspect::run(args)?,
        Command::Serve(args) => return commands::serve::run(args, arguments, quiet).map(exit_code),
        Command::Status(args) => commands::status::run(args)?,
        Command::Report(args) => hs_report::run(args, quiet)?,
        Command::Top(args) => commands::top::run(args)?,
        Command::Cache(args) => commands::disk_cache::run(args, quiet)?,
        Command::Accelerate(args) => return commands::accelerate::run(args, quiet).map(exit_code),
        Command::Overlay(args) => return commands::overlay::run(args, quiet).map(exit_code),
        Command::Convert(args) => commands::containers::convert(args, quiet)?,
        Command::Bundle(args) => commands::containers::bundle(args, quiet)?,
        Command::Push(args) => commands::push::run(args, quiet)?,
        Command::Snapshotter(args) => commands::snapshotter::run(args, quiet)?,
        Command::Keygen(args) => commands::sign::keygen(args, quiet)?,
        Command::Sign(args) => commands::sign::sign(args, quiet)?,
        Command::Mount(args) => return commands::mount::run(args, arguments, quiet).map(exit_code),
        Command::Attach(args) => return commands::attach::run(args, arguments, quiet).map(exit_code),
        Command::Hydrate(args) => commands::hydrate::run(args, quiet)?,
        Command::Detach(args) => commands::attach::detach(args)?,
        Command::Lab(Lab::Disk(args)) => commands::lab::disk::run(args, quiet)?,
        Command::Lab(Lab::Media(args)) => hs_lab_real::media::run(args.json)?,
        Command::Lab(Lab::Predict(args)) => hs_lab_real::predict::run(args)?,
        Command::Lab(Lab::Replay(args)) => hs_lab_real::replay::run(args)?,
        Command::Lab(Lab::Calibrate(args)) => hs_lab_real::calibrate::run(args, quiet)?,
        Command::Lab(Lab::Trace(args)) => hs_lab_real::trace::run(args, quiet)?,
        Command::Lab(Lab::List(args)) => hs_lab_real::experiments::list(args.json)?,
        Command::Lab(Lab::Run(args)) => hs_lab_real::experiments::run(args)?,
        Command::Demo(args) => commands::demo::run(args, quiet)?,
        Command::Completions(args) => commands::completions::run(args)?,
        Command::Docs(args) => commands::docs::run(args)?,
        Command::Run(args) => return commands::run::run(args, quiet).map(exit_code),
        Command::Profile(args) => return commands::profile::run(args, quiet).map(exit_code),
        Command::Iso(args) => commands::iso::run(args, cli.quiet)?,
        Command::Install(args) => commands::install::run(args, cli.quiet)?,
        Command::Doctor(args) => {
            return hs_doctor::run(args.json, quiet).map(|works| exit_code(i32::from(!works)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
