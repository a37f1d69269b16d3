//! The packages of the dependency graph, from `cargo metadata`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

/// The platforms that headstart is built for; what only Windows would pull in does not matter.
const PLATFORMS: &[&str] = &["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// One package of the dependency graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    /// Name in its `Cargo.toml`.
    pub(crate) name: String,
    /// Version as text.
    pub(crate) version: String,
    /// SPDX expression, if it has one.
    pub(crate) licence: Option<String>,
    /// Where cargo gets it from; `None` for a folder on this machine.
    pub(crate) source: Option<String>,
    /// True if it belongs to the workspace.
    pub(crate) member: bool,
    /// `Cargo.toml`, from the root of the repository for members, absolute for the others.
    pub(crate) manifest: String,
    /// Direct dependencies.
    pub(crate) dependencies: Vec<Dependency>,
}

/// One direct dependency, as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The package's name, not the name it is imported under.
    pub(crate) name: String,
    /// True if only tests, examples and benches use it.
    pub(crate) dev: bool,
}

/// Asks cargo for the graph of the workspace at `root`.
pub(crate) fn load(root: &Path) -> anyhow::Result<Vec<Package>> {
    // Cargo sets this variable for what it runs, so that xtask asks the cargo that built it.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version=1"]).current_dir(root);
    for platform in PLATFORMS {
        command.args(["--filter-platform", platform]);
    }
    let output = command.output().context("could not run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let graph = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    parse(&graph, root)
}

fn parse(graph: &Value, root: &Path) -> anyhow::Result<Vec<Package>> {
    let members: BTreeSet<&str> =
        array(graph, "workspace_members")?.iter().filter_map(Value::as_str).collect();
    // "packages" lists what any platform would use; "resolve" only what the chosen ones do.
    let used: BTreeSet<&str> =
        array(&graph["resolve"], "nodes")?.iter().filter_map(|node| node["id"].as_str()).collect();
    let mut packages = Vec::new();
    for package in array(graph, "packages")? {
        let id = text(package, "id")?;
        if used.contains(id) {
            packages.push(parse_package(package, members.contains(id), root)?);
        }
    }
    Ok(packages)
}

fn parse_package(package: &Value, member: bool, root: &Path) -> anyhow::Result<Package> {
    let manifest = Path::new(text(package, "manifest_path")?);
    let mut dependencies = Vec::new();
    for dependency in array(package, "dependencies")? {
        dependencies.push(Dependency {
            name: text(dependency, "name")?.into(),
            dev: dependency["kind"].as_str() == Some("dev"),
        });
    }
    Ok(Package {
        name: text(package, "name")?.into(),
        version: text(package, "version")?.into(),
        licence: package["license"].as_str().map(Into::into),
        source: package["source"].as_str().map(Into::into),
        member,
        manifest: manifest.strip_prefix(root).unwrap_or(manifest).display().to_string(),
        dependencies,
    })
}

fn array<'a>(value: &'a Value, key: &str) -> anyhow::Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("cargo metadata has no list \"{key}\""))
}

fn text<'a>(value: &'a Value, key: &str) -> anyhow::Result<&'a str> {
    value[key].as_str().with_context(|| format!("cargo metadata has no text \"{key}\""))
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// A member of the workspace with these dependencies; a name that begins with `dev:` is one of
    /// its tests only.
    pub(crate) fn member(name: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.into(),
            version: "0.1.0".into(),
            member: true,
            manifest: format!("crates/{name}/Cargo.toml"),
            dependencies: dependencies
                .iter()
                .map(|name| Dependency {
                    name: name.trim_start_matches("dev:").into(),
                    dev: name.starts_with("dev:"),
                })
                .collect(),
            ..Package::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_of_our_platforms_are_kept() {
        let package = |name: &str| {
            serde_json::json!({
                "id": name, "name": name, "version": "1.0.0", "license": "MIT", "source": null,
                "manifest_path": format!("/repo/crates/{name}/Cargo.toml"),
                "dependencies": [{"name": "x", "kind": "dev"}],
            })
        };
        let graph = serde_json::json!({
            "workspace_members": ["ours"],
            "packages": [package("ours"), package("windows-only")],
            "resolve": {"nodes": [{"id": "ours"}]},
        });
        let packages = parse(&graph, Path::new("/repo")).unwrap();
        assert_eq!(packages.len(), 1);
        assert!(packages[0].member);
        assert_eq!(packages[0].manifest, "crates/ours/Cargo.toml");
        assert_eq!(packages[0].dependencies, [Dependency { name: "x".into(), dev: true }]);
    }

    #[test]
    fn a_graph_without_packages_is_an_error() {
        let graph = serde_json::json!({"workspace_members": [], "resolve": {"nodes": []}});
        assert!(parse(&graph, Path::new("/repo")).is_err());
    }
}
