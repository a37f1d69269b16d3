//! Arguments, exit codes, and what is said about missing things.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;

use crate::mounts::umount;
use crate::scene::{Ran, Running, Scene, has_tools, headstart, machine_has, run, tool, wait_until};

pub(crate) const COMMANDS: [&[&str]; 50] = [
    &["build"],
    &["commit"],
    &["convert"],
    &["bundle"],
    &["import"],
    &["install"],
    &["export"],
    &["profile"],
    &["resume"],
    &["optimize"],
    &["pack"],
    &["mount"],
    &["serve"],
    &["attach"],
    &["fill"],
    &["detach"],
    &["status"],
    &["cache", "show"],
    &["cache", "clear"],
    &["cache", "limit"],
    &["cache", "fill"],
    &["push"],
    &["keygen"],
    &["sign"],
    &["top"],
    &["run"],
    &["boot"],
    &["inspect"],
    &["verify"],
    &["completions"],
    &["accelerate", "on"],
    &["accelerate", "off"],
    &["accelerate", "status"],
    &["accelerate", "record"],
    &["accelerate", "warm"],
    &["accelerate", "now"],
    &["snapshotter", "list"],
    &["overlay", "list"],
    &["overlay", "compact"],
    &["lab"],
    &["lab", "disk"],
    &["lab", "media"],
    &["lab", "predict"],
    &["lab", "replay"],
    &["lab", "calibrate"],
    &["lab", "trace"],
    &["lab", "list"],
    &["lab", "run"],
    &["doctor"],
    &["demo"],
];

#[test]
fn every_command_has_help() {
    for command in COMMANDS {
        for flag in ["--help", "-h"] {
            let ran = run(command.iter().chain([&flag])).ok();
            assert!(ran.stdout.contains("Usage: headstart"), "{command:?}");
            let group = command == ["lab"];
            assert!(group || ran.stdout.contains("Examples:\n  headstart "), "{command:?}");
            assert!(ran.stderr.is_empty(), "{ran:?}");
        }
    }
    let help = run(["--help"]).ok().stdout;
    for command in COMMANDS {
        assert!(help.contains(command[0]), "{command:?}");
    }
    for command in [&["run"][..], &["profile"], &["mount"], &["demo"], &["lab", "disk"]] {
        let help = run(command.iter().chain([&"--help"])).ok().stdout;
        for medium in hs_device::Medium::names() {
            assert!(help.contains(medium), "{command:?}: {medium}");
        }
    }
    for command in [&["run"][..], &["profile"], &["mount"], &["boot"], &["lab", "disk"]] {
        let help = run(command.iter().chain([&"--help"])).ok().stdout;
        assert!(help.contains("--bad-sectors <OFFSET+LEN[xTIMES]>"), "{command:?}");
    }
    assert!(run(["--version"]).ok().stdout.starts_with("headstart "));
}

#[test]
fn every_command_that_prints_a_result_has_json() {
    for command in COMMANDS {
        // `lab` is a group, and a shell reads what `completions` prints.
        if command != ["lab"] && command != ["completions"] {
            let help = run(command.iter().chain([&"--help"])).ok().stdout;
            assert!(help.contains("      --json"), "{command:?}: {help}");
        }
    }
}

