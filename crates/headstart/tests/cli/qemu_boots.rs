//! Guests that QEMU runs, with their disk over NBD.

use std::fs;
use std::os::unix::fs::symlink;

use rustix::process::Signal;

use crate::boots::{
    LINGER, assert_has_guests_processes, assert_is_given_up, assert_nothing_is_in_tmp,
    assert_nothing_is_left_after, boot, kept_console, little_guest,
};
use crate::disks::in_partitions;
use crate::qemu_kernels::{Then, VIRTIO_MODULES, initrd, linux, little_kernel};
use crate::scene::{Ran, Scene, has_tools, headstart, machine_has, run};

/// What a guest needs.
pub(crate) const GUEST: &[&str] = &["/usr/bin/qemu-system-x86_64", "/bin/busybox", "/usr/sbin/mkfs.ext4"];
/// Translated, since the machines of tests seldom have a KVM that works; and with little memory.
pub(crate) const QEMU: [&str; 6] = ["--vmm", "qemu", "--accel", "tcg", "--memory", "160M"];
/// For guests that are never ready: the command must notice much earlier than this limit.
const NEVER: [&str; 4] = ["--ready", "never", "--ready-timeout", "100"];

/// A boot with these flags by QEMU, of the kernel in this file.
fn boot_kernel(scene: &Scene, disk: &str, kernel: &str, flags: &[&str]) -> Ran {
    boot(scene, disk, &[&QEMU[..], &["--kernel", kernel], flags].concat())
}

/// The little guest's root and the Linux that it boots by way of NVMe, where there is one.
pub(crate) fn linux_guest() -> Option<(Scene, String, String)> {
    if !machine_has(GUEST) {
        return None;
    }
    let kernel = linux()?.join("vmlinuz").display().to_string();
    let (scene, image) = little_guest();
    Some((scene, image, kernel))
}

#[test]
fn linux_boots_over_nbd_is_recorded_and_prefetched() {
    let Some((scene, image, kernel)) = linux_guest() else { return };
    let before = fs::read(&image).expect("the image");
    let (profile, fast, console) = (scene.arg("boot.hsp"), scene.arg("fast.hsi"), scene.arg("console"));
    let flags = ["--bus", "nvme", "--ready", "^up$", "--json", "--console", &console];
    let said = || fs::read_to_string(scene.path("console")).expect("the console");

    let ran = boot_kernel(&scene, &image, &kernel, &[&flags[..], &["--record", &profile]].concat()).ok();
    let recorded = ran.json();
    assert_eq!(recorded["profile"], profile.as_str());
    assert!(recorded["ready_s"].as_f64().is_some_and(|ready| ready > 0.0), "{recorded}");
    assert!(recorded["demand_requests"].as_u64() > Some(10), "{recorded}");
    assert!(said().contains("nvme0n1") && !said().contains("was here"), "{}", said());
    let shown = run(["inspect", &profile]).ok().stdout;
    assert!(shown.contains("boot --vmm qemu"), "{shown}");

    // What was written is gone, and what was read comes before it is asked for.
    run(["optimize", &image, "-p", &profile, "-o", &fast, "--codec", "zstd:1"]).ok();
    let medium = [&flags[..], &["--medium", "flat-10ms-25mbs-serial"]].concat();
    let ran = boot_kernel(&scene, &fast, &kernel, &medium).ok();
    let summary = ran.json();
    assert!(!said().contains("was here"), "{}", said());
    assert!(summary["prefetch_bytes"].as_u64() > Some(1 << 20), "{summary}");
    assert_eq!(summary["end_reason"], "complete");
    assert!(summary["store_requests"].as_u64() < recorded["demand_requests"].as_u64(), "{summary}");
    assert_eq!(fs::read(&image).expect("the image"), before);

    // A guest that fills its scratch is not left hanging.
    let flags = ["--bus", "nvme", "--append", "devtmpfs.mount=1", "--append", "then=fill", "--scratch", "8M"];
    let ran = boot_kernel(&scene, &image, &kernel, &[&flags[..], &["--ready", "not full"]].concat());
    ran.fails(1, &["filled its 8 MiB of scratch", "--scratch"]);
    kept_console(&scene, &ran);
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}

