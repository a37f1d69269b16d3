//! A file says what it holds: no drawers for everything, no twins with a version in their name.

use super::Violation;
use super::repository::Repository;

/// Names that say nothing about what is inside.
const DRAWERS: &[&str] = &["common", "commons", "util", "utils", "helper", "helpers", "misc"];

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in repository.rust_files() {
        for part in file.path.split('/') {
            let name = part.trim_end_matches(".rs");
            if let Some(what) = complaint(name) {
                violations.push(Violation::whole(&file.path, format!("\"{name}\" {what}")));
            }
        }
        violations.extend(inline_modules(&file.path, &file.code));
    }
    for package in repository.members() {
        let last = package.name.rsplit('-').next().unwrap_or(&package.name);
        if let Some(what) = complaint(last) {
            violations.push(Violation::whole(&package.manifest, format!("\"{}\" {what}", package.name)));
        }
    }
    violations
}

/// `mod name { … }`: a module with a file of its own is found by the file's path.
fn inline_modules(path: &str, code: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (line, text) in code.lines().enumerate() {
        let words: Vec<&str> = text.split_whitespace().collect();
        let Some(at) = words.iter().position(|word| *word == "mod") else { continue };
        if let (Some(name), Some(&"{")) = (words.get(at + 1), words.get(at + 2))
            && let Some(what) = complaint(name)
        {
            violations.push(Violation::at(path, line + 1, format!("\"{name}\" {what}")));
        }
    }
    violations
}

fn complaint(name: &str) -> Option<&'static str> {
    let is_twin = name
        .rsplit_once("_v")
        .is_some_and(|(_, version)| !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()));
    if DRAWERS.contains(&name) {
        Some("does not say what is inside")
    } else if is_twin {
        Some("has a version in its name: replace the old one instead")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::metadata::fixture::member;
    use super::super::repository::fixture::{files, lines};
    use super::*;

    #[test]
    fn drawers_and_twins_are_found_as_file_folder_module_and_crate() {
        for path in ["crates/a/src/utils.rs", "crates/a/src/common/mod.rs", "crates/a/src/index_v2.rs"] {
            assert_eq!(check(&files(&[(path, "")])).len(), 1, "{path}");
        }
        let said = lines(&check(&files(&[("a.rs", "\npub(crate) mod helpers {\n}")])));
        assert_eq!(said, ["a.rs:2: \"helpers\" does not say what is inside"]);
        let repository = Repository { packages: vec![member("hs-common", &[])], ..Repository::default() };
        assert_eq!(check(&repository).len(), 1);
    }

    #[test]
    fn nouns_are_fine() {
        assert_eq!(
            check(&files(&[("crates/hs-format/src/index.rs", "mod tests {\n}"), ("src/iolog_v.rs", "")])),
            []
        );
    }
}
