//! A test that takes longer than 20 s says why, in a table of docs/TESTING.md. Which those are is in the
//! list of a kept run (`cargo run -p xtask -- test --keep`), so that no machine's speed decides here.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Violation;
use super::repository::Repository;

const RESULT: &str = "bench/results/parts/tests.json";
const PAGE: &str = "docs/TESTING.md";
const HEADING: &str = "## Tests that take longer than 20 s";
const LONG_S: f64 = 20.0;

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let (Some(result), Some(page)) = (repository.file(RESULT), repository.file(PAGE)) else {
        return Vec::new();
    };
    let result: Value = serde_json::from_str(&result.text).unwrap_or_default();
    let slowest = result.pointer("/figures/0/detail/slowest").and_then(Value::as_array);
    let Some(slowest) = slowest else {
        return vec![Violation::whole(RESULT, "it lists no tests (cargo run -p xtask -- test --keep)")];
    };
    let is_long = |test: &&Value| test["seconds"].as_f64().is_some_and(|seconds| seconds > LONG_S);
    let long = slowest.iter().filter(is_long).filter_map(|test| test["name"].as_str());
    let long: BTreeSet<&str> = long.filter(|name| !name.starts_with("step ")).collect();
    let explained = explained(&page.text);
    let missing = long.difference(&explained).map(|name| {
        let what = format!("{name} takes longer than {LONG_S} s: the table '{HEADING}' has to say why");
        Violation::whole(PAGE, what)
    });
    let stale = explained.difference(&long).map(|name| {
        Violation::whole(PAGE, format!("{name} is in the table '{HEADING}', and does not take so long"))
    });
    missing.chain(stale).collect()
}

/// The tests that the table names, in its first column.
fn explained(page: &str) -> BTreeSet<&str> {
    let section = page.split_once(HEADING).map_or("", |(_, section)| section);
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    rows.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::super::repository::fixture::{files, lines};
    use super::*;

    #[test]
    fn a_long_test_needs_a_reason_and_a_quick_one_has_none() {
        let result = r#"{"figures": [{"detail": {"slowest": [{"name": "step tests", "seconds": 700},
            {"name": "cli a::b", "seconds": 30.5}, {"name": "cli a::c", "seconds": 3}]}}]}"#;
        let said = |page: &str| lines(&check(&files(&[(RESULT, result), (PAGE, page)])));
        let page =
            format!("{HEADING}\n\n| Test | Why |\n| --- | --- |\n| `cli a::b` | it boots |\n\n## More\n");
        assert_eq!(said(&page), [] as [String; 0]);
        let found = said("| `cli a::b` | elsewhere |");
        assert!(found.len() == 1 && found[0].contains("cli a::b takes longer"), "{found:?}");
        let found = said(&page.replace("| it boots |", "| it boots |\n| `cli a::c` | x |"));
        assert!(found.len() == 1 && found[0].contains("cli a::c is in the table"), "{found:?}");
    }
}
