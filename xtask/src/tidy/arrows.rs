//! Dependency arrows point one way only: which crate may depend on which in the workspace.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::metadata::Package;
use super::pure::PURE;
use super::repository::Repository;

/// "A depends on B", as the design draws it. What B may use, A may use as well: an arrow is a layer,
/// and reaching over it makes no cycle. Every crate may use `hs-units`.
const ARROWS: &[(&str, &[&str])] = &[
    ("hs-units", &[]),
    ("hs-ext4", &["hs-units"]),
    ("hs-volumes", &["hs-units"]),
    ("hs-format", &["hs-volumes"]),
    ("hs-overlay", &["hs-units"]),
    ("hs-trace", &["hs-units"]),
    ("hs-accelerate", &["hs-trace"]),
    ("hs-queue", &["hs-units"]),
    ("hs-engine", &["hs-queue"]),
    ("hs-device", &["hs-units"]),
    ("hs-lab", &["hs-engine", "hs-trace", "hs-device", "hs-overlay"]),
    ("hs-papers", &["hs-lab"]),
    ("hs-layout", &["hs-trace", "hs-device"]),
    ("hs-store", &["hs-units", "hs-device"]),
    ("hs-remote", &["hs-store"]),
    ("hs-image", &["hs-format", "hs-store"]),
    ("hs-build", &["hs-ext4", "hs-image", "hs-layout", "hs-volumes"]),
    ("hs-linux", &["hs-units", "hs-volumes"]),
    ("hs-disk", &["hs-image", "hs-engine", "hs-linux"]),
    ("hs-observe", &["hs-disk", "hs-linux", "hs-trace"]),
    ("hs-relocate", &["hs-accelerate", "hs-linux", "hs-trace"]),
    ("hs-serve", &["hs-disk", "hs-linux", "hs-trace"]),
    ("hs-keep", &["hs-overlay", "hs-serve"]),
    ("hs-fuse", &["hs-keep"]),
    ("hs-nbd", &["hs-keep"]),
    ("hs-fill", &["hs-serve"]),
    ("hs-uffd", &["hs-serve"]),
    ("hs-vhost", &["hs-keep"]),
    ("hs-ublk", &["hs-serve"]),
    ("hs-http", &["hs-serve"]),
    ("hs-guest", &["hs-linux"]),
    ("hs-output", &["hs-units"]),
    ("hs-service", &["hs-fuse", "hs-http", "hs-output"]),
    (
        "hs-start",
        &["hs-build", "hs-fill", "hs-guest", "hs-nbd", "hs-observe", "hs-remote", "hs-service", "hs-trust"],
    ),
    ("hs-early", &["hs-accelerate", "hs-observe", "hs-output"]),
    ("hs-snapshotter", &["hs-start"]),
    ("hs-daemon", &["hs-start", "hs-ublk", "hs-uffd", "hs-vhost"]),
    ("hs-containers", &["hs-start"]),
    ("hs-demo", &["hs-lab-real", "hs-resume"]),
    ("hs-doctor", &["hs-iso"]),
    ("hs-live", &["hs-daemon"]),
    ("hs-iso", &["hs-live"]),
    ("hs-lab-real", &["hs-papers", "hs-start"]),
    ("hs-trust", &["hs-format", "hs-output"]),
    ("hs-report", &["hs-start"]),
    ("hs-resume", &["hs-start"]),
    ("hs-testing", &["hs-units"]),
];

/// Programs, tests and chores at the edge: they may use every library, and no library uses them.
const EDGES: &[&str] = &["headstart", "xtask", "headstart-fuzz", "hs-conformance"];

/// What every test may use: skips, a harness and noise; images and media.
const FOR_TESTS: &[&str] = &["hs-testing", "hs-conformance"];

/// What builds images: tests of the crates that read images may use it, to have some.
const BUILDER: &str = "hs-build";

/// What brings bytes from other machines: tests of the crates that serve images may serve a remote one.
const REMOTE: &str = "hs-remote";

/// Pairs that stay forbidden for tests too. The engine sees ranges and hints only; the store knows
/// bytes. A test that needed both would show that the border has moved.
const NEVER: &[(&str, &str)] =
    &[("hs-engine", "hs-format"), ("hs-store", "hs-format"), ("hs-remote", "hs-format")];

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let names: BTreeSet<&str> = repository.members().map(|package| package.name.as_str()).collect();
    repository.members().flat_map(|package| check_package(package, &names)).collect()
}

