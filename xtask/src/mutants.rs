//! Changes the code in one place at a time and looks whether a test notices: a draw of the changes that
//! cargo-mutants knows of, the same each time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::checks::Outcome;

/// What changes are drawn from.
#[derive(Debug, PartialEq, Eq)]
struct Draw {
    /// As `--of` names it.
    name: &'static str,
    crates: &'static [&'static str],
    /// Where the results are kept; its stem also names the folder below `target/`.
    result: &'static str,
}

/// All draws. Without `--of` it is the first.
const DRAWS: [Draw; 2] = [
    Draw {
        name: "image",
        crates: &["hs-format", "hs-trace", "hs-layout", "hs-store", "hs-remote"],
        result: "bench/results/parts/mutants.json",
    },
    Draw {
        name: "engine",
        crates: &["hs-engine", "hs-queue"],
        result: "bench/results/parts/mutants_engine.json",
    },
];

/// Changes of a draw.
const COUNT: usize = 200;
/// Decides which.
const SEED: u64 = 17;
/// Of the changes that compile, so many in a hundred must be noticed.
const LEAST_PERCENT: usize = 90;
/// A changed program may never end; the tests of a crate take a third of this beside other work.
const LONGEST_S: &str = "60";
/// It may also ask for memory without a limit: a compiler does not need more than this either, in KiB of
/// address space.
const MOST_KIB: &str = "8388608";

/// The tool's version, which decides the list of changes.
const TOOL: &str = "27.1.0";

/// What became of the changes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    caught: usize,
    missed: Vec<String>,
    /// They do not compile.
    unviable: usize,
}

impl Verdict {
    fn percent(&self) -> usize {
        self.caught * 100 / (self.caught + self.missed.len()).max(1)
    }

    /// Whether as many were noticed as must be.
    fn is_enough(&self) -> bool {
        self.caught > 0 && self.percent() >= LEAST_PERCENT
    }
}

impl Draw {
    /// Words of a file's name: "mutants" or "mutants_engine".
    fn stem(&self) -> &'static str {
        let file = self.result.rsplit('/').next().unwrap_or_default();
        file.strip_suffix(".json").unwrap_or(file)
    }

    fn packages(&self) -> impl Iterator<Item = &'static str> {
        self.crates.iter().flat_map(|name| ["-p", *name])
    }
}

/// `xtask mutants [--of DRAW] [--go-on] [COUNT | FROM..TO]`: all of the draw, its first so many, or a portion
/// of it. `--go-on` keeps what was noticed before, and tries what is left.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> ExitCode {
    let Some(Arguments { draw, goes_on, portion }) = Arguments::parse(arguments) else {
        let names = DRAWS.map(|draw| draw.name).join(" or ");
        eprintln!("mutants: [--of DRAW], which is {names}, [--go-on], and a count or FROM..TO");
        return ExitCode::from(2);
    };
    match draw_and_try(root, draw, &portion, goes_on) {
        Ok(found) if found.is_enough() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    draw: &'static Draw,
    goes_on: bool,
    portion: RangeInclusive<usize>,
}

