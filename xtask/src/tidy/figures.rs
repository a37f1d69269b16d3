//! What README and the page of results claim to have measured is in a result file. Result files say where
//! they come from, and a script or a page names each.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Violation;
use super::repository::{File, Repository};

/// Where results lie.
const RESULTS: &str = "bench/results/parts/";
/// Pages whose tables and sentences are compared with results.
const PAGES: &[&str] = &["README.md", "docs/RESULTS.md"];
/// Units of measured figures in sentences.
const UNITS: &[&str] = &["s", "MB", "MiB", "×", "times"];

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    let (mut rows, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for file in repository.files.iter().filter(|file| file.path.starts_with(RESULTS)) {
        if !is_named(repository, &file.path) {
            violations.push(Violation::whole(&file.path, "no script and no page names this result"));
        }
        let Ok(part) = serde_json::from_str::<Value>(&file.text) else {
            violations.push(Violation::whole(&file.path, "it is no JSON"));
            continue;
        };
        let lacks = ["/commit", "/machine/cpu", "/machine/kernel", "/machine/date", "/command"];
        for place in
            lacks.into_iter().filter(|place| part.pointer(place).is_none_or(|said| !said.is_string()))
        {
            violations
                .push(Violation::whole(&file.path, format!("it does not name its {place} (bench/stamp.py)")));
        }
        // A goal is told as well.
        let figures = part["figures"].as_array().into_iter().flatten();
        let targets = figures.filter_map(|figure| figure["target"].as_str()?.split(' ').nth(1));
        numbers.extend(targets.map(str::to_owned));
        let tables = part["tables"].as_object().into_iter().flat_map(|tables| tables.values());
        for line in tables.filter_map(Value::as_array).flatten().filter_map(Value::as_str) {
            numbers.extend(decimals(line).map(|(_, number)| number.to_owned()));
            if line.starts_with('│') {
                rows.insert(words(line));
            }
        }
    }
    for page in PAGES.iter().filter_map(|page| repository.file(page)) {
        check_page(page, &rows, &numbers, &mut violations);
    }
    violations
}

/// Rows of a page that no result has, and measured numbers of its sentences.
fn check_page(
    page: &File,
    rows: &BTreeSet<String>,
    numbers: &BTreeSet<String>,
    violations: &mut Vec<Violation>,
) {
    for (line, text) in page.text.lines().enumerate() {
        if text.starts_with('│') && !rows.contains(&words(text)) {
            let what = format!("no result has this row: {text}");
            violations.push(Violation::at(&page.path, line + 1, what));
        }
        let measured = decimals(text).filter(|(unit, _)| UNITS.contains(unit));
        for (_, number) in measured.filter(|_| !text.starts_with('│')) {
            if !numbers.contains(number) {
                let what = format!("no table of a result has {number}");
                violations.push(Violation::at(&page.path, line + 1, what));
            }
        }
    }
}

/// Whether a script writes this result, or a file names it.
fn is_named(repository: &Repository, path: &str) -> bool {
    let name = path.trim_start_matches(RESULTS);
    let stem = name.trim_end_matches(".json");
    let (script, quoted) = (format!("bench/{stem}.py"), format!("\"{stem}\""));
    let others = repository.files.iter().filter(|file| !file.path.starts_with("bench/results/"));
    let mut others = others.filter(|file| !file.path.starts_with("xtask/src/tidy/"));
    others.any(|file| file.path == script || file.text.contains(name) || file.text.contains(&quoted))
}

/// A row with one space between words.
fn words(row: &str) -> String {
    row.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Numbers with a decimal point, each with the word after it.
fn decimals(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_decimal = |word: &str| {
        word.split_once('.').is_some_and(|(whole, part)| {
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits(whole.trim_start_matches('-')) && digits(part)
        })
    };
    let words: Vec<&str> =
        text.split([' ', '–', '│', '[', ']', '(', ')']).filter(|word| !word.is_empty()).collect();
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if is_decimal(word) {
            let next = words.get(index + 1).map_or("", |next| next.trim_end_matches([',', '.', ';', ':']));
            found.push((next, *word));
        }
    }
    found.into_iter()
}

#[cfg(test)]
mod tests {
    use super::super::repository::fixture::{files, lines};
    use super::*;

    const PART: &str = r#"{"script": "demo", "command": "make demo", "commit": "1234567890",
        "machine": {"cpu": "x", "kernel": "6.18.44", "date": "2026-11-23"},
        "tables": {"": ["│ start from   seconds │", "│ raw ext4       19.71 │", "The limit is 0.61 s."]}}"#;

    fn said(part: &str, readme: &str) -> Vec<String> {
        lines(&check(&files(&[
            ("bench/results/parts/demo.json", part),
            ("README.md", readme),
            ("bench/demo.py", ""),
        ])))
    }

    #[test]
    fn what_a_result_has_may_be_said() {
        let readme = "It takes 19.71 s, and the medium 0.61 s; since 24.04 or 1.88.\n│ raw ext4  19.71 │\n";
        assert_eq!(said(PART, readme), [] as [String; 0]);
    }

    #[test]
    fn other_figures_and_rows_are_found_and_so_are_results_of_nowhere() {
        let found = said(PART, "It takes 19.72 s,\n│ raw ext4  19.72 │\n");
        assert!(
            found.len() == 2 && found[0].contains("19.72") && found[1].starts_with("README.md:2:"),
            "{found:?}"
        );
        let page = lines(&check(&files(&[
            ("bench/results/parts/demo.json", PART),
            ("docs/RESULTS.md", "It takes 19.72 s,\n│ raw ext4  19.72 │\n"),
            ("bench/demo.py", ""),
        ])));
        assert!(page.len() == 2 && page[1].starts_with("docs/RESULTS.md:2:"), "{page:?}");
        let found = said(&PART.replace("\"commit\"", "\"build\""), "");
        assert!(found.len() == 1 && found[0].contains("/commit"), "{found:?}");
        assert_eq!(said("{", "").len(), 1);
        let old = lines(&check(&files(&[("bench/results/parts/old.json", PART), ("README.md", "")])));
        assert!(old.len() == 1 && old[0].contains("no script"), "{old:?}");
    }
}
