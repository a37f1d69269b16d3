//! Every link in a library's documentation. Cargo calls rustdoc for each library's examples, with the crates
//! that the tests were linked from; the same calls, without the examples, make the pages, so nothing is
//! compiled for them. Programs have no links.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::{Outcome, cargo};

/// Where calls are noted; set, this program is called in place of rustdoc.
const NOTES: &str = "XTASK_RUSTDOC_NOTES";

/// How cargo calls rustdoc for one library.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Call {
    arguments: Vec<String>,
    folder: PathBuf,
    /// What cargo tells of the package, for `env!`.
    variables: BTreeMap<String, String>,
}

/// Notes a call, if this program is called in place of rustdoc.
pub(crate) fn note() -> Option<ExitCode> {
    let notes = std::env::var_os(NOTES)?;
    let noted = this_call().and_then(|call| {
        let line = format!("{}\n", serde_json::to_string(&call)?);
        let mut file = File::options().create(true).append(true).open(&notes)?;
        Ok(file.write_all(line.as_bytes())?)
    });
    Some(noted.map_or_else(
        |error| {
            eprintln!("{}: {error:#}", notes.display());
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    ))
}

fn this_call() -> Result<Call> {
    let told = |name: &str| name.starts_with("CARGO") || name == "OUT_DIR";
    let variables = std::env::vars().filter(|(name, _)| told(name)).collect();
    Ok(Call { arguments: std::env::args().skip(1).collect(), folder: std::env::current_dir()?, variables })
}

/// Makes the pages of all libraries, several at once.
pub(super) fn check(root: &Path) -> Outcome {
    match calls(root) {
        Ok(calls) => {
            let warnings = if cargo::denies_warnings() { "-Dwarnings" } else { "-Wwarnings" };
            let failed = run(&calls, &cargo::target(root).join("doc"), warnings);
            if failed == 0 { Outcome::Passed } else { Outcome::Failed(format!("{failed} crates")) }
        }
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

fn calls(root: &Path) -> Result<Vec<Call>> {
    let notes = cargo::target(root).join("rustdoc-calls");
    let _ = fs::remove_file(&notes);
    let mut command = cargo::linting(root);
    command.args(["test", "-q", "--workspace", "--doc"]).args(cargo::locked());
    command.env("RUSTDOC", std::env::current_exe()?).env(NOTES, &notes);
    ensure!(command.status()?.success(), "cargo test --doc did not end well");
    let noted = fs::read_to_string(&notes).context("cargo called rustdoc for no library")?;
    noted.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Runs the calls; how many failed.
fn run(calls: &[Call], out: &Path, warnings: &str) -> usize {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(call) = calls.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !call.makes_pages(out, warnings) {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    failed.into_inner()
}

impl Call {
    /// Makes the library's pages, in place of running its examples.
    fn makes_pages(&self, out: &Path, warnings: &str) -> bool {
        let mut command = Command::new(cargo::beside("rustdoc").unwrap_or_else(|| "rustdoc".into()));
        command.args(without_examples(&self.arguments)).arg("--out-dir").arg(out);
        command.args(["--document-private-items", "-Arustdoc::private-intra-doc-links", warnings]);
        command.current_dir(&self.folder).envs(&self.variables);
        command.status().is_ok_and(|status| status.success())
    }
}

/// The arguments that do not ask for examples to be run.
fn without_examples(arguments: &[String]) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        match argument {
            "--test" | "--no-run" => {}
            "--test-run-directory" | "--test-args" | "--test-runtool" | "--test-runtool-arg" => {
                arguments.next();
            }
            other => kept.push(other),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_made_of_the_same_crates_as_examples() {
        let words = "--crate-type lib --test --test-run-directory crates/a --extern b=libb.rlib src/lib.rs";
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let kept = without_examples(&words).join(" ");
        assert_eq!(kept, "--crate-type lib --extern b=libb.rlib src/lib.rs");
    }

    #[test]
    fn a_library_with_a_link_to_nothing_fails() {
        let place = tempfile::tempdir().unwrap();
        let source = place.path().join("lib.rs");
        let of = |text: &str| {
            fs::write(&source, text).unwrap();
            let arguments = ["--test", "--crate-name", "it", source.to_str().unwrap()].map(str::to_owned);
            let (folder, variables) = (place.path().to_owned(), BTreeMap::new());
            run(&[Call { arguments: arguments.to_vec(), folder, variables }], place.path(), "-Dwarnings")
        };
        assert_eq!(of("//! See [`Some`]."), 0);
        assert_eq!(of("//! See [`Nowhere`]."), 1);
        assert!(place.path().join("it/index.html").exists());
    }
}
