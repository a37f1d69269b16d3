//! Repository chores: `cargo run -p xtask -- tidy` checks the rules of the repository, `test`,
//! `test-quick` and `test-long` run checks.
#![allow(clippy::print_stdout, reason = "standard output is this program's report")]

use std::path::Path;
use std::process::ExitCode;

mod checks;
mod mutants;
mod tidy;

const USAGE: &str = "usage: cargo run -p xtask -- tidy            the rules of the repository
       cargo run -p xtask -- test [STEP]...       all checks, or these
       cargo run -p xtask -- test-quick [STEP]... what can be run after each edit
       cargo run -p xtask -- test-long [STEP]...  what takes too long for every change
       cargo run -p xtask -- mutants [--of engine] [--go-on] [COUNT | FROM..TO]
                                                  changes the code and looks whether a test fails";

fn main() -> ExitCode {
    if let Some(noted) = checks::doc::note() {
        return noted;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // xtask is a direct member of the workspace, so its parent is the root of the repository.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
    match arguments.as_slice() {
        ["tidy"] => run_tidy(root),
        ["test", steps @ ..] => checks::run(root, checks::USUAL, steps),
        ["test-quick", steps @ ..] => checks::run(root, checks::QUICK, steps),
        ["test-long", steps @ ..] => checks::run(root, checks::LONG, steps),
        ["mutants", arguments @ ..] => mutants::run(root, arguments),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run_tidy(root: &Path) -> ExitCode {
    match tidy::run(root) {
        Ok(violations) if violations.is_empty() => {
            println!("tidy: {} rules hold", tidy::RULES.len());
            ExitCode::SUCCESS
        }
        Ok(violations) => {
            for violation in &violations {
                println!("{violation}");
            }
            println!("tidy: {} violations", violations.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy: {error:#}");
            ExitCode::FAILURE
        }
    }
}
