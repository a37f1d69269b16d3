//! A comment names each rule of docs/FORMAT.md (R1, R2, …) in the code that enforces it, and one in a test.

use std::collections::BTreeSet;

use super::Violation;
use super::repository::{File, Repository};
use super::source::comment_lines;

const DOCUMENT: &str = "docs/FORMAT.md";
/// The crates that read and write images and overlays.
const CRATES: &[&str] =
    &["crates/hs-format/", "crates/hs-image/", "crates/hs-build/", "crates/hs-disk/", "crates/hs-overlay/"];

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let Some(document) = repository.file(DOCUMENT) else { return Vec::new() };
    let rules = rules_in(&document.text);
    let (mut code, mut tests) = (BTreeSet::new(), BTreeSet::new());
    let mut violations = Vec::new();
    for file in repository.rust_files().filter(|file| CRATES.iter().any(|path| file.path.starts_with(path))) {
        for (line, rule) in comment_lines(&file.text).iter().flat_map(|(line, text)| named(*line, text)) {
            if !rules.contains(&rule) {
                violations.push(Violation::at(&file.path, line, format!("{DOCUMENT} has no rule R{rule}")));
            }
            let names = if is_test(file) { &mut tests } else { &mut code };
            names.insert(rule);
        }
    }
    for (names, what) in [(code, "no code that enforces it"), (tests, "no test")] {
        let lacks = rules.difference(&names);
        violations.extend(lacks.map(|rule| Violation::whole(DOCUMENT, format!("R{rule}: {what} names it"))));
    }
    violations
}

/// Rules stand at the beginning of an item, or in brackets behind a sentence.
fn rules_in(text: &str) -> BTreeSet<u32> {
    let starts = text.lines().filter_map(|line| line.strip_prefix("- R")?.split(':').next()?.parse().ok());
    let bracketed = text.split("(R").skip(1).filter_map(|rest| rest.split(')').next()?.parse().ok());
    starts.chain(bracketed).collect()
}

/// The rules that a comment names: words of an R and a number.
fn named(line: usize, text: &str) -> Vec<(usize, u32)> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter_map(|word| Some((line, word.strip_prefix('R')?.parse().ok()?))).collect()
}

fn is_test(file: &File) -> bool {
    file.path.contains("/tests/") || file.path.ends_with("tests.rs")
}

#[cfg(test)]
mod tests {
    use super::super::repository::fixture::{files, lines};
    use super::*;

    #[test]
    fn rules_without_code_or_a_test_and_names_without_a_rule_are_found() {
        let document = "Reserved fields are zero (R1).\n- R2: the size\n";
        let said = |code: &str, test: &str| {
            lines(&check(&files(&[
                (DOCUMENT, document),
                ("crates/hs-format/src/a.rs", code),
                ("crates/hs-image/tests/b.rs", test),
                ("crates/hs-lab/src/c.rs", "// R2\n// R9\n"),
            ])))
        };
        assert_eq!(said("// R1, R2\n", "// R2; R1\n"), [""; 0]);
        assert_eq!(said("// R1\nlet R2 = \"R2\";\n", "// R1, R2\n").len(), 1);
        let found = said("// R1: zero\n// R2\n", "// R1\n");
        assert_eq!(found, ["docs/FORMAT.md: R2: no test names it"]);
        let found = said("// R1\n// R2\n// R12\n", "// R1 R2\n");
        assert_eq!(found, ["crates/hs-format/src/a.rs:3: docs/FORMAT.md has no rule R12"]);
    }
}
