//! The slowest tests and steps, which a run ends with.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// So many are shown.
const SHOWN: usize = 20;

/// Where a run with `--keep` is kept.
const RESULT: &str = "bench/results/parts/tests.json";

/// Sorts tests and steps by their seconds, the slowest first.
pub(super) fn sort(all: &mut [(String, f64)]) {
    all.sort_by(|one, other| other.1.total_cmp(&one.1));
}

/// The slowest of these, with their seconds, one a line.
pub(super) fn list(sorted: &[(String, f64)]) -> String {
    let lines = sorted.iter().take(SHOWN).map(|(name, seconds)| format!("{seconds:8.1} s  {name}\n"));
    format!("== slowest\n{}", lines.collect::<String>())
}

/// Keeps the list as a result, with what the run took in all.
pub(super) fn keep(root: &Path, sorted: &[(String, f64)], seconds: f64) -> Result<()> {
    let stamp = Command::new("python3").arg(root.join("bench/stamp.py")).output().context("python3")?;
    let mut result: Value = serde_json::from_slice(&stamp.stdout).context("bench/stamp.py")?;
    let tenths = |seconds: f64| (seconds * 10.0).round() / 10.0;
    let slowest: Vec<Value> = sorted
        .iter()
        .take_while(|(_, seconds)| *seconds > 1.0)
        .map(|(name, seconds)| json!({"name": name, "seconds": tenths(*seconds)}))
        .collect();
    result["script"] = "tests".into();
    result["command"] = "cargo run -p xtask -- test --keep".into();
    result["figures"] = json!([{
        "name": "make test", "value": tenths(seconds), "unit": "s", "range": null,
        "target": "≤ 1200 s", "met": seconds <= 1200.0, "detail": {"slowest": slowest},
    }]);
    let text = format!("{}\n", serde_json::to_string_pretty(&result)?);
    std::fs::write(root.join(RESULT), text).with_context(|| RESULT.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_come_first_and_no_more_than_twenty() {
        let mut all: Vec<_> = (0..30).map(|number| (format!("test {number}"), f64::from(number))).collect();
        sort(&mut all);
        let said = list(&all);
        assert_eq!(said.lines().count(), 1 + SHOWN, "{said}");
        assert!(said.starts_with("== slowest\n    29.0 s  test 29\n    28.0 s  test 28\n"), "{said}");
    }
}
