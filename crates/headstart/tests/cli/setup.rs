//! `scripts/setup.sh` on a machine without tools, whose apt only records its arguments.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::scene::{Ran, Scene, executable, machine_has};

/// What apt was asked to install for a purpose, and what else happened.
struct Setup {
    scene: Scene,
}

impl Setup {
    fn new() -> Self {
        let this = Self { scene: Scene::new() };
        let log = this.scene.arg("log");
        this.scene.folder("bin");
        let policy = "/usr/sbin/policy-rc.d >/dev/null 2>&1; echo policy $?";
        for (name, script) in [
            ("dpkg-query", "exit 1".to_owned()),
            ("apt-cache", "exit 0".to_owned()),
            ("apt-get", format!("{{ echo apt-get \"$@\"; {policy}; }} >>{log}; test ! -e {log}.fails")),
            // Cargo would compile them.
            ("cargo-nextest", "echo cargo-nextest 0.9.118".to_owned()),
            ("mdbook", "echo mdbook v0.5.4".to_owned()),
            ("systemctl", format!("echo systemctl \"$@\" >>{log}")),
        ] {
            this.program(name, &script);
        }
        this
    }

    /// Another program in place of the machine's.
    fn program(&self, name: &str, script: &str) {
        executable(&self.scene.path("bin").join(name), &format!("#!/bin/sh\n{script}\n"));
    }

    /// Runs it, in a mount namespace whose /usr/sbin is an empty folder; what is left there afterwards is
    /// printed.
    fn run(&self, arguments: &[&str]) -> Ran {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup.sh");
        let inside = "mount -t tmpfs none /usr/sbin || exit 99; \"$@\"; code=$?; ls -A /usr/sbin; exit $code";
        let path = std::env::var("PATH").unwrap_or_default();
        let ran = Command::new("/usr/bin/unshare")
            .args(["--mount", "/bin/sh", "-c", inside, "sh", "/bin/sh"])
            .arg(script)
            .args(arguments)
            .env("PATH", format!("{}:{path}", self.scene.arg("bin")))
            .stdin(Stdio::null())
            .output();
        ran.expect("unshare starts").into()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scene.path("log")).unwrap_or_default()
    }

    /// The packages that it installs for a purpose.
    fn packages(&self, purpose: &str) -> Vec<String> {
        let _ = fs::remove_file(self.scene.path("log"));
        self.run(&["--for", purpose, "--yes"]).ok();
        let log = self.log();
        let line = log.lines().find_map(|line| line.strip_prefix("apt-get ")?.split_once(" install "));
        let (_, words) = line.expect("it installs");
        words.split(' ').filter(|word| !word.starts_with('-')).map(str::to_owned).collect()
    }
}

#[test]
fn each_target_installs_what_it_needs_and_no_more() {
    if !machine_has(&["/usr/bin/unshare"]) {
        return;
    }
    let setup = Setup::new();
    let has = |packages: &[String], name: &str| packages.iter().any(|package| package == name);
    let [build, demo, test] = ["build", "demo", "test"].map(|purpose| setup.packages(purpose));
    assert!(has(&build, "gcc") && !has(&build, "mmdebstrap"), "{build:?}");
    assert!(has(&demo, "gcc") && has(&demo, "mmdebstrap") && has(&demo, "squashfs-tools"), "{demo:?}");
    for only_for_tests in ["nginx-light", "docker-registry", "xfsprogs", "qemu-system-x86", "gnutls-bin"] {
        assert!(!has(&build, only_for_tests) && !has(&demo, only_for_tests), "{only_for_tests}");
        assert!(has(&test, only_for_tests), "{only_for_tests}");
    }
    setup.run(&["--for", "everything"]).fails(2, &["build, demo, test and bench", "everything"]);
}

#[test]
fn no_service_is_started_and_no_policy_is_left() {
    if !machine_has(&["/usr/bin/unshare"]) {
        return;
    }
    let setup = Setup::new();
    let ran = setup.run(&["--for", "test", "--yes"]).ok();
    // invoke-rc.d(8): 101 is "action forbidden by policy".
    assert!(setup.log().contains("\npolicy 101\n"), "{}", setup.log());
    for service in ["nginx", "docker-registry"] {
        assert!(setup.log().contains(&format!("systemctl disable --quiet {service}\n")), "{}", setup.log());
    }
    assert!(!ran.stdout.contains("policy-rc.d"), "{ran:?}");
    // Nor is any left by a setup that fails.
    fs::write(setup.scene.path("log.fails"), "").expect("written");
    let ran = setup.run(&["--for", "test", "--yes"]);
    assert!(ran.code != Some(0) && !ran.stdout.contains("policy-rc.d"), "{ran:?}");
}

/// Without npm there is no report page. A machine without a network builds the program all the same.
#[test]
fn only_the_program_is_needed_to_build_it() {
    if !machine_has(&["/usr/bin/unshare"]) {
        return;
    }
    let setup = Setup::new();
    let installed = |missing: &str| {
        let script = format!("shift 3; for name; do [ $name = {missing} ] || echo $name installed; done");
        setup.program("dpkg-query", &script);
    };
    setup.program("node", "echo v1.0.0");
    fs::write(setup.scene.path("log.fails"), "").expect("written");
    installed("nodejs");
    let ran = setup.run(&["--for", "build"]).ok();
    assert!(ran.stdout.contains("builds the report page"), "{ran:?}");
    assert!(ran.stderr.ends_with("the program is built without its report page\n"), "{ran:?}");
    assert!(!ran.stdout.contains("policy-rc.d"), "{ran:?}");
    setup.run(&["--for", "test"]).fails(1, &["'apt-get update -q' failed"]);
    installed("gcc");
    setup.run(&["--for", "build"]).fails(1, &["'apt-get update -q' failed"]);
}