impl Arguments {
    fn parse(arguments: &[&str]) -> Option<Self> {
        let (draw, rest) = match arguments {
            ["--of", name, rest @ ..] => (DRAWS.iter().find(|draw| draw.name == *name)?, rest),
            rest => (&DRAWS[0], rest),
        };
        let (goes_on, rest) = match rest {
            ["--go-on", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let portion = match rest {
            [] => 1..=COUNT,
            [portion] => parse(portion)?,
            _ => return None,
        };
        Some(Self { draw, goes_on, portion })
    }
}

/// `50` is the first fifty, `51..100` those after them, its last included.
fn parse(portion: &str) -> Option<RangeInclusive<usize>> {
    let (from, to) = portion.split_once("..").unwrap_or(("1", portion));
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (1 <= from && from <= to).then_some(from..=to)
}

/// The step of `make test-long`: all draws.
pub(crate) fn check(root: &Path) -> Outcome {
    if !has_tool() {
        return Outcome::Skipped(install());
    }
    let mut wrong = Vec::new();
    for draw in &DRAWS {
        match draw_and_try(root, draw, &(1..=COUNT), false) {
            Ok(found) if found.is_enough() => {}
            Ok(found) => {
                wrong.push(format!("{}: {}% of the changes were noticed", draw.name, found.percent()))
            }
            Err(error) => wrong.push(format!("{}: {error:#}", draw.name)),
        }
    }
    if wrong.is_empty() { Outcome::Passed } else { Outcome::Failed(wrong.join("; ")) }
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

fn draw_and_try(
    root: &Path,
    of: &Draw,
    portion: &RangeInclusive<usize>,
    goes_on: bool,
) -> anyhow::Result<Verdict> {
    if !has_tool() {
        bail!("{}", install());
    }
    let listed = list(root, of)?;
    let mut drawn = draw(&listed, *portion.end());
    drawn.drain(..drawn.len().min(portion.start() - 1));
    let out = root.join("target").join(of.stem());
    fs::create_dir_all(&out)?;
    let mut known = if goes_on { remembered(&out)? } else { Summaries::new() };
    known.retain(|_, summary| summary != MISSED);
    remember(&out, &known)?;
    let left: BTreeSet<&String> = drawn.iter().filter(|name| !known.contains_key(*name)).collect();
    println!("{} changes, {} of them to be tried", drawn.len(), left.len());
    if !left.is_empty() {
        try_all(root, of, &out, &listed, &left)?;
        known = remembered(&out)?;
        remember(&out, &known)?;
    }
    let found = judge(&drawn, &known)?;
    for missed in &found.missed {
        println!("not noticed: {missed}");
    }
    let Verdict { caught, missed, unviable } = &found;
    println!(
        "{} changes: {caught} noticed, {} not, {unviable} do not compile: {}% (goal {LEAST_PERCENT}%)",
        drawn.len(),
        missed.len(),
        found.percent()
    );
    if *portion == (1..=COUNT) {
        write_result(root, of, &found, drawn.len())?;
    }
    Ok(found)
}

/// The names of all changes, in the tool's order.
fn list(root: &Path, of: &Draw) -> anyhow::Result<Vec<String>> {
    let output = tool().args(["--list", "--json", "-d"]).arg(root).args(of.packages()).output()?;
    if !output.status.success() {
        bail!("the changes cannot be listed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let listed: Vec<Value> = serde_json::from_slice(&output.stdout).context("a list of changes")?;
    listed.iter().map(|one| Ok(one["name"].as_str().context("a name")?.to_owned())).collect()
}

/// The first `count` in an order that the seed decides. The place of a change in that order follows from its
/// file, its words and how many like it come before, not from its line. So code elsewhere hardly changes the
/// draw.
fn draw(names: &[String], count: usize) -> Vec<String> {
    let (mut seen, mut alike) = (BTreeSet::new(), BTreeMap::<String, u64>::new());
    let mut order: Vec<(u64, &String)> = Vec::new();
    // To the tool, what has one name is one change.
    for name in names.iter().filter(|name| seen.insert(*name)) {
        let words = without_line(name);
        let before = alike.entry(words.clone()).or_default();
        order.push((place(&words, *before), name));
        *before += 1;
    }
    order.sort_unstable();
    order.into_iter().take(count).map(|(_, name)| name.clone()).collect()
}

/// `FILE:LINE:COLUMN: WORDS` without line and column.
fn without_line(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    let file = parts.next().unwrap_or_default();
    format!("{file}:{}", parts.nth(2).unwrap_or_default())
}

/// FNV-1a, then SplitMix64: FNV alone puts names that differ only in their end side by side.
fn place(words: &str, before: u64) -> u64 {
    let bytes = SEED.to_le_bytes().into_iter().chain(before.to_le_bytes()).chain(words.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Makes one change after the other in a copy of the tree, and runs the tests of the changed crate.
fn try_all(
    root: &Path,
    of: &Draw,
    out: &Path,
    listed: &[String],
    names: &BTreeSet<&String>,
) -> anyhow::Result<()> {
    // What was built for one change serves the next, and what is not ours the next time.
    let build = out.join("build");
    forget_changed_builds(root, of, &build)?;
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {MOST_KIB} && exec cargo-mutants mutants \"$@\""), "sh"]);
    command.env_remove("CARGO_MANIFEST_DIR");
    command.arg("-d").arg(root).arg("-o").arg(out).args(["-j1", "--baseline=skip", "--timeout", LONGEST_S]);
    command.args(["--minimum-test-timeout", LONGEST_S, "--no-shuffle", "--colors=never"]);
    command.env("CARGO_TARGET_DIR", &build);
    // Without debug information a change is built and linked sooner, and nothing looks for the smallest
    // input.
    command
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("RUST_BACKTRACE", "0")
        .env("PROPTEST_MAX_SHRINK_ITERS", "0");
    // To the tool, the others are noticed already. `--re` would not keep it from deleting fields of
    // structures.
    let mut others = String::new();
    for name in listed.iter().filter(|name| !names.contains(name)) {
        others += name;
        others.push('\n');
    }
    fs::create_dir_all(out.join("mutants.out"))?;
    fs::write(out.join("mutants.out/caught.txt"), others).context("caught.txt")?;
    command.arg("--iterate").args(of.packages());
    // Examples in comments show the use, and are no tests of it.
    command.args(["--", "--lib", "--tests"]);
    // Its exit code tells of changes that were not noticed as well, so that only its report counts.
    let status = command.status().context("cargo-mutants")?;
    let tried = read(&report(out).with_context(|| format!("it ended with {status}"))?)?;
    if let Some(name) = names.iter().find(|name| !tried.contains_key(**name)) {
        bail!("{name} was not tried ({status}): --go-on tries what is left");
    }
    Ok(())
}

/// Removes what earlier changes have left of the changed crates: to cargo it is newer than their unchanged
/// files, so that a crate that depends on a changed one would be tested with it.
fn forget_changed_builds(root: &Path, of: &Draw, build: &Path) -> anyhow::Result<()> {
    let mut clean = Command::new("cargo");
    clean.args(["clean", "-q"]).args(of.packages());
    let status = clean.current_dir(root).env("CARGO_TARGET_DIR", build).status().context("cargo clean")?;
    if !status.success() {
        bail!("cargo clean: {status}");
    }
    Ok(())
}

/// What became of each change.
type Summaries = BTreeMap<String, String>;

const MISSED: &str = "MissedMutant";

/// The tool's own report, which it writes anew after each change.
fn report(out: &Path) -> anyhow::Result<Value> {
    let path = out.join("mutants.out/outcomes.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_str(&text)?)
}

/// What is known from before, a run that was cut off included.
fn remembered(out: &Path) -> anyhow::Result<Summaries> {
    let mut known: Summaries = match fs::read_to_string(out.join("known.json")) {
        Ok(text) => serde_json::from_str(&text).context("known.json")?,
        Err(_) => Summaries::new(),
    };
    if let Ok(report) = report(out) {
        known.extend(read(&report)?);
    }
    Ok(known)
}

/// Keeps what is known, so that a later run of the tool may replace its report.
fn remember(out: &Path, known: &Summaries) -> anyhow::Result<()> {
    fs::write(out.join("known.json"), serde_json::to_string_pretty(known)?).context("known.json")?;
    match fs::remove_dir_all(out.join("mutants.out")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("mutants.out"),
        _ => Ok(()),
    }
}

/// What the tool reports, by name. Of two changes with one name both must be noticed.
fn read(report: &Value) -> anyhow::Result<Summaries> {
    let mut summaries = Summaries::new();
    for outcome in report["outcomes"].as_array().context("outcomes")? {
        let Some(name) = outcome["scenario"]["Mutant"]["name"].as_str() else { continue };
        let summary = outcome["summary"].as_str().context("a summary")?;
        let kept = summaries.entry(name.to_owned()).or_insert_with(|| summary.to_owned());
        if summary == MISSED {
            *kept = summary.to_owned();
        }
    }
    Ok(summaries)
}

/// What became of those that were drawn.
fn judge(drawn: &[String], summaries: &Summaries) -> anyhow::Result<Verdict> {
    let mut found = Verdict::default();
    for name in drawn {
        match summaries.get(name).map(String::as_str) {
            // A test that does not end notices as well.
            Some("CaughtMutant" | "Timeout") => found.caught += 1,
            Some(MISSED) => found.missed.push(name.clone()),
            Some("Unviable") => found.unviable += 1,
            other => bail!("{name}: {other:?}"),
        }
    }
    Ok(found)
}

/// Keeps the figure beside the others, in their form; bench/stamp.py adds the machine and the commit.
fn write_result(root: &Path, of: &Draw, found: &Verdict, drawn: usize) -> anyhow::Result<()> {
    let stamp =
        Command::new("python3").arg(root.join("bench/stamp.py")).output().context("bench/stamp.py")?;
    let mut part: Value = serde_json::from_slice(&stamp.stdout).context("bench/stamp.py")?;
    part["script"] = json!(of.stem());
    let command =
        if of == &DRAWS[0] { "make mutants".into() } else { format!("xtask mutants --of {}", of.name) };
    part["command"] = json!(format!("{command} (the first {drawn} of seed {SEED})"));
    part["load"] = json!({ "busiest_before_a_round": 0.0, "gave_up_waiting": 0 });
    part["figures"] = json!([{
        "name": "changes that a test notices, of those that compile",
        "value": found.percent() as f64 / 100.0,
        "range": null,
        "unit": "",
        "target": format!("≥ 0.{LEAST_PERCENT}"),
        "met": found.is_enough(),
        "detail": {
            "crates": of.crates, "seed": SEED, "tool": TOOL, "drawn": drawn, "caught": found.caught,
            "unviable": found.unviable, "missed": found.missed,
        },
    }]);
    fs::write(root.join(of.result), serde_json::to_string_pretty(&part)? + "\n").context(of.result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(numbers: impl Iterator<Item = usize>) -> Vec<String> {
        numbers.map(|number| format!("a.rs:{number}:5: replace f{} with ()", number / 2)).collect()
    }

    #[test]
    fn a_smaller_draw_is_the_beginning_of_a_larger_and_no_change_is_drawn_twice() {
        let drawn = draw(&names(0..1_000), 200);
        assert_eq!(drawn[..40], draw(&names(0..1_000), 40)[..]);
        assert!(drawn.len() == 200 && drawn != names(0..1_000)[..200]);
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 200);
        assert_eq!(draw(&names((0..1_000).chain(0..1_000)), 200), drawn, "one name is one change");
    }

    #[test]
    fn code_elsewhere_hardly_changes_the_draw() {
        let words = |drawn: Vec<String>| drawn.iter().map(|name| without_line(name)).collect::<Vec<_>>();
        let drawn = words(draw(&names(0..1_000), 100));
        let moved: Vec<_> = names(0..1_000).iter().map(|name| name.replace("rs:", "rs:1")).collect();
        assert_eq!(words(draw(&moved, 100)), drawn, "a line is not looked at");
        let more = words(draw(&names(0..1_010), 100));
        assert!(drawn.iter().filter(|words| !more.contains(words)).count() <= 10);
    }

    #[test]
    fn a_portion_is_a_count_or_both_ends() {
        assert_eq!(parse("50"), Some(1..=50));
        assert_eq!(parse("51..100"), Some(51..=100));
        for wrong in ["", "0", "0..3", "5..4", "x", "1..", "..2", "1..2..3"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn of_names_the_draw_and_without_it_the_draw_is_the_first() {
        let parse = |words: &str| Arguments::parse(&words.split_whitespace().collect::<Vec<_>>());
        let of = |place: usize, goes_on, portion| Some(Arguments { draw: &DRAWS[place], goes_on, portion });
        assert_eq!(parse(""), of(0, false, 1..=COUNT));
        assert_eq!(parse("--go-on 51..100"), of(0, true, 51..=100));
        assert_eq!(parse("--of engine"), of(1, false, 1..=COUNT));
        assert_eq!(parse("--of engine --go-on 50"), of(1, true, 1..=50));
        for wrong in ["--of", "--of hs-engine", "engine", "--of engine 1 2", "--of engine 0"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        let stems: BTreeSet<_> = DRAWS.iter().map(Draw::stem).collect();
        assert_eq!(
            stems,
            BTreeSet::from(["mutants", "mutants_engine"]),
            "no draw replaces another's results"
        );
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
        let summaries = read(&json!({ "outcomes": outcomes })).expect("a report");
        let drawn = ["a", "b", "c", "d"].map(String::from);
        let found = judge(&drawn, &summaries).expect("all were tried");
        assert_eq!(found, Verdict { caught: 2, missed: vec!["c".into()], unviable: 1 });
        assert!(found.percent() == 66 && !found.is_enough());
        assert!(!Verdict::default().is_enough(), "nothing was tried");
        assert!(judge(&["e".into()], &summaries).is_err(), "it was not tried");
    }

    #[test]
    fn what_a_run_found_is_known_to_the_next() {
        let out = std::env::temp_dir().join(format!("xtask-mutants-{}", std::process::id()));
        fs::create_dir_all(out.join("mutants.out")).expect("a folder");
        let summaries = |names: &[&str]| -> Summaries {
            names.iter().map(|name| ((*name).to_owned(), "Timeout".to_owned())).collect()
        };
        remember(&out, &summaries(&["a"])).expect("kept");
        fs::create_dir_all(out.join("mutants.out")).expect("a folder");
        let outcome = json!({ "scenario": { "Mutant": { "name": "b" } }, "summary": "Timeout" });
        let report = json!({ "outcomes": [outcome] }).to_string();
        fs::write(out.join("mutants.out/outcomes.json"), report).expect("a report that was cut off");
        assert_eq!(remembered(&out).expect("read"), summaries(&["a", "b"]));
        fs::remove_dir_all(out).expect("removed");
    }
}