/// The init of an initial RAM disk: loads the drivers, and goes on with the init of the disk.
const FIRST_INIT: &str = "#!/bin/busybox sh
for module in MODULES; do /bin/busybox insmod /$module; done
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mkdir /proc
/bin/busybox mount -t proc proc /proc
root=$(/bin/busybox grep -o '/dev/vda[0-9]*' /proc/cmdline)
/bin/busybox mount -t ext4 $root /new
exec /bin/busybox switch_root /new /sbin/init
";

/// Puts a kernel and an initial RAM disk for a virtio disk into the root, as Debian has them.
pub(crate) fn install_kernel(scene: &Scene, kernel: &str) {
    let modules = linux().expect("it was there");
    let first_init = FIRST_INIT.replace("MODULES", &VIRTIO_MODULES.join(" "));
    let read = |name: &str| fs::read(modules.join(name)).expect("a module");
    let mut files: Vec<(&str, Vec<u8>)> = VIRTIO_MODULES.iter().map(|name| (*name, read(name))).collect();
    files.push(("init", first_init.into_bytes()));
    files.push(("bin/busybox", fs::read("/bin/busybox").expect("busybox")));
    scene.folder("root/boot");
    fs::copy(kernel, scene.path("root/boot/vmlinuz-6.1.0")).expect("copied");
    initrd(&scene.path("root/boot/initrd.img-6.1.0"), &files);
    symlink("boot/vmlinuz-6.1.0", scene.path("root/vmlinuz")).expect("a link");
    symlink("boot/initrd.img-6.1.0", scene.path("root/initrd.img")).expect("a link");
}

#[test]
fn the_disks_own_kernel_boots_from_a_virtio_disk() {
    let Some((scene, _, kernel)) = linux_guest() else { return };
    if !has_tools(&["sfdisk"]) {
        return;
    }
    install_kernel(&scene, &kernel);
    let raw = scene.arg("guest.raw");
    run(["build", &scene.arg("root"), "-o", &scene.arg("own.hsi"), "--free", "64M", "--codec", "lz4:0"]).ok();
    run(["export", &scene.arg("own.hsi"), "-o", &raw, "--format", "raw"]).ok();
    let console = scene.arg("console");
    let flags = [&QEMU[..], &["--ready", "^up$", "--console", &console, "--json"]].concat();
    let said = || fs::read_to_string(scene.path("console")).expect("the console");

    // The kernel is read as a boot loader would, by way of the image.
    let trace = scene.arg("trace.csv");
    let ran = boot(&scene, &scene.arg("own.hsi"), &[&flags[..], &LINGER, &["--trace", &trace]].concat()).ok();
    assert!(said().contains("EXT4-fs (vda)"), "{}", said());
    assert_has_guests_processes(&trace);
    let has_stages = fs::read_to_string(&trace).expect("a trace").contains(",stage,,,");
    assert!(has_stages, "what the console showed");
    let summary = ran.json();
    assert!(summary["demand_bytes"].as_u64() > Some(10 << 20), "{ran:?}");
    let stages = summary["stages"].as_array().expect("stages");
    assert!(stages[0]["name"] == "kernel" && stages[1]["name"] == "initramfs", "{summary}");
    assert!(summary["stages"][0]["at_s"].as_f64() < summary["ready_s"].as_f64(), "{summary}");
    // A raw disk with large sectors, from the page cache, whose partition has root and kernel.
    let disk = in_partitions(&scene, &[&raw], 4096);
    boot(&scene, &disk, &[&flags[..], &["--warm", "--partition", "system"]].concat()).ok();
    assert!(said().contains("EXT4-fs (vda2)"), "{}", said());
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}

