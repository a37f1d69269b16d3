//! Repository chores: `cargo run -p xtask -- tidy` checks the rules of the repository.
#![allow(clippy::print_stdout, reason = "standard output is this program's report")]

use std::path::Path;
use std::process::ExitCode;

mod tidy;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => run_tidy(),
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy");
            ExitCode::from(2)
        }
    }
}

fn run_tidy() -> ExitCode {
    // xtask is a direct member of the workspace, so its parent is the root of the repository.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
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