fn check_package(package: &Package, members: &BTreeSet<&str>) -> Vec<Violation> {
    if EDGES.contains(&package.name.as_str()) {
        return Vec::new();
    }
    let Some(allowed) = reachable(&package.name) else {
        return vec![Violation::whole(
            &package.manifest,
            "this crate has no place in the list of arrows (xtask/src/tidy/arrows.rs, docs/ARCHITECTURE.md)",
        )];
    };
    let mut violations = Vec::new();
    for dependency in &package.dependencies {
        let name = dependency.name.as_str();
        if !members.contains(name) {
            continue;
        }
        // A test may compare with any pure model: it ships nothing and brings no I/O along.
        let fine_for_tests = dependency.dev
            && (name == package.name
                || FOR_TESTS.contains(&name)
                || PURE.contains(&name)
                || name == BUILDER && allowed.contains("hs-image")
                || name == REMOTE && (package.name == "hs-disk" || allowed.contains("hs-disk")));
        let never = NEVER.contains(&(package.name.as_str(), name));
        if never || !(allowed.contains(name) || fine_for_tests) {
            let kind = if dependency.dev { "dev-depends" } else { "depends" };
            violations.push(Violation::whole(
                &package.manifest,
                format!("{} {kind} on {name}, against the arrows of the design", package.name),
            ));
        }
    }
    violations
}

/// Everything that a crate may depend on, or `None` for a crate that has no arrows.
fn reachable(name: &str) -> Option<BTreeSet<&'static str>> {
    let arrows: BTreeMap<&str, &[&'static str]> = ARROWS.iter().copied().collect();
    let mut found = BTreeSet::from(["hs-units"]);
    let mut open: Vec<&'static str> = arrows.get(name)?.to_vec();
    while let Some(next) = open.pop() {
        if found.insert(next) || next == "hs-units" {
            open.extend(arrows.get(next).copied().unwrap_or_default());
        }
    }
    if name == "hs-units" {
        found.clear();
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::super::metadata::fixture::member;
    use super::*;

    fn workspace(changed: Package) -> Repository {
        let mut packages: Vec<Package> = ARROWS
            .iter()
            .map(|(name, arrows)| member(name, arrows))
            .chain([member("headstart", &[])])
            .collect();
        packages.retain(|package| package.name != changed.name);
        packages.push(changed);
        Repository { packages, ..Repository::default() }
    }

    #[test]
    fn the_drawn_arrows_hold_and_reach_over_layers() {
        assert_eq!(check(&workspace(member("headstart", &["hs-report", "hs-guest", "anyhow"]))), []);
        assert_eq!(check(&workspace(member("hs-build", &["hs-trace", "hs-units"]))), []);
        assert_eq!(check(&workspace(member("hs-serve", &["hs-store", "hs-format"]))), []);
    }

    #[test]
    fn forbidden_arrows_are_found() {
        for (name, dependency) in [
            ("hs-engine", "hs-format"),
            ("hs-store", "hs-format"),
            ("hs-remote", "hs-format"),
            ("hs-units", "hs-trace"),
            ("hs-layout", "hs-engine"),
            ("hs-image", "hs-serve"),
            ("hs-image", "hs-layout"),
            ("hs-disk", "hs-build"),
            ("hs-lab", "dev:hs-build"),
            ("hs-serve", "hs-fuse"),
            ("hs-http", "hs-nbd"),
            ("hs-serve", "headstart"),
            ("hs-serve", "hs-report"),
            ("hs-format", "dev:hs-image"),
            ("hs-engine", "dev:hs-format"),
        ] {
            let found = check(&workspace(member(name, &[dependency])));
            assert_eq!(found.len(), 1, "{name} on {dependency}");
        }
    }

    #[test]
    fn tests_may_use_pure_models() {
        assert_eq!(check(&workspace(member("hs-layout", &["dev:hs-engine"]))), []);
        assert_eq!(check(&workspace(member("hs-serve", &["dev:hs-build"]))), []);
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        assert_eq!(check(&workspace(member("hs-misc", &[]))).len(), 1);
    }

    #[test]
    fn the_list_itself_has_no_cycle() {
        for (name, _) in ARROWS {
            assert!(!reachable(name).unwrap().contains(name), "{name} reaches itself");
        }
    }
}
