//! Every dependency's licence is one that deny.toml allows.
//!
//! The list lies in deny.toml alone, so that cargo-deny, where it is installed, gives the same answer.

use super::Violation;
use super::repository::Repository;
use super::spdx;

const DENY: &str = "deny.toml";

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let allowed = match repository.file(DENY) {
        Some(file) => allowed_licences(&file.text),
        None => Vec::new(),
    };
    if allowed.is_empty() {
        return vec![Violation::whole(DENY, "lists no allowed licences ([licenses] allow = [...])")];
    }
    let is_allowed = |licence: &str| allowed.iter().any(|one| one == licence);
    repository
        .packages
        .iter()
        .filter_map(|package| {
            let place = format!("{} {}", package.name, package.version);
            match &package.licence {
                None => Some(Violation::whole(place, "states no licence")),
                Some(licence) if spdx::is_satisfied(licence, &is_allowed) => None,
                Some(licence) => Some(Violation::whole(
                    place,
                    format!("its licence \"{licence}\" is not allowed by {DENY}"),
                )),
            }
        })
        .collect()
}

/// The quoted words of `allow = [...]` in the section `[licenses]`.
fn allowed_licences(text: &str) -> Vec<String> {
    let without_comments: String =
        text.lines().map(|line| line.split('#').next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let section = without_comments.split_once("[licenses]").map_or("", |(_, rest)| rest);
    let section = section.split_once("\n[").map_or(section, |(section, _)| section);
    let list = section
        .split_once("allow")
        .and_then(|(_, rest)| rest.split_once('['))
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::super::metadata::Package;
    use super::super::repository::fixture::{files, lines};
    use super::*;

    const LIST: &str = "[bans]\nallow = [\"x\"]\n[licenses]\n# allow = []\nallow = [\n  \"MIT\", # why\n  \
        \"Apache-2.0 WITH LLVM-exception\",\n]\n[sources]\nallow = [\"GPL-3.0\"]\n";

    fn said_about(licence: Option<&str>) -> Vec<String> {
        let mut repository = files(&[(DENY, LIST)]);
        repository.packages = vec![Package {
            name: "a".into(),
            version: "1.0.0".into(),
            licence: licence.map(Into::into),
            ..Package::default()
        }];
        lines(&check(&repository))
    }

    #[test]
    fn the_list_is_read_from_its_section() {
        assert_eq!(allowed_licences(LIST), ["MIT", "Apache-2.0 WITH LLVM-exception"]);
    }

    #[test]
    fn a_licence_that_is_not_listed_and_no_licence_are_found() {
        assert!(said_about(Some("MIT OR GPL-3.0")).is_empty());
        assert_eq!(
            said_about(Some("GPL-3.0")),
            ["a 1.0.0: its licence \"GPL-3.0\" is not allowed by deny.toml"]
        );
        assert_eq!(said_about(None), ["a 1.0.0: states no licence"]);
    }

    #[test]
    fn a_missing_list_is_found() {
        assert_eq!(check(&files(&[])).len(), 1);
    }
}
