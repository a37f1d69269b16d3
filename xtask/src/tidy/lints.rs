//! Every crate takes its lints and its common fields from the workspace.

use super::Violation;
use super::repository::Repository;

/// Fields that each member inherits, so that they are said once.
const INHERITED: &[&str] = &["version", "edition", "rust-version", "license"];

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in repository.members() {
        let Some(manifest) = repository.file(&package.manifest) else {
            violations
                .push(Violation::whole(&package.manifest, "this manifest is not part of the repository"));
            continue;
        };
        if !inherits_lints(&manifest.text) {
            violations.push(Violation::whole(&manifest.path, "needs [lints] workspace = true"));
        }
        for field in INHERITED {
            if !manifest.text.lines().any(|line| is_inherited(line, field)) {
                violations.push(Violation::whole(&manifest.path, format!("needs {field}.workspace = true")));
            }
        }
    }
    violations
}

fn is_inherited(line: &str, field: &str) -> bool {
    squeeze(line) == format!("{field}.workspace=true")
        || squeeze(line) == format!("{field}={{workspace=true}}")
}

fn inherits_lints(manifest: &str) -> bool {
    let mut section = "";
    for line in manifest.lines() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line;
        }
        let squeezed = squeeze(line);
        if (section == "[lints]" && squeezed == "workspace=true") || squeezed == "lints.workspace=true" {
            return true;
        }
    }
    false
}

fn squeeze(line: &str) -> String {
    line.chars().filter(|c| !c.is_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::metadata::fixture::member;
    use super::super::repository::fixture::{files, lines};
    use super::*;

    const GOOD: &str = "[package]\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\n[lints]\nworkspace = true\n";

    fn said_about(manifest: &str) -> Vec<String> {
        let mut repository = files(&[("crates/a/Cargo.toml", manifest)]);
        repository.packages = vec![member("a", &[])];
        lines(&check(&repository))
    }

    #[test]
    fn a_manifest_that_inherits_everything_is_fine() {
        assert!(said_about(GOOD).is_empty());
    }

    #[test]
    fn missing_lints_and_fields_are_found() {
        assert_eq!(
            said_about(&GOOD.replace("[lints]", "[other]")),
            ["crates/a/Cargo.toml: needs [lints] workspace = true"]
        );
        assert_eq!(
            said_about(&GOOD.replace("edition.workspace = true", "edition = \"2021\"")),
            ["crates/a/Cargo.toml: needs edition.workspace = true"]
        );
    }
}