#[test]
fn a_guest_of_qemu_that_fails_says_why() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = little_guest();
    let made = |name: &str, text: &str, then: Then| {
        little_kernel(&scene.path(name), text, then);
        scene.arg(name)
    };
    let up = made("up", "booting\nup\n", Then::Hang);
    let reset = made("reset", "booting\n", Then::Reset);
    let panic = made("panic", "booting\nKernel panic - not syncing: out of ideas\n", Then::Hang);
    let with = |kernel: &str, flags: &[&str]| boot_kernel(&scene, &image, kernel, flags);

    with(&up, &["--ready", "^up$"]).ok();
    // Proven or not, it goes on.
    boot(&scene, &image, &["--vmm", "qemu", "--memory", "160M", "--kernel", &up, "--ready", "^up$"]).ok();

    let ran = with(&panic, &NEVER);
    ran.fails(1, &["kernel gave up", "out of ideas", "last lines of its console", "booting"]);
    assert!(kept_console(&scene, &ran).contains("booting"));

    let ran = with(&reset, &NEVER);
    ran.fails(1, &["ended before it was ready", "booting"]);
    kept_console(&scene, &ran);

    assert_is_given_up(&scene, |flags| with(&up, flags));

    // QEMU's own complaints are shown.
    fs::write(scene.path("empty"), "").expect("written");
    let ran = with(&scene.arg("empty"), &NEVER);
    ran.fails(1, &["ended before it was ready", "could not load kernel"]);
    kept_console(&scene, &ran);
    assert_nothing_is_in_tmp(&scene);
    scene.wait_until_clean();
}

#[test]
fn what_qemu_cannot_boot_is_refused_at_once() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = little_guest();
    let up = scene.arg("up");
    little_kernel(&scene.path("up"), "up\n", Then::Hang);
    let refused = |flags: &[&str], words: &[&str]| {
        boot(&scene, &image, &[&QEMU[..], flags].concat()).fails(1, words);
    };
    refused(&[], &["guest.hsi", "no kernel", "/vmlinuz", "--kernel", "apt-get download"]);
    refused(&["--kernel", &scene.arg("vmlinuz")], &["vmlinuz", "--kernel"]);
    refused(&["--kernel", &up, "--initrd", &scene.arg("gone")], &["gone", "--initrd"]);
    refused(&["--initrd", &up], &["--initrd", "--kernel"]);
    refused(&["--kernel", &up, "--scratch", "64K"], &["64 KiB of scratch is not enough", "--scratch"]);
    boot(&scene, &image, &["--vmm", "qemu", "--accel", "tcg", "--kernel", &up, "--memory", "1000T"])
        .fails(1, &["memory", "--memory"]);
    for flag in
        [&["--accel", "tcg"][..], &["--cpu", "max"], &["--bus", "nvme"], &["--network"], &["--initrd", &up]]
    {
        boot(&scene, &image, &[&["--vmm", "uml"], flag].concat()).fails(1, &[flag[0], "--vmm qemu"]);
        // Left to us, it chooses QEMU, which finds no kernel.
        boot(&scene, &image, flag).fails(1, &[if flag[0] == "--initrd" { "--kernel" } else { "/vmlinuz" }]);
    }
    fs::write(scene.path("squash"), b"hsqs".repeat(40_000)).expect("written");
    boot(&scene, &scene.arg("squash"), &QEMU).fails(1, &["squash", "ext4", "--kernel"]);
    let words = ["boot", &image, "--vmm", "qemu", "--kernel", &up];
    let ran = headstart(words).env("PATH", scene.path("tmp")).output().expect("the program starts");
    Ran::from(ran).fails(1, &["qemu-system-x86_64 was not found", "qemu-system-x86"]);
    assert_nothing_is_in_tmp(&scene);
    scene.wait_until_clean();
}

#[test]
fn however_a_boot_by_qemu_ends_nothing_of_it_is_left() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = little_guest();
    little_kernel(&scene.path("up"), "up\n", Then::Hang);
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let (console, kernel) = (scene.arg("console"), scene.arg("up"));
        let words = ["boot", &image, "--kernel", &kernel, "--ready", "never", "--console", &console];
        let command = headstart(words.iter().chain(&QEMU));
        // Init and QEMU.
        assert_nothing_is_left_after(&scene, command, signal, 2);
    }
    assert_eq!(scene.names(), ["guest.hsi", "root", "tmp", "up"]);
}

