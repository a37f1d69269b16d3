//! The cargo that runs this, and its compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The compiler whose warnings are errors. Other versions warn of other things, so theirs are only shown: a
/// release of Rust must not make the checks fail.
pub(super) const LINTS_OF: &str = "1.95";

/// Cargo, in the root of the repository.
pub(super) fn command(root: &Path) -> Command {
    // Cargo sets this variable for what it runs.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root);
    // Cargo says them of xtask. Scripts of packages ask for them, and are run again when they change.
    let of_xtask = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.starts_with(of));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_xtask)) {
        command.env_remove(name);
    }
    command
}

/// Cargo whose compiler lints the workspace as it compiles it. Every step that runs what is compiled uses it:
/// with another compiler cargo would compile the workspace once more.
pub(super) fn linting(root: &Path) -> Command {
    let mut command = command(root);
    if let Some(driver) = beside("clippy-driver") {
        command.env("RUSTC_WORKSPACE_WRAPPER", driver);
    }
    command
}

/// Where cargo leaves its results.
pub(super) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into)
}

/// In continuous integration a change of dependencies that is not in Cargo.lock is an error, not an edit.
pub(super) fn locked() -> Option<&'static str> {
    hs_testing::in_ci().then_some("--locked")
}

/// Whether cargo has a component.
pub(super) fn has(root: &Path, component: &str) -> bool {
    let output = command(root).args([component, "--version"]).output();
    output.is_ok_and(|output| output.status.success())
}

/// A program that lies beside this cargo.
pub(super) fn beside(name: &str) -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO")?;
    Some(Path::new(&cargo).with_file_name(name)).filter(|path| path.exists())
}

/// Whether warnings are errors; where they are not, that is said.
pub(super) fn denies_warnings() -> bool {
    let rustc = beside("rustc").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let version = version.unwrap_or_default();
    let denies = is_named(&version);
    if !denies {
        println!(
            "WARNING: this is '{version}'. Warnings are errors with rustc {LINTS_OF} only; here they are shown."
        );
    }
    denies
}

fn is_named(version: &str) -> bool {
    version.strip_prefix("rustc ").is_some_and(|version| version.starts_with(&format!("{LINTS_OF}.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_compiler_is_named() {
        assert!(is_named(&format!("rustc {LINTS_OF}.1 (59807616e 2026-04-14)")));
        assert!(
            !is_named("rustc 1.88.0 (6b00bc388 2025-06-23)") && !is_named("rustc 1.955.0") && !is_named("")
        );
    }
}
