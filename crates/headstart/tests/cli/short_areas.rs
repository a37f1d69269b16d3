//! A processor with more registers than User-mode Linux knows of, on every machine: `ptrace` of a preloaded
//! object of ours (short_areas.c) behaves as the kernel does there.
//!
//! The tests here are always run so. With `SHORT_AREAS=1`, every program that the harness starts is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hs_guest::first_program::{FirstProgram, GuestRoot};
use hs_guest::preload;

use crate::boots::{GUEST, assert_nothing_is_in_tmp, boot, debian, kept_console, little_guest};
use crate::scene::{Ran, Scene, headstart, machine_has, made_once, run};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/short_areas.c");
/// What Linux gives an area that is not whole.
const PANIC: &str = "ptrace set fp regs failed, errno = 14";

/// The object, built once.
pub(crate) fn object() -> PathBuf {
    made_once("short_areas", |object| {
        // It runs on User-mode Linux's small stacks, as what it is loaded with.
        let flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-Wl,-z,now", "-o"];
        let status = Command::new(compiler()).args(flags).arg(object).arg(SOURCE).status();
        assert!(status.expect("the compiler starts").success());
    })
}

fn compiler() -> std::ffi::OsString {
    std::env::var_os("CC").unwrap_or_else(|| "cc".into())
}

/// `command`, on such a processor.
fn on_short_areas(mut command: Command) -> Command {
    command.env("LD_PRELOAD", object());
    command
}

/// The console of a guest without a disk, whose first program would report that it has none.
fn said_by_first_program(scene: &Scene, preloads: &[&Path]) -> String {
    let root = GuestRoot { read_ahead_kib: Some(0), file_system: "ext4", partition: None, init: None };
    let program = FirstProgram { root: Some(root), watch: None };
    fs::write(scene.path("initramfs"), program.initramfs()).expect("written");
    let words = ["mem=128M", "con0=null,fd:1", "con=null", "ssl=null", "console=tty0", "umid=guest"];
    let ran = Command::new("linux.uml")
        .args(words)
        .arg(format!("uml_dir={}/", scene.arg("")))
        .arg(format!("initrd={}", scene.arg("initramfs")))
        .env("LD_PRELOAD", std::env::join_paths(preloads).expect("no colons"))
        .env("TMPDIR", "/dev/shm")
        .stdin(Stdio::null())
        .output()
        .expect("linux.uml starts");
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[test]
fn user_mode_linux_panics_without_our_object_and_runs_with_it() {
    if !machine_has(GUEST) {
        return;
    }
    let scene = Scene::new();
    let ours = scene.path("ours.so");
    fs::write(&ours, preload::ours().expect("there is one here").bytes()).expect("written");
    let said = said_by_first_program(&scene, &[&object()]);
    assert!(said.contains(PANIC) && !said.contains("headstart: "), "{said}");
    let said = said_by_first_program(&scene, &[&ours, &object()]);
    assert!(said.contains("headstart: the read-ahead of /dev/ubda cannot be set"), "{said}");
    assert!(!said.contains(PANIC), "{said}");
}

#[test]
fn processes_of_a_guest_keep_their_wide_registers() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, _) = little_guest();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/registers.c");
    let init = scene.path("root/sbin/init");
    let built = Command::new(compiler()).args(["-static", "-O2", "-o"]).arg(&init).arg(source).status();
    assert!(built.expect("the compiler starts").success());
    let image = scene.arg("registers.hsi");
    run(["build", &scene.arg("root"), "-o", &image, "--codec", "zstd:1"]).ok();
    let words = ["boot", &image, "--memory", "64M", "--ready", "^registers kept$", "--ready-timeout", "100"];
    let ran = on_short_areas(headstart(words)).env("TMPDIR", scene.path("tmp")).output();
    Ran::from(ran.expect("the program starts")).ok();
    scene.wait_until_clean();
}

#[test]
fn guests_boot_under_user_mode_linux() {
    if !machine_has(&[GUEST, &["/usr/bin/mmdebstrap"]].concat()) {
        return;
    }
    let (scene, image) = little_guest();
    let boots = |image: &str, flags: &[&str]| {
        let profile = scene.arg("boot.hsp");
        let words = ["boot", image, "--record", &profile, "--json"];
        let command = headstart(words.iter().chain(flags));
        let ran = on_short_areas(command).env("TMPDIR", scene.path("tmp")).output();
        let ran = Ran::from(ran.expect("the program starts")).ok();
        assert!(ran.json()["ready_s"].as_f64().is_some_and(|ready| ready > 0.0), "{ran:?}");
        let shown = run(["inspect", &profile]).ok().stdout;
        assert!(shown.contains("boot --vmm uml"), "{shown}");
        assert!(!ran.stderr.contains("QEMU"), "{ran:?}");
    };
    boots(&image, &["--memory", "64M", "--ready", "^up$"]);
    let image = scene.arg("debian.hsi");
    run(["build", debian(), "-o", &image, "--codec", "zstd:1", "--free", "64M"]).ok();
    boots(&image, &[]);
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}

#[test]
fn doctor_says_what_was_needed() {
    if !machine_has(GUEST) {
        return;
    }
    let ran = on_short_areas(headstart(["doctor", "--json"])).output().expect("the program starts");
    let report = Ran::from(ran).json();
    let check = |name: &str| {
        let mut checks = report["checks"].as_array().expect("checks").iter();
        checks.find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}")).clone()
    };
    assert_eq!(check("User-mode Linux or QEMU")["state"], "ok");
    assert!(
        check("User-mode Linux or QEMU")["found"]
            .as_str()
            .is_some_and(|said| said.starts_with("User-mode Linux"))
    );
    let uml = check("linux.uml");
    assert!(uml["found"].as_str().is_some_and(|said| said.contains("a guest ran, helped by us")), "{uml}");
}

#[test]
fn where_it_cannot_be_helped_the_reason_and_the_next_step_are_named() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = little_guest();
    // As a User-mode Linux that is linked statically, into which nothing can be loaded.
    let kernel = scene.arg("linux-static");
    let source = format!(
        "#include <stdio.h>\nint main() {{ puts(\"userspace - {PANIC}\"); \
         puts(\"Kernel panic - not syncing: Attempted to kill init!\"); }}\n"
    );
    let path = scene.path("linux-static.c");
    fs::write(&path, source).expect("written");
    let built = Command::new(compiler()).args(["-static", "-o", &kernel]).arg(&path).status();
    assert!(built.expect("the compiler starts").success());
    let ran = boot(&scene, &image, &["--vmm", "uml", "--kernel", &kernel, "--memory", "64M"]);
    ran.fails(1, &["kernel gave up", "the processor's registers", "--vmm qemu"]);
    kept_console(&scene, &ran);
    scene.wait_until_clean();
}