/// A folder for PATH with a `linux.uml` that is a program, and no User-mode Linux.
fn no_user_mode_linux(scene: &Scene) -> std::ffi::OsString {
    scene.folder("bin");
    fs::copy("/bin/true", scene.path("bin/linux.uml")).expect("copied");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [scene.path("bin")].into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(folders).expect("a path")
}

#[test]
fn where_user_mode_linux_runs_nothing_qemu_boots() {
    if !machine_has(&[GUEST, &["/usr/bin/linux.uml"]].concat()) {
        return;
    }
    let (scene, image) = little_guest();
    let path = no_user_mode_linux(&scene);
    let boot = |disk: &str, path: &std::ffi::OsStr| {
        let words = ["boot", disk, "--memory", "160M", "--ready", "^up$", "--ready-timeout", "100"];
        let mut command = headstart(words);
        let ran = command.env("PATH", path).env("TMPDIR", scene.path("tmp")).output();
        Ran::from(ran.expect("the program starts"))
    };
    // Its kernel is the disk's own. There is none in this one.
    let ran = boot(&image, &path);
    ran.fails(1, &["no kernel", "--kernel", "User-mode Linux", "bin/linux.uml", "ended before it was ready"]);
    little_kernel(&scene.path("root/vmlinuz"), "up\n", Then::Hang);
    let own = scene.arg("own.hsi");
    run(["build", &scene.arg("root"), "-o", &own, "--free", "64M", "--codec", "zstd:1"]).ok();
    let ran = boot(&own, &path).ok();
    assert!(ran.stderr.contains("QEMU runs the guest, since User-mode Linux cannot"), "{ran:?}");
    // With neither, both are named.
    let ran = boot(&own, scene.path("tmp").as_os_str());
    ran.fails(1, &["linux.uml was not found", "user-mode-linux", "qemu-system-x86_64 was not found"]);
    assert_nothing_is_in_tmp(&scene);
    scene.wait_until_clean();
}

#[test]
fn doctor_tries_guests_and_says_which_boot_uses() {
    if !machine_has(&[GUEST, &["/usr/bin/linux.uml"]].concat()) {
        return;
    }
    let scene = Scene::new();
    let path = no_user_mode_linux(&scene);
    let doctor = |path: Option<&std::ffi::OsStr>| {
        let mut command = headstart(["doctor", "--json"]);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let report = Ran::from(command.output().expect("the program starts")).json();
        move |name: &str| {
            let mut checks = report["checks"].as_array().expect("checks").iter();
            let check = checks.find(|check| check["name"] == name);
            let check = check.unwrap_or_else(|| panic!("no {name} in {report}"));
            [&check["state"], &check["found"]].map(|value| value.as_str().expect("text").to_owned())
        }
    };
    let found = doctor(None);
    for name in ["linux.uml", "qemu-system-x86_64", "User-mode Linux or QEMU"] {
        assert_eq!(found(name)[0], "ok", "{:?}", found(name));
    }
    assert!(found("linux.uml")[1].contains("a guest ran"), "{:?}", found("linux.uml"));
    assert!(
        found("User-mode Linux or QEMU")[1].starts_with("User-mode Linux"),
        "{:?}",
        found("guests of boot")
    );
    // A file of that name is no guest.
    let found = doctor(Some(&path));
    assert_eq!(found("linux.uml")[0], "missing");
    let [state, said] = found("User-mode Linux or QEMU");
    assert!(state == "degraded" && said.starts_with("QEMU") && said.contains("ended before"), "{said}");
    assert_eq!(doctor(Some(scene.path("bin").as_os_str()))("User-mode Linux or QEMU")[0], "missing");
    scene.wait_until_clean();
}
