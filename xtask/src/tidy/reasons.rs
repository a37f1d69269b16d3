//! Every direct dependency has a reason in docs/DEPENDENCIES.md.

use std::collections::BTreeSet;

use super::Violation;
use super::repository::Repository;

const DOCUMENT: &str = "docs/DEPENDENCIES.md";

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let members: BTreeSet<&str> = repository.members().map(|package| package.name.as_str()).collect();
    let direct: BTreeSet<&str> = repository
        .members()
        .flat_map(|package| &package.dependencies)
        .map(|dependency| dependency.name.as_str())
        .filter(|name| !members.contains(name))
        .collect();
    let reasons: String = match repository.file(DOCUMENT) {
        // The names stand in the first column of a table.
        Some(file) => {
            file.text.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next()).collect()
        }
        None => String::new(),
    };
    direct
        .into_iter()
        .filter(|name| !reasons.contains(&format!("`{name}`")))
        .map(|name| {
            let what =
                format!("no line says what the dependency {name} does for us and what else was looked at");
            Violation::whole(DOCUMENT, what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::metadata::fixture::member;
    use super::super::repository::fixture::{files, lines};
    use super::*;

    #[test]
    fn a_dependency_without_a_line_is_found_and_members_need_none() {
        let mut repository = files(&[(DOCUMENT, "| `libc`, `rustix` | calls | nix |\nalso `zstd`\n")]);
        repository.packages =
            vec![member("hs-units", &[]), member("hs-image", &["hs-units", "rustix", "zstd", "dev:libc"])];
        let said = lines(&check(&repository));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("dependency zstd"), "{said:?}");
    }
}
