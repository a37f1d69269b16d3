//! What takes too long for every change, and `make test-long` runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::nextest::{self, Run};
use super::{Outcome, Step, cargo};
use crate::mutants;
use crate::tidy::PURE;

pub(crate) const LONG: &[Step] = &[
    ("minimum", minimum),
    ("release", release),
    ("left-out", left_out),
    ("endings", |root| cli(root, "ending", "ENDINGS", "200")),
    ("faults", |root| cli(root, "network_faults::", "NETWORK_FAULT_SEEDS", "200")),
    ("kills", |root| cli(root, "kills::", "KILLS", "100")),
    ("layout-kills", |root| filtered(root, "hs-relocate", "kills_leave", &[("KILLS", "100")])),
    ("trees", |root| filtered(root, "hs-build", "random_trees", &[("TREES", "500")])),
    ("power-cuts", |root| cli(root, "relocates::power_cuts", "POWER_CUTS", "100")),
    ("containerd", |root| {
        cli(root, "containerd_deaths::a_container_does_not_notice_that_snap", "KILLS", "180")
    }),
    ("containerd-2", second_containerd),
    ("kept", |root| cli(root, "keeps::what_was_flushed", "KILLS", "1000")),
    ("kept-boots", |root| cli(root, "kept_boots::", "KILLS", "100")),
    ("recorded", |root| cli(root, "recorded_ext4::", "FLUSHES", "1000")),
    ("kept-cuts", |root| filtered(root, "hs-overlay", "power_cuts::", &[("HEADSTART_POWER_CUTS", "10000")])),
    ("week", |root| filtered(root, "hs-overlay", "week::", &[("HEADSTART_OVERLAY_HOURS", "168")])),
    ("damage", |root| filtered(root, "hs-disk", "damage::", &[("EVERY_BYTE", "1")])),
    ("mutants", |root| mutants::check(root)),
    ("packages", packages),
    ("live-build", live_build),
    ("demo", demo),
];

/// The declared minimum of Rust, as rustup has it; no distribution packages exactly that one for long.
fn minimum(root: &Path) -> Outcome {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let declared =
        manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
    let Some(declared) = declared else {
        return Outcome::Failed("Cargo.toml declares no rust-version".into());
    };
    let install = ["toolchain", "install", declared, "--profile", "minimal", "--no-self-update"];
    match Command::new("rustup").args(install).status() {
        Ok(status) if status.success() => {}
        Ok(_) => return Outcome::Failed(format!("rustup could not install Rust {declared}")),
        Err(_) => return Outcome::Skipped("rustup is missing, which installs the declared minimum".into()),
    }
    // A folder of its own: another compiler would build everything anew, and so would the next usual one.
    Outcome::of(
        Command::new("rustup")
            .args(["run", declared, "cargo", "check", "--workspace", "--all-targets", "--locked"])
            .env("CARGO_TARGET_DIR", root.join("target/minimum"))
            .env_remove("CARGO")
            .current_dir(root),
    )
}

/// The same words as in the profile.
const LEFT_OUT: &str = "test(/^(accelerate_boots::|netboot::|newer_debian::|iso_record::a_trace_of_a_medium|installed::an_update_is_kept|installed::.*own_next_image|containerd_second::)/)";

/// Inputs of each property test in the long run.
const LONG_CASES: &str = "5000";

/// The profile that people get, which no other test uses: the program, and the crates whose tests need
/// nothing. Their property tests get new inputs, and most of them more.
fn release(root: &Path) -> Outcome {
    let packages = PURE
        .iter()
        .chain(&["hs-store", "hs-remote", "hs-image", "hs-build", "headstart"])
        .flat_map(|name| ["-p", name]);
    let mut arguments = vec!["--cargo-profile", "release", "--lib", "--bins"];
    arguments.extend(packages);
    let variables = &[("PROPTEST_CASES", LONG_CASES)];
    nextest::run(root, &Run { profile: "long", arguments: &arguments, variables, plain: true })
}

/// Tests of the program with more seeds than usual.
fn cli(root: &Path, filter: &str, variable: &str, count: &str) -> Outcome {
    filtered(root, "headstart", filter, &[(variable, count)])
}

fn filtered(root: &Path, package: &str, filter: &str, variables: &[(&str, &str)]) -> Outcome {
    let filter = format!("package({package}) & test({filter})");
    nextest::run(
        root,
        &Run { profile: "long", arguments: &["--workspace", "-E", &filter], variables, plain: false },
    )
}

/// Tests that `make test` leaves out, by its profile in `.config/nextest.toml`. Those of containerd 2 have a
/// step of their own.
fn left_out(root: &Path) -> Outcome {
    let filter = format!("{LEFT_OUT} & not test(/^containerd_second::/)");
    let arguments = ["-p", "headstart", "--test", "cli", "-E", filter.as_str()];
    nextest::run(root, &Run { profile: "long", arguments: &arguments, variables: &[], plain: false })
}

/// All tests with containerd, by containerd 2 and its clients, which are built here.
fn second_containerd(root: &Path) -> Outcome {
    if Command::new("go").arg("version").output().is_err() {
        return Outcome::Skipped("go is missing, which builds containerd 2".into());
    }
    let folder = cargo::target(root).join("containerd-2");
    let built = Outcome::of(Command::new(root.join("scripts/containerd-2.sh")).arg(&folder));
    if !matches!(built, Outcome::Passed) {
        return built;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", folder.join("bin").display());
    filtered(root, "headstart", "/^containerd/", &[("PATH", path.as_str())])
}

/// The program as people get it; what became of the build otherwise.
fn released(root: &Path) -> Result<PathBuf, Outcome> {
    let built = Outcome::of(cargo::command(root).args(["build", "--release", "--locked", "-p", "headstart"]));
    if !matches!(built, Outcome::Passed) {
        return Err(built);
    }
    Ok(cargo::target(root).join("release/headstart"))
}

fn packages(root: &Path) -> Outcome {
    let script = "package=$(make -s deb | tail -n 1) && exec scripts/test-deb.sh \"$package\"";
    Outcome::of(Command::new("sh").args(["-c", script]).current_dir(root))
}

fn live_build(root: &Path) -> Outcome {
    match released(root) {
        Ok(program) => Outcome::of(Command::new(root.join("scripts/test-live-build.sh")).arg(program)),
        Err(failed) => failed,
    }
}

fn demo(root: &Path) -> Outcome {
    let program = match released(root) {
        Ok(program) => program,
        Err(failed) => return failed,
    };
    let out = root.join("demo-out");
    Outcome::of(Command::new(program).args(["demo", "--repeats", "1", "--out"]).arg(out).current_dir(root))
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_one_run_leaves_out_the_other_runs() {
        let configuration = include_str!("../../../.config/nextest.toml");
        assert!(configuration.contains(&format!("default-filter = \"not {}\"", super::LEFT_OUT)));
    }
}
