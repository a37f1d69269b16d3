//! Changes the code in one place at a time and looks whether a test notices: a draw of the changes that cargo-mutants
//! knows of, the same each time.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::checks::Outcome;

/// Crates whose changes are drawn from.
const CRATES: [&str; 4] = ["hs-format", "hs-trace", "hs-layout", "hs-store"];
/// Changes that are drawn.
const COUNT: usize = 200;
/// Decides which.
const SEED: u64 = 17;
/// Of the changes that compile, so many in a hundred must be noticed.
const LEAST_PERCENT: usize = 90;
/// A changed program may go on for ever; the tests of a crate take a tenth of this beside other work.
const LONGEST_S: &str = "300";
/// Where the results are kept.
const RESULT: &str = "bench/results/parts/mutants.json";

/// The tool's version, which decides the list of changes.
const TOOL: &str = "27.1.0";

/// What became of the changes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    caught: usize,
    missed: Vec<String>,
    /// They did not compile, so that nobody can make them.
    unviable: usize,
}

impl Found {
    fn percent(&self) -> usize {
        self.caught * 100 / (self.caught + self.missed.len()).max(1)
    }

    /// Whether as many were noticed as must be.
    fn is_enough(&self) -> bool {
        self.caught > 0 && self.percent() >= LEAST_PERCENT
    }
}