#[test]
fn wrong_usage_is_two_and_says_what_is_right() {
    run([""; 0]).fails(2, &["Usage"]);
    run(["bulid"]).fails(2, &["bulid", "build"]);
    run(["build", "x"]).fails(2, &["--output"]);
    run(["build", "x", "-o", "y", "--codec", "lzma"]).fails(2, &["lzma", "zstd:LEVEL", "store"]);
    run(["build", "x", "-o", "y", "--codec", "zstd:99"]).fails(2, &["99", "1 to 22"]);
    run(["build", "x", "-o", "y", "--window", "many"]).fails(2, &["many"]);
    for window in ["3K", "5000", "2K", "8M"] {
        run(["build", "x", "-o", "y", "--window", window]).fails(2, &[window, "power of two"]);
        run(["import", "x", "-o", "y", "--window", window]).fails(2, &[window, "power of two"]);
    }
    run(["serve", "x"]).fails(2, &["--nbd", "--http"]);
    for address in ["8080", "localhost", ":8080", "::1:8080", "localhost:http", "[x]:8080", "x:65536"] {
        run(["serve", "x", "--http", address]).fails(2, &[address, "HOST:PORT"]);
    }
    for command in [&["run", "x"][..], &["profile", "x", "-o", "y"]] {
        let words = command.iter().chain(&["python3", "-c", "import this"]);
        run(words).fails(2, &["put `--` before the command", "-- python3 -c import this"]);
    }
    run(["run", "x", "--no-such-flag"]).fails(2, &["unexpected argument '--no-such-flag'"]);
    run(["build", "x", "-o", "y", "--codec", "lz4:13"]).fails(2, &["13", "lz4", "0 to 12"]);
    run(["export", "x", "-o", "y"]).fails(1, &["--format"]);
    run(["export", "x", "-o", "y", "--format", "vdi"]).fails(2, &["vdi", "raw", "cloop", "qcow2"]);
    run(["optimize", "x", "-o", "y"]).fails(2, &["--profile"]);
    run(["run"]).fails(2, &["IMAGE"]);
    run(["run", "x", "--ready", "(", "--", "true"]).fails(2, &["--ready"]);
    run(["boot", "x", "--vmm", "bochs"]).fails(2, &["bochs", "uml", "qemu"]);
    run(["boot", "x", "--vmm", "qemu", "--accel", "xen"]).fails(2, &["xen", "auto", "kvm", "tcg"]);
    run(["boot", "x", "--vmm", "qemu", "--bus", "scsi"]).fails(2, &["scsi", "virtio", "nvme"]);
    run(["serve", "x", "--nbd", "h", "--tls", "maybe"]).fails(2, &["maybe", "off", "on", "require"]);
    run(["serve", "x", "--nbd", "h", "--tls", "on"]).fails(2, &["--tls-certificates"]);
    run(["serve", "x", "--nbd", "h", "--tls-verify-peer"]).fails(2, &["--tls-certificates"]);
    run(["boot", "x", "--guest-read-ahead", "5"]).fails(2, &["5", "auto", "kernel", "multiple of 4"]);
    run(["boot", "x", "--ready-timeout", "soon"]).fails(2, &["soon", "seconds"]);
    for time in ["-1", "nan", "inf", "1e30"] {
        run(["run", "x", &format!("--ready-timeout={time}"), "--", "true"]).fails(2, &[time, "seconds"]);
        let flag = format!("--grace={time}");
        run(["profile", "x", "-o", "y", &flag, "--", "true"]).fails(2, &[time, "seconds"]);
    }
    run(["boot", "x", "--warm", "--medium", "flat-10ms-25mbs"]).fails(2, &["--warm", "--emulate"]);
    run(["inspect", "x", "--csv", "--json"]).fails(2, &["--json"]);
    run(["demo", "--story", "third"]).fails(2, &["third", "start", "boot", "both"]);
    run(["lab", "run", "cold-fusion"]).fails(2, &["cold-fusion", "merge-1991", "fairness"]);
    run(["lab", "run", "merge-1991", "--seed", "x"]).fails(2, &["--seed", "x"]);
    run(["demo", "--repeats", "0"]).fails(2, &["--repeats", "0"]);
    for command in [
        &["boot", "x", "--medium", "floppy"][..],
        &["run", "x", "--medium", "floppy", "--", "true"],
        &["lab", "disk", "x", "y", "--medium", "floppy"],
        &["demo", "--medium", "floppy"],
        &["demo", "--boot-medium", "floppy"],
    ] {
        run(command).fails(
            2,
            &["floppy", "cd-24x-cav", "hdd-7200", "flat-10ms-25mbs", "flat-10ms-25mbs-serial", "none"],
        );
    }
}

/// A result that cannot be written is a failure; a reader that has enough is none.
#[test]
fn output_that_cannot_be_written_is_said() {
    let scene = Scene::new();
    scene.image("disk.hsi", 30, 2);
    let image = scene.arg("disk.hsi");
    for command in
        [&["inspect", &image][..], &["verify", &image], &["verify", &image, "--json"], &["lab", "list"]]
    {
        let full = fs::File::options().write(true).open("/dev/full").expect("opened");
        let ran = headstart(command).stdout(full).stderr(Stdio::piped()).spawn().expect("it starts");
        Ran::from(ran.wait_with_output().expect("ended")).fails(1, &["standard output", "No space left"]);
        assert!(Running::start(command).hang_up().success(), "{command:?}");
    }
}

/// Standard error has no reader any more; the program goes on without messages.
#[test]
fn messages_that_nobody_reads_end_nothing() {
    let scene = Scene::new();
    scene.image("disk.hsi", 30, 2);
    let (image, out) = (scene.arg("disk.hsi"), scene.arg("out"));
    let status = |command: &[&str]| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        headstart(command).stdout(Stdio::null()).stderr(writer).status().expect("it starts").code()
    };
    assert_eq!(status(&["-vv", "verify", &image]), Some(0));
    assert_eq!(status(&["keygen", &out]), Some(0));
    assert_eq!(status(&["verify", &out]), Some(1));
    if machine_has(&[]) {
        let dir = scene.folder("dir");
        assert_eq!(status(&["-vv", "mount", &image, &dir]), Some(0));
        umount(&dir);
        scene.wait_until_clean();
    }
}

