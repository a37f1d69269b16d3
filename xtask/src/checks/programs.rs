//! The test programs of the workspace: pure crates first, what depends on the machine last, and all of them
//! run.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::cargo;
use super::tally::{Lines, Tally};
use crate::tidy::PURE;

/// Crates with files, sockets and threads, those with the fewest demands on the machine first.
const SHELLS: &[&str] = &[
    "hs-testing",
    "xtask",
    "fuzz",
    "hs-output",
    "hs-trust",
    "hs-store",
    "hs-remote",
    "hs-image",
    "hs-build",
    "hs-guest",
    "hs-serve",
    "hs-nbd",
    "hs-http",
    "hs-disk",
    "hs-linux",
    "hs-observe",
    "hs-fuse",
    "hs-fill",
    "hs-conformance",
    "hs-service",
    "hs-start",
    "hs-lab-real",
    "hs-report",
    "hs-demo",
    "hs-daemon",
    "headstart",
];
/// The tests of the built program: they need most of the machine, and take longest.
const LAST: &str = "headstart cli";
/// A program that has ended may have left others that keep its output open: nothing more of it is waited for.
const SILENCE: Duration = Duration::from_secs(2);

/// One test program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Program {
    /// Its crate, and its target where that is not the crate itself.
    name: String,
    executable: PathBuf,
    /// Where its `Cargo.toml` lies.
    folder: PathBuf,
}

/// The seed of proptest's inputs.
const PROPTEST_SEED: &str = "PROPTEST_RNG_SEED";

/// Builds and runs them all.
pub(super) fn run(root: &Path) -> Tally {
    let mut all = Tally::default();
    let programs = match build(root) {
        Ok((programs, whole)) => {
            if !whole {
                all.failed.push("tests: not all of them could be built".to_owned());
            }
            programs
        }
        Err(error) => return Tally { failed: vec![format!("tests: {error}")], ..Tally::default() },
    };
    let (last, first): (Vec<_>, Vec<_>) = programs.into_iter().partition(|program| program.name == LAST);
    first.iter().for_each(|program| all.add(&run_program(program)));
    let mut examples = cargo::command(root);
    examples.args(["test", "--workspace", "--doc", "--no-fail-fast"]).args(cargo::locked());
    all.add(&run_command("examples in documentation", &mut examples));
    last.iter().for_each(|program| all.add(&run_program(program)));
    all
}

fn run_program(program: &Program) -> Tally {
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    // The same random inputs each time, so that what fails is a change; `test-long` tries new ones.
    if std::env::var_os(PROPTEST_SEED).is_none() {
        command.env(PROPTEST_SEED, "1");
    }
    run_command(&program.name, &mut command)
}

/// Runs a program that says what tests say, shows that, and counts it.
pub(super) fn run_command(name: &str, command: &mut Command) -> Tally {
    let began = Instant::now();
    println!("-- {name}");
    let mut lines = Lines::default();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let ended = child.and_then(|mut child| {
        let said = said_by(&mut child);
        follow(&mut child, &said, |line| {
            if lines.take(&line) {
                println!("{line}");
            }
        })
    });
    let tally = lines.tally(name, matches!(ended, Ok(true)));
    println!("-- {name}: {tally} in {:.1} s", began.elapsed().as_secs_f64());
    tally
}

/// Lines of both of its outputs.
fn said_by(child: &mut Child) -> Receiver<String> {
    let (sender, said) = channel();
    let pass_on = |from: Option<Box<dyn Read + Send>>, to: Sender<String>| {
        let Some(from) = from else { return };
        thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                line.clear();
                if to.send(text).is_err() {
                    break;
                }
            }
        });
    };
    pass_on(child.stdout.take().map(|from| Box::new(from) as _), sender.clone());
    pass_on(child.stderr.take().map(|from| Box::new(from) as _), sender);
    said
}