/// `xtask mutants [COUNT]`: the first so many of the draw.
pub(crate) fn run(root: &Path, count: Option<&str>) -> ExitCode {
    let Ok(count) = count.map_or(Ok(COUNT), str::parse) else {
        eprintln!("mutants: how many is a number");
        return ExitCode::from(2);
    };
    match draw_and_try(root, count) {
        Ok(found) if found.is_enough() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The step of `make test-long`.
pub(crate) fn check(root: &Path) -> Outcome {
    if !has_tool() {
        return Outcome::Skipped(install());
    }
    match draw_and_try(root, COUNT) {
        Ok(found) if found.is_enough() => Outcome::Passed,
        Ok(found) => Outcome::Failed(format!("{}% of the changes were noticed", found.percent())),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

fn install() -> String {
    format!("cargo-mutants is missing: cargo install --locked cargo-mutants --version {TOOL} (a few minutes)")
}

fn tool() -> Command {
    // As cargo would start it; cargo itself need not know it.
    let mut tool = Command::new("cargo-mutants");
    tool.arg("mutants").env_remove("CARGO_MANIFEST_DIR");
    tool
}

fn has_tool() -> bool {
    tool().arg("--version").output().is_ok_and(|output| output.status.success())
}

fn draw_and_try(root: &Path, count: usize) -> anyhow::Result<Found> {
    if !has_tool() {
        bail!("{}", install());
    }
    let drawn = draw(list(root)?, count);
    let out = root.join("target/mutants");
    fs::create_dir_all(&out)?;
    let found = try_all(root, &out, &drawn)?;
    for missed in &found.missed {
        println!("not noticed: {missed}");
    }
    let Found { caught, missed, unviable } = &found;
    println!(
        "{} changes: {caught} noticed, {} not, {unviable} do not compile: {}% (goal {LEAST_PERCENT}%)",
        drawn.len(),
        missed.len(),
        found.percent()
    );
    write_result(root, &found, drawn.len())?;
    Ok(found)
}

/// The names of all changes, in the tool's order.
fn list(root: &Path) -> anyhow::Result<Vec<String>> {
    let packages = CRATES.iter().flat_map(|name| ["-p", name]);
    let output = tool().args(["--list", "--json", "-d"]).arg(root).args(packages).output()?;
    if !output.status.success() {
        bail!("the changes cannot be listed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let listed: Vec<Value> = serde_json::from_slice(&output.stdout).context("a list of changes")?;
    listed.iter().map(|one| Ok(one["name"].as_str().context("a name")?.to_owned())).collect()
}

/// As many as `count`, in an order that the seed decides. Some changes have one name, and come together, so that it may be a few
/// more.
fn draw(mut names: Vec<String>, count: usize) -> Vec<String> {
    let mut state = SEED;
    // Fisher and Yates, with the numbers of SplitMix64.
    for last in (1..names.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        names.swap(last, ((mixed ^ (mixed >> 31)) % (last as u64 + 1)) as usize);
    }
    let mut drawn: Vec<String> = Vec::new();
    for name in &names {
        if drawn.len() >= count {
            break;
        }
        if !drawn.contains(name) {
            drawn.extend(names.iter().filter(|same| *same == name).cloned());
        }
    }
    drawn
}

/// A regular expression that matches this name and no other.
fn exactly(name: &str) -> String {
    let mut expression = String::from("^");
    for character in name.chars() {
        // Not all punctuation: `\<` would be the beginning of a word.
        if r"\.+*?()|[]{}^$".contains(character) {
            expression.push('\\');
        }
        expression.push(character);
    }
    expression + "$"
}

/// Makes one change after the other in a copy of the tree, and runs the tests of the changed crate.
fn try_all(root: &Path, out: &Path, names: &[String]) -> anyhow::Result<Found> {
    let mut command = tool();
    command.arg("-d").arg(root).arg("-o").arg(out).args(["-j1", "--baseline=skip", "--timeout", LONGEST_S]);
    command.args(["--minimum-test-timeout", LONGEST_S, "--no-shuffle", "--colors=never"]);
    // What was built for one change serves the next, and the next time.
    command.env("CARGO_TARGET_DIR", out.join("build"));
    for name in names.iter().collect::<BTreeSet<_>>() {
        command.args(["--re", &exactly(name)]);
    }
    command.args(CRATES.iter().flat_map(|name| ["-p", name]));
    // Its exit code tells of changes that were not noticed as well, so that only its report counts.
    let status = command.status().context("cargo-mutants")?;
    let report: PathBuf = out.join("mutants.out/outcomes.json");
    let text = fs::read_to_string(&report).with_context(|| format!("it ended with {status}"))?;
    let found = read(&serde_json::from_str(&text)?)?;
    let tried = found.caught + found.missed.len() + found.unviable;
    if tried != names.len() {
        bail!("{} changes were drawn, and {tried} tried ({status})", names.len());
    }
    Ok(found)
}

/// What the tool reports.
fn read(report: &Value) -> anyhow::Result<Found> {
    let mut found = Found::default();
    for outcome in report["outcomes"].as_array().context("outcomes")? {
        let Some(name) = outcome["scenario"]["Mutant"]["name"].as_str() else { continue };
        match outcome["summary"].as_str() {
            // A test that does not end notices as well.
            Some("CaughtMutant" | "Timeout") => found.caught += 1,
            Some("MissedMutant") => found.missed.push(name.to_owned()),
            Some("Unviable") => found.unviable += 1,
            other => bail!("{name}: {other:?}"),
        }
    }
    Ok(found)
}

/// Keeps the figure beside the others, in their form; bench/stamp.py adds the machine and the commit.
fn write_result(root: &Path, found: &Found, drawn: usize) -> anyhow::Result<()> {
    let stamp =
        Command::new("python3").arg(root.join("bench/stamp.py")).output().context("bench/stamp.py")?;
    let mut part: Value = serde_json::from_slice(&stamp.stdout).context("bench/stamp.py")?;
    part["script"] = json!("mutants");
    part["command"] = json!(format!("make mutants (the first {drawn} of seed {SEED})"));
    part["load"] = json!({ "busiest_before_a_round": 0.0, "gave_up_waiting": 0 });
    part["figures"] = json!([{
        "name": "changes that a test notices, of those that compile",
        "value": found.percent() as f64 / 100.0,
        "range": null,
        "unit": "",
        "target": format!("≥ 0.{LEAST_PERCENT}"),
        "met": found.is_enough(),
        "detail": {
            "crates": CRATES, "seed": SEED, "tool": TOOL, "drawn": drawn, "caught": found.caught,
            "unviable": found.unviable, "missed": found.missed,
        },
    }]);
    fs::write(root.join(RESULT), serde_json::to_string_pretty(&part)? + "\n").context(RESULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_and_a_smaller_draw_is_the_beginning_of_a_larger() {
        let names = || (0..1_000).map(|number| number.to_string()).collect::<Vec<_>>();
        let drawn = draw(names(), 200);
        assert_eq!(drawn[..40], draw(names(), 40)[..]);
        let mut sorted = drawn.clone();
        sorted.sort();
        sorted.dedup();
        assert!(sorted.len() == 200 && drawn != names()[..200]);
        let twins = || (0..1_000).map(|number| (number / 2).to_string()).collect::<Vec<_>>();
        let drawn = draw(twins(), 201);
        assert_eq!(drawn.len(), 202);
        assert!(drawn.chunks(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn a_name_matches_itself_only() {
        let name = "crates/a/src/b.rs:3:5: replace + with * in <A as B>::f -> Vec<u8>";
        assert_eq!(&exactly("a.b")[..], r"^a\.b$");
        assert!(exactly(name).contains(r"\+ with \* in <A as B>::f -> Vec<u8>$"));
    }

    #[test]
    fn what_does_not_compile_counts_neither_way() {
        let outcome =
            |summary, name| json!({ "scenario": { "Mutant": { "name": name } }, "summary": summary });
        let outcomes = [
            json!({ "scenario": "Baseline", "summary": "Success" }),
            outcome("CaughtMutant", "a"),
            outcome("Timeout", "b"),
            outcome("MissedMutant", "c"),
            outcome("Unviable", "d"),
        ];
        let found = read(&json!({ "outcomes": outcomes })).expect("a report");
        assert_eq!(found, Found { caught: 2, missed: vec!["c".into()], unviable: 1 });
        assert!(found.percent() == 66 && !found.is_enough());
        assert!(!Found::default().is_enough(), "nothing was tried");
    }
}