#[test]
fn missing_files_are_named() {
    let scene = Scene::new();
    let (gone, out, folder) = (scene.arg("gone.hsi"), scene.arg("out"), scene.folder("folder"));
    let said = ["gone.hsi", "No such file or directory"];
    run(["build", &gone, "-o", &out]).fails(1, &said);
    run(["verify", &gone]).fails(1, &said);
    run(["inspect", &gone]).fails(1, &said);
    run(["mount", "-f", &gone, &folder]).fails(1, &said);
    run(["mount", &gone, &folder]).fails(1, &said);
    run(["lab", "disk", &gone, &folder, "--medium", "none"]).fails(1, &said);
    run(["optimize", &gone, "-p", &gone, "-o", &out]).fails(1, &said);
    if rustix::process::geteuid().is_root() {
        run(["run", &gone, "--", "true"]).fails(1, &said);
        run(["profile", &gone, "-o", &out, "--", "true"]).fails(1, &said);
    }
    assert_eq!(scene.names(), ["folder"]);
}

#[test]
fn files_that_are_something_else_are_refused() {
    let scene = Scene::new();
    scene.raw("noise", 30, 1);
    fs::write(scene.path("empty"), "").expect("written");
    let folder = scene.folder("folder");
    for (name, why) in [("noise", "expected"), ("empty", "an empty file")] {
        run(["verify", &scene.arg(name)]).fails(1, &[name, why]);
        run(["inspect", &scene.arg(name)]).fails(1, &[name, why]);
        run(["mount", "-f", &scene.arg(name), &folder]).fails(1, &[name, why]);
        run(["optimize", &scene.arg("noise"), "-p", &scene.arg(name), "-o", &scene.arg("out")])
            .fails(1, &[name]);
    }
    run(["verify", &folder]).fails(1, &["folder", "a directory"]);
    run(["build", &scene.arg("empty"), "-o", &scene.arg("out")]).fails(1, &["empty"]);
    run(["build", "--raw", &scene.arg("noise"), "-o", "/dev/null"]).fails(1, &["/dev/null", "device"]);
    run(["build", "--raw", &scene.arg("noise"), "-o", &scene.arg("gone/out")]).fails(1, &["gone/out"]);
    run(["build", &folder, "-o", &scene.arg("out"), "--free", "17T"]).fails(1, &["17 TiB", "16 TiB"]);
    assert_eq!(scene.names(), ["empty", "folder", "noise"]);
}

#[test]
fn a_file_larger_than_the_medium_is_refused() {
    let scene = Scene::new();
    let folder = scene.folder("folder");
    let large = fs::File::create(scene.path("large")).expect("created");
    large.set_len(737_280_001).expect("a hole");
    run(["lab", "disk", &scene.arg("large"), &folder, "--medium", "cd-24x-cav"])
        .fails(1, &["large", "737280001 bytes do not fit on cd-24x-cav", "holds 737280000"]);
}

/// All at once, and before a kernel is looked for, which this root has not.
#[test]
fn missing_tools_of_a_medium_are_named_together() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let mut command = headstart(["iso", &scene.folder("root"), "-o", &scene.arg("x.iso")]);
    let ran = Ran::from(command.env("PATH", "").output().expect("the program starts"));
    ran.fails(1, &["xorriso, grub-mkimage", "mcopy, mmd", "apt install xorriso grub-common", "mtools"]);
    assert_eq!(scene.names(), ["root"]);
}

#[test]
fn a_medium_that_cannot_be_made_leaves_nothing() {
    if !has_tools(&["xorriso", "grub-mkimage", "mcopy", "mkfs.vfat", "mkfs.ext4", "mkfifo"]) {
        return;
    }
    let scene = Scene::new();
    scene.image("system.hsi", 30, 1);
    let (image, kernel, root) = (scene.arg("system.hsi"), scene.arg("kernel"), scene.folder("root"));
    // Nothing writes to it.
    tool("mkfifo", &[&kernel]).ok();
    let before = scene.names();
    let made = |system: &str, output: &str| {
        ["iso", system, "--kernel", &kernel, "--initrd", &image, "-o", output].map(str::to_owned)
    };
    run(made(&root, &format!("{root}/x.iso"))).fails(1, &["x.iso: this lies inside the system"]);
    let quoted = [&made(&image, &scene.arg("x.iso"))[..], &["--append".to_owned(), "it's".to_owned()]];
    run(quoted.concat()).fails(1, &["--append \"it's\"", "GRUB"]);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let iso = Running::start(made(&image, &scene.arg("x.iso")));
        wait_until("a draft", || scene.names().len() > before.len());
        iso.signal(signal);
        assert_eq!(iso.end().0.code(), Some(128 + signal.as_raw()));
        assert_eq!(scene.names(), before);
    }
    assert_eq!(fs::read_dir(root).expect("listed").count(), 0);
}
