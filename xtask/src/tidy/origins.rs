//! Dependencies come from the crates.io registry only: no git revisions, no folders outside.

use super::Violation;
use super::repository::Repository;

/// What `cargo metadata` calls crates.io, whichever protocol or mirror the machine fetches it through.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    repository
        .packages
        .iter()
        .filter_map(|package| {
            let place = format!("{} {}", package.name, package.version);
            match (&package.source, package.member) {
                (None, true) => None,
                (None, false) => {
                    let what = format!("comes from a folder that is no member: {}", package.manifest);
                    Some(Violation::whole(place, what))
                }
                (Some(source), _) if source == REGISTRY => None,
                (Some(source), _) => Some(Violation::whole(place, format!("comes from {source}"))),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::metadata::Package;
    use super::super::metadata::fixture::member;
    use super::*;

    fn violations(package: Package) -> usize {
        check(&Repository { packages: vec![package], ..Repository::default() }).len()
    }

    #[test]
    fn the_registry_and_members_are_fine() {
        assert_eq!(violations(member("hs-units", &[])), 0);
        assert_eq!(violations(Package { source: Some(REGISTRY.into()), ..Package::default() }), 0);
    }

    #[test]
    fn git_and_foreign_folders_are_found() {
        assert_eq!(
            violations(Package { source: Some("git+https://example.org/a".into()), ..Package::default() }),
            1
        );
        assert_eq!(violations(Package { manifest: "/elsewhere/Cargo.toml".into(), ..Package::default() }), 1);
    }
}