/// Hands over what is said until the program has ended. Whether it ended well.
fn follow(child: &mut Child, said: &Receiver<String>, mut each: impl FnMut(String)) -> io::Result<bool> {
    let mut ended = None;
    loop {
        match said.recv_timeout(SILENCE) {
            Ok(line) => each(line),
            Err(RecvTimeoutError::Timeout) if ended.is_some() => break,
            Err(RecvTimeoutError::Timeout) => ended = child.try_wait()?,
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(child.wait()?.success())
}

/// Builds the test programs; gives them in the order in which they are to run, and whether all could be
/// built.
fn build(root: &Path) -> io::Result<(Vec<Program>, bool)> {
    let mut command = cargo::command(root);
    command.args(["test", "--workspace", "--no-run", "--no-fail-fast"]).args(cargo::locked());
    let output = command
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .stdin(Stdio::null())
        .output()?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut programs: Vec<Program> = messages.lines().filter_map(program).collect();
    programs.sort_by_key(rank);
    programs.dedup();
    Ok((programs, output.status.success()))
}

/// The test program that a message of cargo's tells of.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_str()?.to_owned();
    let target = message["target"]["name"].as_str()?;
    let is_own =
        target.replace('_', "-") == package && message["target"]["kind"] != serde_json::json!(["test"]);
    let name = if is_own { package } else { format!("{package} {target}") };
    Some(Program { name, executable: message["executable"].as_str()?.into(), folder })
}

/// What is tested first: crates without I/O, in the order of the design, then shells; each crate's own tests
/// before those that see it from outside.
fn rank(program: &Program) -> (usize, String) {
    let package = program.name.split(' ').next().unwrap_or_default();
    let pure = PURE.iter().position(|name| *name == package);
    let shell = SHELLS.iter().position(|name| *name == package);
    let unknown = PURE.len() + SHELLS.len();
    (pure.or(shell.map(|at| PURE.len() + at)).unwrap_or(unknown), program.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(package: &str, target: &str, kind: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/r/{package}/Cargo.toml","profile":{{"test":true}},
            "target":{{"name":"{target}","kind":["{kind}"]}},"executable":"/t/{target}-0"}}"#
        )
    }

    #[test]
    fn pure_crates_come_first_and_the_tests_of_the_program_last() {
        let messages = [
            artifact("headstart", "cli", "test"),
            artifact("headstart", "headstart", "bin"),
            artifact("hs-serve", "hs_serve", "lib"),
            artifact("hs-engine", "hs_engine", "lib"),
            artifact("hs-format", "format", "test"),
            artifact("hs-format", "hs_format", "lib"),
        ];
        let mut found: Vec<Program> = messages.iter().filter_map(|message| program(message)).collect();
        found.sort_by_key(rank);
        let names: Vec<&str> = found.iter().map(|program| program.name.as_str()).collect();
        let in_order =
            ["hs-format", "hs-format format", "hs-engine", "hs-serve", "headstart", "headstart cli"];
        assert_eq!(names, in_order);
        assert_eq!(program(r#"{"reason":"build-finished"}"#), None);
    }

    #[test]
    fn a_program_that_fails_or_dies_or_leaves_another_does_not_hide_the_next() {
        let mut all = Tally::default();
        for script in [
            "echo 'test a ... FAILED'; echo 'test result: FAILED. 2 passed; 1 failed; 0 ignored'; exit 101",
            "echo 'test b ... ok'; kill -KILL $$",
            // The sleeper keeps the output open for longer than the test waits.
            "sleep 8 & echo 'SKIPPED c: no root' >&2; echo 'test result: ok. 4 passed; 0 failed; 0 ignored'",
        ] {
            all.add(&run_command("sh", Command::new("sh").args(["-c", script])));
        }
        assert_eq!(all.to_string(), "5 passed, 2 failed, 1 skipped");
        let missing = run_command("nothing", &mut Command::new("/nonexistent/program"));
        assert_eq!(missing.failed.len(), 1);
    }
}
